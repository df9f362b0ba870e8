import Postgres
package import Subscriptions

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
