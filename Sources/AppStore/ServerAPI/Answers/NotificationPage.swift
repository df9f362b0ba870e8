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
