package import LedgerStorage
package import Subscriptions

package struct AccessExplanation: Sendable {
  /// The maximum number of original transactions that are examined.
  private static let mostLines = 20

  package let ledger: Ledger
  package let terms: AccessTerms

  package init(ledger: Ledger, terms: AccessTerms) {
    self.ledger = ledger
    self.terms = terms
  }

  /// The most informative reason for an inactive entitlement.
  package func sentence(
    for entitlement: String, of accountID: String, among entitlements: [Entitlement]
  ) async throws -> String {
    let products = terms.catalogue.products.filter {
      $0.entitlements.contains(ExactText(entitlement))
    }
    guard !products.isEmpty else { return "No product grants \(entitlement)." }
    guard let account = try await ledger.accounts.account(accountID) else {
      return "Unknown account: nothing was imported or submitted for it."
    }
    let had = entitlements.first { ExactText($0.name) == ExactText(entitlement) }
    var best: Reason?
    for line in try await ledger.ownership.lines(of: account.key).prefix(Self.mostLines) {
      guard let original = try await ledger.ownership.original(of: line) else { continue }
      let reason = reason(
        original, line, account: account, granting: Set(products.map(\.id)), had: had)
      if reason.rank < best?.rank ?? .max { best = reason }
    }
    return best?.sentence ?? had.map(Self.sentence)
      ?? "Nothing was imported or submitted for the account."
  }

  /// A reason why an original transaction grants nothing; lower ranks are more informative.
  private typealias Reason = (rank: Int, sentence: String)

  private func reason(
    _ original: RecordedOriginalTransaction, _ line: OriginalTransactionKey, account: Account,
    granting products: Set<ProductID>, had: Entitlement?
  ) -> Reason {
    guard !original.rule.charges.isEmpty else {
      return (0, "\(line) was imported, but Apple has not confirmed it yet.")
    }
    guard let latest = original.rule.charges.last(where: { products.contains($0.productID) }) else {
      let ids = Set(original.rule.charges.map(\.productID)).sorted()
      if let unknown = ids.first(where: { terms.catalogue[$0] == nil }) {
        return (6, "Product \(unknown) is not in the catalogue.")
      }
      let names = ids.map(\.rawValue).joined(separator: ", ")
      return (7, "No product of \(line) grants it: \(names).")
    }
    let transaction = "Transaction \(latest.id.transactionID) of \(line)"
    guard let decision = original.line.decisions[latest.id]?.decision else {
      return (7, "\(transaction) has no ownership decision.")
    }
    guard let owner = decision.owner else {
      return (1, "\(transaction) has no owner: \(original.explanation(of: decision))")
    }
    guard owner == account.key else {
      let name = original.names[owner] ?? "an erased account"
      return (2, "\(transaction) belongs to “\(name)”: \(original.explanation(of: decision))")
    }
    if let revocation = latest.revocation {
      return (3, "\(transaction) was refunded on \(revocation.at).")
    }
    if !terms.sandboxAccess.grants(latest.id.line.environment, to: account.id) {
      return (4, "\(transaction) is from the sandbox, which grants this account nothing.")
    }
    if let had, had.transactionID == latest.id.transactionID {
      return (5, Self.sentence(for: had))
    }
    return (5, latest.end.map { "\(transaction) expired on \($0)." } ?? "It is not active.")
  }

  private static func sentence(for entitlement: Entitlement) -> String {
    let transaction = entitlement.transactionID.map { "Transaction \($0)" } ?? "The grant"
    let end = entitlement.accessEndsAt.map { " on \($0)" } ?? ""
    return switch entitlement.state {
    case .revoked: "\(transaction) was refunded or revoked\(end)."
    case .inBillingRetry: "\(transaction) expired\(end), and Apple is retrying the charge."
    case .expired, .active, .inGracePeriod: "\(transaction) expired\(end)."
    }
  }
}
