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
