package import Subscriptions

/// See <https://developer.apple.com/documentation/appstoreserverapi/notificationhistoryresponse>.
package typealias NotificationHistoryResponse = JSONPayload<NotificationHistoryFields>

package struct NotificationHistoryFields: JSONFields {
  /// The token for the next page, valid for a short time.
  package let paginationToken = JSONField<String>("paginationToken")
  package let hasMore = JSONField<Bool>("hasMore")
  package let notificationHistory = JSONField<[NotificationHistoryItem]>("notificationHistory")
  package static let schema = JSONSchema(Self())
}

/// A notification of the history, or a test notification:
/// <https://developer.apple.com/documentation/appstoreserverapi/checktestnotificationresponse>.
package typealias NotificationHistoryItem = JSONPayload<NotificationHistoryItemFields>

package struct NotificationHistoryItemFields: JSONFields {
  package let signedPayload = JSONField<String>("signedPayload")  // JWS
  package let sendAttempts = JSONField<[SendAttemptItem]>("sendAttempts")  // At most six
  package static let schema = JSONSchema(Self())
}

package typealias SendAttemptItem = JSONPayload<SendAttemptItemFields>

package struct SendAttemptItemFields: JSONFields {
  package let attemptDate = JSONField<Timestamp>("attemptDate")
  /// See <https://developer.apple.com/documentation/appstoreserverapi/sendattemptresult>.
  package let sendAttemptResult = JSONField<String>("sendAttemptResult")
  /// The result of an attempt that the app's server accepted.
  package static let success = "SUCCESS"
  package static let schema = JSONSchema(Self())
}
