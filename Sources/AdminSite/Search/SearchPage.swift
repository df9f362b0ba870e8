import Foundation
import HTTPAPI
import Hummingbird
import HummingbirdCore
import JSONText
import LedgerStorage
import Subscriptions

/// The search page: one indexed look-up of the complete value per kind of identifier; without a
/// hit, accounts by the beginning of their names, and the order that Apple's email names.
struct SearchController: Controller {
  let api: API

  private typealias Hit = (
    kind: String, title: String, href: String, detail: String, badges: [Badge]
  )

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let query = EncodedFields(query: request.uri)["q"]?.rawValue
      .trimmingCharacters(in: .whitespacesAndNewlines)
    guard let query, !query.isEmpty else {
      return try await page(context, query: nil, hits: [])
    }
    var hits = try await hits(of: query)
    if hits.isEmpty { hits = try await accounts(beginningWith: query) }
    var note: String?
    if hits.isEmpty { (hits, note) = await orderHits(query) }
    if let hit = hits.first, hits.count == 1 { return .redirect(to: hit.href, type: .normal) }
    return try await page(context, query: query, hits: hits, note: note)
  }

  private func page(_ context: APIContext, query: String?, hits: [Hit], note: String? = nil)
    async throws -> Response
  {
    var frame = try await pages.frame("Search", context)
    frame.searchText = query ?? ""
    return PageRenderer.response(
      (
        page: frame, query: query, hits: hits, note: note,
        isWithoutHits: query != nil && hits.isEmpty
      ), "search")
  }

  private static let mostAccounts = 50

  private func accounts(beginningWith text: String) async throws -> [Hit] {
    guard (try? TextField.accountID.checked(text)) != nil else { return [] }
    return try await ledger.accounts.accounts(beginningWith: text, limit: Self.mostAccounts)
      .map(hit)
  }

  private func hit(_ account: Account) -> Hit {
    (
      kind: "Account", title: account.id, href: AdminURL.account(account.id),
      detail:
        ([account.label, account.email].compactMap(\.self)
        + ["First seen \(Moment(account.createdAt).text)."]).joined(separator: " · "),
      badges: []
    )
  }

  /// Asks Apple if a text looks like an order ID: an M, then letters and digits.
  ///
  /// - Returns: The charges, or why there are none.
  private func orderHits(_ text: String) async -> (hits: [Hit], note: String?) {
    let id = text.uppercased()
    guard id.wholeMatch(of: /M[0-9A-Z]{6,24}/) != nil, id.contains(/[0-9]/) else {
      return ([], nil)
    }
    do {
      guard let transactions = try await api.transactions(ofAppleOrder: id) else {
        return ([], "Apple's order IDs need a key for the App Store Server API.")
      }
      var hits: [Hit] = []
      for id in Set(transactions.map(\.transactionID)).sorted() {
        hits += try await charges(of: id, besides: [])
      }
      let ids = Set(transactions.map(\.transactionID.rawValue)).sorted().joined(separator: ", ")
      return (
        hits,
        hits.isEmpty
          ? transactions.isEmpty
            ? "Apple has no order with this ID for the configured apps."
            : "Apple has this order (transaction \(ids)), but it was never submitted or reported."
          : nil
      )
    } catch {
      return ([], "Apple could not be asked about this order: \(error)")
    }
  }

  private func hits(of text: String) async throws -> [Hit] {
    // A value that no field accepts is in no table.
    guard (try? TextField.accountID.checked(text)) != nil else { return [] }
    var hits: [Hit] = []
    if let account = try await ledger.accounts.account(text) {
      hits.append(hit(account))
    }
    let originalID = OriginalTransactionID(text)
    let lines = try await ledger.ownership.environments(of: originalID).map {
      OriginalTransactionKey($0, originalID)
    }
    hits += lines.map { line in
      (
        kind: "Original transaction", title: text, href: line.href,
        detail: "Charges, owners and history.", badges: badges(line)
      )
    }
    hits += try await charges(of: TransactionID(text), besides: lines)
    hits += try await ledger.ownership.lines(of: WebOrderLineItemID(text)).map { line in
      (
        kind: "Web order line item", title: text, href: line.href,
        detail: "Original transaction \(line.originalTransactionID).", badges: badges(line)
      )
    }
    if let id = UUID(uuidString: text), let found = try await ledger.orders.order(id) {
      let stored = found.answered(at: pages.now())
      let order = stored.order
      hits.append(
        (
          kind: "Order", title: order.id.text,
          href: AdminURL.account(stored.accountID),
          detail: "\(order.productID), opened \(Moment(order.createdAt).text) by "
            + "\(stored.accountID).",
          badges: [Badge(order.status)]
        ))
    }
    return hits
  }

  /// The charges with a transaction id, except first charges, whose id is that of an original
  /// transaction already found.
  private func charges(of id: TransactionID, besides found: [OriginalTransactionKey]) async throws
    -> [Hit]
  {
    var hits: [Hit] = []
    for line in try await ledger.ownership.lines(of: id) where !found.contains(line) {
      guard let original = try await ledger.ownership.original(of: line) else { continue }
      let positions = original.line.history.transactions.map(\.key)
        .filter { $0.transactionID == id }.compactMap(original.rule.position(of:))
      for position in Set(positions).sorted() {
        let charge = original.rule.charges[position]
        let owner = original.line.decisions[charge.id]?.decision.owner.map {
          "owned by \(original.names[$0] ?? "erased")"
        }
        hits.append(
          (
            kind: "Transaction", title: id.rawValue, href: charge.id.href,
            detail: "\(charge.productID), charged \(Moment(charge.date).text), "
              + "\(owner ?? "unclaimed").",
            badges: badges(line)
          ))
      }
    }
    return hits
  }

  private func badges(_ line: OriginalTransactionKey) -> [Badge] {
    line.environment == .sandbox ? [Badge(text: "Sandbox", tone: Tone.quiet)] : []
  }
}
