import BackgroundJobs
import Bootstrap
import Foundation
import LedgerStorage
import Logging
import Postgres
import Subscriptions

/// Jobs a second through the queue and a worker, compared with the bare SQL for the same work.
///
/// Each job has a small effect: an order expires and an event is written.
struct JobBenchmark: Sendable {
  private static let name = "jobs done"
  private static let goal = 0.8
  private static let queue = Job.Queue.clock
  /// More than pgbench's clients do, so that each of them finds a job.
  private static let surplus = 64
  private static let age = StoredOrder.lifetime + .days(1)
  private static let deadline: Duration = .seconds(600)

  /// As many connections as the worker has transactions at once.
  private static let clients = Worker.concurrency[queue] ?? 1
  private static let limitName = """
    pgbench, \(clients) clients: claim a job with SKIP LOCKED, expire its order, write the event, \
    delete the job, commit; a worker commits several jobs together
    """

  let database: BenchDatabase
  let seconds: Int
  let rounds: Int
  /// Jobs done on either side before measuring.
  var warmUp = 1000
  let directory: URL
  let logger: Logger

  func run() async throws -> BenchResult {
    let pgbench = try Pgbench(databaseURL: database.url, directory: directory)
    return try await database.withPool { pool in
      let shop = try await SampleShop(database: pool, logger: logger)
      var orders = try await Orders(shop, in: pool)

      func measured(_ count: Int) async throws -> Measurement {
        try await orders.open(count)
        let elapsed = try await shop.work { try await orders.jobs() == 0 }
        try await orders.check()
        return Measurement(rate: Double(count) / (elapsed / .seconds(1)))
      }
      func limit(_ count: Int) async throws -> Measurement {
        try await orders.open(count + Self.surplus)
        let limit = try await pgbench.run(
          Self.script, clients: Self.clients, times: max(1, count / Self.clients))
        try await orders.forget()
        return limit
      }

      let (limitCount, count) = (
        self.count(after: try await limit(warmUp)),
        self.count(after: try await measured(warmUp))
      )
      var figures: [(measured: Measurement, limit: Measurement)] = []
      for round in 1...rounds {
        logger.notice("Jobs", metadata: ["round": "\(round) of \(rounds)"])
        let limit = try await limit(limitCount)
        figures.append((try await measured(count), limit))
      }
      return BenchResult(
        name: Self.name, limitName: Self.limitName, goal: Self.goal, rounds: figures)
    }
  }

  /// The number of jobs that fills a round at a measured rate.
  private func count(after measurement: Measurement) -> Int {
    max(warmUp, Int(measurement.rate * Double(seconds)))
  }

  /// The work of a pgbench client for one job, without leases, retries or generations.
  private static let script = """
    BEGIN;
    SELECT job_id, subject FROM tenure.job \
    WHERE queue = '\(queue.rawValue)' AND priority = 0 AND discarded_at IS NULL \
    AND run_at <= now() AND (locked_until IS NULL OR locked_until <= now()) \
    ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED
    \\gset
    SELECT o.account_key FROM tenure.purchase_order AS o \
    JOIN tenure.purchase_order_account USING (account_key, order_id) \
    WHERE o.order_id = :subject::uuid AND o.status = 'open' FOR UPDATE OF o
    \\gset
    UPDATE tenure.purchase_order SET status = 'expired' \
    WHERE account_key = :account_key::uuid AND order_id = :subject::uuid;
    INSERT INTO tenure.event (type, occurred_at, account_key, data) \
    VALUES ('order.expired', now(), :account_key::uuid, convert_to('{"order_id":"' || :subject \
    || '","product_id":"\(SampleAccounts.productID)"}', 'UTF8'));
    DELETE FROM tenure.job WHERE job_id = :job_id;
    COMMIT;
    """

  /// Orders that are due to expire.
  private struct Orders {
    private let database: ConnectionPool
    private let rows: CopiedRows
    private var next = 1
    private var expired = 0
    private var opened = 0

    init(_ shop: SampleShop, in database: ConnectionPool) async throws {
      self.database = database
      let moment = try await CopiedRows.Moment.now(in: database)
      let marks = try await SampleCustomer(0).openOrder(
        in: shop.assembly.ledger, at: .now - JobBenchmark.age, in: database)
      rows = try await CopiedRows(since: moment, marks: marks, in: database)
      guard rows.count(in: "job") == 1 else {
        throw BenchError.wrongAnswer("an order has \(rows.count(in: "job")) jobs")
      }
      try await forget()
    }

    /// Opens orders that have already expired.
    mutating func open(_ count: Int) async throws {
      let numbers = SampleCustomer.numbers(next...next + count - 1)
      for statement in rows.insert(numbers) {
        _ = try await database.execute(statement, deadline: JobBenchmark.deadline)
      }
      next += count
      opened = count
      try await database.runScript(
        "VACUUM (ANALYZE) tenure.job, tenure.purchase_order, tenure.event",
        deadline: JobBenchmark.deadline)
      expired = try await expiredOrders()
    }

    func jobs() async throws -> Int {
      try await database.query("SELECT count(*) FROM (SELECT FROM tenure.job LIMIT 1) AS one")
        .decodeOnly(Int.self)
    }

    func forget() async throws {
      try await database.execute("DELETE FROM tenure.job")
    }

    func check() async throws {
      let found = try await expiredOrders() - expired
      guard found == opened else {
        throw BenchError.wrongAnswer("\(found) of \(opened) orders have expired")
      }
    }

    private func expiredOrders() async throws -> Int {
      try await database.query(
        "SELECT count(*) FROM tenure.purchase_order WHERE status = 'expired'"
      ).decodeOnly(Int.self)
    }
  }
}
