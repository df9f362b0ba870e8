package import Foundation
import JSONText
import Postgres
package import Subscriptions

package struct RejectionCount: Hashable, Sendable {
  package let code: String
  package let appleStatus: Int?
  package let count: Int
  package let lastAt: Timestamp
}

extension SubmissionSummary {
  /// Nil before the decision, and for an outcome that only a newer version can read.
  package var decided: SubmissionOutcome? {
    outcome.flatMap { try? JSONDecoder().decode(SubmissionOutcome.self, from: Data($0.utf8)) }
  }
}

extension SubmissionStore {
  /// Reads rejected submissions, latest first, before `last`.
  package func rejectedSubmissions(
    before last: (decidedAt: Timestamp, id: UUID)?, limit: Int
  ) async throws -> [SubmissionSummary] {
    // The index is by day, so the condition on the day skips later rows.
    let rest =
      last.map { last in
        """
        (s.decided_at AT TIME ZONE 'UTC')::date
          <= (\(last.decidedAt)::timestamptz AT TIME ZONE 'UTC')::date
        AND (s.decided_at, s.submission_id) < (\(last.decidedAt), \(last.id))
        """ as SQL
      } ?? "true"
    return try await accounts.submissions(
      """
      s.status = 'rejected' AND \(rest)
      ORDER BY (s.decided_at AT TIME ZONE 'UTC')::date DESC, s.decided_at DESC,
        s.submission_id DESC
      LIMIT \(limit)
      """)
  }

  /// Counts rejections since `start`, by reason.
  package func rejectionCounts(since start: Timestamp) async throws -> [RejectionCount] {
    try await database.query(
      """
      SELECT problem, apple_status, count(*), max(decided_at) FROM tenure.submission
      WHERE status = 'rejected' AND decided_at >= \(start)
        AND (decided_at AT TIME ZONE 'UTC')::date
          >= (\(start)::timestamptz AT TIME ZONE 'UTC')::date
      GROUP BY problem, apple_status
      ORDER BY 3 DESC, 1, 2
      """
    ).decode(String.self, Int?.self, Int.self, Timestamp.self).map {
      RejectionCount(code: $0, appleStatus: $1, count: $2, lastAt: $3)
    }
  }

  /// Schedules rejected submissions for another verification, once the cause is fixed.
  ///
  /// Skips those that are no longer rejected or whose payload was pruned or erased.
  package func verifyAgain(
    _ ids: [UUID], by administrator: Administrator, at now: Timestamp
  ) async throws -> Int {
    let reopened = try await database.withTransaction { transaction in
      let digests = try await transaction.query(
        """
        SELECT DISTINCT body_sha256 FROM tenure.submission
        WHERE submission_id = ANY (\(ids)) AND body_sha256 IS NOT NULL
        """
      ).decode([UInt8].self)
      let stored = try await transaction.keepBodies(digests)
      let reopened = try await transaction.query(
        """
        UPDATE tenure.submission SET status = 'pending', decided_at = NULL,
          retry_at = \(now), problem = NULL, problem_detail = NULL, apple_status = NULL
        WHERE submission_id = ANY (\(ids)) AND status = 'rejected' AND erased_at IS NULL
          AND body_sha256 = ANY (\(stored))
        RETURNING submission_id
        """
      ).decode(UUID.self)
      guard !reopened.isEmpty else { return reopened }
      let action = NewAdministratorAction(
        action: .verifySubmissions,
        subject: reopened.map { $0.uuidString.lowercased() }.joined(separator: " "),
        administrator: administrator,
        data: NewAdministratorAction.data { $0.member("submissions", reopened.count) })
      try await transaction.commit(
        with: reopened.map { Job.schedule(.verifySubmission($0), runAt: now, at: now) }
          + [action.insert(at: now)])
      return reopened
    }
    if !reopened.isEmpty { notifier.notify(.jobs) }
    return reopened.count
  }
}
