import Postgres
package import Subscriptions

package enum NotificationVersion: Int, PostgresEncodable, PostgresDecodable, Sendable {
  case one = 1
  case two = 2
}

package enum ReceivedNotification: String, PostgresEncodable, PostgresDecodable, Sendable {
  /// Posted by Apple.
  case delivered
  /// Found in Apple's notification history after it was missing.
  case history
}

/// A notification as received, verified as far as possible without asking Apple.
package struct NewNotification: Sendable {
  /// Apple's `notificationUUID`, or an ID derived from the body.
  package var id: String
  package var version: NotificationVersion
  package var receivedAt: Timestamp
  package var arrival: ReceivedNotification
  /// The signed payload; for version 1, the JSON without its password.
  package var body: String
  /// The headers of verified signatures, which the body is stored without.
  package var chains: [String]
  // Fields of the body, to find it by.
  package var notificationType: String?
  package var subtype: String?
  package var environment: Environment?
  package var bundleID: String?
  package var originalTransactionID: OriginalTransactionID?
  package var transactionID: TransactionID?
  package var signedAt: Timestamp?

  package init(
    id: String, version: NotificationVersion, receivedAt: Timestamp,
    arrival: ReceivedNotification = .delivered, body: String, chains: [String] = [],
    notificationType: String? = nil, subtype: String? = nil, environment: Environment? = nil,
    bundleID: String? = nil, originalTransactionID: OriginalTransactionID? = nil,
    transactionID: TransactionID? = nil, signedAt: Timestamp? = nil
  ) {
    (self.id, self.version, self.receivedAt, self.arrival) = (id, version, receivedAt, arrival)
    (self.body, self.chains, self.notificationType) = (body, chains, notificationType)
    (self.subtype, self.environment, self.bundleID) = (subtype, environment, bundleID)
    (self.originalTransactionID, self.transactionID) = (originalTransactionID, transactionID)
    self.signedAt = signedAt
  }
}

package struct StoredNotification: Sendable {
  package let id: String
  package let version: NotificationVersion
  package let receivedAt: Timestamp
  /// Empty if it was pruned.
  package let body: String
  package let notificationType: String?
  package let bundleID: String?
  package let attempts: Int
  /// Nil if not processed yet.
  package let outcome: NotificationOutcome?
  /// The reason why it is not processed yet, or a problem that it had.
  package let problem: String?
}

package enum NotificationOutcome: String, CaseIterable, PostgresEncodable, PostgresDecodable,
  Sendable
{
  case recorded
  /// All of its evidence was known.
  case known
  /// It reports no purchase.
  case nothingToRecord = "nothing_to_record"
  /// Apple did not verify its receipt.
  case rejected
}
