import Hummingbird
import HummingbirdCore
import JSONText
package import LedgerStorage
package import Subscriptions

/// The comparison of the recorded owners with those of another policy.
struct WhatIfController: Controller {
  let api: API

  func compare(_ request: Request, context: APIContext) async throws -> Response {
    let answer = try await api.answer(to: WhatIfQuestion(try await request.json()))
    return Response(capacity: 8192) { json in
      json.members(of: answer.comparison, under: answer.policy)
      json.objects("differences", answer.differences) { $0.members(of: $1) }
      json.member("differences_cut_short", answer.isListCutShort)
      json.member("cut_short", answer.isCutShort)
    }
  }
}

package struct WhatIfQuestion: Sendable {
  /// Original transactions of one answer: about a second of work.
  package static let mostOriginalTransactions = 1000
  /// Differences in one answer.
  package static let mostDifferences = 1000

  package let policy: OwnershipPolicy
  /// The field that names the scope, with its value; nil: everything.
  private let scope: (field: TextField, text: String)?
  private let environment: Subscriptions.Environment?

  /// Reads the fields `policy`, at most one of `bundle_id`, `subscription_group`, `account_id` and
  /// `original_transaction_id`, `environment`, and the constants.
  package init(_ fields: some RequestFields) throws {
    let range = RuleConstants.range
    let constants = RuleConstants(
      billingRetryDays: try fields.integer("billing_retry_days", in: range),
      earlyChargeHours: try fields.integer("early_charge_hours", in: range),
      periodEndSeconds: try fields.integer("period_end_seconds", in: range))
    let name = try fields.required(.policy)
    guard let policy = OwnershipPolicy(named: name, constants: constants) else {
      let names = OwnershipPolicy.all.map(\.name).joined(separator: ", ")
      let isKnown = OwnershipPolicy(named: name) != nil
      throw Problem.invalid(
        TextField.policy.name,
        isKnown
          ? "must be present-rule, the only policy with constants" : "must be one of \(names)")
    }
    self.policy = policy
    environment = try fields.environment()
    let scopes = try [
      TextField.bundleID, .subscriptionGroup, .accountID, .originalTransactionID,
    ].compactMap { field in try fields.text(field).map { (field, $0) } }
    if scopes.count > 1 {
      throw Problem.invalid(scopes[1].0.name, "can't be combined with `\(scopes[0].0.name)`")
    }
    scope = scopes.first
  }

  package func scope(in ledger: Ledger) async throws -> WhatIfScope {
    guard let (field, text) = scope else { return .all }
    switch field.name {
    case TextField.bundleID.name: return .app(bundleID: text)
    case TextField.subscriptionGroup.name: return .subscriptionGroup(text)
    case TextField.accountID.name: return .account(try await ledger.account(text).key)
    default:
      let id = OriginalTransactionID(text)
      guard let line = try await ledger.line(id, environment: environment) else {
        throw Problem(.unknownOriginalTransaction, "Original transaction \(id) is not recorded.")
      }
      return .originalTransaction(line)
    }
  }
}

package struct WhatIfAnswer: Sendable {
  package let policy: OwnershipPolicy
  package let comparison: OwnershipComparison
  /// The first ``WhatIfQuestion/mostDifferences``.
  package let differences: [NamedDifference]
  /// Whether the scope has more original transactions than were examined.
  package let isCutShort: Bool

  package var isListCutShort: Bool { differences.count < comparison.total.charges }
}

extension API {
  /// Compares within the limits of a request; the command `tenure what-if` has none.
  package func answer(to question: WhatIfQuestion) async throws -> WhatIfAnswer {
    var differences: [NamedDifference] = []
    let (comparison, isComplete) = try await ledger.auditor.compare(
      with: question.policy, in: try await question.scope(in: ledger),
      limit: WhatIfQuestion.mostOriginalTransactions, at: now()
    ) { difference in
      if differences.count < WhatIfQuestion.mostDifferences { differences.append(difference) }
    }
    return WhatIfAnswer(
      policy: question.policy, comparison: comparison, differences: differences,
      isCutShort: !isComplete)
  }
}

extension TextField {
  package static let policy = TextField(name: "policy", maximumLength: 64)
}
