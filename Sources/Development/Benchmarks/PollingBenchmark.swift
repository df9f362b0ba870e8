import AppStoreSimulator
import BackgroundJobs
import Bootstrap
import Foundation
import LedgerStorage
import Logging
import Postgres
import Subscriptions

/// Subscriptions planned and polled a second, each poll finding a renewal, compared with the bare
/// SQL for the writes.
///
/// A simulated App Store in this process signs each response; Tenure verifies it. Apple's
/// hourly rate limits don't apply.
package struct PollingBenchmark: Sendable {
  package static let subscriptions = 100_000
  private static let planningName = "subscriptions planned"
  private static let planningLimit = "one INSERT … SELECT of the same number of jobs"
  private static let pollingName = "subscriptions polled"
  private static let pollingLimit = """
    the rows that one poll writes, in one round trip and commit, without reads or Apple; the \
    memory is that of the worker and the simulated App Store, which run in one process
    """
  private static let queue = Job.Queue.polls
  private static let concurrency = Worker.concurrency[queue] ?? 1
  /// How many are filled in with one transaction.
  private static let chunk = 20_000
  /// The maximum of subscriptions reserved for measuring the limit.
  private static let mostForLimit = 20_000
  private static let deadline: Duration = .seconds(3600)
  /// The factor by which time passes faster, so that Apple's 50 requests a second are no limit.
  private static let speed = 100.0
  /// The time from the period's end to the first poll.
  private static let delay: Duration = .hours(1)
  /// The time after which all planned polls are due.
  private static let patience: Duration = .hours(1)
  /// Tables that a month-old subscription has no rows in, or that would limit or preempt polling.
  private static let leftOut: Set<String> = [
    "rate_budget", "event", "job", "submission_exchange", "body", "published_entitlement",
  ]

  let database: BenchDatabase
  let subscriptions: Int
  let polls: Int
  let logger: Logger

  func run() async throws -> [BenchResult] {
    try await database.withPool { pool in
      let clock = SimulatedClock(start: .now, speed: Self.speed)
      let shop = try await SampleShop(
        database: pool, boughtAt: clock.now - .seconds(10), logger: logger, now: { clock.now })
      let stage = Stage(
        shop: shop, database: pool, lines: subscriptions, spare: min(polls, Self.mostForLimit),
        logger: logger)
      let marks = try await stage.fill()
      clock.advance(by: .days(30) + Self.delay)
      let writes = try await stage.writesOfAPoll(marks)
      ProcessMemory.resetPeak()
      let plannedBare = try await stage.planBare()
      let planned = try await stage.plan()
      clock.advance(by: Self.patience)
      let polled = try await stage.poll(polls)
      let memory = ProcessMemory.peak(of: ProcessInfo.processInfo.processIdentifier)
      let size = try await stage.size()
      let limit = try await stage.write(writes)
      return [
        BenchResult(
          name: Self.planningName, limitName: Self.planningLimit, goal: nil,
          rounds: [(planned, plannedBare)]),
        BenchResult(
          name: Self.pollingName, limitName: Self.pollingLimit, goal: nil,
          rounds: [(polled, limit)], memory: memory, database: size),
      ]
    }
  }

  private struct Stage: Sendable {
    let shop: SampleShop
    let database: ConnectionPool
    /// The number of due subscriptions.
    let lines: Int
    /// The number of additional subscriptions for measuring the limit.
    let spare: Int
    let logger: Logger

    private var spareNumbers: ClosedRange<Int> {
      SampleCustomer.numbers(lines + 1...lines + spare)
    }

    // MARK: Filling

    /// Copies a recorded subscription, and returns the marks of its customer's number.
    func fill() async throws -> [CopiedRows.Mark] {
      let moment = try await CopiedRows.Moment.now(in: database)
      let marks = try await shop.subscribe(SampleCustomer(0))
      let rows = try await CopiedRows(
        since: moment, marks: marks, without: PollingBenchmark.leftOut, in: database)
      logger.notice("Filling the database", metadata: ["subscriptions": "\(lines)"])
      for first in stride(from: 1, through: lines + spare, by: PollingBenchmark.chunk) {
        let last = min(first + PollingBenchmark.chunk - 1, lines + spare)
        _ = try await database.batch(
          rows.insert(SampleCustomer.numbers(first...last)), deadline: PollingBenchmark.deadline)
      }
      try await forgetJobs()
      try await database.runScript(
        "DELETE FROM tenure.event; DELETE FROM tenure.published_entitlement")
      try await vacuum()
      return marks
    }

    private func vacuum() async throws {
      try await database.runScript("VACUUM (ANALYZE)", deadline: PollingBenchmark.deadline)
      try await database.runScript("CHECKPOINT", deadline: PollingBenchmark.deadline)
    }

    private func forgetJobs() async throws {
      _ = try await database.execute(
        "DELETE FROM tenure.job", deadline: PollingBenchmark.deadline)
    }

    // MARK: The limit

    /// Polls one subscription and returns the rows that the poll wrote.
    func writesOfAPoll(_ marks: [CopiedRows.Mark]) async throws -> CopiedRows {
      let moment = try await CopiedRows.Moment.now(in: database)
      try await shop.assembly.ledger.jobs.seed(
        [.pollStatus(SampleCustomer(0).line)], at: shop.now())
      _ = try await shop.work([PollingBenchmark.queue: 1]) {
        try await database.query("SELECT EXISTS (SELECT FROM tenure.history_revision)")
          .decodeOnly(Bool.self)
      }
      let writes = try await CopiedRows(
        since: moment, marks: marks, without: ["rate_budget"], in: database)
      guard writes.count(in: "store_transaction") > 0, writes.count(in: "job") > 0 else {
        throw BenchError.wrongAnswer("a poll found no renewal")
      }
      try await forgetJobs()
      return writes
    }

    /// Writes the rows of a poll for each spare subscription.
    func write(_ writes: CopiedRows) async throws -> Measurement {
      try await Load.measure(
        Array(spareNumbers), concurrency: PollingBenchmark.concurrency
      ) { number in
        _ = try await database.withTransaction { try await $0.commit(with: writes.upsert(number)) }
      }
    }

    // MARK: Planning

    /// Inserts a job for each subscription with one statement, and deletes the jobs again.
    func planBare() async throws -> Measurement {
      let start = ContinuousClock.now
      let count = try await database.execute(
        """
        INSERT INTO tenure.job (kind, subject, queue, priority, run_at, created_at)
        SELECT 'poll_status', environment || '/' || original_transaction_id,
          \(PollingBenchmark.queue.rawValue), 0, now(), now()
        FROM tenure.original_transaction
        """, deadline: PollingBenchmark.deadline)
      let elapsed = .now - start
      try await forgetJobs()
      try await vacuum()
      return Measurement(rate: Double(count) / (elapsed / .seconds(1)))
    }

    /// Lets the worker find and plan the subscriptions, as after an upgrade.
    func plan() async throws -> Measurement {
      logger.notice("Planning", metadata: ["subscriptions": "\(lines)"])
      try await shop.assembly.ledger.jobs.seed([.reconcile], at: shop.now())
      let elapsed = try await shop.work([.maintenance: 1]) {
        try await Task.sleep(for: .milliseconds(100))
        return try await plannedCount() > lines + spare
      }
      try await database.execute("DELETE FROM tenure.job WHERE kind = 'reconcile'")
      // These are for the limit.
      let (first, last) = (
        SampleCustomer(number: spareNumbers.lowerBound),
        SampleCustomer(number: spareNumbers.upperBound)
      )
      if let first, let last {
        try await database.execute(
          """
          DELETE FROM tenure.job WHERE kind = 'poll_status'
            AND subject BETWEEN \(Job.Key.pollStatus(first.line).subject)
              AND \(Job.Key.pollStatus(last.line).subject)
          """)
      }
      return Measurement(rate: Double(lines + spare) / (elapsed / .seconds(1)))
    }

    private func plannedCount() async throws -> Int {
      try await database.query("SELECT count(*) FROM tenure.job WHERE kind = 'poll_status'")
        .decodeOnly(Int.self)
    }

    // MARK: Polling

    /// Lets the worker poll a number of subscriptions, most urgent first.
    func poll(_ count: Int) async throws -> Measurement {
      logger.notice("Polling", metadata: ["polls": "\(count)"])
      let before = (polls: shop.appStore.polls, revisions: try await revisions())
      let elapsed = try await shop.work([PollingBenchmark.queue: PollingBenchmark.concurrency]) {
        shop.appStore.polls - before.polls >= count
      }
      let recorded = try await revisions() - before.revisions
      guard recorded >= count else {
        throw BenchError.wrongAnswer("\(recorded) of \(count) polls were recorded")
      }
      return Measurement(rate: Double(count) / (elapsed / .seconds(1)))
    }

    private func revisions() async throws -> Int {
      try await database.query("SELECT count(*) FROM tenure.history_revision")
        .decodeOnly(Int.self)
    }

    /// In bytes.
    func size() async throws -> Int {
      try await database.query("SELECT pg_database_size(current_database())").decodeOnly(Int.self)
    }
  }
}
