import Postgres
package import Subscriptions

/// The job queue.
///
/// A job is written in the commit of the data from which it follows:
///
/// ```swift
/// try await transaction.commit(with: [
///   insertOrder,
///   Job.insert(.expireOrder(order.id), runAt: now + lifetime, at: now),
/// ])
/// ```
///
/// A worker whose lease expired can't change a job that another worker has claimed.
package struct JobQueue: LedgerStore {
  package let core: LedgerCore

  /// Claims due jobs and those with an expired lease, by priority and age.
  ///
  /// - Parameter lease: The time after which other workers may claim the jobs. It is up to 128
  ///   times longer for a job with many attempts, which may be the cause of its workers' crashes.
  package func claimJobs(
    limits: [Job.Queue: Int], worker: String, at now: Timestamp, lease: Duration
  ) async throws -> [Job] {
    let wanted = limits.filter { $0.value > 0 }
    guard !wanted.isEmpty else { return [] }
    let rows = try await database.query(Self.claim(wanted, worker: worker, at: now, lease: lease))
    return try rows.decode(
      Int64.self, Job.Kind.self, String.self, Job.Queue.self, Int.self, Int.self, Timestamp.self,
      Int.self, Timestamp.self
    ).sorted { ($0.7, $0.8, $0.0) < ($1.7, $1.8, $1.0) }
      .map { id, kind, subject, queue, attempts, generation, createdAt, _, _ in
        Job(
          id: id, key: Job.Key(kind: kind, subject: subject, queue: queue), attempts: attempts,
          worker: worker, generation: generation, createdAt: createdAt)
      }
  }

  static func claim(
    _ wanted: [Job.Queue: Int], worker: String, at now: Timestamp, lease: Duration
  ) -> SQL {
    let leases = (0...7).map { now + lease * (1 << $0) }
    // By priority, so that jobs not due yet aren't read. Kinds of a newer program are left to it.
    // An array of IDs: a join can be planned as a scan of the whole table.
    return """
      WITH due AS (
        SELECT picked.job_id
        FROM unnest(\(wanted.map(\.key.rawValue)), \(wanted.map(\.value))) AS wanted (queue, most)
        CROSS JOIN LATERAL (
          SELECT ready.job_id
          FROM (VALUES (0), (1), (2)) AS urgency (priority)
          CROSS JOIN LATERAL (
            SELECT job_id FROM tenure.job
            WHERE queue = wanted.queue AND priority = urgency.priority AND discarded_at IS NULL
              AND kind = ANY(\(Job.Kind.allCases)) AND run_at <= \(now)
              AND (locked_until IS NULL OR locked_until <= \(now))
            ORDER BY run_at
            LIMIT wanted.most
            FOR UPDATE SKIP LOCKED
          ) AS ready
          LIMIT wanted.most
        ) AS picked
      )
      UPDATE tenure.job AS j SET attempts = attempts + 1, locked_by = \(worker),
        -- Citus's deparser crashes on a SET that is a plain array subscript.
        locked_until = (SELECT l.leases[1 + least(greatest(j.attempts - 5, 0), 7)]
          FROM (SELECT \(leases) AS leases) AS l)
      WHERE j.job_id = ANY (ARRAY(SELECT job_id FROM due))
      RETURNING j.job_id, j.kind, j.subject, j.queue, j.attempts, j.generation, j.created_at,
        j.priority, j.run_at
      """
  }

  /// The earliest time at which a job of each queue can be claimed; it may be in the past.
  package func nextJobs() async throws -> [Job.Queue: Timestamp] {
    try await Dictionary(
      database.query(Self.nextJobs).decode(Job.Queue.self, Timestamp.self),
      uniquingKeysWith: { min($0, $1) })
  }

  /// Has no parameters, so that PostgreSQL keeps one plan: planning takes longer than running.
  ///
  /// Leases have no index: only those of the jobs that were due first are considered.
  private static let nextJobs: SQL = """
    SELECT wanted.queue, min(coming.at)
    FROM unnest(ARRAY[\(literals(Job.Queue.allCases.map(\.rawValue)))]) AS wanted (queue)
    CROSS JOIN (VALUES (0), (1), (2)) AS urgency (priority)
    CROSS JOIN LATERAL (
      (SELECT run_at AS at FROM tenure.job
      WHERE queue = wanted.queue AND priority = urgency.priority AND discarded_at IS NULL
        AND kind IN (\(literals(Job.Kind.allCases.map(\.rawValue)))) AND locked_until IS NULL
      ORDER BY run_at
      LIMIT 1)
      UNION ALL
      SELECT greatest(run_at, locked_until) FROM (
        SELECT run_at, locked_until FROM tenure.job
        WHERE queue = wanted.queue AND priority = urgency.priority AND discarded_at IS NULL
          AND kind IN (\(literals(Job.Kind.allCases.map(\.rawValue))))
        ORDER BY run_at
        LIMIT 64
      ) AS first
    ) AS coming
    GROUP BY wanted.queue
    """

  private static func literals(_ names: [String]) -> SQL {
    SQL(unescaped: names.map { "'\($0)'" }.joined(separator: ", "))
  }

  /// Enqueues jobs that don't exist yet, due immediately.
  package func seed(_ keys: [Job.Key], at now: Timestamp) async throws {
    try await database.batch(keys.map { Job.insert($0, runAt: now, at: now) })
  }

  /// Extends the leases of one worker's jobs, and returns the IDs of those, without locked ones.
  ///
  /// - Parameter limit: Leases that end then or later stay as they are; nil: those that end later
  ///   than the new end.
  @discardableResult
  package func extendLeases(
    of jobs: [Job], until end: Timestamp, ifEndingBefore limit: Timestamp? = nil
  ) async throws -> Set<Int64> {
    guard let worker = jobs.first?.worker else { return [] }
    let extended = try await database.query(
      """
      WITH mine AS (
        SELECT job_id FROM tenure.job
        WHERE job_id = ANY (\(jobs.map(\.id))) AND locked_by = \(worker)
          AND locked_until < \(limit ?? end)
        FOR UPDATE SKIP LOCKED
      )
      UPDATE tenure.job AS j SET locked_until = \(end)
      WHERE j.job_id = ANY (ARRAY(SELECT job_id FROM mine))
      RETURNING j.job_id
      """)
    return Set(try extended.decode(Int64.self))
  }

  package func giveBack(_ jobs: [Job]) async throws {
    guard let worker = jobs.first?.worker else { return }
    try await database.execute(
      """
      UPDATE tenure.job SET locked_until = NULL, locked_by = NULL,
        attempts = greatest(attempts - 1, 0)
      WHERE job_id = ANY (\(jobs.map(\.id))) AND locked_by = \(worker)
      """)
    notifier.notify(.jobs)
  }

  /// Returns a job to its queue after a failed run; a `run_at` set after the claim is kept.
  package func release(_ job: Job, until runAt: Timestamp, because reason: String) async throws {
    try await database.execute(
      """
      UPDATE tenure.job SET locked_until = NULL, locked_by = NULL,
        last_error = \(reason.storedSentence),
        run_at = CASE WHEN generation = \(job.generation) THEN \(runAt) ELSE run_at END
      WHERE job_id = \(job.id) AND locked_by = \(job.worker)
      """)
  }

  package func complete(_ job: Job) async throws {
    _ = try await database.batch(job.completion)
  }

  package func `repeat`(
    _ job: Job, at runAt: Timestamp, priority: Int = 0, now: Timestamp
  ) async throws {
    _ = try await database.batch(job.repetition(at: runAt, priority: priority, now: now))
  }

  /// Discards a job, which then waits for a retry by hand.
  ///
  /// A pending submission has no next attempt then; a notification gets the reason as its problem.
  ///
  /// - Parameter job: A job that is claimed, or was returned to its queue by its worker.
  /// - Returns: False if it is completed, claimed by another worker or was scheduled again.
  package func discard(_ job: Job, because reason: String, at now: Timestamp) async throws -> Bool {
    let consequences: [SQL] =
      switch job.kind {
      case .verifySubmission:
        [
          """
          UPDATE tenure.submission SET retry_at = NULL
          WHERE submission_id = \(try job.subjectID) AND status = 'pending'
          """
        ]
      case .processNotification:
        [
          """
          UPDATE tenure.notification SET problem = \(reason.storedSentence)
          WHERE notification_id = \(job.subject) AND processed_at IS NULL
          """
        ]
      default: []
      }
    return try await database.withTransaction { transaction in
      let discarded = try await transaction.query(job.discard(because: reason, at: now))
      guard !discarded.isEmpty else { return false }
      try await transaction.commit(with: consequences)
      return true
    }
  }

  /// Whether a job, running ones included, is due.
  package func hasBacklog(at now: Timestamp) async throws -> Bool {
    try await database.query(
      "SELECT EXISTS (SELECT FROM tenure.job WHERE discarded_at IS NULL AND run_at <= \(now))"
    ).decodeOnly(Bool.self)
  }
}
