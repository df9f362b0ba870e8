import Foundation
import Postgres
package import Subscriptions

/// Numbers of pruned payloads.
package struct PayloadRetention: Hashable, Sendable {
  package fileprivate(set) var payloads = 0
  package fileprivate(set) var notifications = 0
  /// Apple's responses about either.
  package fileprivate(set) var answers = 0

  package static let none = PayloadRetention()
}

// Decisions follow from what was recorded when a payload arrived, so neither an audit nor a rebuild
// needs it. Its SHA-256 and length are kept.
extension Maintenance {
  /// Rows examined per query: a second for rows that are kept.
  private static let pruneWindow = 20_000
  /// Payloads pruned per transaction: some tens of milliseconds.
  private static let pruneBatch = 200
  /// The timeout of an examination, which reads all original transactions once.
  private static let pruneDeadline: Duration = .minutes(5)

  /// Prunes payloads older than the retention and reschedules the job.
  ///
  /// Keeps pending payloads, those of unfinished or parked jobs, and the latest receipt of each
  /// original transaction, which polls send to Apple.
  ///
  /// - Parameter isStopping: Whether to leave the rest to another run, due at once.
  package func prunePayloads(
    _ job: Job, keeping retention: RawRetention, every interval: Duration, at now: Timestamp,
    isStopping: @Sendable () -> Bool = { false }
  ) async throws -> PayloadRetention {
    var sum = PayloadRetention.none
    if let age = retention.submissions {
      try await pruneSubmissions(&sum, before: now - age, now, isStopping)
    }
    if let age = retention.notifications {
      try await pruneNotifications(&sum, before: now - age, now, isStopping)
    }
    let next = isStopping() ? now : now + interval
    _ = try await database.batch(
      retention.isEndless ? job.completion : job.repetition(at: next, now: now))
    return sum
  }

  private func pruneSubmissions(
    _ sum: inout PayloadRetention, before: Timestamp, _ now: Timestamp,
    _ isStopping: @Sendable () -> Bool
  ) async throws {
    var last: UUID?
    while !isStopping() {
      // A count instead of EXISTS, for which PostgreSQL may hash the whole table.
      let start: SQL = last.map { "WHERE p.submission_id > \($0)" } ?? ""
      let window = try await database.query(
        """
        SELECT p.submission_id, s.status <> 'pending' AND s.received_at < \(before) AND (
          p.pruned_at IS NULL OR 0 < (
            SELECT count(*) FROM tenure.submission_exchange AS e
            WHERE e.submission_id = p.submission_id AND e.answer IS NOT NULL))
        FROM tenure.submission_payload AS p
        JOIN tenure.submission AS s ON s.submission_id = p.submission_id
        \(start)
        ORDER BY p.submission_id LIMIT \(Self.pruneWindow)
        """, deadline: Self.pruneDeadline
      ).decode(UUID.self, Bool.self).map { (id: $0, isOld: $1) }
      guard let end = window.last?.id else { return }
      last = end
      let old = window.filter(\.isOld).map(\.id)
      let kept = try await receiptsInUse(amongSubmissions: old)
      for batch in old.batches(of: Self.pruneBatch) {
        let (payloads, answers) = try await database.query(
          """
          SELECT payloads, exchanges
          FROM tenure.prune_submissions(\(batch), \(kept), \(before), \(now))
          """
        ).decodeOnly(Int.self, Int.self)
        sum.payloads += payloads
        sum.answers += answers
      }
    }
  }

  private func pruneNotifications(
    _ sum: inout PayloadRetention, before: Timestamp, _ now: Timestamp,
    _ isStopping: @Sendable () -> Bool
  ) async throws {
    var last: (Timestamp, String)?
    while !isStopping() {
      let start: SQL = last.map { "AND (n.received_at, n.notification_id) > (\($0), \($1))" } ?? ""
      let window = try await database.query(
        """
        SELECT n.notification_id, n.received_at, n.processed_at IS NOT NULL AND (
          n.body IS NOT NULL OR 0 < (
            SELECT count(*) FROM tenure.notification_exchange AS e
            WHERE e.notification_id = n.notification_id AND e.answer IS NOT NULL))
        FROM tenure.notification AS n
        WHERE n.received_at < \(before) \(start)
        ORDER BY n.received_at, n.notification_id LIMIT \(Self.pruneWindow)
        """, deadline: Self.pruneDeadline
      ).decode(String.self, Timestamp.self, Bool.self).map { (id: $0, at: $1, isOld: $2) }
      guard let end = window.last else { return }
      last = (end.at, end.id)
      let old = window.filter(\.isOld).map(\.id)
      let kept = try await receiptsInUse(amongNotifications: old)
      for batch in old.batches(of: Self.pruneBatch) {
        let (bodies, answers) = try await database.query(
          """
          SELECT bodies, exchanges
          FROM tenure.prune_notifications(\(batch), \(kept), \(before), \(now))
          """
        ).decodeOnly(Int.self, Int.self)
        sum.notifications += bodies
        sum.answers += answers
      }
    }
  }

  // MARK: Receipts in use

  /// The submissions that hold the latest receipt of an original transaction.
  ///
  /// No index serves this: it would slow down every recording, and this query handles many at once.
  private func receiptsInUse(amongSubmissions ids: [UUID]) async throws -> [UUID] {
    guard !ids.isEmpty else { return [] }
    return try await database.query(
      """
      SELECT receipt_submission_id FROM tenure.poll_target
      WHERE receipt_submission_id = ANY (\(ids))
      UNION
      SELECT c.submission_id FROM tenure.claim AS c
      WHERE c.submission_id = ANY (\(ids)) AND NOT EXISTS (
        SELECT FROM tenure.poll_target AS l
        WHERE l.environment = c.environment
          AND l.original_transaction_id = c.original_transaction_id)
      """, deadline: Self.pruneDeadline
    ).decode(UUID.self)
  }

  private func receiptsInUse(amongNotifications ids: [String]) async throws -> [String] {
    guard !ids.isEmpty else { return [] }
    return try await database.query(
      """
      SELECT DISTINCT receipt_notification_id FROM tenure.poll_target
      WHERE receipt_notification_id = ANY (\(ids))
      """, deadline: Self.pruneDeadline
    ).decode(String.self)
  }
}

extension Array {
  /// Consecutive slices of at most `size` elements.
  fileprivate func batches(of size: Int) -> [[Element]] {
    stride(from: 0, to: count, by: size).map { Array(self[$0..<Swift.min($0 + size, count)]) }
  }
}

/// How long payloads are kept; what was recorded from them is permanent.
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

/// The remains of a pruned payload.
package struct PrunedPayload: Hashable, Sendable {
  package let at: Timestamp
  /// The digest of the payload.
  package let sha256: [UInt8]
  /// The payload's length in bytes.
  package let bytes: Int64

  /// Nil if the payload was not pruned.
  init?(at: Timestamp?, sha256: [UInt8]?, bytes: Int64?) {
    guard let at, let sha256, let bytes else { return nil }
    self.at = at
    self.sha256 = sha256
    self.bytes = bytes
  }
}
