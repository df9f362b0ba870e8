import Foundation
import Postgres
package import Subscriptions

/// How many raw bodies were aged out.
package struct AgeingOut: Hashable, Sendable {
  package fileprivate(set) var payloads = 0
  package fileprivate(set) var notifications = 0
  /// Answers of Apple's about either.
  package fileprivate(set) var answers = 0

  package static let none = AgeingOut()
}

/// Raw bodies that have been kept for long enough: they go, and their SHA-256 and length stay.
///
/// Nothing follows from a raw body but what was recorded when it came, so that neither an audit nor
/// a rebuild misses it.
extension Ledger {
  /// How many rows one look goes through: a second's work for those that are left alone.
  private static let ageingWindow = 20_000
  /// How many are aged out in one transaction: some tens of milliseconds' work.
  private static let ageingBatch = 200
  /// How long a look may take, which reads all lines once.
  private static let ageingDeadline: Duration = .minutes(5)

  /// Ages out what is older than the retention, and plans the next time.
  ///
  /// What is pending, what a job is still to look at, one that was given up included, and the last
  /// receipt of each line stay: Apple is asked with them.
  ///
  /// - Parameters:
  ///   - job: Claimed.
  ///   - retention: How long what is kept.
  ///   - now: What counts as old is older at this moment.
  ///   - isStopping: Whether the rest is to be left for the next time, which is at once.
  /// - Returns: How many bodies were aged out.
  /// - Throws: What the database says.
  package func ageOut(
    _ job: Job, keeping retention: RawRetention, every interval: Duration, at now: Timestamp,
    isStopping: @Sendable () -> Bool = { false }
  ) async throws -> AgeingOut {
    var sum = AgeingOut.none
    if let age = retention.submissions {
      try await ageOutSubmissions(&sum, before: now - age, now, isStopping)
    }
    if let age = retention.notifications {
      try await ageOutNotifications(&sum, before: now - age, now, isStopping)
    }
    let next = isStopping() ? now : now + interval
    _ = try await database.batch(
      retention.isEndless ? job.completion : job.repetition(at: next, now: now))
    return sum
  }

  private func ageOutSubmissions(
    _ sum: inout AgeingOut, before: Timestamp, _ now: Timestamp,
    _ isStopping: @Sendable () -> Bool
  ) async throws {
    var last: UUID?
    while !isStopping() {
      // Counted rather than EXISTS, which PostgreSQL may answer from a hash of the whole table.
      let start: SQL = last.map { "WHERE p.submission_id > \($0)" } ?? ""
      let window = try await database.query(
        """
        SELECT p.submission_id, s.status <> 'pending' AND s.received_at < \(before) AND (
          p.aged_out_at IS NULL OR 0 < (
            SELECT count(*) FROM tenure.submission_exchange AS e
            WHERE e.submission_id = p.submission_id AND e.answer IS NOT NULL))
        FROM tenure.submission_payload AS p
        JOIN tenure.submission AS s ON s.submission_id = p.submission_id
        \(start)
        ORDER BY p.submission_id LIMIT \(Self.ageingWindow)
        """, deadline: Self.ageingDeadline
      ).decode(UUID.self, Bool.self).map { (id: $0, isOld: $1) }
      guard let end = window.last?.id else { return }
      last = end
      let old = window.filter(\.isOld).map(\.id)
      let kept = try await receiptsInUse(amongSubmissions: old)
      for batch in old.batches(of: Self.ageingBatch) {
        let (payloads, answers) = try await database.query(
          """
          SELECT payloads, exchanges
          FROM tenure.age_out_submissions(\(batch), \(kept), \(before), \(now))
          """
        ).decodeOnly(Int.self, Int.self)
        sum.payloads += payloads
        sum.answers += answers
      }
    }
  }

  private func ageOutNotifications(
    _ sum: inout AgeingOut, before: Timestamp, _ now: Timestamp,
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
        ORDER BY n.received_at, n.notification_id LIMIT \(Self.ageingWindow)
        """, deadline: Self.ageingDeadline
      ).decode(String.self, Timestamp.self, Bool.self).map { (id: $0, at: $1, isOld: $2) }
      guard let end = window.last else { return }
      last = (end.at, end.id)
      let old = window.filter(\.isOld).map(\.id)
      let kept = try await receiptsInUse(amongNotifications: old)
      for batch in old.batches(of: Self.ageingBatch) {
        let (bodies, answers) = try await database.query(
          """
          SELECT bodies, exchanges
          FROM tenure.age_out_notifications(\(batch), \(kept), \(before), \(now))
          """
        ).decodeOnly(Int.self, Int.self)
        sum.notifications += bodies
        sum.answers += answers
      }
    }
  }

  // MARK: What polls need

  /// Which of some submissions hold the last receipt of a line.
  ///
  /// There is no index to find a line by its receipt: it would cost every recording, and this looks
  /// once for many.
  private func receiptsInUse(amongSubmissions ids: [UUID]) async throws -> [UUID] {
    guard !ids.isEmpty else { return [] }
    return try await database.query(
      """
      SELECT receipt_submission_id FROM tenure.line_source
      WHERE receipt_submission_id = ANY (\(ids))
      UNION
      SELECT c.submission_id FROM tenure.claim AS c
      WHERE c.submission_id = ANY (\(ids)) AND NOT EXISTS (
        SELECT FROM tenure.line_source AS l
        WHERE l.environment = c.environment
          AND l.original_transaction_id = c.original_transaction_id)
      """, deadline: Self.ageingDeadline
    ).decode(UUID.self).map(\.self)
  }

  private func receiptsInUse(amongNotifications ids: [String]) async throws -> [String] {
    guard !ids.isEmpty else { return [] }
    return try await database.query(
      """
      SELECT DISTINCT receipt_notification_id FROM tenure.line_source
      WHERE receipt_notification_id = ANY (\(ids))
      """, deadline: Self.ageingDeadline
    ).decode(String.self).map(\.self)
  }
}

extension Array {
  /// Its elements in order, so many together.
  fileprivate func batches(of size: Int) -> [[Element]] {
    stride(from: 0, to: count, by: size).map { Array(self[$0..<Swift.min($0 + size, count)]) }
  }
}

/// How long raw bodies are kept; what was decided of them stays for ever.
package struct RawRetention: Hashable, Sendable {
  /// What was submitted, and what Apple answered about it; nil: for ever.
  package var submissions: Duration?
  /// Notifications, and what Apple answered about receipts in them; nil: for ever.
  package var notifications: Duration?

  package init(submissions: Duration? = nil, notifications: Duration? = nil) {
    self.submissions = submissions
    self.notifications = notifications
  }

  /// Whether everything is kept for ever.
  package var isEndless: Bool { submissions == nil && notifications == nil }
}

/// What is left of a raw body that was aged out.
package struct AgedOut: Hashable, Sendable {
  package let at: Timestamp
  /// Of the body as it was.
  package let sha256: [UInt8]
  /// The length of the body in bytes.
  package let bytes: Int64

  /// Nil: the body is there.
  init?(at: Timestamp?, sha256: [UInt8]?, bytes: Int64?) {
    guard let at, let sha256, let bytes else { return nil }
    self.at = at
    self.sha256 = sha256
    self.bytes = bytes
  }
}
