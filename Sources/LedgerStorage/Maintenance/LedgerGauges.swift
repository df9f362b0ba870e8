package import Postgres
package import Subscriptions

/// The queues, webhook, feed and movements at a moment; unbounded counts stop at ``countLimit``.
package struct LedgerReading: Hashable, Sendable {
  package static let countLimit: Int64 = 10_000
  package static let deadline: Duration = .seconds(2)

  /// A number, and when the first of what is counted became due, failed or was seen.
  package struct Backlog: Hashable, Sendable {
    package var count = 0
    package var since: Timestamp?

    init(_ counted: (Int, Timestamp?) = (0, nil)) { (count, since) = counted }
  }

  /// Due jobs that no worker has claimed; contains every queue.
  package var backlogs: [Job.Queue: Backlog] = [:]
  /// Failed jobs by kind; kinds without any are missing.
  package var discardedJobs: [String: Backlog] = [:]
  package var waitingSubmissions = 0
  /// Unclaimed charges whose period lasts.
  package var unclaimedCharges: [Environment: Backlog] = [:]
  package var waitingDeliveries = Backlog()
  package var parkedDeliveries = Backlog()
  package var feedPosition: Int64 = 0
  package var unplacedEvents = 0
  package var pendingChanges = 0
  package var lastHeartbeat: Timestamp?
  /// Remaining requests to Apple, by the rate budget's name.
  package var budgets: [String: Double] = [:]
}

/// For modules that don't import Postgres.
package typealias ConnectionReading = PoolReading

extension Maintenance {
  /// Reads all gauges in one round trip.
  ///
  /// - Throws: `PostgresError`, after ``LedgerReading/deadline`` at the latest.
  package func reading(at now: Timestamp) async throws -> LedgerReading {
    let results = try await database.batch(Self.readings(at: now), deadline: LedgerReading.deadline)
    var reading = LedgerReading()
    for (queue, due, since) in try results[0].decode(Job.Queue.self, Int.self, Timestamp?.self) {
      reading.backlogs[queue] = .init((due, since))
    }
    for (kind, count, since) in try results[1].decode(String.self, Int.self, Timestamp?.self) {
      reading.discardedJobs[kind] = .init((count, since))
    }
    reading.waitingSubmissions = try results[2].decodeOnly(Int.self)
    reading.waitingDeliveries = .init(try results[3].decodeOnly(Int.self, Timestamp?.self))
    reading.parkedDeliveries = .init(try results[4].decodeOnly(Int.self, Timestamp?.self))
    (reading.feedPosition, reading.unplacedEvents) = try results[5].decodeOnly(Int64.self, Int.self)
    reading.pendingChanges = try results[6].decodeOnly(Int.self)
    reading.lastHeartbeat = try results[7].decodeOnly(Timestamp?.self)
    reading.budgets = Dictionary(
      uniqueKeysWithValues: try results[8].decode(String.self, Double.self).map { ($0, $1) })
    for (environment, rows) in zip(Environment.allCases, results.dropFirst(9)) {
      reading.unclaimedCharges[environment] = try .init(rows.decodeOnly(Int.self, Timestamp?.self))
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
