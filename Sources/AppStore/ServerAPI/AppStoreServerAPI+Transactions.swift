package import Subscriptions

extension AppStoreServerAPI {
  /// One transaction, as Apple has it now.
  package func transactionInfo(
    _ id: TransactionID, of bundleID: String, in environment: Environment? = nil
  ) async throws -> ServerAPIAnswer<SignedPart<SignedTransaction>> {
    let call = try get(
      .transactionInfo, bundleID, "/inApps/v1/transactions", id.rawValue)
    let answer = try await answer(to: call, in: environment, as: TransactionInfoResponse.self)
    guard let jws = answer.content.signedTransactionInfo else {
      throw unexpected(
        call, answer.environment, nil, "it has no signedTransactionInfo", isRetryable: false)
    }
    return await answer.map { _ in await transaction(jws, call, answer.environment) }
  }

  /// One page of everything that a customer has bought in an app, in the order of the changes.
  ///
  /// `revision` is that of the page before, or of the last page of an earlier time; the query is
  /// the same for all pages.
  package func transactionHistory(
    of id: String, in bundleID: String, environment: Environment? = nil,
    query: TransactionHistoryQuery = TransactionHistoryQuery(), revision: String? = nil
  ) async throws -> ServerAPIAnswer<TransactionPage> {
    var call = try get(.transactionHistory, bundleID, "/inApps/v2/history", id)
    call.query = query.items + (revision.map { [("revision", $0)] } ?? [])
    let answer = try await answer(to: call, in: environment, as: HistoryResponse.self)
    let content = answer.content
    try check(
      call, answer.environment, bundleID: content.bundleID, environment: content.environment)
    return await answer.map { content in
      TransactionPage(
        transactions: await transactions(content.signedTransactions, call, answer.environment),
        revision: content.revision, hasMore: content.hasMore ?? false)
    }
  }

  /// Everything that a customer has bought in an app, page by page.
  ///
  /// After the revision of an earlier time's last page: the news alone.
  package func transactionHistoryPages(
    of id: String, in bundleID: String, environment: Environment? = nil,
    query: TransactionHistoryQuery = TransactionHistoryQuery(), after revision: String? = nil
  ) -> ServerAPIPages<TransactionPage> {
    ServerAPIPages(endpoint: .transactionHistory, token: revision, environment: environment) {
      try await transactionHistory(
        of: id, in: bundleID, environment: $1, query: query, revision: $0)
    }
  }

  /// One page of a customer's refunded transactions, in the order of the refunds.
  ///
  /// `revision` is that of the page before, or of the last page of an earlier time.
  package func refundHistory(
    of id: String, in bundleID: String, environment: Environment? = nil, revision: String? = nil
  ) async throws -> ServerAPIAnswer<TransactionPage> {
    var call = try get(.refundHistory, bundleID, "/inApps/v2/refund/lookup", id)
    call.query = revision.map { [("revision", $0)] } ?? []
    let answer = try await answer(to: call, in: environment, as: RefundHistoryResponse.self)
    return await answer.map { content in
      TransactionPage(
        transactions: await transactions(content.signedTransactions, call, answer.environment),
        revision: content.revision, hasMore: content.hasMore ?? false)
    }
  }

  /// A customer's refunded transactions, page by page.
  ///
  /// After the revision of an earlier time's last page: the news alone.
  package func refundHistoryPages(
    of id: String, in bundleID: String, environment: Environment? = nil,
    after revision: String? = nil
  ) -> ServerAPIPages<TransactionPage> {
    ServerAPIPages(endpoint: .refundHistory, token: revision, environment: environment) {
      try await refundHistory(of: id, in: bundleID, environment: $1, revision: $0)
    }
  }

  /// Where all of a customer's subscriptions in an app stand, or those alone of some statuses.
  package func subscriptionStatuses(
    of id: String, in bundleID: String, environment: Environment? = nil,
    only statuses: [SubscriptionStatus] = []
  ) async throws -> ServerAPIAnswer<SubscriptionStatuses> {
    var call = try get(.subscriptionStatuses, bundleID, "/inApps/v1/subscriptions", id)
    call.query = statuses.map { ("status", "\($0.rawValue)") }
    let answer = try await answer(to: call, in: environment, as: StatusResponse.self)
    let content = answer.content
    try check(
      call, answer.environment, bundleID: content.bundleID, environment: content.environment)
    return await answer.map { content in
      var groups: [SubscriptionStatuses.Group] = []
      for group in content.data ?? [] {
        var lines: [SubscriptionStatuses.Line] = []
        for item in group.lastTransactions ?? [] {
          lines.append(await line(item, call, answer.environment))
        }
        groups.append(
          SubscriptionStatuses.Group(identifier: group.subscriptionGroupIdentifier, lines: lines))
      }
      return SubscriptionStatuses(groups: groups)
    }
  }

  /// A customer's download of an app.
  package func appTransactionInfo(
    of id: String, in bundleID: String, environment: Environment? = nil
  ) async throws -> ServerAPIAnswer<SignedPart<JWSAppTransactionDecodedPayload>> {
    let call = try get(
      .appTransactionInfo, bundleID, "/inApps/v1/transactions/appTransactions", id)
    let answer = try await answer(to: call, in: environment, as: AppTransactionInfoResponse.self)
    guard let jws = answer.content.signedAppTransactionInfo else {
      throw unexpected(
        call, answer.environment, nil, "it has no signedAppTransactionInfo", isRetryable: false)
    }
    return await answer.map { _ in await appTransaction(jws, call, answer.environment) }
  }

  /// What was bought with an order, whose id Apple's receipt by mail shows.
  ///
  /// Apple offers it for production only.
  package func orderLookup(
    _ orderID: String, in bundleID: String, environment: Environment = .production
  ) async throws -> ServerAPIAnswer<OrderLookup> {
    let call = try get(.orderLookup, bundleID, "/inApps/v1/lookup", orderID)
    let answer = try await answer(to: call, in: environment, as: OrderLookupResponse.self)
    return await answer.map { content in
      OrderLookup(
        status: content.status,
        transactions: await transactions(content.signedTransactions, call, answer.environment))
    }
  }

  func get(
    _ endpoint: ServerAPIEndpoint, _ bundleID: String, _ path: String, _ identifier: String
  ) throws -> ServerAPICall {
    ServerAPICall(
      endpoint: endpoint, bundleID: bundleID, method: "GET",
      path: try ServerAPICall.path(path, identifier, to: endpoint))
  }
}

/// Which of a customer's transactions are asked for.
///
/// https://developer.apple.com/documentation/appstoreserverapi/get-transaction-history. A revision
/// is good for the query that it came from, and for no other.
package struct TransactionHistoryQuery: Hashable, Sendable {
  /// Apple's `sort`, by the date of the last change.
  package enum Order: String, CaseIterable, Sendable {
    case ascending = "ASCENDING"
    /// Revisions of this order lead backwards: they are of no use for news.
    case descending = "DESCENDING"
  }

  /// Apple's `productType`.
  package enum ProductType: String, CaseIterable, Sendable {
    case autoRenewable = "AUTO_RENEWABLE"
    case nonRenewable = "NON_RENEWABLE"
    case consumable = "CONSUMABLE"
    case nonConsumable = "NON_CONSUMABLE"
  }

  /// Purchased at that moment or later.
  package var startDate: Timestamp?
  /// Purchased before that moment.
  package var endDate: Timestamp?
  /// Empty: of every product.
  package var productIDs: [ProductID] = []
  /// Empty: of every type.
  package var productTypes: [ProductType] = []
  package var order = Order.ascending
  /// Empty: of every group.
  package var subscriptionGroupIdentifiers: [String] = []
  package var inAppOwnershipType: InAppOwnershipType?
  /// True: those alone that were revoked; false: the others alone.
  package var revoked: Bool?

  package init() {}

  /// As Apple reads it, always the same for the same query.
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

/// One page of a list that Apple gives out twenty at a time.
package protocol ServerAPIPage: Hashable, Sendable {
  /// What the next page is asked for with.
  var next: String? { get }
  var hasMore: Bool { get }
}

/// A list, page by page, each asked for when the one before it is done with.
///
/// The same query goes with every page, to the environment that gave the first one. An error ends
/// the list; what was read before it is good, and whoever keeps what the last page names as the
/// next can go on from there.
package struct ServerAPIPages<Page: ServerAPIPage>: AsyncSequence, Sendable {
  /// A page, and the environment that gave it.
  package typealias Element = ServerAPIAnswer<Page>

  let endpoint: ServerAPIEndpoint
  let token: String?
  let environment: Environment?
  /// A list that has more pages never ends: twenty times as many transactions as one Apple account
  /// can sensibly have, unless told otherwise.
  var pageLimit = 10_000
  let ask: @Sendable (String?, Environment?) async throws -> ServerAPIAnswer<Page>

  package func makeAsyncIterator() -> Iterator {
    Iterator(pages: self, token: token, environment: environment)
  }

  /// Where a reader stands in the list.
  package struct Iterator: AsyncIteratorProtocol {
    fileprivate let pages: ServerAPIPages
    fileprivate var token: String?
    fileprivate var environment: Environment?
    private var count = 0
    private var isAtEnd = false
    /// What is wrong with the list, told after the page that shows it.
    private var fault: AppStoreServerAPIError?

    fileprivate init(pages: ServerAPIPages, token: String?, environment: Environment?) {
      self.pages = pages
      self.token = token
      self.environment = environment
    }

    /// Asks for the next page; nil after the last one.
    package mutating func next() async throws -> ServerAPIAnswer<Page>? {
      guard !isAtEnd else { return nil }
      isAtEnd = true
      if let fault { throw fault }
      let answer = try await pages.ask(token, environment)
      count += 1
      isAtEnd = !answer.content.hasMore
      // A list that stands still, or never ends, is a fault of the server's.
      if answer.content.next == nil || answer.content.next == token
        || count == pages.pageLimit
      {
        fault = AppStoreServerAPIError(
          .unexpectedAnswer, pages.endpoint, answer.environment,
          message: "it says that there is more, and not where", isRetryable: false)
      }
      token = answer.content.next
      environment = answer.environment
      return answer
    }
  }
}
