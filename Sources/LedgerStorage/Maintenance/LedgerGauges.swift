package import Postgres
package import Subscriptions

/// The queues, webhook, feed and movements at a moment; unbounded counts stop at ``countLimit``.
package struct LedgerReading: Hashable, Sendable {
  package static let countLimit: Int64 = 10_000
  package static let deadline: Duration = .seconds(2)

  /// Due jobs of a queue that no worker has claimed.
  package struct Backlog: Hashable, Sendable {
    package var due = 0
    /// When the oldest of them became due.
    package var since: Timestamp?
  }

  /// Contains every queue.
  package var backlogs: [Job.Queue: Backlog] = [:]
  /// Counts by kind; kinds without discarded jobs are missing.
  package var discardedJobs: [String: Int] = [:]
  /// When the first of them failed.
  package var discardedSince: Timestamp?
  package var waitingSubmissions = 0
  /// Unclaimed charges whose period lasts.
  package var unclaimedCharges: [Environment: Int] = [:]
  package var waitingDeliveries = 0
  /// When the oldest of them became due.
  package var waitingDeliveriesSince: Timestamp?
  package var parkedDeliveries = 0
  /// When the first of them failed.
  package var parkedSince: Timestamp?
  package var feedPosition: Int64 = 0
  package var unplacedEvents = 0
  package var pendingChanges = 0
  package var lastHeartbeat: Timestamp?
  /// Remaining requests to Apple, by the rate budget's name.
  package var budgets: [String: Double] = [:]
}

/// The connections of the pool by state, the round trips in flight, and those that wait for a
/// connection.
///
/// Busy connections have shared round trips in flight; leased ones are reserved by a transaction.
package typealias ConnectionReading = PoolReading

extension Maintenance {
  /// Reads all gauges in one round trip.
  ///
  /// - Throws: `PostgresError`, after ``LedgerReading/deadline`` at the latest.
  package func reading(at now: Timestamp) async throws -> LedgerReading {
    let results = try await database.batch(Self.readings(at: now), deadline: LedgerReading.deadline)
    var reading = LedgerReading()
    for (queue, due, since) in try results[0].decode(Job.Queue.self, Int.self, Timestamp?.self) {
      reading.backlogs[queue] = LedgerReading.Backlog(due: due, since: since)
    }
    for (kind, count, since) in try results[1].decode(String.self, Int.self, Timestamp.self) {
      reading.discardedJobs[kind] = count
      reading.discardedSince = min(since, reading.discardedSince ?? since)
    }
    reading.waitingSubmissions = try results[2].decodeOnly(Int.self)
    (reading.waitingDeliveries, reading.waitingDeliveriesSince) = try results[3].decodeOnly(
      Int.self, Timestamp?.self)
    (reading.parkedDeliveries, reading.parkedSince) = try results[4].decodeOnly(
      Int.self, Timestamp?.self)
    (reading.feedPosition, reading.unplacedEvents) = try results[5].decodeOnly(Int64.self, Int.self)
    reading.pendingChanges = try results[6].decodeOnly(Int.self)
    reading.lastHeartbeat = try results[7].decodeOnly(Timestamp?.self)
    reading.budgets = Dictionary(
      uniqueKeysWithValues: try results[8].decode(String.self, Double.self).map { ($0, $1) })
    for (environment, rows) in zip(Environment.allCases, results.dropFirst(9)) {
      reading.unclaimedCharges[environment] = try rows.decodeOnly(Int.self, Timestamp?.self).0
    }
    return reading
  }

  private static func readings(at now: Timestamp) -> [SQL] {
    let limit = LedgerReading.countLimit
    let statements: [SQL] = [
      """
      SELECT wanted.queue, count(coming.run_at), min(coming.run_at)
      FROM unnest(\(Job.Queue.allCases.map(\.rawValue))) AS wanted (queue)
      CROSS JOIN (VALUES (0), (1), (2)) AS urgency (priority)
      LEFT JOIN LATERAL (
        SELECT run_at FROM tenure.job
        WHERE queue = wanted.queue AND priority = urgency.priority AND discarded_at IS NULL
          AND locked_until IS NULL AND run_at <= \(now)
        ORDER BY run_at
        LIMIT \(limit)
      ) AS coming ON true
      GROUP BY wanted.queue
      """,
      """
      SELECT kind, count(*), min(discarded_at)
      FROM tenure.job WHERE discarded_at IS NOT NULL GROUP BY kind
      """,
      """
      SELECT count(*) FROM (
        SELECT 1 FROM tenure.job WHERE queue = 'submissions' AND discarded_at IS NULL LIMIT \(limit)
      ) AS first
      """,
      """
      SELECT count(*), min(due_since) FROM (
        SELECT due_since FROM tenure.webhook_delivery WHERE parked_at IS NULL
        ORDER BY event_id
        LIMIT \(limit)
      ) AS first
      """,
      "SELECT count(*), min(parked_at) FROM tenure.webhook_delivery WHERE parked_at IS NOT NULL",
      """
      SELECT \(SQL.feedEnd), (
        SELECT count(*) FROM (
          SELECT 1 FROM tenure.event WHERE position IS NULL LIMIT \(limit)
        ) AS first
      )
      FROM tenure.feed AS f
      """,
      "SELECT count(*) FROM (SELECT 1 FROM tenure.movement_change LIMIT \(limit)) AS first",
      "SELECT max(alive_at) FROM tenure.program_heartbeat WHERE program = 'serve'",
      "SELECT name, tokens FROM tenure.rate_budget",
    ]
    return statements
      + Environment.allCases.map { OwnershipStore.countOfWaiting(in: $0, limit: limit, at: now) }
  }

  /// When the schema was created or last upgraded.
  package func schemaChangedAt() async throws -> Timestamp {
    try await database.query("SELECT max(applied_at) FROM tenure.schema_version")
      .decodeOnly(Timestamp.self)
  }

  /// Reads the pool's gauges, without a query.
  package func connections() async -> ConnectionReading { await database.reading() }
}
