import Foundation
import HTTPAPI
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Subscriptions

/// The search page, with one indexed look-up of the complete value per kind of identifier.
struct SearchController: Sendable {
  let pages: PageRenderer
  let ledger: Ledger

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let query = FormFields(query: request.uri)["q"]?.rawValue
      .trimmingCharacters(in: .whitespacesAndNewlines)
    guard let query, !query.isEmpty else {
      return pages.response(
        SearchPage(
          page: try await pages.frame("Search", context), hits: [], isWithoutHits: false),
        .search)
    }
    let hits = try await hits(of: query)
    if let hit = hits.first, hits.count == 1 { return .redirect(to: hit.href, type: .normal) }
    var frame = try await pages.frame("Search", context)
    frame.searchText = query
    return pages.response(
      SearchPage(page: frame, query: query, hits: hits, isWithoutHits: hits.isEmpty), .search)
  }

  private func hits(of text: String) async throws -> [SearchHit] {
    // A value that no field accepts is in no table.
    guard (try? TextField.accountID.checked(text)) != nil else { return [] }
    var hits: [SearchHit] = []
    if let account = try await ledger.accounts.account(text) { hits.append(SearchHit(account)) }
    let originalID = OriginalTransactionID(text)
    let lines = try await ledger.ownership.environments(of: originalID).map {
      OriginalTransactionKey($0, originalID)
    }
    hits += lines.map(SearchHit.init)
    hits += try await charges(of: TransactionID(text), besides: lines)
    hits += try await ledger.ownership.lines(of: WebOrderLineItemID(text)).map {
      SearchHit(lineItem: text, on: $0)
    }
    if let id = UUID(uuidString: text), let order = try await ledger.orders.order(id) {
      hits.append(SearchHit(order.answered(at: pages.now())))
    }
    return hits
  }

  /// The charges with a transaction id, except first charges, whose id is that of an original
  /// transaction already found.
  private func charges(of id: TransactionID, besides found: [OriginalTransactionKey]) async throws
    -> [SearchHit]
  {
    var hits: [SearchHit] = []
    for line in try await ledger.ownership.lines(of: id) where !found.contains(line) {
      guard let family = try await ledger.ownership.family(of: line) else { continue }
      let positions = family.line.history.transactions.map(\.key)
        .filter { $0.transactionID == id }.compactMap(family.rule.position(of:))
      for position in Set(positions).sorted() {
        let charge = family.rule.charges[position]
        let owner = family.line.decisions[charge.id]?.decision.owner
        hits.append(
          SearchHit(
            charge, named: id, ownedBy: owner.map { family.names[$0] ?? "erased" }))
      }
    }
    return hits
  }
}

extension SearchHit {
  fileprivate init(_ account: Account) {
    self.init(
      kind: "Account", title: account.id, href: AdminURL.account(account.id),
      detail: "First seen \(Moment(account.createdAt).text).", badges: [])
  }

  fileprivate init(_ line: OriginalTransactionKey) {
    self.init(
      kind: "Original transaction", title: line.originalTransactionID.rawValue, href: line.href,
      detail: "Charges, owners and history.", badges: Self.badges(line.environment))
  }

  fileprivate init(lineItem: String, on line: OriginalTransactionKey) {
    self.init(
      kind: "Web order line item", title: lineItem, href: line.href,
      detail: "Original transaction \(line.originalTransactionID).",
      badges: Self.badges(line.environment))
  }

  fileprivate init(_ charge: Charge, named id: TransactionID, ownedBy owner: String?) {
    let whose = owner.map { "owned by \($0)" } ?? "unclaimed"
    self.init(
      kind: "Transaction", title: id.rawValue, href: charge.id.href,
      detail: "\(charge.productID), charged \(Moment(charge.date).text), \(whose).",
      badges: Self.badges(charge.id.line.environment))
  }

  fileprivate init(_ order: StoredOrder) {
    self.init(
      kind: "Order", title: order.order.id.uuidString.lowercased(),
      href: AdminURL.account(order.accountID),
      detail: "\(order.order.productID), opened \(Moment(order.order.createdAt).text) by "
        + "\(order.accountID).",
      badges: [Badge(order.order.status)])
  }

  private static func badges(_ environment: Subscriptions.Environment) -> [Badge] {
    environment == .sandbox ? [Badge(text: "Sandbox", tone: Tone.quiet)] : []
  }
}

/// The context of the template `search`.
struct SearchPage: Sendable {
  var page: PageFrame
  var query: String?
  var hits: [SearchHit]
  /// Set if a search found nothing.
  var isWithoutHits: Bool
}

struct SearchHit: Sendable {
  /// For example `Account` or `Web order line item`.
  var kind: String
  var title: String
  var href: String
  var detail: String
  var badges: [Badge]
}
