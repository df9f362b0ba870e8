import Foundation
import JSONText
import Postgres
package import Subscriptions

/// The queue, as operators see it.
extension Ledger {
  /// Counts the jobs in the queue, by kind and lane.
  package func jobCounts(at now: Timestamp) async throws -> [JobCount] {
    try await database.query(
      """
      SELECT kind, lane,
        count(*) FILTER (WHERE parked_at IS NULL AND locked_until IS NULL AND run_at <= \(now)),
        count(*) FILTER (WHERE parked_at IS NULL AND locked_until IS NULL AND run_at > \(now)),
        count(*) FILTER (WHERE parked_at IS NULL AND locked_until IS NOT NULL),
        count(*) FILTER (WHERE parked_at IS NOT NULL),
        count(*) FILTER (WHERE parked_at IS NULL AND last_error IS NOT NULL),
        min(run_at) FILTER (WHERE parked_at IS NULL AND locked_until IS NULL AND run_at <= \(now))
      FROM tenure.job
      GROUP BY kind, lane
      ORDER BY kind, lane
      """
    ).decode(
      String.self, Job.Lane.self, Int.self, Int.self, Int.self, Int.self, Int.self, Timestamp?.self
    ).map {
      JobCount(
        kind: $0, lane: $1, due: $2, waiting: $3, running: $4, parked: $5, failing: $6,
        dueSince: $7)
    }
  }

  /// The jobs that were given up, the last one first.
  ///
  /// - Parameters:
  ///   - kind: Only those of this kind; nil: all.
  ///   - last: Only those that come behind this one; nil: from the first one on.
  ///   - limit: How many at the most.
  /// - Returns: The jobs.
  /// - Throws: What the database says.
  package func parkedJobs(
    kind: String? = nil, after last: (parkedAt: Timestamp, id: Int64)? = nil, limit: Int
  ) async throws -> [StoredJob] {
    let rest =
      last.map {
        "(parked_at < \($0.parkedAt) OR parked_at = \($0.parkedAt) AND job_id > \($0.id))" as SQL
      } ?? "true"
    return try await jobs(
      """
      WHERE parked_at IS NOT NULL AND (\(kind) IS NULL OR kind = \(kind)) AND \(rest)
      ORDER BY parked_at DESC, job_id LIMIT \(limit)
      """,
      at: Timestamp(milliseconds: 0))
  }

  /// The jobs of a number, or about something.
  ///
  /// - Parameters:
  ///   - name: The number, or what they are about.
  ///   - now: Tells what is due.
  /// - Returns: The jobs, of which there can be one of each kind.
  /// - Throws: What the database says.
  package func jobs(named name: String, at now: Timestamp) async throws -> [StoredJob] {
    try await jobs(
      // With the kinds, which are few, there is an index by the subjects.
      """
      WHERE kind = ANY (\(Job.Task.Kind.allCases.map(\.rawValue)))
          AND subject IN (\(name), \(name.lowercased()))
        OR job_id = \(Int64(name))
      ORDER BY kind
      """,
      at: now)
  }

  private func jobs(_ condition: SQL, at now: Timestamp) async throws -> [StoredJob] {
    try await database.query(
      """
      SELECT job_id, kind, subject, lane, priority, run_at, attempts, locked_by,
        locked_until, parked_at, last_error, created_at
      FROM tenure.job \(condition)
      """
    ).decode(
      Int64.self, String.self, String.self, Job.Lane.self, Int.self, Timestamp.self, Int.self,
      String?.self, Timestamp?.self, Timestamp?.self, String?.self, Timestamp.self
    ).map {
      let state: StoredJob.State =
        $9 != nil ? .parked : $8 != nil ? .running : $5 <= now ? .due : .waiting
      return StoredJob(
        id: $0, kind: $1, subject: $2, lane: $3, priority: $4, state: state, runAt: $5,
        attempts: $6, worker: $7, lockedUntil: $8, parkedAt: $9, lastError: $10, createdAt: $11)
    }
  }

  /// Starts jobs again, at once, and as patiently as new ones.
  ///
  /// One that a worker is at stays as it is. A submission that was given up has its next attempt
  /// again.
  ///
  /// - Parameters:
  ///   - selection: Which ones.
  ///   - administrator: Who asks for it; nil: nobody of whom there is to be a record.
  ///   - now: When.
  /// - Returns: How many.
  /// - Throws: What the database says.
  package func restartJobs(
    _ selection: JobSelection, by administrator: Administrator? = nil, at now: Timestamp
  ) async throws -> Int {
    let count = try await database.withTransaction { transaction in
      let restarted = try await transaction.query(restart(selection, at: now))
        .decode(String.self, String.self)
      let submissions = restarted.filter { $0.0 == Job.Task.Kind.verifySubmission.rawValue }
        .compactMap { UUID(uuidString: $0.1) }
      if !submissions.isEmpty {
        _ = try await transaction.execute(
          """
          UPDATE tenure.submission SET retry_at = \(now)
          WHERE status = 'pending' AND submission_id = ANY(\(submissions))
          """)
      }
      let count = restarted.count
      guard count > 0, let administrator else { return count }
      let act = NewAct(
        action: .retryJobs, subject: selection.inWords, administrator: administrator,
        data: NewAct.data { $0.member("jobs", count) })
      try await transaction.commit(with: [act.insert(at: now)])
      return count
    }
    if count > 0 { bell.ring(.jobs) }
    return count
  }

  private func restart(_ selection: JobSelection, at now: Timestamp) -> SQL {
    let condition: SQL =
      switch selection {
      case .named(let names):
        """
        (subject = ANY (\(names + names.map { $0.lowercased() }))
          OR job_id = ANY (\(names.compactMap { Int64($0) })))
        """
      case .parked(let kind): "parked_at IS NOT NULL AND kind = \(kind)"
      case .parkedNumbers(let ids): "parked_at IS NOT NULL AND job_id = ANY (\(ids))"
      case .allParked: "parked_at IS NOT NULL"
      }
    return """
      UPDATE tenure.job SET parked_at = NULL, created_at = \(now), run_at = \(now), attempts = 0
      WHERE locked_until IS NULL AND \(condition)
      RETURNING kind, subject
      """
  }
}

extension JobSelection {
  /// Which jobs, for the record of administrators' acts.
  fileprivate var inWords: String {
    switch self {
    case .named(let names): names.joined(separator: " ")
    case .parked(let kind): "parked \(kind)"
    case .parkedNumbers(let ids): ids.map(String.init).joined(separator: " ")
    case .allParked: "parked"
    }
  }
}

/// A job as it stands in the queue, for people to look at.
package struct StoredJob: Sendable {
  /// What a job waits for.
  package enum State: String, Sendable {
    /// Its time has not come.
    case waiting
    /// A worker could begin it.
    case due
    /// A worker is at it.
    case running
    /// It was given up, and waits for somebody to start it again.
    case parked
  }

  package let id: Int64
  package let kind: String
  package let subject: String
  package let lane: Job.Lane
  package let priority: Int
  package let state: State
  package let runAt: Timestamp
  /// How often it was begun since it was last put into the queue, done, or started again.
  package let attempts: Int
  /// Who is at it.
  package let worker: String?
  package let lockedUntil: Timestamp?
  package let parkedAt: Timestamp?
  /// What happened last; nil: nothing went wrong.
  package let lastError: String?
  package let createdAt: Timestamp
}

/// How many jobs of a kind there are.
package struct JobCount: Sendable {
  package let kind: String
  package let lane: Job.Lane
  package let due: Int
  package let waiting: Int
  package let running: Int
  package let parked: Int
  /// How many are neither parked nor done, and failed when they were last tried.
  package let failing: Int
  /// Since when the oldest due one could have been begun.
  package let dueSince: Timestamp?
}

/// Which jobs to start again.
package enum JobSelection: Sendable {
  /// These, parked or waiting, each by its number or by what it is about.
  case named([String])
  /// Those of a kind that were given up.
  case parked(kind: String)
  /// Those of these numbers that were given up.
  case parkedNumbers([Int64])
  /// All that were given up.
  case allParked
}
