package import Subscriptions

extension AppStoreServerAPI {
  /// One page of the notifications that Apple sent for an app, or tried to send.
  ///
  /// `paginationToken` is that of the page before; the query is the same for all pages.
  package func notificationHistory(
    _ query: NotificationHistoryQuery, of bundleID: String, in environment: Environment,
    paginationToken: String? = nil
  ) async throws -> ServerAPIAnswer<NotificationPage> {
    let call = ServerAPICall(
      endpoint: .notificationHistory, bundleID: bundleID, method: "POST",
      path: "/inApps/v1/notifications/history",
      query: paginationToken.map { [("paginationToken", $0)] } ?? [], body: query.request.json)
    let answer = try await answer(to: call, in: environment, as: NotificationHistoryResponse.self)
    return await answer.map { content in
      var notifications: [SentNotification] = []
      for item in content.notificationHistory ?? [] {
        notifications.append(
          await sent(item.signedPayload, item.sendAttempts, call, environment))
      }
      return NotificationPage(
        notifications: notifications, paginationToken: content.paginationToken,
        hasMore: content.hasMore ?? false)
    }
  }

  /// The notifications that Apple sent for an app, or tried to send, page by page.
  package func notificationHistoryPages(
    _ query: NotificationHistoryQuery, of bundleID: String, in environment: Environment
  ) -> ServerAPIPages<NotificationPage> {
    // Twenty million notifications: more than the largest app gets in a month.
    ServerAPIPages(
      endpoint: .notificationHistory, token: nil, environment: environment, pageLimit: 1_000_000
    ) {
      try await notificationHistory(
        query, of: bundleID, in: $1 ?? environment, paginationToken: $0)
    }
  }

  /// Has Apple send a notification of type TEST to the app's server; the answer is the token that
  /// its outcome is asked for with.
  package func requestTestNotification(
    of bundleID: String, in environment: Environment
  ) async throws -> ServerAPIAnswer<String> {
    let call = ServerAPICall(
      endpoint: .testNotification, bundleID: bundleID, method: "POST",
      path: "/inApps/v1/notifications/test")
    let answer = try await answer(to: call, in: environment, as: SendTestNotificationResponse.self)
    guard let token = answer.content.testNotificationToken else {
      throw unexpected(call, environment, nil, "it has no testNotificationToken", isRetryable: true)
    }
    return await answer.map { _ in token }
  }

  /// What came of a test notification.
  ///
  /// One that has not been sent yet is not found, or has no attempts.
  package func testNotificationStatus(
    _ token: String, of bundleID: String, in environment: Environment
  ) async throws -> ServerAPIAnswer<SentNotification> {
    let call = try get(
      .testNotificationStatus, bundleID, "/inApps/v1/notifications/test", token)
    let answer = try await answer(
      to: call, in: environment, as: CheckTestNotificationResponse.self)
    return await answer.map { content in
      await sent(content.signedPayload, content.sendAttempts, call, environment)
    }
  }

  private func sent(
    _ jws: String?, _ attempts: [SendAttemptItem]?, _ call: ServerAPICall,
    _ environment: Environment
  ) async -> SentNotification {
    var part: SignedPart<SignedNotification>?
    if let jws { part = await notification(jws, call, environment) }
    return SentNotification(notification: part, attempts: attempts ?? [])
  }
}

/// Which of the notifications are asked for that Apple sent or tried to send.
///
/// https://developer.apple.com/documentation/appstoreserverapi/get-notification-history. Apple
/// keeps them for 180 days, those of the sandbox for 30.
package struct NotificationHistoryQuery: Hashable, Sendable {
  /// What they are about: Apple takes a type or a transaction, not both.
  package enum Subject: Hashable, Sendable {
    case everything
    case type(NotificationTypeV2, subtype: NotificationSubtype?)
    case transaction(TransactionID)
  }

  package var startDate: Timestamp
  package var endDate: Timestamp
  package var subject = Subject.everything
  /// Those alone that did not arrive: what to ask for after an outage.
  package var onlyFailures = false

  package init(startDate: Timestamp, endDate: Timestamp) {
    self.startDate = startDate
    self.endDate = endDate
  }

  var request: NotificationHistoryRequest {
    var request = NotificationHistoryRequest()
    request.startDate = startDate
    request.endDate = endDate
    switch subject {
    case .everything: break
    case .type(let type, let subtype):
      request.notificationType = type
      request.notificationSubtype = subtype
    case .transaction(let id): request.transactionID = id.rawValue
    }
    if onlyFailures { request.onlyFailures = true }
    return request
  }
}

/// A page of the notifications that Apple sent or tried to send.
package struct NotificationPage: ServerAPIPage {
  package let notifications: [SentNotification]
  /// Where the next page begins; Apple forgets it soon.
  package let paginationToken: String?
  package let hasMore: Bool

  package var next: String? { paginationToken }
}

/// A notification, and what came of sending it.
package struct SentNotification: Hashable, Sendable {
  /// Nil where Apple has not sent it yet.
  package let notification: SignedPart<SignedNotification>?
  package let attempts: [SendAttemptItem]
}
