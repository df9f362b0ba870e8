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

/// Refused notifications of one hour, version and reason, and the last one without its content.
package struct RefusedNotifications: Sendable {
  package var hour: Timestamp
  /// Nil if its shape doesn't show the version.
  package var version: NotificationVersion?
  /// A stable code.
  package var reason: String
  package var count: Int
  package var lastAt: Timestamp
  /// One sentence without posted content.
  package var lastDetail: String
  package var lastBodyBytes: Int
  /// Nil if the body exceeded the size limit.
  package var lastBodySHA256: [UInt8]?

  package init(
    hour: Timestamp, version: NotificationVersion?, reason: String, count: Int, lastAt: Timestamp,
    lastDetail: String, lastBodyBytes: Int, lastBodySHA256: [UInt8]?
  ) {
    (self.hour, self.version, self.reason, self.count) = (hour, version, reason, count)
    (self.lastAt, self.lastDetail, self.lastBodyBytes) = (lastAt, lastDetail, lastBodyBytes)
    self.lastBodySHA256 = lastBodySHA256
  }
}

extension NotificationStore {
  /// Adds refused notifications to the counts: a few rows an hour, however many are posted.
  package func trace(_ refused: [RefusedNotifications]) async throws {
    // Sorted, so that two servers can't deadlock.
    let sorted = refused.sorted {
      ($0.hour, $0.version?.rawValue ?? 0, $0.reason)
        < ($1.hour, $1.version?.rawValue ?? 0, $1.reason)
    }
    _ = try await database.batch(
      sorted.map { refused in
        """
        INSERT INTO tenure.notification_refusal AS known (hour, version, reason, refusals, last_at,
          last_detail, last_body_bytes, last_body_sha256)
        VALUES (\(refused.hour), \(refused.version?.rawValue ?? 0), \(refused.reason),
          \(refused.count), \(refused.lastAt), \(refused.lastDetail.storedSentence),
          \(refused.lastBodyBytes), \(refused.lastBodySHA256))
        ON CONFLICT (hour, version, reason) DO UPDATE SET
          refusals = known.refusals + excluded.refusals, last_at = excluded.last_at,
          last_detail = excluded.last_detail, last_body_bytes = excluded.last_body_bytes,
          last_body_sha256 = excluded.last_body_sha256
        """
      })
  }

  package func refusedNotifications(since start: Timestamp) async throws -> [RefusedNotifications] {
    try await database.query(
      """
      SELECT hour, nullif(version, 0), reason, refusals, last_at, last_detail, last_body_bytes,
        last_body_sha256
      FROM tenure.notification_refusal WHERE hour >= \(start)
      ORDER BY last_at DESC, version, reason
      """
    ).decode(into: RefusedNotifications.init)
  }
}
