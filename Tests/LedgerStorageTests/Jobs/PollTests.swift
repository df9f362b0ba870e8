import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

/// When Apple is asked about lines, with what, and what that leaves behind.
struct PollTests {
  /// An appointment as the queue has it.
  private struct Planned: Hashable, Sendable {
    var line: String
    var runAt: Timestamp
    var priority: Int
    var generation: Int
    var worker: String?
  }

  private func plans(_ ledger: Ledger) async throws -> [Planned] {
    try await ledger.database.query(
      """
      SELECT subject, run_at, priority, generation, locked_by FROM tenure.job
      WHERE kind = 'poll_status' ORDER BY subject
      """
    ).decode(String.self, Timestamp.self, Int.self, Int.self, String?.self)
      .map { Planned(line: $0, runAt: $1, priority: $2, generation: $3, worker: $4) }
  }

  private func sources(_ ledger: Ledger) async throws -> [OriginalTransactionKey: PollTarget] {
    let rows = try await ledger.database.query(
      """
      SELECT original_transaction_id, bundle_id, receipt_submission_id, receipt_notification_id
      FROM tenure.poll_target
      """)
    var sources: [OriginalTransactionKey: PollTarget] = [:]
    for (id, bundleID, submission, notification) in try rows.decode(
      OriginalTransactionID.self, String?.self, UUID?.self, String?.self)
    {
      #expect(submission == nil || notification == nil)
      sources[OriginalTransactionKey(.production, id)] = PollTarget(
        bundleID: bundleID,
        receipt: submission.map { .submission($0) } ?? notification.map { .notification($0) })
    }
    return sources
  }

  private func claim(_ ledger: Ledger, by worker: String, on date: Double) async throws -> Job {
    let jobs = try await ledger.jobs.claimJobs(
      limits: [.polls: 1], worker: worker, at: day(date), lease: .seconds(60))
    return try #require(jobs.first)
  }

  /// A purchase that does not renew.
  private func bought(
    _ id: TransactionID, on date: Double, line: OriginalTransactionKey = originalKey
  )
    -> Evidence
  {
    .transaction(
      TransactionRecord(
        key: key(id, line: line, product: "coins"), asOf: day(date), purchaseDate: day(date),
        productType: .consumable, revocation: .notRevoked))
  }

  private func lies(_ moment: Timestamp?, _ date: Double, within: Duration) -> Bool {
    guard let moment else { return false }
    return day(date) <= moment && moment <= day(date) + within
  }

  // MARK: Planning

  @Test func `what is recorded is planned in the same commit`() async throws {
    try await withLedger { ledger in
      let submission = try await ledger.store(by: "anna", on: 0)
      try await ledger.database.runScript(
        "ALTER TABLE tenure.submission ADD CONSTRAINT never_verified CHECK (status <> 'verified')")
      await #expect(throws: PostgresError.self) {
        _ = try await ledger.submissions.record(
          SubmissionStore.VerifiedSubmission(
            submission: submission, source: .receipt, environment: .production,
            evidence: [charge("1", on: 0)], bundleID: "a.b", selected: [key("1")], exchanges: []),
          at: day(0), terms: .everything)
      }
      try await ledger.database.runScript(
        "ALTER TABLE tenure.submission DROP CONSTRAINT never_verified")
      #expect(try await plans(ledger).isEmpty)
      #expect(try await sources(ledger).isEmpty)

      try await ledger.verify(
        submission, [charge("1", on: 0), status(true, on: 0)], claiming: [key("1")], on: 0)
      let plan = try #require(try await plans(ledger).first)
      #expect(plan.line == "production/1000")
      #expect(plan.priority == 1)
      #expect(lies(plan.runAt, 30 - 26.0 / 24, within: .hours(1)))
    }
  }

  @Test func `what says nothing new leaves the plan, and what does makes a new one`()
    async throws
  {
    try await withLedger { ledger in
      let first = [charge("1", on: 0), status(true, on: 0)]
      _ = try await ledger.polls.record(first, polledAs: "p", at: day(0), terms: .everything)
      let plan = try await plans(ledger)
      #expect(plan.count == 1)
      _ = try await ledger.polls.record(first, polledAs: "p", at: day(1), terms: .everything)
      #expect(try await plans(ledger) == plan)
      // Off: at the end, and not before.
      _ = try await ledger.polls.record(
        [status(false, on: 2)], polledAs: "p", at: day(2), terms: .everything)
      let off = try await plans(ledger)
      #expect(off.count == 1)
      #expect(lies(off.first?.runAt, 30, within: .minutes(5)))
      // Renewed all the same.
      _ = try await ledger.polls.record(
        [charge("2", on: 30), status(true, on: 30)], polledAs: "p", at: day(30),
        terms: .everything)
      #expect(
        lies(try await plans(ledger).first?.runAt, 60 - 26.0 / 24, within: .hours(1)))
    }
  }

  @Test func `linked original transactions have one appointment`() async throws {
    try await withLedger { ledger in
      let other = OriginalTransactionKey(.production, "2000")
      _ = try await ledger.polls.record(
        [charge("1", on: 0)], polledAs: "p", at: day(0), terms: .everything)
      #expect(try await plans(ledger).map(\.line) == ["production/1000"])
      _ = try await ledger.polls.record(
        [charge("2", on: 30, line: other), .link(line: other, previous: originalKey)],
        polledAs: "p",
        at: day(30), terms: .everything)
      #expect(try await plans(ledger).map(\.line) == ["production/2000"])
      #expect(try await ledger.polls.pollRequest(originalKey)?.isSubscription == true)
    }
  }

  @Test func `refunds are polled for where notifications would not report them`() async throws {
    try await withLedger { ledger in
      _ = try await ledger.polls.record(
        [bought("1", on: 0)], polledAs: "p", at: day(0), terms: .everything)
      let plan = try #require(try await plans(ledger).first)
      #expect(plan.priority == 2)
      #expect(lies(plan.runAt, 2, within: .hours(6)))
      #expect(try await !ledger.polls.hasNotifications(from: .production))

      _ = try await ledger.notifications.store(
        NewNotification(
          id: "n", version: .two, receivedAt: day(1), body: "a.b.c", environment: .production),
        processAt: nil)
      let line = OriginalTransactionKey(.production, "2000")
      _ = try await ledger.polls.record(
        [bought("2", on: 1, line: line)], polledAs: "p", at: day(1), terms: .everything)
      #expect(try await plans(ledger).map(\.line) == ["production/1000"])
      // Another process does not know it yet, and finds out.
      let other = Ledger(database: ledger.database)
      #expect(try await other.polls.hasNotifications(from: .production))
      #expect(try await !other.polls.hasNotifications(from: .sandbox))
    }
  }

  @Test func `a reconciliation adds appointments only where there are none`()
    async throws
  {
    try await withLedger { ledger in
      _ = try await ledger.polls.record(
        [charge("1", on: 0)], polledAs: "p", at: day(0), terms: .everything)
      let plan = try await plans(ledger)
      let original = try #require(try await ledger.ownership.original(of: originalKey))
      _ = try await ledger.database.batch(
        ledger.polls.missingAppointments(of: original, at: day(40)))
      #expect(try await plans(ledger) == plan)
      try await ledger.database.execute("DELETE FROM tenure.job")
      _ = try await ledger.database.batch(
        ledger.polls.missingAppointments(of: original, at: day(0)))
      #expect(try await plans(ledger) == plan)
    }
  }

  // MARK: Sources

  @Test func `the latest receipt of an original transaction is known, and its app`() async throws {
    try await withLedger { ledger in
      let submission = try await ledger.store(by: "anna", on: 0)
      _ = try await ledger.submissions.record(
        SubmissionStore.VerifiedSubmission(
          submission: submission, source: .receipt, environment: .production,
          evidence: [charge("1", on: 0)], bundleID: "a.b", selected: [key("1")], exchanges: []),
        at: day(0), terms: .everything)
      let ofSubmission = PollTarget(bundleID: "a.b", receipt: .submission(submission.id))
      #expect(try await sources(ledger) == [originalKey: ofSubmission])
      #expect(try await ledger.polls.pollRequest(originalKey)?.source == ofSubmission)

      // Signed data has no receipt, and leaves the existing one.
      let signed = try await ledger.store(by: "anna", on: 1)
      _ = try await ledger.submissions.record(
        SubmissionStore.VerifiedSubmission(
          submission: signed, source: .signedTransaction, environment: .production,
          evidence: [charge("1", on: 0)], bundleID: "a.b", selected: [], exchanges: []),
        at: day(1), terms: .everything)
      #expect(try await sources(ledger) == [originalKey: ofSubmission])

      _ = try await ledger.notifications.store(
        NewNotification(id: "v1:n", version: .one, receivedAt: day(2), body: "{}"),
        processAt: day(2))
      let ofNotification = PollTarget(bundleID: "a.b", receipt: .notification("v1:n"))
      _ = try await ledger.notifications.process(
        NotificationStore.VerifiedNotification(
          id: "v1:n", evidence: [charge("1", on: 0)], source: ofNotification),
        at: day(2), terms: .everything)
      #expect(try await sources(ledger) == [originalKey: ofNotification])
    }
  }

  @Test func `without a recorded source, the last claim names the receipt`()
    async throws
  {
    try await withLedger { ledger in
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0)
      let id = try await ledger.database.query("SELECT submission_id FROM tenure.submission")
        .decodeOnly(UUID.self)
      #expect(try await sources(ledger).isEmpty)
      let known = try #require(try await ledger.polls.pollRequest(originalKey))
      #expect(known.source == PollTarget(bundleID: nil, receipt: .submission(id)))
      #expect(try await ledger.polls.pollRequest(OriginalTransactionKey(.sandbox, "1000")) == nil)
    }
  }

  // MARK: After asking

  @Test func `what Apple answers is recorded together with the next appointment`() async throws {
    try await withLedger { ledger in
      _ = try await ledger.polls.record(
        [charge("1", on: 0), status(true, on: 0)], polledAs: "p", at: day(0), terms: .everything)
      let job = try await claim(ledger, by: "a", on: 30.01)
      // Nothing arrived in time, so the end itself is polled.
      _ = try await ledger.polls.record(
        [charge("2", on: 30), status(true, on: 30.01)], polledAs: "q",
        about: PollStore.PolledOriginalTransaction(originalKey, of: "a.b", job: job),
        at: day(30.01),
        terms: .everything)
      let plan = try #require(try await plans(ledger).first)
      #expect(plan.worker == nil)
      #expect(lies(plan.runAt, 60 - 26.0 / 24, within: .hours(1)))

      // An answer that says nothing of the line makes an appointment, too: it is asked no more
      // about the same.
      let again = try await claim(ledger, by: "a", on: 59.5)
      _ = try await ledger.polls.record(
        [], polledAs: "r",
        about: PollStore.PolledOriginalTransaction(originalKey, of: "a.b", job: again),
        at: day(59.5),
        terms: .everything)
      let next = try #require(try await plans(ledger).first)
      #expect(next.worker == nil)
      #expect(lies(next.runAt, 60, within: .minutes(5)))
      #expect(next.priority == 0)
    }
  }

  @Test func `how far a history was read is written only when it went on`() async throws {
    try await withLedger { ledger in
      func read(to revision: String) async throws -> String {
        _ = try await ledger.polls.record(
          [], polledAs: "p", upTo: HistoryRevision(line: originalKey, revision: revision),
          at: day(0), terms: .everything)
        #expect(try await ledger.polls.historyRevision(of: originalKey) == revision)
        return try await ledger.database.query("SELECT ctid::text FROM tenure.history_revision")
          .decodeOnly(String.self)
      }
      let first = try await read(to: "a")
      #expect(try await read(to: "a") == first)
      #expect(try await read(to: "b") != first)
    }
  }

  @Test func `an answer that fails to be recorded leaves the job claimed`() async throws {
    try await withLedger { ledger in
      _ = try await ledger.polls.record(
        [charge("1", on: 0)], polledAs: "p", at: day(0), terms: .everything)
      let job = try await claim(ledger, by: "a", on: 30.01)
      try await ledger.database.execute(
        "ALTER TABLE tenure.poll_target ADD CHECK (bundle_id <> 'a.b')")
      await #expect(throws: PostgresError.self) {
        try await ledger.polls.record(
          [charge("2", on: 30)], polledAs: "q",
          about: PollStore.PolledOriginalTransaction(originalKey, of: "a.b", job: job),
          at: day(30.01),
          terms: .everything)
      }
      #expect(try await plans(ledger).map(\.worker) == ["a"])
      #expect(try await ledger.ownership.original(of: originalKey)?.rule.charges.count == 1)
      // The worker dies; another takes the job when the lease is over.
      let later = try await ledger.jobs.claimJobs(
        limits: [.polls: 1], worker: "b", at: day(30.02), lease: .seconds(60))
      #expect(later.map(\.key) == [.pollStatus(originalKey)])
    }
  }

  @Test func `a late worker's answer counts, and does not take the job from another`()
    async throws
  {
    try await withLedger { ledger in
      _ = try await ledger.polls.record(
        [charge("1", on: 0)], polledAs: "p", at: day(0), terms: .everything)
      let late = try await claim(ledger, by: "a", on: 30.01)
      let other = try await claim(ledger, by: "b", on: 30.02)
      _ = try await ledger.polls.record(
        [charge("2", on: 30), status(true, on: 30.01)], polledAs: "q",
        about: PollStore.PolledOriginalTransaction(originalKey, of: "a.b", job: late),
        at: day(30.02),
        terms: .everything)
      let plan = try await plans(ledger)
      #expect(plan.map(\.worker) == ["b"])
      _ = try await ledger.polls.record(
        [charge("2", on: 30), status(true, on: 30.01)], polledAs: "r",
        about: PollStore.PolledOriginalTransaction(originalKey, of: "a.b", job: other),
        at: day(30.02),
        terms: .everything)
      let end = try await plans(ledger)
      #expect(end.map(\.worker) == [nil])
      #expect(lies(end.first?.runAt, 60 - 26.0 / 24, within: .hours(1)))
    }
  }

  @Test func `what comes to nothing is looked at again some time, and says why`() async throws {
    try await withLedger { ledger in
      _ = try await ledger.polls.record(
        [charge("1", on: 0)], polledAs: "p", at: day(0), terms: .everything)
      let job = try await claim(ledger, by: "a", on: 30.01)
      try await ledger.polls.passOver(job, because: "unknown app", at: day(30.01))
      let plan = try #require(try await plans(ledger).first)
      #expect(plan.worker == nil)
      #expect(plan.priority == 2)
      #expect(lies(plan.runAt, 60, within: .hours(24)))
      let error = try await ledger.database.query("SELECT last_error FROM tenure.job")
      #expect(try error.decodeOnly(String.self) == "unknown app")
      // And never again when enough time has passed.
      let last = try await claim(ledger, by: "a", on: 430)
      try await ledger.polls.passOver(last, because: "unknown app", at: day(432))
      #expect(try await plans(ledger).isEmpty)
    }
  }

  @Test func `only what really is otherwise counts as changed`() async throws {
    try await withLedger { ledger async throws in
      func poll(_ evidence: [Evidence], on date: Double) async throws -> Int {
        try await ledger.polls.record(
          evidence, polledAs: "p", at: day(date), terms: .everything
        ).changedOriginals
      }
      #expect(try await poll([charge("1", on: 0), status(true, on: 0)], on: 0) == 1)
      // Said again, later.
      #expect(try await poll([charge("1", on: 0, asOf: 1), status(true, on: 1)], on: 1) == 0)
      #expect(try await poll([status(false, on: 2)], on: 2) == 1)
      #expect(try await poll([charge("1", on: 0, asOf: 3, revokedOn: 3)], on: 3) == 1)
    }
  }

  // MARK: Counting

  @Test func `what is due is counted by lane`() async throws {
    try await withLedger { ledger in
      for number in 1...5 {
        let line = OriginalTransactionKey(
          number == 5 ? .sandbox : .production, OriginalTransactionID("\(number)"))
        _ = try await ledger.polls.record(
          [charge(TransactionID("\(number)"), on: 0, line: line)], polledAs: "p", at: day(0),
          terms: .everything)
      }
      let queues: [Job.Queue] = [.polls, .sandboxPolls]
      #expect(try await ledger.polls.dueJobs(in: queues, at: day(20)) == [:])
      #expect(
        try await ledger.polls.dueJobs(in: queues, at: day(31)) == [.polls: 4, .sandboxPolls: 1])
      _ = try await claim(ledger, by: "a", on: 31)
      #expect(try await ledger.polls.dueJobs(in: [.polls], at: day(31)) == [.polls: 3])
    }
  }
}
