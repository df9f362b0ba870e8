import JSONText
package import Subscriptions

extension AppStoreServerAPI {
  package func notificationHistoryPages(
    _ query: NotificationHistoryQuery, of bundleID: String, in environment: Environment
  ) -> ServerAPIPages<NotificationPage> {
    // Twenty million notifications, more than the largest app receives in a month.
    ServerAPIPages(
      endpoint: .notificationHistory, token: nil, environment: environment, pageLimit: 1_000_000
    ) { paginationToken, _ in
      let call = try ServerAPICall(
        .notificationHistory, bundleID, "POST", "/inApps/v1/notifications/history",
        query: paginationToken.map { [("paginationToken", $0)] } ?? [], body: query.json)
      let answer = try await answer(to: call, in: environment, as: NotificationHistoryResponse.self)
      return await answer.map { content in
        var notifications: [SentNotification] = []
        for item in content.notificationHistory ?? [] {
          notifications.append(await sent(item, call, environment))
        }
        return NotificationPage(
          notifications: notifications, next: content.paginationToken,
          hasMore: content.hasMore ?? false)
      }
    }
  }

  /// Requests a TEST notification; returns the token for ``testNotificationStatus(_:of:in:)``.
  package func requestTestNotification(
    of bundleID: String, in environment: Environment
  ) async throws -> ServerAPIAnswer<String> {
    let call = try ServerAPICall(
      .testNotification, bundleID, "POST", "/inApps/v1/notifications/test")
    return try await text(\.testNotificationToken, from: call, in: environment, isRetryable: true)
  }

  /// The outcome of a test notification; before it is sent, it is not found or has no attempts.
  package func testNotificationStatus(
    _ token: String, of bundleID: String, in environment: Environment
  ) async throws -> ServerAPIAnswer<SentNotification> {
    let call = try ServerAPICall(
      .testNotificationStatus, bundleID, "GET", "/inApps/v1/notifications/test", token)
    let answer = try await answer(to: call, in: environment, as: NotificationHistoryItem.self)
    return await answer.map { await sent($0, call, environment) }
  }

  private func sent(
    _ item: NotificationHistoryItem, _ call: ServerAPICall, _ environment: Environment
  ) async -> SentNotification {
    var part: SignedPart<SignedNotification>?
    if let jws = item.signedPayload { part = await notification(jws, call, environment) }
    return SentNotification(notification: part, attempts: item.sendAttempts ?? [])
  }
}

/// A query for notifications that Apple sent or tried to send, kept for 180 days, in the sandbox
/// for 30 (https://developer.apple.com/documentation/appstoreserverapi/get-notification-history).
package struct NotificationHistoryQuery: Hashable, Sendable {
  /// Apple accepts a type or a transaction, not both.
  package enum Subject: Hashable, Sendable {
    case everything
    case type(NotificationTypeV2, subtype: NotificationSubtype?)
    case transaction(TransactionID)
  }

  package var startDate: Timestamp
  package var endDate: Timestamp
  package var subject = Subject.everything
  /// Only notifications that were not delivered, for example during an outage.
  package var onlyFailures = false

  package init(startDate: Timestamp, endDate: Timestamp) {
    (self.startDate, self.endDate) = (startDate, endDate)
  }

  // https://developer.apple.com/documentation/appstoreserverapi/notificationhistoryrequest
  var json: JSONValue {
    var members = [("startDate", startDate.json), ("endDate", endDate.json)]
    switch subject {
    case .everything: break
    case .type(let type, let subtype):
      members.append(("notificationType", type.json))
      if let subtype { members.append(("notificationSubtype", subtype.json)) }
    case .transaction(let id): members.append(("transactionId", .string(id.rawValue)))
    }
    if onlyFailures { members.append(("onlyFailures", true)) }
    return .object(members.map { JSONValue.Member(key: $0, value: $1) })
  }
}

package struct NotificationPage: ServerAPIPage {
  package let notifications: [SentNotification]
  package let next: String?
  package let hasMore: Bool
}

package struct SentNotification: Hashable, Sendable {
  /// Nil if Apple has not sent it yet.
  package let notification: SignedPart<SignedNotification>?
  package let attempts: [SendAttemptItem]
}
