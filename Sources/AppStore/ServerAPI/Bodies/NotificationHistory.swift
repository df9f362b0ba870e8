package import JSONText
package import Subscriptions

/// https://developer.apple.com/documentation/appstoreserverapi/notificationhistoryrequest.
///
/// Has a type or a transaction, not both: see ``NotificationHistoryQuery``.
package struct NotificationHistoryRequest: JSONPayload {
  package var startDate: Timestamp?
  package var endDate: Timestamp?
  package var notificationType: NotificationTypeV2?
  package var notificationSubtype: NotificationSubtype?
  package var transactionID: String?
  package var onlyFailures: Bool?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("startDate", \.startDate),
    JSONField("endDate", \.endDate),
    JSONField("notificationType", \.notificationType),
    JSONField("notificationSubtype", \.notificationSubtype),
    JSONField("transactionId", \.transactionID),
    JSONField("onlyFailures", \.onlyFailures),
  ])
}

/// See <https://developer.apple.com/documentation/appstoreserverapi/notificationhistoryresponse>.
package struct NotificationHistoryResponse: JSONPayload {
  /// The token for the next page, valid for a short time.
  package var paginationToken: String?
  package var hasMore: Bool?
  package var notificationHistory: [NotificationHistoryResponseItem]?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("paginationToken", \.paginationToken),
    JSONField("hasMore", \.hasMore),
    JSONField("notificationHistory", \.notificationHistory),
  ])
}

package struct NotificationHistoryResponseItem: JSONPayload {
  package var signedPayload: String?  // A JWS of a `ResponseBodyV2DecodedPayload`
  package var sendAttempts: [SendAttemptItem]?  // At most six
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("sendAttempts", \.sendAttempts),
    JSONField("signedPayload", \.signedPayload),
  ])
}

/// An attempt by Apple to deliver a notification.
package struct SendAttemptItem: JSONPayload {
  package var attemptDate: Timestamp?
  package var sendAttemptResult: SendAttemptResult?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("attemptDate", \.attemptDate),
    JSONField("sendAttemptResult", \.sendAttemptResult),
  ])
}

/// Apple's `sendAttemptResult`:
/// <https://developer.apple.com/documentation/appstoreserverapi/sendattemptresult>.
package struct SendAttemptResult: OpenEnumeration {
  package var rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  package static let success = SendAttemptResult(rawValue: "SUCCESS")
  package static let timedOut = SendAttemptResult(rawValue: "TIMED_OUT")
  package static let tlsIssue = SendAttemptResult(rawValue: "TLS_ISSUE")
  package static let circularRedirect = SendAttemptResult(rawValue: "CIRCULAR_REDIRECT")
  package static let noResponse = SendAttemptResult(rawValue: "NO_RESPONSE")
  package static let socketIssue = SendAttemptResult(rawValue: "SOCKET_ISSUE")
  package static let unsupportedCharset = SendAttemptResult(rawValue: "UNSUPPORTED_CHARSET")
  package static let invalidResponse = SendAttemptResult(rawValue: "INVALID_RESPONSE")
  package static let prematureClose = SendAttemptResult(rawValue: "PREMATURE_CLOSE")
  package static let unsuccessfulHTTPResponseCode = SendAttemptResult(
    rawValue: "UNSUCCESSFUL_HTTP_RESPONSE_CODE")
  package static let other = SendAttemptResult(rawValue: "OTHER")
}

/// See <https://developer.apple.com/documentation/appstoreserverapi/sendtestnotificationresponse>.
package struct SendTestNotificationResponse: JSONPayload {
  /// The token for requesting the outcome.
  package var testNotificationToken: String?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("testNotificationToken", \.testNotificationToken)
  ])
}

/// See <https://developer.apple.com/documentation/appstoreserverapi/checktestnotificationresponse>.
package struct CheckTestNotificationResponse: JSONPayload {
  package var signedPayload: String?  // A JWS of a `ResponseBodyV2DecodedPayload`
  package var sendAttempts: [SendAttemptItem]?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("signedPayload", \.signedPayload),
    JSONField("sendAttempts", \.sendAttempts),
  ])
}
