package import Foundation
import Postgres
package import Subscriptions

/// Something that is still to be done.
package struct Job: Hashable, Sendable {
  /// The closed set of what workers do.
  package enum Task: Hashable, Sendable {
    /// Take up a submission that is still open: mostly, ask Apple again.
    case verifySubmission(UUID)
    /// Process a notification that was stored.
    case processNotification(String)
  }

  package let id: Int64
  package let task: Task
  /// How often it was begun, this time included.
  package let attempts: Int
  /// Who has claimed it.
  package let worker: String
  /// When it was put into the queue, or started again after it was given up.
  package let createdAt: Timestamp
}

extension Job.Task {
  var kind: String {
    switch self {
    case .verifySubmission: "verify_submission"
    case .processNotification: "process_notification"
    }
  }

  var subject: String {
    switch self {
    case .verifySubmission(let id): id.uuidString.lowercased()
    case .processNotification(let id): id
    }
  }

  /// What an operator tells PostgreSQL to start the job again after it was given up.
  package var restartStatement: String {
    """
    UPDATE tenure.job SET parked_at = NULL, created_at = now(), run_at = now() \
    WHERE subject = '\(subject.replacing("'", with: "''"))'
    """
  }

  init?(kind: String, subject: String) {
    switch kind {
    case "verify_submission":
      guard let id = UUID(uuidString: subject) else { return nil }
      self = .verifySubmission(id)
    case "process_notification": self = .processNotification(subject)
    default: return nil
    }
  }
}

extension Job {
  /// Puts a job into the queue; one that is there already stays as it is.
  static func insert(_ task: Task, runAt: Timestamp, at now: Timestamp) -> SQL {
    """
    INSERT INTO tenure.job (kind, subject, run_at, created_at)
    VALUES (\(task.kind), \(task.subject), \(runAt), \(now))
    ON CONFLICT (kind, subject) DO NOTHING
    """
  }

  static func delete(_ task: Task) -> SQL {
    "DELETE FROM tenure.job WHERE kind = \(task.kind) AND subject = \(task.subject)"
  }

  /// Gives a job back to the queue, to be done later.
  ///
  /// Only for the worker that has claimed it, or where nobody has if that is nil: whoever comes
  /// late must not free what another has claimed since.
  static func reschedule(
    _ task: Task, of worker: String?, at runAt: Timestamp, because reason: String
  ) -> SQL {
    """
    UPDATE tenure.job SET run_at = \(runAt), locked_until = NULL, locked_by = NULL,
      last_error = \(reason.storedSentence)
    WHERE kind = \(task.kind) AND subject = \(task.subject)
      AND locked_by IS NOT DISTINCT FROM \(worker)
    """
  }
}
