import Foundation
import JSONText
import Postgres
package import Subscriptions

/// The job queue as operators see it, kinds and queues of newer programs included.
extension JobQueue {
  package func jobCounts(at now: Timestamp) async throws -> [JobCount] {
    let isDue: SQL = "discarded_at IS NULL AND locked_until IS NULL AND run_at <= \(now)"
    return try await database.query(
      """
      SELECT kind, queue,
        count(*) FILTER (WHERE \(isDue)),
        count(*) FILTER (WHERE discarded_at IS NULL AND locked_until IS NULL AND run_at > \(now)),
        count(*) FILTER (WHERE discarded_at IS NULL AND locked_until IS NOT NULL),
        count(*) FILTER (WHERE discarded_at IS NOT NULL),
        count(*) FILTER (WHERE discarded_at IS NULL AND last_error IS NOT NULL),
        min(run_at) FILTER (WHERE \(isDue))
      FROM tenure.job
      GROUP BY kind, queue
      ORDER BY kind, queue
      """
    ).decode(
      String.self, String.self, Int.self, Int.self, Int.self, Int.self, Int.self, Timestamp?.self
    ).map { $0 }
  }

  package func discardedJobs(
    kind: String? = nil, after last: (discardedAt: Timestamp, id: Int64)? = nil, limit: Int
  ) async throws -> [StoredJob] {
    let rest =
      last.map {
        """
        (discarded_at < \($0.discardedAt) OR discarded_at = \($0.discardedAt) AND job_id > \($0.id))
        """ as SQL
      } ?? "true"
    return try await jobs(
      """
      WHERE discarded_at IS NOT NULL AND (\(kind) IS NULL OR kind = \(kind)) AND \(rest)
      ORDER BY discarded_at DESC, job_id LIMIT \(limit)
      """,
      at: Timestamp(milliseconds: 0))
  }

  package func jobs(named name: String, at now: Timestamp) async throws -> [StoredJob] {
    try await jobs(
      // The index begins with the kind, of which there are few.
      """
      WHERE kind = ANY (\(Job.Kind.allCases.map(\.rawValue)))
          AND subject IN (\(name), \(name.lowercased()))
        OR job_id = \(Int64(name))
      ORDER BY kind
      """,
      at: now)
  }

  private func jobs(_ condition: SQL, at now: Timestamp) async throws -> [StoredJob] {
    try await database.query(
      """
      SELECT job_id, kind, subject, queue, priority,
        CASE WHEN discarded_at IS NOT NULL THEN 'parked' WHEN locked_until IS NOT NULL THEN 'running'
          WHEN run_at <= \(now) THEN 'due' ELSE 'waiting' END,
        run_at, attempts, locked_by, locked_until, discarded_at, last_error, created_at
      FROM tenure.job \(condition)
      """
    ).decode(into: StoredJob.init)
  }

  /// Retries jobs now with a fresh retry window, except running ones; a submission then has a
  /// next attempt again.
  package func restartJobs(
    _ selection: JobSelection, by administrator: Administrator? = nil, at now: Timestamp
  ) async throws -> Int {
    try await database.withTransaction { transaction in
      let restarted = try await transaction.query(
        """
        UPDATE tenure.job SET discarded_at = NULL, created_at = \(now), run_at = \(now), attempts = 0
        WHERE locked_until IS NULL AND \(selection.condition)
        RETURNING kind, subject
        """
      ).decode(String.self, String.self)
      let submissions = restarted.filter { $0.0 == Job.Kind.verifySubmission.rawValue }
        .compactMap { UUID(uuidString: $0.1) }
      if !submissions.isEmpty {
        _ = try await transaction.execute(
          """
          UPDATE tenure.submission SET retry_at = \(now)
          WHERE status = 'pending' AND submission_id = ANY(\(submissions))
          """)
      }
      let count = restarted.count
      guard count > 0 else { return 0 }
      announce([.jobs], after: transaction)
      guard let administrator else { return count }
      let action = administrator.action(.retryJobs, on: selection.subject) {
        $0.member("jobs", count)
      }
      try await transaction.commit(with: [action.insert(at: now)])
      return count
    }
  }
}

package struct StoredJob: Sendable {
  package enum State: String, PostgresEncodable, PostgresDecodable, Sendable {
    case waiting
    case due
    case running
    /// The retry window is over; the job waits for a retry by hand.
    case discarded = "parked"
  }

  package let id: Int64
  package let kind: String
  package let subject: String
  package let queue: String
  package let priority: Int
  package let state: State
  package let runAt: Timestamp
  /// The number of runs since the job was enqueued, completed or retried by hand.
  package let attempts: Int
  package let worker: String?
  package let lockedUntil: Timestamp?
  package let discardedAt: Timestamp?
  package let lastError: String?
  package let createdAt: Timestamp
}

/// The number of jobs of one kind in one queue, by state.
///
/// Failing are those, not discarded, whose last run failed; `dueSince` is the `run_at` of the oldest
/// due job.
package typealias JobCount = (
  kind: String, queue: String, due: Int, waiting: Int, running: Int, discarded: Int, failing: Int,
  dueSince: Timestamp?
)

package struct JobSelection: Sendable {
  fileprivate let condition: SQL
  /// The subject of the logged action.
  fileprivate let subject: String

  package static let allDiscarded = Self(condition: "discarded_at IS NOT NULL", subject: "parked")

  package static func discarded(kind: String) -> Self {
    Self(condition: "discarded_at IS NOT NULL AND kind = \(kind)", subject: "parked \(kind)")
  }

  package static func discarded(_ ids: [Int64]) -> Self {
    Self(
      condition: "discarded_at IS NOT NULL AND job_id = ANY (\(ids))",
      subject: ids.map(String.init).joined(separator: " "))
  }

  /// Discarded or waiting jobs, by ID or subject.
  package static func named(_ names: [String]) -> Self {
    Self(
      condition: """
        (subject = ANY (\(names + names.map { $0.lowercased() }))
          OR job_id = ANY (\(names.compactMap { Int64($0) })))
        """, subject: names.joined(separator: " "))
  }
}
