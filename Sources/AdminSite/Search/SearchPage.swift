import Foundation
import HTTPAPI
import Hummingbird
import HummingbirdCore
import JSONText
import LedgerStorage
import NIOCore
import Subscriptions

/// The search page: one indexed look-up of the complete value per kind of identifier; without a
/// hit, accounts by a part of their names, and the order that Apple's email names.
struct SearchController: Controller {
  let api: API

  private typealias Hit = (
    kind: String, title: String, href: String, detail: String, tags: [Tag]
  )
  /// What was found, before its state is looked up.
  private typealias Found = (
    accounts: [Account], others: [(href: String, hit: @Sendable () async throws -> Hit?)]
  )

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let query = EncodedFields(query: request.uri)["q"]?.rawValue
      .trimmingCharacters(in: .whitespacesAndNewlines)
    guard let query, !query.isEmpty else {
      return try await page(context, query: nil, hits: [])
    }
    var found = try await things(named: query)
    if found.accounts.isEmpty, found.others.isEmpty {
      found.accounts = try await accounts(named: query)
    }
    let hrefs = found.accounts.map { AdminURL.account($0.id) } + found.others.map(\.href)
    if hrefs.count == 1 { return .redirect(to: hrefs[0], type: .normal) }
    var hits = try await hits(found.accounts)
    for other in found.others { hits += [try await other.hit()].compactMap(\.self) }
    var note: String?
    if hits.isEmpty { (hits, note) = await orderHits(query) }
    if hits.count == 1 { return .redirect(to: hits[0].href, type: .normal) }
    return try await page(context, query: query, hits: hits, note: note)
  }

  private func page(_ context: APIContext, query: String?, hits: [Hit], note: String? = nil)
    async throws -> Response
  {
    var frame = try await pages.frame("Search", context)
    frame.searchText = query ?? ""
    return PageRenderer.response(
      (
        page: frame, query: query, hits: Array(hits.prefix(Self.mostAccounts)), note: note,
        found: hits.isEmpty
          ? nil
          : hits.count > Self.mostAccounts
            ? "First \(Self.mostAccounts) results for “\(query ?? "")”; refine the search."
            : "\(Count.text(hits.count, "result")) for “\(query ?? "")”.",
        isWithoutHits: query != nil && hits.isEmpty
      ), "search")
  }

  /// The IDs and names of the first accounts for what is being entered, as JSON.
  @Sendable
  func suggest(_ request: Request, context: APIContext) async throws -> Response {
    let text = EncodedFields(query: request.uri)["q"]?.rawValue ?? ""
    let accounts = text.isEmpty ? [] : try await accounts(named: text)
    let pairs = accounts.prefix(Self.mostSuggested).map { account in
      JSONValue.array([.string(account.id), .string(account.names.joined(separator: ", "))])
    }
    return Response(
      status: .ok, headers: [.contentType: "application/json"],
      body: ResponseBody(byteBuffer: ByteBuffer(bytes: JSONValue.array(pairs).bytes)))
  }

  private static let mostSuggested = 10
  private static let mostAccounts = 50

  private func accounts(named text: String) async throws -> [Account] {
    guard (try? TextField.accountID.checked(text)) != nil else { return [] }
    return try await ledger.accounts.accounts(named: text, limit: Self.mostAccounts + 1)
  }

  private func hits(_ accounts: [Account]) async throws -> [Hit] {
    guard !accounts.isEmpty else { return [] }
    let held = try await entitlements.entitlements(of: accounts.map(\.id), now: now())
    let customers = zip(accounts, held).map {
      CustomerListController.Customer(account: $0, entitlements: $1)
    }
    let ended = try await ledger.entitlementCharges(of: customers)
    return customers.map { customer in
      let account = customer.account
      let details = [
        customer.name, customer.productNames([]), customer.access,
        "first seen \(account.createdAt.dayName)",
      ]
      return (
        kind: "Account", title: account.id, href: AdminURL.account(account.id),
        detail: details.compactMap(\.self).filter { !$0.isEmpty }.joined(separator: " · "),
        tags: customer.shownTags(ended)
      )
    }
  }

  /// An original transaction with its state, found by its own ID or another one.
  private func hit(_ line: OriginalTransactionKey, as kind: String, _ title: String) async throws
    -> Hit?
  {
    guard let original = try await ledger.ownership.original(of: line),
      let latest = original.rule.charges.latestCharge
    else { return nil }
    let current = original.current(in: catalogue, at: now())
    let product = current?.productID ?? latest.productID
    let name = latest.isSubscription ? "latest charge" : "charged"
    let details = [
      kind == Self.originalTransaction
        ? nil : "original transaction \(line.originalTransactionID)",
      Count.text(original.rule.charges.count, "charge"), "\(name) \(latest.date.dayName)",
      original.owner(of: latest),
    ]
    return (
      kind: kind, title: title, href: line.href,
      detail: details.compactMap(\.self).joined(separator: " · "),
      tags: [(product.rawValue, current.map { Badge($0) } ?? state(of: latest, in: original))]
        + sandboxTag(line)
    )
  }

  private static let originalTransaction = "Original transaction"

  private func state(of charge: Charge, in original: RecordedOriginalTransaction) -> Badge {
    let report = ChargeReport(of: charge.id, in: original, catalogue: catalogue)
    return Badge(charge, end: report?.end(in: catalogue), at: now())
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
      return ([], "Apple could not be asked about this order. Try again later.")
    }
  }

  private func things(named text: String) async throws -> Found {
    var found: Found = ([], [])
    // A value that no field accepts is in no table.
    guard (try? TextField.accountID.checked(text)) != nil else { return found }
    found.accounts += [try await ledger.accounts.account(text)].compactMap(\.self)
    let originalID = OriginalTransactionID(text)
    let lines = try await ledger.ownership.environments(of: originalID).map {
      OriginalTransactionKey($0, originalID)
    }
    found.others += lines.map { line in
      (line.href, { try await hit(line, as: Self.originalTransaction, text) })
    }
    found.others += try await charges(of: TransactionID(text), besides: lines)
      .map { charge in (charge.href, { charge }) }
    found.others += try await ledger.ownership.lines(of: WebOrderLineItemID(text)).map { line in
      (line.href, { try await hit(line, as: "Web order line item", text) })
    }
    if let notification = try await ledger.accounts.notificationSummaries([text])[ExactText(text)],
      let environment = notification.environment, let id = notification.originalTransactionID,
      try await ledger.ownership.environments(of: id).contains(environment)
    {
      let line = OriginalTransactionKey(environment, id)
      found.others.append((line.href, { try await hit(line, as: "Notification", text) }))
    }
    guard let id = UUID(uuidString: text) else { return found }
    if found.accounts.isEmpty {
      found.accounts += [try await ledger.accounts.account(issued: id)].compactMap(\.self)
    }
    if let account = try await ledger.accounts.submitters(of: [id])[id] {
      let href = AdminURL.account(account) + "#\(id.text)"
      let hit: Hit = (
        kind: "Submission", title: id.text, href: href, detail: account, tags: []
      )
      found.others.append((href, { hit }))
    }
    if let answer = try await ledger.orders.order(id) {
      let stored = answer.answered(at: pages.now())
      let order = stored.order
      let hit: Hit = (
        kind: "Order", title: order.id.text, href: AdminURL.account(stored.accountID),
        detail: "opened \(order.createdAt.dayName) · \(stored.accountID)",
        tags: [(order.productID.rawValue, Badge(order.status))]
      )
      found.others.append((hit.href, { hit }))
    }
    return found
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
        hits.append(
          (
            kind: "Transaction", title: id.rawValue, href: charge.id.href,
            detail: "charged \(charge.date.dayName) · \(original.owner(of: charge))",
            tags: [(charge.productID.rawValue, state(of: charge, in: original))]
              + sandboxTag(line)
          ))
      }
    }
    return hits
  }

  private func sandboxTag(_ line: OriginalTransactionKey) -> [Tag] {
    line.environment == .sandbox ? [("", .sandbox)] : []
  }
}

extension RecordedOriginalTransaction {
  /// For example `owned by anna`.
  fileprivate func owner(of charge: Charge) -> String {
    line.decisions[charge.id]?.decision.owner.map { "owned by \(names[$0] ?? "erased")" }
      ?? "unclaimed"
  }
}
