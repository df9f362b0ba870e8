import Foundation
import Postgres
package import Subscriptions

// Decisions follow from facts recorded at arrival, so neither audit nor rebuild needs a body.
extension Maintenance {
  /// Bodies examined per query: a second for those that are kept.
  private static let pruneWindow = 5000
  /// Bodies pruned per transaction, some tens of milliseconds that others wait.
  private static let pruneBatch = 200
  /// The timeout of an examination, which reads all original transactions once.
  private static let pruneDeadline: Duration = .minutes(5)

  /// Prunes bodies older than the retention, reschedules the job, and returns their number.
  ///
  /// A body is as old as its latest use. Keeps pending ones, those of unfinished or parked jobs,
  /// and each original transaction's latest receipt, which polls send.
  ///
  /// - Parameter isStopping: Whether to leave the rest to another run, due at once.
  package func prunePayloads(
    _ job: Job, keeping retention: RawRetention, every interval: Duration, at now: Timestamp,
    isStopping: @Sendable () -> Bool = { false }
  ) async throws -> Int {
    let pruned = try await pruneBodies(
      submissionsBefore: retention.submissions.map { now - $0 },
      notificationsBefore: retention.notifications.map { now - $0 }, at: now, isStopping)
    let next = isStopping() ? now : now + interval
    _ = try await database.batch(
      retention.isEndless ? job.completion : job.repetition(at: next, now: now))
    return pruned
  }

  private func pruneBodies(
    submissionsBefore: Timestamp?, notificationsBefore: Timestamp?, at now: Timestamp,
    _ isStopping: @Sendable () -> Bool
  ) async throws -> Int {
    guard let before = [submissionsBefore, notificationsBefore].compactMap(\.self).max() else {
      return 0
    }
    var pruned = 0
    var last: (storedAt: Timestamp, digest: [UInt8])?
    while !isStopping() {
      let start: SQL = last.map { "AND (stored_at, sha256) > (\($0.storedAt), \($0.digest))" } ?? ""
      let window = try await database.query(
        """
        SELECT sha256, stored_at FROM tenure.body
        WHERE pruned_at IS NULL AND stored_at < \(before) \(start)
        ORDER BY stored_at, sha256 LIMIT \(Self.pruneWindow)
        """, deadline: Self.pruneDeadline
      ).decode([UInt8].self, Timestamp.self).map { (digest: $0, storedAt: $1) }
      guard let end = window.last else { break }
      last = (end.storedAt, end.digest)
      // Without locks; most bodies are still needed, some by very many.
      let digests = window.map(\.digest)
      let needed = try await database.query(
        """
        SELECT tenure.needed_bodies(\(digests), '{}', '{}', \(submissionsBefore),
          \(notificationsBefore))
        """, deadline: Self.pruneDeadline
      ).decodeOnly([[UInt8]].self)
      let old = Set(digests).subtracting(needed).sorted { $0.lexicographicallyPrecedes($1) }
      let (submissions, notifications) = try await receiptsInUse(among: old)
      for batch in old.batches(of: Self.pruneBatch) {
        pruned += try await database.query(
          """
          SELECT tenure.prune_bodies(\(batch), \(submissions), \(notifications),
            \(submissionsBefore), \(notificationsBefore), \(now))
          """
        ).decodeOnly(Int.self)
      }
    }
    return pruned
  }

  // MARK: Receipts in use

  /// The submissions and notifications whose bodies hold an original transaction's latest receipt.
  ///
  /// Without an index, which would slow down every recording; this handles many at once.
  private func receiptsInUse(
    among bodies: [[UInt8]]
  ) async throws -> (submissions: [UUID], notifications: [String]) {
    guard !bodies.isEmpty else { return ([], []) }
    let submissions = try await database.query(
      "SELECT submission_id FROM tenure.submission WHERE body_sha256 = ANY(\(bodies))",
      deadline: Self.pruneDeadline
    ).decode(UUID.self)
    let notifications = try await database.query(
      "SELECT notification_id FROM tenure.notification WHERE body_sha256 = ANY(\(bodies))",
      deadline: Self.pruneDeadline
    ).decode(String.self)
    let usedSubmissions = try await database.query(
      """
      SELECT receipt_submission_id FROM tenure.poll_target
      WHERE receipt_submission_id = ANY (\(submissions))
      UNION
      SELECT c.submission_id FROM tenure.ownership_action AS c
      WHERE c.submission_id = ANY (\(submissions)) AND NOT EXISTS (
        SELECT FROM tenure.poll_target AS l
        WHERE l.environment = c.environment
          AND l.original_transaction_id = c.original_transaction_id)
      """, deadline: Self.pruneDeadline
    ).decode(UUID.self)
    let usedNotifications = try await database.query(
      """
      SELECT DISTINCT receipt_notification_id FROM tenure.poll_target
      WHERE receipt_notification_id = ANY (\(notifications))
      """, deadline: Self.pruneDeadline
    ).decode(String.self)
    return (usedSubmissions, usedNotifications)
  }
}

/// How long payloads are kept; the facts recorded from them are permanent.
package struct RawRetention: Hashable, Sendable {
  /// For submissions and Apple's responses about them; nil: forever.
  package var submissions: Duration?
  /// For notifications and Apple's responses about receipts in them; nil: forever.
  package var notifications: Duration?

  package init(submissions: Duration? = nil, notifications: Duration? = nil) {
    self.submissions = submissions
    self.notifications = notifications
  }

  package var isEndless: Bool { submissions == nil && notifications == nil }
}

/// The remains of a pruned body.
package struct PrunedPayload: Hashable, Sendable {
  package let at: Timestamp
  package let sha256: [UInt8]
  package let bytes: Int64
}
