import Foundation
import Postgres
package import Subscriptions

/// An entitlement granted from a local receipt while Apple can't be asked.
///
/// It is never a charge and not part of the ledger; the decision on the submission removes it.
package struct ProvisionalGrant: Hashable, Sendable {
  package var entitlement: String
  package var endsAt: Timestamp
  /// The original transaction of the purchase in the receipt.
  package var line: OriginalTransactionKey

  package init(entitlement: String, endsAt: Timestamp, line: OriginalTransactionKey) {
    self.entitlement = entitlement
    self.endsAt = endsAt
    self.line = line
  }

  private static let reason = "Granted until Apple can verify a submitted receipt."

  /// Keeps others from granting the same, and reads the original transactions by which another
  /// account has provisional access already.
  ///
  /// One purchase gives one account provisional access, whichever will own it: a receipt that is
  /// passed around would else open every door while Apple is down.
  static func rivals(
    of submission: Submission, for grants: [ProvisionalGrant], at now: Timestamp
  ) -> Query<Set<OriginalTransactionKey>> {
    guard !grants.isEmpty else { return Query([]).map { [] } }
    let lines = Set(grants.map(\.line)).sorted()
    let locks = lines.map { line -> SQL in
      "SELECT pg_advisory_xact_lock(hashtextextended(\("provisional " + line.description), 0))"
    }
    return Query(
      Query(locks),
      Query(
        """
        SELECT environment, original_transaction_id FROM tenure.account_grant
        WHERE source = 'provisional' AND account_id <> \(submission.accountID)
          AND original_transaction_id = ANY(\(lines.map(\.originalTransactionID)))
          AND ends_at > \(now)
        """
      ) { rows -> [OriginalTransactionKey] in try rows.decode(OriginalTransactionKey.self) }
    ).map { _, rivals in Set(rivals) }
  }

  func grant(of submission: Submission) -> Grant {
    Grant(
      id: submission.id, entitlement: entitlement, startsAt: submission.receivedAt,
      endsAt: endsAt, source: .provisional, line: line)
  }

  /// Makes these the only provisional grants of a submission.
  ///
  /// - Parameter attempts: Earlier attempts to verify it; there is nothing to delete before the first.
  static func replace(
    _ grants: [ProvisionalGrant], of submission: Submission, after attempts: Int, at now: Timestamp
  ) -> [SQL] {
    let deletion: SQL = """
      DELETE FROM tenure.account_grant
      WHERE account_id = \(submission.accountID) AND submission_id = \(submission.id)
        AND entitlement <> ALL(\(grants.map(\.entitlement)))
      """
    return (attempts == 0 ? [] : [deletion])
      + grants.map { grant in
        """
        INSERT INTO tenure.account_grant (account_id, grant_id, entitlement, source, starts_at,
          ends_at, reason, recorded_at, submission_id, environment, original_transaction_id)
        VALUES (\(submission.accountID), gen_random_uuid(), \(grant.entitlement), 'provisional',
          \(submission.receivedAt), \(grant.endsAt), \(reason), \(now), \(submission.id),
          \(grant.line.environment), \(grant.line.originalTransactionID))
        ON CONFLICT (account_id, submission_id, entitlement) DO UPDATE
        SET ends_at = excluded.ends_at, environment = excluded.environment,
          original_transaction_id = excluded.original_transaction_id
        """
      }
  }
}

extension SubmissionStore {
  /// Loads and decides as a recording does, and then rolls back.
  package func rehearse(
    _ verified: VerifiedSubmission, at now: Timestamp
  ) async throws -> Recording {
    try await rehearse(verified.arrival(verified.evidence), at: now)
  }

  func rehearse(_ arrival: EvidenceBatch, at now: Timestamp) async throws -> Recording {
    try await database.withTransaction { transaction in
      let recording = try await recorder.load(arrival, in: transaction).decide(at: now)
      await transaction.rollBack()
      return recording
    }
  }

  /// Original transactions with provisional grants of decided submissions, which should not exist.
  func orphanedProvisionalGrants() async throws -> [OriginalTransactionKey] {
    // The decision deletes the grants. Read before and after the submissions' status, so that
    // grants of a concurrent decision are not reported.
    let before = try await provisionalGrants()
    let pending = try await database.query(
      """
      SELECT submission_id FROM tenure.submission
      WHERE submission_id = ANY(\(before.map(\.submission))) AND status = 'pending'
      """, deadline: LedgerAuditor.auditDeadline
    ).decode(UUID.self)
    let decided = Set(before.map(\.submission)).subtracting(pending)
    guard !decided.isEmpty else { return [] }
    return try await provisionalGrants().filter { decided.contains($0.submission) }.map(\.line)
  }

  private func provisionalGrants() async throws -> [(
    submission: UUID, line: OriginalTransactionKey
  )] {
    try await database.query(
      """
      SELECT submission_id, environment, original_transaction_id FROM tenure.account_grant
      WHERE source = 'provisional'
      ORDER BY environment, original_transaction_id
      """, deadline: LedgerAuditor.auditDeadline
    ).decode(UUID.self, OriginalTransactionKey.self).map { $0 }
  }
}
