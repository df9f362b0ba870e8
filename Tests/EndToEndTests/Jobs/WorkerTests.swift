import AppStore
import AppStoreSimulator
import BackgroundJobs
import Foundation
import LedgerStorage
import Logging
import Postgres
import ScratchDatabases
import ServiceLifecycle
import Subscriptions
import Synchronization
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("The worker")
struct WorkerTests {
  /// An App Store that hangs on some receipts and rejects the others.
  private final class DeafAppStore: AppStoreTransport {
    private let state = Mutex((isDown: true, answered: 0))
    let stuck = Latch()

    var answered: Int { state.withLock { $0.answered } }
    func setUp() { state.withLock { $0.isDown = false } }

    func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
      guard !state.withLock(\.isDown) else {
        throw AppStoreTransportError(.connectionFailed, detail: "down")
      }
      if String(decoding: request.body, as: UTF8.self).contains("stuck") { await stuck.wait() }
      state.withLock { $0.answered += 1 }
      return AppStoreResponse(status: 200, body: Array(#"{"status":21003}"#.utf8))
    }
  }

  private struct Stage: Sendable {
    let assembly: Assembly
    let apple: DeafAppStore
    let clock: SimulatedClock
    let database: ConnectionPool

    func submit(_ receipt: String) async throws -> UUID {
      let answer = try await assembly.intake.submit(
        SubmissionRequest(accountID: "4711", payload: .receipt("MIAGCSqGSIb3DQEHAqCA" + receipt)))
      guard case .pending(let id, _, _, _) = answer else { throw CancellationError() }
      return id
    }

    /// Waits for a condition, at most five minutes.
    func until(_ isSo: () async throws -> Bool) async throws {
      let end = ContinuousClock.now + .seconds(300)
      while ContinuousClock.now < end {
        if try await isSo() { return }
        try await Task.sleep(for: .milliseconds(100))
      }
      Issue.record("It did not happen.")
    }

    /// Stores a notification of version 1, whose receipt a worker verifies.
    func store(
      _ id: String, receipt: String = "cmVjZWlwdA==", processAt: Timestamp? = nil
    ) async throws {
      _ = try await assembly.ledger.notifications.store(
        NewNotification(
          id: id, version: .one, receivedAt: clock.now,
          body: #"{"notification_type": "CANCEL", "latest_receipt": "\#(receipt)"}"#,
          notificationType: "CANCEL", bundleID: "com.example.app"),
        processAt: processAt ?? clock.now)
    }

    func count(_ condition: SQL) async throws -> Int {
      try await database.query(
        """
        SELECT count(*) FROM tenure.job
        WHERE kind NOT IN ('prune_events', 'roll_up_movements', 'trim_account_changes',
          'make_checkpoint') AND (\(condition))
        """
      ).decodeOnly(Int.self)
    }
  }

  /// Runs workers on a separate database and clock.
  private func withWorker(
    _ flags: [String: String] = ["TENURE_BUNDLE_IDS": "com.example.app"], workers: Int = 1,
    _ test: @Sendable (Stage) async throws -> Void
  ) async throws {
    let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
    try await withScratchDatabase { database in
      let (apple, clock) = (DeafAppStore(), SimulatedClock(start: .now))
      let settings = try Settings(await SettingSource(flags: flags, environment: [:]))
      let assembly = try await Assembly(
        database: database, settings: settings, transport: apple, logger: quiet,
        clock: .jumping { clock.now })
      let services = (1...workers).flatMap { _ in assembly.worker() }
      let group = ServiceGroup(services: services, logger: quiet)
      try await withThrowingTaskGroup(of: Void.self) { tasks in
        tasks.addTask { try await group.run() }
        try await test(
          Stage(assembly: assembly, apple: apple, clock: clock, database: database))
        await group.triggerGracefulShutdown()
        try await tasks.waitForAll()
      }
    }
  }

  @Test("a slow job keeps no other waiting")
  func refills() async throws {
    try await withWorker { stage in
      _ = try await stage.submit("stuck")
      for number in 0..<20 { _ = try await stage.submit("receipt\(number)") }
      stage.apple.setUp()
      // Less than a lease, so no job is claimed twice.
      stage.clock.advance(by: .seconds(15))
      try await stage.until { stage.apple.answered == 20 }
      #expect(try await stage.count("attempts > 1") == 0)
      try await stage.until { try await stage.count("locked_by IS NOT NULL") == 1 }
      stage.apple.stuck.open()
      try await stage.until { try await stage.count("true") == 0 }
    }
  }

  @Test("a lane whose slots are all taken keeps no other lane waiting")
  func fairness() async throws {
    try await withWorker { stage in
      stage.apple.setUp()
      for number in 0..<20 { try await stage.store("n\(number)", receipt: "stuck") }
      try await stage.until { try await stage.count("locked_by IS NOT NULL") == 2 }
      _ = try await stage.assembly.ledger.submissions.store(
        stage.assembly.ledger.submissions.new(
          id: UUID(), accountID: "4711", receivedAt: stage.clock.now, payload: .receipt("e30="),
          transactionID: nil, orderID: nil, isRestore: false, bundleID: nil,
          retryAt: stage.clock.now))
      try await stage.until { try await stage.count("kind = 'verify_submission'") == 0 }
      #expect(try await stage.count("true") == 20)
      stage.apple.stuck.open()
      try await stage.until { try await stage.count("true") == 0 }
    }
  }

  @Test("two workers do each job once")
  func twoWorkers() async throws {
    try await withWorker(workers: 2) { stage in
      stage.apple.setUp()
      for number in 0..<60 { try await stage.store("n\(number)") }
      try await stage.until { try await stage.count("true") == 0 }
      #expect(stage.apple.answered == 60)
      let attempts = try await stage.database.query(
        "SELECT DISTINCT attempts FROM tenure.notification")
      #expect(try attempts.decode(Int.self) == [1])
    }
  }

  @Test("a worker that is alive holds on to a job for as long as it takes")
  func longJob() async throws {
    try await withWorker(workers: 2) { stage in
      stage.apple.setUp()
      try await stage.store("n", receipt: "stuck")
      try await stage.until { try await stage.count("locked_by IS NOT NULL") == 1 }
      // Three leases long.
      for _ in 1...12 {
        stage.clock.advance(by: .seconds(6))
        let renewed = stage.clock.now + .seconds(15)
        try await stage.until { try await stage.count("locked_until > \(renewed)") == 1 }
      }
      #expect(try await stage.count("attempts = 1") == 1)
      stage.apple.stuck.open()
      try await stage.until { try await stage.count("true") == 0 }
      #expect(stage.apple.answered == 1)
    }
  }

  @Test(
    "a fresh ledger has its first checkpoint within an hour, and the operator's receiver each one")
  func checkpoints() async throws {
    try await StandInReceiver.run { receiver in
      let flags = [
        "TENURE_BUNDLE_IDS": "com.example.app",
        "TENURE_CHECKPOINTS": "http://127.0.0.1:\(receiver.port)/",
        "TENURE_WEBHOOK_SECRET": "one that is long enough", "TENURE_WEBHOOK_ALLOW_PRIVATE": "on",
      ]
      try await withWorker(flags) { stage in
        let auditor = stage.assembly.ledger.auditor
        func waitForJob(_ condition: SQL) async throws {
          try await stage.until {
            try await stage.database.query(
              """
              SELECT count(*) FROM tenure.job
              WHERE kind = 'make_checkpoint' AND locked_by IS NULL AND (\(condition))
              """
            ).decodeOnly(Int.self) == 1
          }
        }
        func describe(_ name: String) async throws {
          _ = try await stage.assembly.ledger.products.describe(
            Product(
              id: "coins", validFrom: stage.clock.now, type: .consumable, entitlements: [],
              displayName: name))
          // Old enough for the next checkpoint, by the database's clock, which no test can set. The
          // moment is read first, because Citus refuses STABLE functions of columns in an UPDATE.
          let moment = try await stage.database.query(
            """
            SELECT coalesce(max(stored_before),
              date_trunc('milliseconds', now() - interval '30 min'))
            FROM tenure.ledger_checkpoint
            """
          ).decodeOnly(Timestamp.self)
          _ = try await stage.database.execute(
            """
            UPDATE tenure.account_entry AS e SET stored_at = \(moment), hash = tenure.chained_hash(
              coalesce(p.hash, decode(repeat('00', 32), 'hex')), e.account_key::text,
              e.number::text, \(String(moment.milliseconds)), e.kind, e.row_id, e.body)
            FROM tenure.account_chain AS c
            LEFT JOIN tenure.account_entry AS p
              ON p.account_key = c.account_key AND p.number = c.head_number - 1
            WHERE e.account_key = c.account_key AND e.number = c.head_number
            """)
          _ = try await stage.database.execute(
            """
            UPDATE tenure.account_chain AS c SET head_hash = hash, head_stored_at = stored_at
            FROM tenure.account_entry AS e
            WHERE e.account_key = c.account_key AND number = head_number
            """)
        }
        // Nothing to cover yet.
        try await waitForJob(
          "run_at > \(stage.clock.now) AND run_at <= \(stage.clock.now + .hours(1))")
        #expect(receiver.requests.isEmpty)

        receiver.answer { _ in .status(503) }
        try await describe("One coin")
        stage.clock.advance(by: .minutes(30))
        try await waitForJob("last_error LIKE '%503%'")
        receiver.answer { _ in .status(204) }
        stage.clock.advance(by: .hours(12))
        try await waitForJob(
          "last_error IS NULL AND run_at > \(stage.clock.now + .hours(23))")
        let refused = receiver.requests.count
        #expect(refused > 1)

        try await describe("A coin")
        stage.clock.advance(by: .days(1))
        try await stage.until { receiver.requests.count > refused }
        try await waitForJob("run_at > \(stage.clock.now + .hours(23))")
        let kept = try receiver.requests.map {
          try JSONDecoder().decode(Checkpoint.self, from: Data($0.body.utf8))
        }
        #expect(kept.map(\.number) == Array(repeating: 1, count: refused) + [2])
        #expect(receiver.requests.allSatisfy { $0.signature != nil })
        #expect(try await auditor.audit(against: kept).differences == [])
      }
    }
  }

  @Test("what a dead worker had claimed is done when its lease is over")
  func deadWorker() async throws {
    try await withWorker { stage in
      stage.apple.setUp()
      let later = stage.clock.now + .minutes(1)
      try await stage.store("n", processAt: later)
      let claimed = try await stage.assembly.ledger.jobs.claimJobs(
        limits: [.notifications: 1], worker: "dead", at: later, lease: .seconds(20))
      #expect(claimed.count == 1)
      stage.clock.advance(to: later + .seconds(19))
      // Another job is done, so the worker has read the queue.
      try await stage.store("other")
      try await stage.until { try await stage.count("true") == 1 }
      #expect(try await stage.count("locked_by = 'dead'") == 1)
      stage.clock.advance(by: .seconds(1))
      try await stage.until { try await stage.count("true") == 0 }
    }
  }

  @Test("a stopped worker finishes what it has begun, and begins nothing more")
  func gracefulStop() async throws {
    let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
    try await withScratchDatabase { database in
      let (apple, clock) = (DeafAppStore(), SimulatedClock(start: .now))
      let settings = try Settings(
        await SettingSource(
          flags: ["TENURE_BUNDLE_IDS": "com.example.app"], environment: [:]))
      let assembly = try await Assembly(
        database: database, settings: settings, transport: apple, logger: quiet,
        clock: .jumping { clock.now })
      let stage = Stage(assembly: assembly, apple: apple, clock: clock, database: database)
      apple.setUp()
      for number in 0..<5 { try await stage.store("n\(number)", receipt: "stuck") }
      let group = ServiceGroup(services: assembly.worker(), logger: quiet)
      try await withThrowingTaskGroup(of: Void.self) { tasks in
        tasks.addTask { try await group.run() }
        try await stage.until { try await stage.count("locked_by IS NOT NULL") == 2 }
        await group.triggerGracefulShutdown()
        // Both wait for Apple, and no other job starts.
        #expect(try await stage.count("locked_by IS NOT NULL") == 2)
        apple.stuck.open()
        try await tasks.waitForAll()
      }
      #expect(try await stage.count("true") == 3)
      #expect(try await stage.count("locked_by IS NOT NULL") == 0)
      #expect(apple.answered == 2)
    }
  }

  @Test("a job begins within moments of its commit, because its worker is notified")
  func wakesUp() async throws {
    let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
    try await withScratchDatabase { database in
      let apple = DeafAppStore()
      apple.setUp()
      let settings = try Settings(
        await SettingSource(
          flags: ["TENURE_BUNDLE_IDS": "com.example.app"], environment: [:]))
      let assembly = try await Assembly(
        database: database, settings: settings, transport: apple, logger: quiet)
      // It does not poll during the test.
      let worker = Worker(
        tools: assembly.jobTools, name: "w", sleepWithoutNotify: .hours(1), logger: quiet,
        clock: WorkerClock(longestSleep: .hours(1)) { .now })
      let group = ServiceGroup(services: [worker], logger: quiet)
      try await withThrowingTaskGroup(of: Void.self) { tasks in
        tasks.addTask { try await group.run() }
        var shortest = Duration.hours(1)
        for number in 1...20 {
          let begin = ContinuousClock.now
          _ = try await assembly.ledger.notifications.store(
            NewNotification(
              id: "n\(number)", version: .one, receivedAt: .now,
              body: #"{"notification_type": "CANCEL", "latest_receipt": "cmVjZWlwdA=="}"#,
              notificationType: "CANCEL", bundleID: "com.example.app"),
            processAt: .now)
          while apple.answered < number, .now - begin < .seconds(60) {
            try await Task.sleep(for: .milliseconds(1))
          }
          #expect(apple.answered == number)
          shortest = min(shortest, .now - begin)
        }
        // The others may have had to wait for a processor.
        #expect(shortest < .seconds(1))
        await group.triggerGracefulShutdown()
        try await tasks.waitForAll()
      }
    }
  }

  @Test("what fails for 30 days is given up, and has 30 days again when it is started again")
  func patience() async throws {
    try await withWorker { stage in
      let id = try await stage.submit("receipt")
      func isParked() async throws -> Bool {
        try await stage.count("discarded_at IS NOT NULL") == 1
      }
      func attempts() async throws -> Int {
        try await stage.database.query("SELECT attempts FROM tenure.submission")
          .decodeOnly(Int.self)
      }
      stage.clock.advance(by: .days(29))
      try await stage.until { try await attempts() == 2 }
      #expect(try await !isParked())
      // The server's retries took the first minute.
      stage.clock.advance(by: .days(1) + .minutes(1))
      try await stage.until { try await isParked() }
      guard case .pending(_, nil, let problem, _) = try await stage.assembly.intake.status(of: id)
      else {
        Issue.record("It has a next attempt.")
        return
      }
      #expect(problem?.detail.contains(id.uuidString.lowercased()) == true)

      let before = try await attempts()
      let restarted = try await stage.assembly.ledger.jobs.restartJobs(
        .named([id.uuidString]), at: stage.clock.now)
      #expect(restarted == 1)
      try await stage.until { try await attempts() == before + 1 }
      stage.clock.advance(by: .days(29))
      try await stage.until { try await attempts() == before + 2 }
      #expect(try await !isParked())
      stage.apple.setUp()
      stage.clock.advance(by: .hours(2))
      try await stage.until { try await stage.count("true") == 0 }
      guard case .rejected = try await stage.assembly.intake.status(of: id) else {
        Issue.record("It is not decided.")
        return
      }
    }
  }

  @Test("a job that fails through our own fault is given up as well")
  func ourFault() async throws {
    try await withWorker { stage in
      _ = try await stage.submit("receipt")
      try await stage.database.execute(
        "ALTER TABLE tenure.submission_exchange ADD CHECK (number < 1000)")
      stage.clock.advance(by: .days(31))
      try await stage.until { try await stage.count("discarded_at IS NOT NULL") == 1 }
    }
  }

  @Test("signed data that a dead server left behind is decided, without Apple")
  func signedData() async throws {
    let simulation = try AppStoreSimulation(
      configuration: AppStoreSimulation.Configuration(seed: 1, start: .now))
    try simulation.addAppleID("anna")
    try simulation.addDevice("anna", appleID: "anna")
    let bought = try simulation.buy("monthly", on: "anna")
    let payload = SubmissionPayload.signedData(
      transactions: [try simulation.signedTransaction(of: bought.transactionID)],
      renewalInfo: [try simulation.signedRenewalInfo(of: bought.originalTransactionID)])
    try await withTemporaryDirectory { directory in
      let roots = directory.appending(path: "roots.pem")
      try simulation.rootCertificatePEM.write(to: roots, atomically: true, encoding: .utf8)
      try await withWorker([
        "TENURE_BUNDLE_IDS": SimulatedApp.sample.bundleID,
        "TENURE_APPSTORE_ROOT_CERTIFICATES": roots.path(percentEncoded: false),
      ]) { stage in
        let submission = try await stage.assembly.ledger.submissions.store(
          stage.assembly.ledger.submissions.new(
            id: UUID(), accountID: "4711", receivedAt: stage.clock.now, payload: payload,
            transactionID: nil, orderID: nil, isRestore: false, bundleID: nil,
            retryAt: stage.clock.now))
        try await stage.until { try await stage.count("kind = 'verify_submission'") == 0 }
        guard
          case .verified(let answer) = try await stage.assembly.intake.status(
            of: submission.id)
        else {
          Issue.record("It is not verified.")
          return
        }
        #expect(answer.transactions.map(\.isNewlyOwned) == [true])
      }
    }
  }

  @Test("a notification that a dead server left behind is processed")
  func leftBehind() async throws {
    try await withWorker { stage in
      // Its server was killed right after storing it.
      try await stage.store("v1:1")
      func attempts() async throws -> Int {
        try await stage.database.query("SELECT attempts FROM tenure.notification")
          .decodeOnly(Int.self)
      }
      try await stage.until { try await attempts() == 1 }
      #expect(try await stage.count("kind = 'process_notification'") == 1)
      stage.apple.setUp()
      stage.clock.advance(by: .hours(2))
      try await stage.until { try await stage.count("true") == 0 }
      let processed = try #require(
        try await stage.assembly.ledger.notifications.notification("v1:1"))
      #expect(processed.outcome == .rejected)
      #expect(processed.problem?.contains("21003") == true)
      #expect(processed.attempts == 2)
    }
  }

  @Test("a notification that can't be processed for 30 days is given up, and says why")
  func unprocessable() async throws {
    try await withWorker { stage in
      _ = try await stage.assembly.ledger.notifications.store(
        NewNotification(
          id: "n1", version: .two, receivedAt: stage.clock.now, body: "a.b.c"),
        processAt: stage.clock.now)
      stage.clock.advance(by: .days(31))
      try await stage.until { try await stage.count("discarded_at IS NOT NULL") == 1 }
      let given = try #require(try await stage.assembly.ledger.notifications.notification("n1"))
      #expect(given.outcome == nil)
      #expect(given.problem != nil)
    }
  }

  @Test("a lease outlasts whatever Apple may take", arguments: [100, 10_000, 600_000])
  func lease(timeout: Int) async throws {
    let settings = try Settings(
      await SettingSource(
        flags: [
          "TENURE_APPS": "a.b::one,c.d::two,e.f::two", "TENURE_APPSTORE_TIMEOUT_MS": "\(timeout)",
        ], environment: [:]))
    let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
    try await withScratchDatabase { database in
      let intake = try await Assembly(
        database: database, settings: settings, transport: DeafAppStore(), logger: quiet
      ).intake
      // Three visits of an endpoint, with each of two secrets.
      #expect(intake.longestDecision(on: .receipt("")) > .milliseconds(timeout * 6))
    }
  }
}
