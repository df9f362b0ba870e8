import Bootstrap
import Foundation
import Intake
import LedgerStorage
import Logging
import Postgres
import Subscriptions

/// Submissions or notifications decided a second, from request to commit, compared with the
/// smallest durable write that could do it.
struct DecisionBenchmark: Sendable {
  /// The kind of decision.
  enum Kind: Sendable {
    /// Receipts of new customers, with Apple's response at hand.
    case receipts
    /// Signed transactions of new customers.
    case signedTransactions
    /// Renewals of customers with a subscription.
    case notifications

    fileprivate var name: String {
      switch self {
      case .receipts: "receipts decided"
      case .signedTransactions: "signed transactions decided"
      case .notifications: "notifications accepted and decided"
      }
    }
  }

  private static let goal = 0.2
  private static let concurrency = 32
  let kind: Kind
  let database: BenchDatabase
  let seconds: Int
  let rounds: Int
  /// Items on either side before measuring.
  var warmUp = 500
  /// Items decided one after another, to see what one costs.
  var costed = 200
  let directory: URL
  let logger: Logger

  func run() async throws -> BenchResult {
    let limit = try SmallestWrite(database: database, directory: directory)
    try await limit.prepare()
    return try await database.withPool { pool in
      let samples = try await Samples(of: kind, in: pool, logger: logger)
      func measured(_ count: Int, concurrency: Int = Self.concurrency) async throws -> Measurement {
        try await Load.measure(
          try await samples.take(count), concurrency: concurrency, { try await $0() })
      }

      let (limitCount, count) = (
        self.count(after: try await limit.write(warmUp)),
        self.count(after: try await measured(warmUp))
      )
      let work = try await samples.take(costed)
      let cost = try await StatementCost.measured(in: pool, of: work.count) {
        for item in work { try await item() }
      }
      let limitCost = try await StatementCost.measured(in: pool, of: costed) {
        _ = try await limit.write(costed, clients: 1)
      }
      var figures: [(measured: Measurement, limit: Measurement)] = []
      for round in 1...rounds {
        logger.notice(
          "Decisions", metadata: ["of": "\(kind.name)", "round": "\(round) of \(rounds)"])
        let limit = try await limit.write(limitCount)
        figures.append((try await measured(count), limit))
      }
      return BenchResult(
        name: kind.name, limitName: SmallestWrite.name, goal: Self.goal, rounds: figures,
        cost: cost, limitCost: limitCost)
    }
  }

  /// The number of items that fills a round at a measured rate.
  private func count(after measurement: Measurement) -> Int {
    max(warmUp, Int(measurement.rate * Double(seconds)))
  }

  /// Checks that a submission was decided as expected.
  static func check(_ answer: SubmissionAnswer, of sample: SampleSubmission) throws {
    try check(answer, of: sample.number)
    guard case .verified(let verified) = answer, verified.order?.order.id == sample.orderID,
      verified.order?.order.status != .open
    else { throw BenchError.wrongAnswer("submission \(sample.number): \(answer)") }
  }

  fileprivate static func check(_ answer: SubmissionAnswer, of number: Int) throws {
    guard case .verified(let verified) = answer, verified.transactions.count == 1,
      verified.transactions[0].isNewlyOwned, verified.entitlements.contains(where: { $0.isActive })
    else { throw BenchError.wrongAnswer("submission \(number): \(answer)") }
  }

  static func settings() async throws -> Settings {
    try Settings(
      await SettingSource(
        flags: [
          "TENURE_BUNDLE_IDS": SampleSubmission.bundleID,
          "TENURE_APPSTORE_SHARED_SECRET": "0123456789abcdef0123456789abcdef",
        ], environment: [:]))
  }
}

/// The limit of ``DecisionBenchmark``: the rows that any ledger must write, with as few indexes as
/// possible, in one round trip.
private struct SmallestWrite: Sendable {
  static let name = """
    the smallest durable write, by pgbench with 8 clients: lock a line, upsert a transaction, \
    append an entry, upsert a holding, commit, in one pipeline
    """
  private static let lines = 10_000
  private static let clients = 8

  private let database: BenchDatabase
  private let pgbench: Pgbench

  /// - Throws: ``BenchError/missingTool(name:package:)``.
  init(database: BenchDatabase, directory: URL) throws {
    self.database = database
    pgbench = try Pgbench(databaseURL: database.url, directory: directory)
  }

  func prepare() async throws {
    try await database.withPool { pool in
      try await pool.runScript(
        """
        DROP SCHEMA IF EXISTS bench CASCADE;
        CREATE SCHEMA bench;
        CREATE TABLE bench.line (id bigint PRIMARY KEY, head bigint NOT NULL);
        INSERT INTO bench.line SELECT n, 0 FROM generate_series(1, \(Self.lines)) AS n;
        CREATE TABLE bench.transaction (
          line bigint, id bigint, product text, charged_at timestamptz, owner uuid,
          PRIMARY KEY (line, id));
        CREATE TABLE bench.entry (
          line bigint, number bigint GENERATED ALWAYS AS IDENTITY, body text, hash bytea,
          PRIMARY KEY (line, number));
        CREATE TABLE bench.holding (
          account bigint, line bigint, starts_at timestamptz, ends_at timestamptz,
          PRIMARY KEY (account, line));
        """)
    }
  }

  func write(_ count: Int, clients: Int = Self.clients) async throws -> Measurement {
    try await pgbench.run(Self.script, clients: clients, times: max(1, count / clients))
  }

  private static let script = """
    \\set line random(1, \(lines))
    \\set id random(1, 1000000000000)
    \\startpipeline
    BEGIN;
    SELECT head FROM bench.line WHERE id = :line FOR UPDATE;
    INSERT INTO bench.transaction VALUES (:line, :id, 'premium.monthly', now(), gen_random_uuid()) \
    ON CONFLICT (line, id) DO UPDATE SET charged_at = excluded.charged_at;
    INSERT INTO bench.entry (line, body, hash) VALUES (:line, repeat('x', 400), '\(hash)');
    INSERT INTO bench.holding VALUES (:id, :line, now(), now() + interval '1 month') \
    ON CONFLICT (account, line) DO UPDATE SET ends_at = excluded.ends_at;
    COMMIT;
    \\endpipeline
    """
  private static let hash = "\\x" + String(repeating: "5a", count: 32)
}

/// PostgreSQL's costs of one piece of work.
struct StatementCost: Sendable, Encodable {
  /// Nil where the extension pg_stat_statements is missing.
  var statements: Double?
  /// The time of planning and executing, without commits, which wait for the disk.
  var milliseconds: Double?
  /// In bytes.
  var wal: Double

  enum CodingKeys: String, CodingKey {
    case statements, milliseconds
    case wal = "wal_bytes"
  }

  /// Divides what happens during some work by its number of pieces.
  static func measured(
    in database: ConnectionPool, of count: Int, _ work: () async throws -> Void
  ) async throws -> StatementCost {
    let hasStatistics =
      (try? await database.runScript(
        "CREATE EXTENSION IF NOT EXISTS pg_stat_statements SCHEMA public; "
          + "SELECT public.pg_stat_statements_reset()")) != nil
    let start = try await position(in: database)
    try await work()
    let wal = try await position(in: database) - start
    var cost = StatementCost(wal: Double(wal) / Double(count))
    guard hasStatistics else { return cost }
    // BEGIN and COMMIT are utility statements without a plan.
    let (calls, time) =
      try await database.query(
        """
        SELECT sum(calls)::bigint,
          sum(total_plan_time + total_exec_time) FILTER (WHERE query NOT IN ('COMMIT', 'BEGIN'))
        FROM public.pg_stat_statements
        WHERE query NOT LIKE '%pg_current_wal_insert_lsn%' AND query NOT LIKE '%_statements_reset%'
        """
      ).decodeFirst(Int.self, Double.self) ?? (0, 0)
    cost.statements = Double(calls) / Double(count)
    cost.milliseconds = time / Double(count)
    return cost
  }

  private static func position(in database: ConnectionPool) async throws -> Int {
    try await database.query("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
      .decodeOnly(Int.self)
  }
}

/// Pieces of work with unused numbers.
private struct Samples: Sendable {
  typealias Work = @Sendable () async throws -> Void

  /// Samples' numbers have ten digits and are distinct from those of ``SampleAccounts``.
  private static let firstNumber = 5_000_000_000
  /// Customers whose rows are copied in one statement each.
  private static let chunk = 5_000
  private static let deadline: Duration = .seconds(600)

  private let make: @Sendable (Range<Int>) async throws -> [Work]
  private let next = Counter()

  private actor Counter {
    var taken = 0

    func take(_ count: Int) -> Range<Int> {
      defer { taken += count }
      return taken..<taken + count
    }
  }

  init(of kind: DecisionBenchmark.Kind, in database: ConnectionPool, logger: Logger) async throws {
    switch kind {
    case .receipts:
      let intake = try await Assembly(
        database: database, settings: try await DecisionBenchmark.settings(),
        transport: PreparedAppStore(), logger: logger
      ).intake
      make = { range in
        let numbers = Self.firstNumber + range.lowerBound..<Self.firstNumber + range.upperBound
        return try await SampleSubmission.prepare(numbers, in: database).map { sample in
          { try DecisionBenchmark.check(try await intake.submit(sample.request), of: sample) }
        }
      }
    case .signedTransactions:
      let shop = try await SampleShop(database: database)
      make = { range in
        range.map(SampleCustomer.init).map { customer in
          let request = customer.request(at: shop.appStore)
          return {
            try DecisionBenchmark.check(
              try await shop.assembly.intake.submit(request), of: customer.number)
          }
        }
      }
    case .notifications:
      // Their first month is over.
      let shop = try await SampleShop(
        database: database, boughtAt: .now - .days(30) - .seconds(60))
      let moment = try await CopiedRows.Moment.now(in: database)
      let marks = try await shop.subscribe(SampleCustomer(0))
      let rows = try await CopiedRows(
        since: moment, marks: marks, without: ["body", "certificate_chain", "job", "event"],
        in: database)
      make = { range in
        for first in stride(from: range.lowerBound, to: range.upperBound, by: Self.chunk) {
          let last = min(first + Self.chunk, range.upperBound)
          _ = try await database.batch(
            rows.insert(SampleCustomer.numbers(first + 1...last)), deadline: Self.deadline)
        }
        return range.map { SampleCustomer($0 + 1) }.map { customer in
          let body = shop.appStore.notification(of: customer, period: 1)
          return {
            let answer = try await shop.assembly.notifications.receive(body)
            guard case .stored(_, isNew: true) = answer else {
              throw BenchError.wrongAnswer("notification of \(customer.number): \(answer)")
            }
          }
        }
      }
    }
  }

  func take(_ count: Int) async throws -> [Work] {
    try await make(await next.take(count))
  }
}
