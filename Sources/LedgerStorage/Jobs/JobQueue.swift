import Postgres
package import Subscriptions

/// The queue, as workers see it.
///
/// What a worker does with a job that another has claimed since, when its own lease was over, does
/// nothing.
extension Ledger {
  /// Claims jobs that are due, for as long as the lease lasts, in one statement.
  ///
  /// - Parameters:
  ///   - limits: How many at the most, for each lane; none of a lane that is not named.
  ///   - worker: The name of who does them.
  ///   - now: What is due by then is claimed, and what a dead worker's lease left.
  ///   - lease: After this time others may take the jobs. Of a job that was begun often it is
  ///     longer, up to 128 times: perhaps it is what kills its workers.
  /// - Returns: The jobs, the most urgent first, and of those the most overdue.
  /// - Throws: What the database says.
  package func claimJobs(
    limits: [Job.Lane: Int], worker: String, at now: Timestamp, lease: Duration
  ) async throws -> [Job] {
    let wanted = limits.filter { $0.value > 0 }
    guard !wanted.isEmpty else { return [] }
    let leases = (0...7).map { now + lease * (1 << $0) }
    // Priority by priority, so that what is not due yet of one is not read to find the next one.
    // Kinds of a later version are left to its workers. An array of ids, since a join with so few
    // of so many can be planned as a walk over all.
    let rows = try await database.query(
      """
      WITH due AS (
        SELECT picked.job_id
        FROM unnest(\(wanted.map(\.key.rawValue)), \(wanted.map(\.value))) AS wanted (lane, most)
        CROSS JOIN LATERAL (
          SELECT ready.job_id
          FROM (VALUES (0), (1), (2)) AS urgency (priority)
          CROSS JOIN LATERAL (
            SELECT job_id FROM tenure.job
            WHERE lane = wanted.lane AND priority = urgency.priority AND parked_at IS NULL
              AND kind = ANY(\(Job.Task.Kind.allCases)) AND run_at <= \(now)
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
      RETURNING j.job_id, j.kind, j.subject, j.attempts, j.generation, j.created_at,
        j.priority, j.run_at
      """)
    return try rows.decode(
      Int64.self, String.self, String.self, Int.self, Int.self, Timestamp.self, Int.self,
      Timestamp.self
    ).sorted { ($0.6, $0.7, $0.0) < ($1.6, $1.7, $1.0) }
      .compactMap { id, kind, subject, attempts, generation, createdAt, _, _ in
        Job.Task(kind: kind, subject: subject).map {
          Job(
            id: id, task: $0, attempts: attempts, worker: worker, generation: generation,
            createdAt: createdAt)
        }
      }
  }

  /// When the next job of each lane can be claimed: when it is due, or its worker's lease is over.
  ///
  /// - Returns: The earliest moment of each lane that has any job; it can have passed already.
  /// - Throws: What the database says.
  package func nextJobs() async throws -> [Job.Lane: Timestamp] {
    try await Dictionary(
      database.query(Self.nextJobs).decode(Job.Lane.self, Timestamp.self),
      uniquingKeysWith: { min($0, $1) })
  }

  /// Without parameters, so that PostgreSQL plans it once: to plan it takes longer than to run it.
  ///
  /// Of the claimed ones only those are looked at that were due first: there is no index of leases,
  /// and the others come to the front.
  private static let nextJobs: SQL = """
    SELECT wanted.lane, min(coming.at)
    FROM unnest(ARRAY[\(literals(Job.Lane.allCases.map(\.rawValue)))]) AS wanted (lane)
    CROSS JOIN (VALUES (0), (1), (2)) AS urgency (priority)
    CROSS JOIN LATERAL (
      (SELECT run_at AS at FROM tenure.job
      WHERE lane = wanted.lane AND priority = urgency.priority AND parked_at IS NULL
        AND kind IN (\(literals(Job.Task.Kind.allCases.map(\.rawValue)))) AND locked_until IS NULL
      ORDER BY run_at
      LIMIT 1)
      UNION ALL
      SELECT greatest(run_at, locked_until) FROM (
        SELECT run_at, locked_until FROM tenure.job
        WHERE lane = wanted.lane AND priority = urgency.priority AND parked_at IS NULL
          AND kind IN (\(literals(Job.Task.Kind.allCases.map(\.rawValue))))
        ORDER BY run_at
        LIMIT 64
      ) AS first
    ) AS coming
    GROUP BY wanted.lane
    """

  private static func literals(_ names: [String]) -> SQL {
    SQL(unescaped: names.map { "'\($0)'" }.joined(separator: ", "))
  }

  /// Puts jobs into the queue that are not there yet, due at once.
  package func seed(_ tasks: [Job.Task], at now: Timestamp) async throws {
    try await database.batch(tasks.map { Job.insert($0, runAt: now, at: now) })
  }

  /// Holds on to jobs for longer.
  ///
  /// - Parameters:
  ///   - jobs: What one worker has claimed.
  ///   - end: Until when nobody else may claim them.
  /// - Returns: The ids of those that it still has; one that somebody is just changing may be
  ///   missing.
  /// - Throws: What the database says.
  @discardableResult
  package func extendLeases(of jobs: [Job], until end: Timestamp) async throws -> Set<Int64> {
    guard let worker = jobs.first?.worker else { return [] }
    let held = try await database.query(
      """
      WITH mine AS (
        SELECT job_id FROM tenure.job
        WHERE job_id = ANY (\(jobs.map(\.id))) AND locked_by = \(worker)
        FOR UPDATE SKIP LOCKED
      )
      UPDATE tenure.job AS j SET locked_until = greatest(j.locked_until, \(end))
      WHERE j.job_id = ANY (ARRAY(SELECT job_id FROM mine))
      RETURNING j.job_id
      """)
    return Set(try held.decode(Int64.self))
  }

  /// Gives back jobs that were claimed and not begun, as if nobody had claimed them.
  package func giveBack(_ jobs: [Job]) async throws {
    guard let worker = jobs.first?.worker else { return }
    try await database.execute(
      """
      UPDATE tenure.job SET locked_until = NULL, locked_by = NULL,
        attempts = greatest(attempts - 1, 0)
      WHERE job_id = ANY (\(jobs.map(\.id))) AND locked_by = \(worker)
      """)
    bell.ring(.jobs)
  }

  /// Gives a job back to the queue after a failure.
  ///
  /// Should another time have been given to it since it was claimed, that one holds.
  package func release(_ job: Job, until runAt: Timestamp, because reason: String) async throws {
    try await database.execute(
      """
      UPDATE tenure.job SET locked_until = NULL, locked_by = NULL,
        last_error = \(reason.storedSentence),
        run_at = CASE WHEN generation = \(job.generation) THEN \(runAt) ELSE run_at END
      WHERE job_id = \(job.id) AND locked_by = \(job.worker)
      """)
  }

  /// Takes a job out of the queue: there is nothing left to do.
  package func complete(_ job: Job) async throws {
    _ = try await database.batch(job.completion)
  }

  /// Ends a job that is to be done again at a time.
  package func `repeat`(
    _ job: Job, at runAt: Timestamp, priority: Int = 0, now: Timestamp
  ) async throws {
    _ = try await database.batch(job.repetition(at: runAt, priority: priority, now: now))
  }

  /// Gives a job up, until somebody starts it again.
  ///
  /// A pending submission that it was about has no next attempt then, and an unprocessed
  /// notification has the reason as its problem.
  ///
  /// - Parameters:
  ///   - job: Claimed, or given back to the queue by who had claimed it.
  ///   - reason: Why.
  ///   - now: When.
  /// - Returns: False if it is done, or another worker has claimed it, or something else is to be
  ///   done since.
  /// - Throws: What the database says.
  package func park(_ job: Job, because reason: String, at now: Timestamp) async throws -> Bool {
    try await database.withTransaction { transaction in
      let parked = try await transaction.query(job.park(because: reason, at: now))
        .decodeFirst(Int64.self)
      guard parked != nil else { return false }
      switch job.task {
      case .verifySubmission(let id):
        _ = try await transaction.commit(with: [
          """
          UPDATE tenure.submission SET retry_at = NULL
          WHERE submission_id = \(id) AND status = 'pending'
          """
        ])
      case .processNotification(let id):
        _ = try await transaction.commit(with: [
          """
          UPDATE tenure.notification SET problem = \(reason.storedSentence)
          WHERE notification_id = \(id) AND processed_at IS NULL
          """
        ])
      case .pollLine, .compareNotifications, .tellAccount, .expireOrder, .deliverEvents, .survey,
        .trimEvents, .foldMovements, .mergeAccount, .ageOut, .writeOwnership, .answerConsumption:
        break
      }
      return true
    }
  }
}

extension Ledger {
  /// Whether a job is due by a moment and not done: nobody has begun it, or somebody is at it.
  ///
  /// - Throws: What the database says.
  package func hasBacklog(at now: Timestamp) async throws -> Bool {
    try await database.query(
      """
      SELECT EXISTS (SELECT FROM tenure.job WHERE parked_at IS NULL AND run_at <= \(now))
      """
    ).decodeOnly(Bool.self)
  }

  /// Wakes workers that sleep until the next job is due, because a clock has jumped.
  package func wakeWorkers() {
    bell.ring(.jobs)
  }
}
