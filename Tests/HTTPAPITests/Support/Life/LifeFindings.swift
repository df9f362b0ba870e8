import AppStore
import AppStoreSimulator
import HTTPTypes
import JSONText
import LedgerStorage
import Subscriptions
import Testing

@testable import HTTPAPI

/// A ledger's conclusions about a life: facts with the same names in all ledgers.
struct LifeFindings: Sendable {
  enum Aspect: String, CaseIterable, Sendable {
    /// The account that owns a charge.
    case owner
    /// The row of the rule that decided the owner.
    case rule
    /// Renewal, purchase or unknown.
    case kind
    /// A charge's type and period, and when it was revoked or upgraded.
    case terms
    /// The accounts to which a line was bound, and since when.
    case bindings
    /// An account's entitlements at a moment, as known at the end.
    case held
    /// An account's entitlements at a moment, as known then.
    case seen
    /// A line's state at the end.
    case state
  }

  struct Fact: Hashable, Comparable, Sendable, CustomStringConvertible {
    let aspect: Aspect
    let subject: String

    init(_ aspect: Aspect, _ subject: String) {
      self.aspect = aspect
      self.subject = subject
    }

    var description: String { "\(aspect.rawValue) of \(subject)" }

    static func < (lhs: Fact, rhs: Fact) -> Bool { lhs.description < rhs.description }
  }

  private(set) var facts: [Fact: String]
  /// The findings of an audit of the ledger.
  let audit: [String]

  /// Reads them from a ledger.
  init(of life: Life, in api: TestAPI, seen: [Fact: String]) async throws {
    facts = seen
    var originals: [OriginalTransactionKey: RecordedOriginalTransaction] = [:]
    for line in Set(life.truth.map(\.line)) {
      originals[line] = try await api.ledger.ownership.original(of: line)
    }
    for charge in life.truth {
      let name = Life.name(of: charge)
      let keys = charge.transactionIDs.map {
        TransactionKey(line: charge.line, transactionID: $0, productID: charge.productID)
      }
      guard let original = originals[charge.line],
        let (found, recorded) = keys.compactMap({ original.charge(of: $0) }).first
      else { continue }
      let owner = recorded.decision.owner.flatMap { original.names[$0] } ?? "unowned"
      facts[Fact(.owner, name)] = owner
      facts[Fact(.rule, name)] = recorded.decision.rule.rawValue
      facts[Fact(.kind, name)] = found.kind.rawValue
      facts[Fact(.terms, name)] = Self.words(for: found, in: original)
    }
    for (line, original) in originals {
      let first = life.truth.first { $0.line == line }
      let name = first.map { Life.name(of: $0) } ?? ""
      let bindings = Binding.bindings(
        of: original.rule.charges, decisions: original.rule.decisions)
      facts[Fact(.bindings, name)] = bindings.map { binding in
        let account = binding.account.flatMap { original.names[$0] } ?? "unowned"
        return "\(account) since \(binding.boundAt.description.prefix(16))"
      }.joined(separator: ", ")
      let report = try await api.get("/v1/original-transactions/\(line.originalTransactionID)")
      facts[Fact(.state, name)] = [
        "state", "auto_renewing", "auto_renew_product_id", "expires_at",
      ].map { "\($0) \(report[$0]?.string ?? report[$0]?.bool.map { "\($0)" } ?? "none")" }
        .joined(separator: ", ")
    }
    // The middle of every other month.
    for month in stride(from: 0, to: 24, by: 2) {
      let day = CalendarDate(year: 2026 + month / 12, month: 1 + month % 12, day: 17)
      let moment = Timestamp(day)
      for account in Life.accounts {
        let answer = try await api.get("/v1/accounts/\(account)/entitlements?at=\(moment)")
        facts[Fact(.held, "\(account) \(moment.description.prefix(10))")] =
          Self.words(for: answer["entitlements"])
      }
    }
    audit = try await api.ledger.auditor.audit().differences.map(\.description)
  }

  private static func words(for charge: Charge, in original: RecordedOriginalTransaction) -> String
  {
    let transaction = original.line.history[charge.id]
    var words = ["from \(charge.date)"]
    if let end = charge.end { words.append("to \(end)") }
    words.append(transaction?.periodType.rawValue ?? "")
    words.append(transaction?.ownershipType.rawValue ?? "")
    if let revocation = charge.revocation { words.append("revoked \(revocation.at)") }
    if let supersededAt = charge.supersededAt { words.append("replaced \(supersededAt)") }
    return words.joined(separator: " ")
  }

  /// Entitlements as the interface shows them, but for the names of transactions: a restored one
  /// has several.
  static func words(for entitlements: JSONValue?) -> String {
    (entitlements?.array ?? []).map { entitlement in
      var words = [
        entitlement["entitlement"]?.string ?? "", entitlement["state"]?.string ?? "",
        entitlement["product_id"]?.string ?? "",
      ]
      if let end = entitlement["access_ends_at"]?.string { words.append("until \(end)") }
      if entitlement["will_renew"]?.bool == true { words.append("renewing") }
      if let period = entitlement["period_type"]?.string, period != "normal" {
        words.append(period)
      }
      return words.joined(separator: " ")
    }.joined(separator: "; ")
  }

  /// The facts that two ledgers record differently, or of which one knows nothing.
  func differences(from other: LifeFindings) -> [Difference] {
    Set(facts.keys).union(other.facts.keys).sorted().compactMap { fact in
      let (here, there) = (facts[fact] ?? Self.nothing, other.facts[fact] ?? Self.nothing)
      return here == there ? nil : Difference(fact: fact, says: here, insteadOf: there)
    }
  }

  /// A fact that a ledger does not know.
  static let nothing = "-"

  /// A fact that two ledgers record differently.
  struct Difference: Sendable, CustomStringConvertible {
    let fact: Fact
    let says: String
    let insteadOf: String

    var description: String { "the \(fact): \"\(says)\" instead of \"\(insteadOf)\"" }
  }
}
