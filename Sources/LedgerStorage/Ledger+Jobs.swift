import Foundation
import Postgres
package import Subscriptions

extension Ledger {
  /// Claims the jobs that are due, for as long as the lease lasts.
  ///
  /// - Parameters:
  ///   - limit: How many at the most.
  ///   - worker: The name of who does them.
  ///   - now: What is due by then is claimed, and what a dead worker's lease left.
  ///   - lease: After this time others may take the jobs.
  /// - Returns: The jobs, the most overdue first.
  /// - Throws: What the database says.
  package func claimJobs(limit: Int, worker: String, at now: Timestamp, lease: Duration)
    async throws -> [Job]
  {
    let rows = try await database.query(
      """
      WITH due AS (
        SELECT job_id FROM tenure.job
        WHERE parked_at IS NULL AND run_at <= \(now)
          AND (locked_until IS NULL OR locked_until <= \(now))
        ORDER BY run_at
        LIMIT \(limit)
        FOR UPDATE SKIP LOCKED
      )
      UPDATE tenure.job AS j SET attempts = attempts + 1, locked_until = \(now + lease),
        locked_by = \(worker)
      FROM due WHERE j.job_id = due.job_id
      RETURNING j.job_id, j.kind, j.subject, j.attempts, j.generation, j.created_at
      """)
    return try rows.decode(
      Int64.self, String.self, String.self, Int.self, Int.self, Timestamp.self
    ).compactMap { id, kind, subject, attempts, generation, createdAt in
      Job.Task(kind: kind, subject: subject).map {
        Job(
          id: id, task: $0, attempts: attempts, worker: worker, generation: generation,
          createdAt: createdAt)
      }
    }
  }

  // What a worker does with a job that another has claimed since, when its own lease was over, does
  // nothing.

  /// Gives a job back to the queue after a failure of ours.
  package func release(_ job: Job, until runAt: Timestamp, because reason: String) async throws {
    _ = try await database.execute(
      Job.reschedule(job.task, of: job.worker, at: runAt, because: reason))
  }

  /// Takes a job out of the queue: there is nothing left to do.
  package func complete(_ job: Job) async throws {
    _ = try await database.batch(job.completion)
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
  /// - Returns: False if it is done, or another worker has claimed it.
  /// - Throws: What the database says.
  package func park(_ job: Job, because reason: String, at now: Timestamp) async throws -> Bool {
    try await database.withTransaction { transaction in
      let parked = try await transaction.query(
        """
        UPDATE tenure.job SET parked_at = \(now), locked_until = NULL, locked_by = NULL,
          last_error = \(reason.storedSentence)
        WHERE job_id = \(job.id) AND (locked_by IS NULL OR locked_by = \(job.worker))
        RETURNING job_id
        """
      ).decodeFirst(Int64.self)
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
        .trimEvents:
        break
      }
      return true
    }
  }
}
