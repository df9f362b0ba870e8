import Foundation
import Postgres
package import Subscriptions

/// The original transactions that a comparison of policies examines.
package enum WhatIfScope: Hashable, Sendable {
  case all
  /// Those that Apple reports for an app.
  case app(bundleID: String)
  /// Those with a product of a subscription group of the catalogue.
  case subscriptionGroup(String)
  /// Those on which an account ever owned or claimed a charge.
  case account(AccountKey)
  case originalTransaction(OriginalTransactionKey)
}

/// A charge with another owner, and the account IDs that it needs.
package struct NamedDifference: Sendable {
  package let difference: OwnershipDifference
  /// The reason for the present owner.
  package let explanation: String
  private let names: [AccountKey: String]

  /// - Parameter explanation: The reason for the present owner; nil: that of the decision.
  package init(
    _ difference: OwnershipDifference, names: [AccountKey: String], explanation: String? = nil
  ) {
    self.difference = difference
    self.names = names
    self.explanation =
      explanation
      ?? Explanation(difference.decision) { names[$0] ?? "erased" }.sentence
  }

  package func name(_ account: AccountKey) -> String { names[account] ?? "erased" }

  /// The reason for the policy's owners.
  package var policyExplanation: String { difference.verdict.sentence(name: name) }
}

extension LedgerAuditor {
  /// An original transaction under another policy.
  private struct Compared: Sendable {
    let members: [OriginalTransactionKey]
    let charges: Int
    let differences: [NamedDifference]
  }

  /// Compares the recorded owners with those of another policy, without writing.
  ///
  /// Reads pages like an audit, in read-only database transactions. Memory is that of a page, and 8
  /// bytes for each account and month with a difference.
  ///
  /// - Parameter report: Called for each difference, by original transaction and date.
  /// - Returns: The totals, and whether all of the scope was examined.
  package func compare(
    with policy: OwnershipPolicy, in scope: WhatIfScope, limit: Int? = nil, at now: Timestamp,
    progress: (AuditProgress) -> Void = { _ in }, report: (NamedDifference) throws -> Void
  ) async throws -> (comparison: OwnershipComparison, isComplete: Bool) {
    let catalogue = try await products.catalogue()
    var comparison = OwnershipComparison()
    var visited: Set<OriginalTransactionKey> = []
    func compare(_ page: [OriginalTransactionKey]) async throws {
      let parts = try await inParts(page) { part in
        try await compared(part, with: policy, in: catalogue, at: now)
      }
      for found in parts.joined() where visited.isDisjoint(with: found.members) {
        // Only linked original transactions are read twice.
        if found.members.count > 1 { visited.formUnion(found.members) }
        comparison.add(found.differences.map(\.difference), among: found.charges)
        for difference in found.differences { try report(difference) }
      }
    }
    switch scope {
    case .all, .app, .subscriptionGroup:
      let isComplete = try await forEachPage(
        where: scope.condition(in: catalogue), limit: limit, reporting: progress, compare)
      return (comparison, isComplete)
    case .account(let account):
      let lines = try await ownership.lines(of: account)
      try await compare(Array(lines.prefix(limit ?? .max)))
      return (comparison, lines.count <= limit ?? .max)
    case .originalTransaction(let line):
      try await compare([line])
      return (comparison, true)
    }
  }

  private func compared(
    _ lines: [OriginalTransactionKey], with policy: OwnershipPolicy, in catalogue: Catalogue,
    at now: Timestamp
  ) async throws -> [Compared] {
    try await withSnapshot { transaction in
      let originals = try await transaction.originals(lines, locking: false)
      let known = try await transaction.read(
        KnownAccount.query(
          Set(originals.flatMap { $0.accounts.union($0.line.history.tokenHolders.values) })))
      var compared: [Compared] = []
      for stored in originals {
        let context = try await recorder.context(
          of: stored, claimant: nil, evidence: [], knowing: known, in: transaction)
        var line = stored.line
        line.updateContext(context.apply)
        let differences = OwnershipDifference.differences(
          of: line, recorded: stored.rule, under: policy, in: catalogue, at: now)
        compared.append(
          Compared(
            members: Array(stored.members.keys), charges: stored.rule.charges.count,
            differences: differences.map { NamedDifference($0, names: context.names) }))
      }
      return compared
    }
  }
}

extension WhatIfScope {
  /// The condition on a row of `original_transaction`.
  fileprivate func condition(in catalogue: Catalogue) -> SQL {
    func isNamed(in table: String, _ condition: SQL) -> SQL {
      """
      EXISTS (SELECT FROM tenure.\(unescaped: table) AS o
        WHERE o.environment = original_transaction.environment
          AND o.original_transaction_id = original_transaction.original_transaction_id
          AND \(condition))
      """
    }
    switch self {
    case .app(let bundleID): return isNamed(in: "poll_target", "o.bundle_id = \(bundleID)")
    case .subscriptionGroup(let group):
      let products = catalogue.products.filter { $0.subscriptionGroup == group }.map(\.id)
      return isNamed(in: "store_transaction", "o.product_id = ANY(\(products))")
    case .all, .account, .originalTransaction: return "true"
    }
  }
}
