package import Subscriptions

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
