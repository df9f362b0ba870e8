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

extension SubmissionStore {
  /// Reads a submission under the account that its sender was merged into, if it was.
  package func submission(_ id: UUID) async throws -> Submission? {
    let (found, accounts) = try await read("submission_id = \(id)")
    guard var submission = found.first, var known = accounts[submission.account] else { return nil }
    while let into = known.mergedInto {
      guard let next = try await ownership.knownAccounts([into])[into] else { return nil }
      (submission.account, submission.accountID, known) = (into, next.id, next)
    }
    return submission
  }

  func submissions(_ condition: SQL) async throws -> [Submission] {
    try await read(condition).submissions
  }

  /// Reads submissions with the accounts that sent them, without those of unknown accounts.
  private func read(_ condition: SQL) async throws -> (
    submissions: [Submission], accounts: [AccountKey: KnownAccount]
  ) {
    let rows = try await database.query(
      """
      SELECT submission_id, account_key, received_at, transaction_id, order_id, restore, bundle_id,
        CASE WHEN body_sha256 IS NULL THEN NULL WHEN signed_transactions IS NULL THEN 'receipt'
          ELSE 'signed_transaction' END,
        status, environment, decided_at, retry_at, attempts, problem, problem_detail, apple_status,
        outcome
      FROM tenure.submission WHERE \(condition)
      """
    ).decode(
      UUID.self, AccountKey.self, Timestamp.self, TransactionID?.self, UUID?.self, Bool.self,
      String?.self, EntrySource.Kind?.self, Submission.Status.self, Environment?.self,
      Timestamp?.self, Timestamp?.self, Int.self, String?.self, String?.self, Int?.self,
      String?.self)
    let accounts = try await ownership.knownAccounts(Set(rows.map(\.1)))
    let submissions = rows.compactMap {
      id, account, receivedAt, transactionID, orderID, isRestore, bundleID, kind, status,
      environment, decidedAt, retryAt, attempts, problem, detail, appleStatus, outcome in
      accounts[account].map {
        Submission(
          id: id, account: account, accountID: $0.id, receivedAt: receivedAt,
          transactionID: transactionID, orderID: orderID, isRestore: isRestore,
          bundleID: bundleID, kind: kind, status: status, environment: environment,
          decidedAt: decidedAt, retryAt: retryAt, attempts: attempts,
          problem: problem.map {
            SubmissionProblem(code: $0, detail: detail ?? "", appleStatus: appleStatus)
          }, outcome: outcome)
      }
    }
    return (submissions, accounts)
  }

  /// Reads rejected submissions, latest first, before `last`.
  package func rejectedSubmissions(
    before last: (decidedAt: Timestamp, id: UUID)?, limit: Int
  ) async throws -> [Submission] {
    // The index is by day, so the condition on the day skips later rows.
    let rest =
      last.map { last in
        """
        (decided_at AT TIME ZONE 'UTC')::date
          <= (\(last.decidedAt)::timestamptz AT TIME ZONE 'UTC')::date
        AND (decided_at, submission_id) < (\(last.decidedAt), \(last.id))
        """ as SQL
      } ?? "true"
    return try await submissions(
      """
      status = 'rejected' AND \(rest)
      ORDER BY (decided_at AT TIME ZONE 'UTC')::date DESC, decided_at DESC,
        submission_id DESC
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
    ).decode(into: RejectionCount.init)
  }

  /// Schedules rejected submissions for another verification, once the cause is fixed.
  ///
  /// Skips those that are no longer rejected or whose payload was pruned or erased.
  package func verifyAgain(
    _ ids: [UUID], by administrator: Administrator, at now: Timestamp
  ) async throws -> Int {
    try await database.withTransaction { transaction in
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
        RETURNING account_key, submission_id
        """
      ).decode(AccountKey.self, UUID.self).map { (account: $0, id: $1) }
      guard !reopened.isEmpty else { return 0 }
      let subject = reopened.map { $0.id.text }.joined(separator: " ")
      let action = administrator.action(.verifySubmissions, on: subject) {
        $0.member("submissions", reopened.count)
      }
      announce([.jobs], after: transaction)
      try await transaction.commit(
        with: reopened.map { Job.schedule(.verifySubmission($0.id), runAt: now, at: now) }
          + AccountChain.statements(
            reopened.map { AccountChain.seal(submission: $0.id, of: $0.account) }
              + [action.seal(at: now)]))
      return reopened.count
    }
  }
}
