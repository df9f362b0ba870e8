import Crypto
import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

/// Raw bodies that are older than their retention.
struct PayloadRetentionTests {
  private let retention = RawRetention(submissions: .days(30), notifications: .days(60))

  /// A ledger with a submission and a notification of each day from the first to the tenth.
  private func withTenDays(_ body: @Sendable (Ledger) async throws -> Void) async throws {
    try await withLedger { ledger in
      _ = try await ledger.products.describe(
        Product(id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      for number in 1...10 {
        let (line, date) = (
          OriginalTransactionKey(
            .production, OriginalTransactionID(rawValue: "\(1000 + number)")), Double(number)
        )
        let id = TransactionID(rawValue: "\(number)")
        let submission = try await ledger.store(
          "receipt \(number)", by: "account \(number)", on: date)
        try await ledger.verify(
          submission, [charge(id, on: date, line: line)], claiming: [key(id, line: line)],
          on: date, exchanges: [exchange("answer \(number)")])
        _ = try await ledger.notifications.store(Self.notification(number), processAt: day(date))
        _ = try await ledger.notifications.process(
          NotificationStore.VerifiedNotification(
            id: "n\(number)", evidence: [status(true, on: date, line: line)],
            exchanges: [exchange("about n\(number)")]), at: day(date), terms: .everything)
      }
      try await Self.noteSources(ledger)
      try await body(ledger)
    }
  }

  /// The app of every line, with no receipt to ask with.
  private static func noteSources(_ ledger: Ledger) async throws {
    _ = try await ledger.database.execute(
      """
      INSERT INTO tenure.poll_target (environment, original_transaction_id, bundle_id)
      SELECT environment, original_transaction_id, 'com.example.app'
      FROM tenure.original_transaction
      """)
  }

  private static func notification(_ number: Int) -> NewNotification {
    NewNotification(
      id: "n\(number)", version: .two, receivedAt: day(Double(number)), body: "body \(number)")
  }

  private func prunePayloads(_ ledger: Ledger, on date: Double) async throws -> Int {
    try await ledger.jobs.seed([.prunePayloads], at: day(date))
    _ = try await ledger.database.execute(
      "UPDATE tenure.job SET run_at = \(day(date)) WHERE kind = 'prune_payloads'")
    let job = try #require(
      try await ledger.jobs.claimJobs(
        limits: [.maintenance: 10], worker: "w", at: day(date), lease: .seconds(60)
      ).first { $0.kind == .prunePayloads })
    return try await ledger.maintenance.prunePayloads(
      job, keeping: retention, every: .days(1), at: day(date))
  }

  /// The numbers of submissions, answers, notifications and answers about these, whose body is there.
  private func kept(_ ledger: Ledger) async throws -> [Int] {
    let bodies = try await ledger.database.query(
      "SELECT sha256 FROM tenure.body WHERE pruned_at IS NULL"
    ).decode([UInt8].self)
    return try await ledger.database.query(
      """
      SELECT (SELECT count(*) FROM tenure.submission WHERE body_sha256 = ANY(\(bodies))),
        (SELECT count(*) FROM tenure.submission_exchange WHERE body_sha256 = ANY(\(bodies))),
        (SELECT count(*) FROM tenure.notification WHERE body_sha256 = ANY(\(bodies))),
        (SELECT count(*) FROM tenure.notification_exchange WHERE body_sha256 = ANY(\(bodies)))
      """
    ).decode(Int.self, Int.self, Int.self, Int.self).flatMap { [$0, $1, $2, $3] }
  }

  @Test func `what is older goes, and its hash and length stay`() async throws {
    try await withTenDays { ledger in
      // On the 36th day the submissions of the first five are older than 30 days.
      #expect(try await prunePayloads(ledger, on: 36) == 10)
      #expect(try await kept(ledger) == [5, 5, 10, 10])
      // And on the 65th all of them, with the notifications of the first four.
      #expect(try await prunePayloads(ledger, on: 65) == 18)
      #expect(try await kept(ledger) == [0, 0, 6, 6])
      #expect(try await prunePayloads(ledger, on: 65) == 0)

      let id = try await ledger.database.query(
        "SELECT submission_id FROM tenure.submission ORDER BY received_at LIMIT 1"
      ).decodeOnly(UUID.self)
      #expect(try await ledger.submissions.payload(of: id) == nil)
      let payload = try #require(try await ledger.submissions.storedPayload(of: id).remains)
      #expect(payload.sha256 == Array(SHA256.hash(data: Data("receipt 1".utf8))))
      #expect(payload.bytes == 9)
      #expect(payload.at == day(36))
      let answer = try #require(try await ledger.submissions.exchanges(of: id).first)
      #expect(answer.answer == nil)
      #expect(answer.httpStatus == 200)
      #expect(answer.prunedPayload?.sha256 == Array(SHA256.hash(data: Data("answer 1".utf8))))
      let body = try await ledger.database.query(
        "SELECT bytes, content FROM tenure.body WHERE sha256 = sha256('body 1')"
      ).decodeOnly(Int.self, [UInt8]?.self)
      #expect(body == (6, nil))
      #expect(try await ledger.notifications.notification("n1")?.outcome != nil)
      // A repetition of Apple's is still known as one.
      #expect(try await !ledger.notifications.store(Self.notification(1), processAt: day(66)))
    }
  }

  @Test func `neither an audit nor a rebuild misses it`() async throws {
    try await withTenDays { ledger in
      _ = try await prunePayloads(ledger, on: 100)
      #expect(try await kept(ledger) == [0, 0, 0, 0])
      #expect(try await ledger.auditor.audit().differences == [])
      _ = try await ledger.database.execute("DELETE FROM tenure.holding")
      _ = try await ledger.auditor.rebuild()
      #expect(try await ledger.auditor.audit().differences == [])
      #expect(
        try await ledger.owner(of: "1", line: OriginalTransactionKey(.production, "1001"))
          == "account 1")
    }
  }

  // swift-format-ignore
  @Test(arguments: [
    // pending work                                                                                         kept
    ("UPDATE tenure.submission SET status = 'pending', decided_at = NULL",                                  [10, 10, 0, 0]),
    ("INSERT INTO tenure.job (kind, subject, queue, run_at, created_at, discarded_at, last_error) SELECT 'verify_submission', submission_id::text, 'submissions', now(), now(), now(), 'no' FROM tenure.submission", [10, 10, 0, 0]),
    ("SELECT 1",                                                                                            [0, 0, 0, 0]),
    ("DELETE FROM tenure.poll_target",                                                                      [10, 0, 0, 0]),
    ("INSERT INTO tenure.poll_target (environment, original_transaction_id, receipt_submission_id) SELECT 'production', submission_id::text, submission_id FROM tenure.submission", [10, 0, 0, 0]),
    ("UPDATE tenure.notification SET processed_at = NULL, outcome = NULL",                                  [0, 0, 10, 10]),
    ("INSERT INTO tenure.job (kind, subject, queue, run_at, created_at) SELECT 'process_notification', notification_id, 'notifications', now(), now() FROM tenure.notification", [0, 0, 10, 10]),
    ("INSERT INTO tenure.poll_target (environment, original_transaction_id, receipt_notification_id) SELECT 'production', notification_id, notification_id FROM tenure.notification", [0, 0, 10, 0]),
  ])
  func `what something is still to be done with stays`(change: String, kept expected: [Int])
    async throws
  {
    try await withTenDays { ledger in
      try await ledger.database.runScript(change)
      _ = try await prunePayloads(ledger, on: 100)
      #expect(try await kept(ledger) == expected)
    }
  }

  @Test func `a body is as old as its latest reference, and comes again when it is sent again`()
    async throws
  {
    try await withTenDays { ledger in
      // The receipt of the first day once more on the 20th, with the response of that day.
      let again = try await ledger.store("receipt 1", by: "account 1", on: 20)
      try await ledger.verify(
        again, [charge("1", on: 1, line: OriginalTransactionKey(.production, "1001"))],
        claiming: [key("1", line: OriginalTransactionKey(.production, "1001"))], on: 20,
        exchanges: [exchange("answer 1")])
      #expect(try await prunePayloads(ledger, on: 41) == 18)
      #expect(try await kept(ledger) == [2, 2, 10, 10])
      #expect(try await prunePayloads(ledger, on: 51) == 2)
      #expect(try await kept(ledger) == [0, 0, 10, 10])
      let third = try await ledger.store("receipt 1", by: "account 1", on: 60)
      #expect(try await kept(ledger) == [3, 0, 10, 10])
      #expect(try await ledger.submissions.payload(of: again.id) == .receipt("receipt 1"))
      #expect(try await ledger.submissions.payload(of: third.id) == .receipt("receipt 1"))
      #expect(try await ledger.submissions.storedPayload(of: again.id).remains == nil)
    }
  }

  @Test func `signed data is hashed in its order, with line feeds between`() async throws {
    try await withLedger { ledger in
      let id = UUID()
      _ = try await ledger.submissions.store(
        ledger.submissions.new(
          id: id, accountID: "a", receivedAt: start,
          payload: .signedData(transactions: ["a.b.c", "d.e.f"], renewalInfo: ["g.h.i"]),
          transactionID: nil, orderID: nil, isRestore: false, bundleID: nil,
          retryAt: start))
      let submission = try #require(try await ledger.submissions.submission(id))
      try await ledger.verify(submission, [charge("1", on: 0)], claiming: [key("1")], on: 0)
      try await Self.noteSources(ledger)
      #expect(try await prunePayloads(ledger, on: 100) == 1)
      let pruned = try #require(try await ledger.submissions.storedPayload(of: id).remains)
      #expect(pruned.sha256 == Array(SHA256.hash(data: Data("a.b.c\nd.e.f\ng.h.i".utf8))))
      #expect(pruned.bytes == 17)
    }
  }

  @Test func `a worker that stops leaves the rest for the next time, which is at once`()
    async throws
  {
    try await withTenDays { ledger in
      try await ledger.jobs.seed([.prunePayloads], at: day(36))
      let job = try #require(
        try await ledger.jobs.claimJobs(
          limits: [.maintenance: 10], worker: "w", at: day(36), lease: .seconds(60)
        ).first { $0.kind == .prunePayloads })
      let pruned = try await ledger.maintenance.prunePayloads(
        job, keeping: RawRetention(submissions: .days(30)), every: .days(1), at: day(36)
      ) { true }
      #expect(pruned == 0)
      #expect(try await prunePayloads(ledger, on: 36) == 10)
    }
  }

  @Test func `without a retention the job ends, and with one it comes again every day`()
    async throws
  {
    try await withTenDays { ledger in
      _ = try await prunePayloads(ledger, on: 36)
      let runAt = try await ledger.database.query(
        "SELECT run_at FROM tenure.job WHERE kind = 'prune_payloads'"
      ).decodeOnly(Timestamp.self)
      #expect(runAt == day(37))
      let job = try #require(
        try await ledger.jobs.claimJobs(
          limits: [.maintenance: 10], worker: "w", at: day(37), lease: .seconds(60)
        ).first { $0.kind == .prunePayloads })
      #expect(
        try await ledger.maintenance.prunePayloads(
          job, keeping: RawRetention(), every: .days(1), at: day(37)) == 0
      )
      let left = try await ledger.database.query(
        "SELECT count(*) FROM tenure.job WHERE kind = 'prune_payloads'"
      ).decodeOnly(Int.self)
      #expect(left == 0)
      #expect(try await kept(ledger) == [5, 5, 10, 10])
    }
  }

  @Test func `the programs age out by the owner's functions alone, and only what is old`()
    async throws
  {
    try await withTenDays { ledger in
      let bodies = try await ledger.database.query("SELECT sha256 FROM tenure.body").decode(
        [UInt8].self)
      try await ledger.database.withTransaction { transaction in
        _ = try await transaction.query(
          "SET LOCAL ROLE \(unescaped: ScratchPlace.environment.program)")
        let pruned = try await transaction.query(
          """
          SELECT tenure.prune_bodies(
            \(bodies), '{}', '{}', \(day(3.5)), NULL::timestamptz, \(day(50)))
          """
        ).decodeOnly(Int.self)
        #expect(pruned == 6)
        try await transaction.commit()
      }
      #expect(try await kept(ledger) == [7, 7, 10, 10])
    }
  }
}
