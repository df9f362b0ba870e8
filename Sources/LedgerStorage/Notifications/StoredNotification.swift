import Postgres
package import Subscriptions

/// Which of Apple's two kinds a notification is.
package enum NotificationVersion: Int, Sendable {
  /// Unsigned.
  case one = 1
  /// Signed.
  case two = 2
}

/// How a notification came to be here.
package enum NotificationArrival: String, Sendable {
  /// Apple delivered it.
  case delivered
  /// It was missing, and was found in Apple's history.
  case history
}

extension NotificationArrival: PostgresEncodable, PostgresDecodable {}

/// A notification as it arrived, checked as far as it can be without asking Apple.
package struct NewNotification: Sendable {
  /// Apple's name of it, or one made of its body.
  package var id: String
  package var version: NotificationVersion
  package var receivedAt: Timestamp
  package var arrival: NotificationArrival
  /// What Apple signed; of version 1 the JSON without its password.
  package var body: String
  // What the body says, for those who look for it.
  package var notificationType: String?
  package var subtype: String?
  package var environment: Environment?
  package var bundleID: String?
  package var originalTransactionID: OriginalTransactionID?
  package var transactionID: TransactionID?
  package var signedAt: Timestamp?

  package init(
    id: String, version: NotificationVersion, receivedAt: Timestamp,
    arrival: NotificationArrival = .delivered, body: String, notificationType: String? = nil,
    subtype: String? = nil, environment: Environment? = nil, bundleID: String? = nil,
    originalTransactionID: OriginalTransactionID? = nil, transactionID: TransactionID? = nil,
    signedAt: Timestamp? = nil
  ) {
    self.id = id
    self.version = version
    self.receivedAt = receivedAt
    self.arrival = arrival
    self.body = body
    self.notificationType = notificationType
    self.subtype = subtype
    self.environment = environment
    self.bundleID = bundleID
    self.originalTransactionID = originalTransactionID
    self.transactionID = transactionID
    self.signedAt = signedAt
  }
}

/// A notification in the inbox, and where it stands.
package struct StoredNotification: Sendable {
  package let id: String
  package let version: NotificationVersion
  package let receivedAt: Timestamp
  /// Empty: it was aged out.
  package let body: String
  package let notificationType: String?
  /// The configured app that it belongs to; nil where that is not known.
  package let bundleID: String?
  /// How often it was tried to process it.
  package let attempts: Int
  /// Nil: it is still to be processed.
  package let outcome: NotificationOutcome?
  /// Why it is not processed yet, or what was wrong with it.
  package let problem: String?
}

/// What processing a notification came to.
package enum NotificationOutcome: String, CaseIterable, Sendable {
  /// Entries were appended.
  case recorded
  /// Everything that it says was known.
  case known
  /// It tells of no purchase.
  case nothingToRecord = "nothing_to_record"
  /// Apple does not vouch for the receipt in it.
  case rejected
}

extension NotificationOutcome: PostgresEncodable, PostgresDecodable {}
