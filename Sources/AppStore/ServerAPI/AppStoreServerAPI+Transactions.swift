package import Subscriptions

extension AppStoreServerAPI {
  package func transactionInfo(
    _ id: TransactionID, of bundleID: String, in environment: Environment? = nil
  ) async throws -> ServerAPIAnswer<SignedPart<SignedTransaction>> {
    let call = try ServerAPICall(
      .transactionInfo, bundleID, "GET", "/inApps/v1/transactions", id.rawValue)
    let answer = try await text(\.signedTransactionInfo, from: call, in: environment)
    return await answer.map { await transaction($0, call, answer.environment) }
  }

  /// All pages of a customer's transactions in an app, in the order of their changes; with the last
  /// revision of an earlier run of the same query, only changes since then.
  package func transactionHistoryPages(
    of id: String, in bundleID: String, environment: Environment? = nil,
    query: TransactionHistoryQuery = TransactionHistoryQuery(), after revision: String? = nil
  ) -> ServerAPIPages<TransactionPage> {
    pages(
      .transactionHistory, "/inApps/v2/history", id, bundleID, environment, query.items,
      after: revision)
  }

  /// All pages of a customer's refunded transactions, in the order of the refunds; with the last
  /// revision of an earlier run, only later ones.
  package func refundHistoryPages(
    of id: String, in bundleID: String, environment: Environment? = nil,
    after revision: String? = nil
  ) -> ServerAPIPages<TransactionPage> {
    pages(
      .refundHistory, "/inApps/v2/refund/lookup", id, bundleID, environment, [], after: revision)
  }

  private func pages(
    _ endpoint: ServerAPIEndpoint, _ path: String, _ id: String, _ bundleID: String,
    _ environment: Environment?, _ query: [(name: String, value: String)], after revision: String?
  ) -> ServerAPIPages<TransactionPage> {
    ServerAPIPages(endpoint: endpoint, token: revision, environment: environment) {
      let call = try ServerAPICall(
        endpoint, bundleID, "GET", path, id, query: query + ($0.map { [("revision", $0)] } ?? []))
      let answer = try await answer(to: call, in: $1, as: HistoryResponse.self)
      return await answer.map { content in
        TransactionPage(
          transactions: await transactions(content.signedTransactions, call, answer.environment),
          revision: content.revision, hasMore: content.hasMore ?? false)
      }
    }
  }

  /// The statuses of a customer's subscriptions in an app, optionally filtered by status.
  package func subscriptionStatuses(
    of id: String, in bundleID: String, environment: Environment? = nil,
    only statuses: [SubscriptionStatus] = []
  ) async throws -> ServerAPIAnswer<SubscriptionStatuses> {
    let call = try ServerAPICall(
      .subscriptionStatuses, bundleID, "GET", "/inApps/v1/subscriptions", id,
      query: statuses.map { ("status", "\($0.rawValue)") })
    let answer = try await answer(to: call, in: environment, as: StatusResponse.self)
    return await answer.map { content in
      var groups: [SubscriptionStatuses.Group] = []
      for group in content.data ?? [] {
        var lines: [SubscriptionStatuses.Entry] = []
        for item in group.lastTransactions ?? [] {
          lines.append(await line(item, call, answer.environment))
        }
        groups.append(
          SubscriptionStatuses.Group(identifier: group.subscriptionGroupIdentifier, lines: lines))
      }
      return SubscriptionStatuses(groups: groups)
    }
  }

  package func appTransactionInfo(
    of id: String, in bundleID: String, environment: Environment? = nil
  ) async throws -> ServerAPIAnswer<SignedPart<JWSAppTransactionDecodedPayload>> {
    let call = try ServerAPICall(
      .appTransactionInfo, bundleID, "GET", "/inApps/v1/transactions/appTransactions", id)
    let answer = try await text(\.signedAppTransactionInfo, from: call, in: environment)
    return await answer.map { await appTransaction($0, call, answer.environment) }
  }

  /// The transactions of an order, by the order ID in Apple's email receipt; production only.
  package func orderLookup(
    _ orderID: String, in bundleID: String, environment: Environment = .production
  ) async throws -> ServerAPIAnswer<OrderLookup> {
    let call = try ServerAPICall(.orderLookup, bundleID, "GET", "/inApps/v1/lookup", orderID)
    let answer = try await answer(to: call, in: environment, as: OrderLookupResponse.self)
    return await answer.map { content in
      OrderLookup(
        status: content.status,
        transactions: await transactions(content.signedTransactions, call, answer.environment))
    }
  }
}

/// Filters for a customer's transaction history, to which revisions are bound
/// (https://developer.apple.com/documentation/appstoreserverapi/get-transaction-history).
package struct TransactionHistoryQuery: Hashable, Sendable {
  /// Apple's `sort`, by date of the last change.
  package enum Order: String, CaseIterable, Sendable {
    case ascending = "ASCENDING"
    /// Revisions of this order lead into the past, so they do not find changes.
    case descending = "DESCENDING"
  }

  package enum ProductType: String, CaseIterable, Sendable {
    case autoRenewable = "AUTO_RENEWABLE"
    case nonRenewable = "NON_RENEWABLE"
    case consumable = "CONSUMABLE"
    case nonConsumable = "NON_CONSUMABLE"
  }

  /// Purchased at this time or later.
  package var startDate: Timestamp?
  /// Purchased before this time.
  package var endDate: Timestamp?
  package var productIDs: [ProductID] = []  // Empty: all products
  package var productTypes: [ProductType] = []  // Empty: all types
  package var order = Order.ascending
  package var subscriptionGroupIdentifiers: [String] = []  // Empty: all groups
  package var inAppOwnershipType: InAppOwnershipType?
  /// True: only revoked transactions; false: only others.
  package var revoked: Bool?

  package init() {}

  var items: [(name: String, value: String)] {
    var items: [(name: String, value: String)] = []
    if let startDate { items.append(("startDate", "\(startDate.milliseconds)")) }
    if let endDate { items.append(("endDate", "\(endDate.milliseconds)")) }
    items += productIDs.map { ("productId", $0.rawValue) }
    items += productTypes.map { ("productType", $0.rawValue) }
    items.append(("sort", order.rawValue))
    items += subscriptionGroupIdentifiers.map { ("subscriptionGroupIdentifier", $0) }
    if let inAppOwnershipType { items.append(("inAppOwnershipType", inAppOwnershipType.rawValue)) }
    if let revoked { items.append(("revoked", "\(revoked)")) }
    return items
  }
}

/// A page of a list; Apple returns twenty items per page.
package protocol ServerAPIPage: Hashable, Sendable {
  var next: String? { get }
  var hasMore: Bool { get }
}

/// A list of pages, each requested when the previous one has been processed, from the environment
/// that returned the first one.
///
/// An error ends the list; reading can resume from the last page's ``ServerAPIPage/next``.
package struct ServerAPIPages<Page: ServerAPIPage>: AsyncSequence, AsyncIteratorProtocol, Sendable {
  let endpoint: ServerAPIEndpoint
  var token: String?
  var environment: Environment?
  /// Bounds a list that never ends; twenty times more than one Apple account can sensibly have.
  var pageLimit = 10_000
  var count = 0
  var isAtEnd = false
  /// An error in the list, thrown after the page that shows it.
  var fault: AppStoreServerAPIError?
  let ask: @Sendable (String?, Environment?) async throws -> ServerAPIAnswer<Page>

  package func makeAsyncIterator() -> ServerAPIPages { self }

  package mutating func next() async throws -> ServerAPIAnswer<Page>? {
    guard !isAtEnd else { return nil }
    isAtEnd = true
    if let fault { throw fault }
    let answer = try await ask(token, environment)
    count += 1
    isAtEnd = !answer.content.hasMore
    // A list that does not advance, or never ends, is a server error.
    if answer.content.next == nil || answer.content.next == token || count == pageLimit {
      fault = AppStoreServerAPIError(
        .unexpectedAnswer, endpoint, answer.environment,
        message: "it has more pages but no new token for the next one", isRetryable: false)
    }
    token = answer.content.next
    environment = answer.environment
    return answer
  }
}
