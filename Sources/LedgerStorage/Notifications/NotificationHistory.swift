import Postgres
package import Subscriptions

package struct NotificationComparison: Hashable, Sendable {
  package var bundleID: String
  package var environment: Environment
  /// The compared period of Apple's history, end excluded.
  package var windowStart: Timestamp
  package var windowEnd: Timestamp
  package var comparedAt: Timestamp
  package var listed = 0
  /// Listed notifications that failed verification.
  package var refused = 0
  /// Listed notifications that had not arrived.
  package var missing = 0
  /// The signing date of the earliest missing notification.
  package var firstMissingAt: Timestamp?
  /// The longest time from signing to discovery among the missing notifications.
  package var longestDelay: Duration?

  package init(
    bundleID: String, environment: Environment, windowStart: Timestamp, windowEnd: Timestamp,
    comparedAt: Timestamp
  ) {
    self.bundleID = bundleID
    self.environment = environment
    self.windowStart = windowStart
    self.windowEnd = windowEnd
    self.comparedAt = comparedAt
  }

  package mutating func addMissing(signedAt: Timestamp?, foundAt: Timestamp) {
    missing += 1
    let date = signedAt ?? foundAt
    firstMissingAt = min(firstMissingAt ?? date, date)
    longestDelay = max(longestDelay ?? .zero, foundAt - date)
  }
}

extension NotificationStore {
  /// Schedules a comparison of Apple's notification history, for `moment` or earlier.
  ///
  /// One that is due earlier is kept; one that runs is repeated: it may have read too early.
  package func scheduleComparison(
    bundleID: String, environment: Environment, at moment: Timestamp
  ) async throws {
    _ = try await database.execute(
      Self.scheduleComparison(bundleID: bundleID, environment: environment, at: moment))
    notifier.notify(.jobs)
  }

  static func scheduleComparison(
    bundleID: String, environment: Environment, at moment: Timestamp
  ) -> SQL {
    Job.schedule(
      .compareNotifications(bundleID: bundleID, environment), runAt: moment, at: moment,
      ifExisting: """
        tenure.job.run_at > excluded.run_at OR tenure.job.discarded_at IS NOT NULL
          OR tenure.job.locked_until IS NOT NULL
        """)
  }

  /// The end of the latest compared period, if any.
  package func lastComparisonEnd(
    bundleID: String, environment: Environment
  ) async throws -> Timestamp? {
    try await database.query(
      """
      SELECT max(window_end) FROM tenure.notification_history_check
      WHERE bundle_id = \(bundleID) AND environment = \(environment)
      """
    ).decodeOnly(Timestamp?.self)
  }

  package func missingNotifications(among ids: [String]) async throws -> Set<ExactText> {
    guard !ids.isEmpty else { return [] }
    let known = try await database.query(
      "SELECT notification_id FROM tenure.notification WHERE notification_id = ANY(\(ids))"
    ).decode(String.self)
    return Set(ids.map(ExactText.init(_:))).subtracting(known.map(ExactText.init(_:)))
  }

  /// Records a comparison and reschedules its job, in one database transaction.
  ///
  /// Counts what a worker that died before recording found, too.
  package func record(
    _ comparison: NotificationComparison, by job: Job, next: Timestamp
  ) async throws -> NotificationComparison {
    let insert: SQL = """
      WITH found AS (
        SELECT count(*) AS number, min(coalesce(signed_at, received_at)) AS first_at,
          (extract(epoch FROM max(received_at - signed_at)) * 1000)::bigint AS delay_ms
        FROM tenure.notification
        WHERE arrival = 'history' AND bundle_id = \(comparison.bundleID)
          AND environment = \(comparison.environment)
          AND received_at > (
            SELECT coalesce(max(compared_at), '-infinity') FROM tenure.notification_history_check
            WHERE bundle_id = \(comparison.bundleID) AND environment = \(comparison.environment))
      ),
      counted AS (
        SELECT least(\(comparison.listed), greatest(\(comparison.missing), number)) AS missing,
          least(\(comparison.firstMissingAt), first_at) AS first_at,
          greatest(\(comparison.longestDelay?.inMilliseconds), delay_ms, 0) AS delay_ms
        FROM found
      )
      INSERT INTO tenure.notification_history_check (bundle_id, environment, window_start, window_end,
        compared_at, listed, refused, missing, first_missing_at, longest_delay_ms)
      SELECT \(comparison.bundleID), \(comparison.environment), \(comparison.windowStart),
        \(comparison.windowEnd), \(comparison.comparedAt), \(comparison.listed),
        \(comparison.refused), missing, CASE WHEN missing > 0 THEN first_at END,
        CASE WHEN missing > 0 THEN delay_ms END
      FROM counted
      RETURNING missing, first_missing_at, longest_delay_ms
      """
    let results = try await database.batch(
      [insert] + job.repetition(at: next, now: comparison.comparedAt))
    notifier.notify(.jobs)
    var recorded = comparison
    let (missing, first, delay) = try results[0].decodeOnly(Int.self, Timestamp?.self, Int64?.self)
    recorded.missing = missing
    recorded.firstMissingAt = first
    recorded.longestDelay = delay.map { .milliseconds($0) }
    return recorded
  }

  /// Records a server's heartbeat, and schedules comparisons with Apple's notification histories if
  /// no server was alive for longer than `pause`, in one database transaction.
  ///
  /// With several servers, the latest heartbeat counts.
  package func beat(
    at now: Timestamp, longestPause pause: Duration,
    histories: [(bundleID: String, environment: Environment)]
  ) async throws -> (last: Timestamp?, isLate: Bool) {
    try await database.withTransaction { transaction in
      let last = try await transaction.batch([
        "SELECT max(alive_at) FROM tenure.program_heartbeat WHERE program = 'serve'",
        """
        INSERT INTO tenure.program_heartbeat AS known (program, alive_at) VALUES ('serve', \(now))
        ON CONFLICT (program) DO UPDATE SET alive_at = greatest(known.alive_at, excluded.alive_at)
        """,
      ])[0].decodeOnly(Timestamp?.self)
      let isLate = last.map { now - $0 > pause } ?? true
      if isLate { announce([.jobs], after: transaction) }
      try await transaction.commit(
        with: isLate
          ? histories.map {
            Self.scheduleComparison(bundleID: $0.bundleID, environment: $0.environment, at: now)
          } : [])
      return (last, isLate)
    }
  }
}
