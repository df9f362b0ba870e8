import Foundation
import Logging
import Postgres
import ScratchDatabases
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("The benchmarks' limits")
struct BenchTests {
  @Test(
    "decisions are compared with the smallest durable write",
    arguments: [DecisionBenchmark.Kind.receipts, .signedTransactions, .notifications])
  func decisions(of kind: DecisionBenchmark.Kind) async throws {
    try await withBenchDatabase { database, directory in
      try await database.withPool { try await SampleAccounts.describeProduct(in: $0) }
      let result = try await DecisionBenchmark(
        kind: kind, database: database, seconds: 0, rounds: 1, warmUp: 8, costed: 4,
        directory: directory, logger: Self.quiet
      ).run()
      #expect(result.ratio > 0)
      #expect(result.cost?.wal ?? 0 > 1000)
    }
  }

  private static let bodies: Set = ["body", "certificate_chain"]

  // Rows are found by the transactions that wrote them, which each node has its own of.
  @Test(
    "copied rows are what the programs would have written",
    .disabled(if: ScratchPlace.environment.isDistributed))
  func copiedRows() async throws {
    let real = try await withScratchDatabase { database in
      let shop = try await SampleShop(database: database)
      for index in 1...3 { _ = try await shop.subscribe(SampleCustomer(index)) }
      return try await contents(of: database).filter { !Self.bodies.contains($0.key) }
    }
    let copied = try await withScratchDatabase { database in
      let shop = try await SampleShop(database: database)
      let moment = try await CopiedRows.Moment.now(in: database)
      let marks = try await shop.subscribe(SampleCustomer(1))
      // Bodies are named by their digests, which a copy can't have.
      let rows = try await CopiedRows(
        since: moment, marks: marks, without: Self.bodies, in: database)
      // Both ways of writing them; existing rows are written once more.
      try await database.batch(rows.insert(SampleCustomer.numbers(2...2)))
      for index in [2, 3] { try await database.batch(rows.upsert(SampleCustomer(index).number)) }
      // Rows identified only by a serial number were inserted twice.
      try await database.execute(
        """
        DELETE FROM tenure.event WHERE event_id IN (
          SELECT event_id FROM tenure.event ORDER BY 1 DESC LIMIT \(rows.count(in: "event")))
        """)
      return try await contents(of: database).filter { !Self.bodies.contains($0.key) }
    }
    expect(copied, toBeLike: real)
  }

  @Test("reads are answered over HTTP both ways, and asked of PostgreSQL")
  func reads() async throws {
    try await withBenchDatabase { database, directory in
      let accounts = SampleAccounts(count: 200)
      try await accounts.fill(database, logger: Self.quiet)
      let results = try await ReadBenchmark(
        database: database, accounts: accounts, seconds: 1, rounds: 1, directory: directory,
        logger: Self.quiet, warmUp: (0, 20), executable: TenureProgram.executable
      ).run()
      #expect(results.map(\.goal) == [0.8, 1, 0.6, 0.45])
      #expect(results.allSatisfy { $0.ratio > 0 && $0.p99Milliseconds ?? 0 > 0 })
      #expect(results[0].memory ?? 0 > 0)
    }
  }

  @Test("reads of many accounts are compared with the same reads of few")
  func growth() async throws {
    try await withBenchDatabase { many, directory in
      try await withBenchDatabase { few, _ in
        let results = try await GrowthBenchmark(
          many: .init(database: many, accounts: SampleAccounts(count: 200)),
          few: .init(database: few, accounts: SampleAccounts(count: 2)),
          seconds: 1, rounds: 1, directory: directory, logger: Self.quiet, warmUp: 0,
          executable: TenureProgram.executable
        ).run()
        #expect(results.map(\.goal) == [0.85, 0.85])
        #expect(results.allSatisfy { $0.ratio > 0 })
        #expect(results.allSatisfy { $0.limitName == "the same reads of 2 accounts" })
      }
    }
  }

  @Test("signed data are measured without a database, and all of them are accepted")
  func signatures() async throws {
    let results = try await SignatureBenchmark(seconds: 0, rounds: 1, logger: Self.quiet).run()
    #expect(results.map(\.goal) == [0.5, nil, 0.5, nil])
    #expect(results.allSatisfy { $0.ratio > 0 })
  }

  @Test(
    "a ledger is audited and compared without a difference, and its entries are read and hashed")
  func audit() async throws {
    try await withBenchDatabase { database, _ in
      let results = try await AuditBenchmark(
        kinds: [.audited, .accounts, .compared], database: database, customers: 20, rounds: 1,
        logger: Self.quiet
      ).run()
      #expect(results.count == 3)
      #expect(results.allSatisfy { $0.ratio > 0 && $0.database ?? 0 > 0 })
    }
  }

  @Test("launches and polls add entries only when there is news")
  func customerYear() async throws {
    try await withBenchDatabase { database, _ in
      let year = try await CustomerYear.measure(
        of: 2, days: 62, in: database, logger: Self.quiet)
      // A purchase and two renewals, each with its claim or its renewal status.
      #expect((3...20).contains(year.entries))
      #expect(year.bytesFromApple > Double(62 * 3000))
    }
  }

  @Test("jobs are done by a worker and by pgbench, and all of them really are")
  func jobs() async throws {
    try await withBenchDatabase { database, directory in
      let result = try await JobBenchmark(
        database: database, seconds: 0, rounds: 1, warmUp: 40, directory: directory,
        logger: Self.quiet
      ).run()
      #expect(result.goal == 0.8)
      #expect(result.ratio > 0)
    }
  }

  @Test("subscriptions that have ended are planned and polled, and their renewals recorded")
  func polling() async throws {
    try await withBenchDatabase { database, _ in
      let results = try await PollingBenchmark(
        database: database, subscriptions: 60, polls: 20, logger: Self.quiet
      ).run()
      #expect(results.count == 2)
      #expect(results.allSatisfy { $0.ratio > 0 })
      try await database.withPool { pool in
        let renewals: SQL = """
          SELECT count(*) FROM tenure.store_transaction AS t
          JOIN tenure.history_revision USING (environment, original_transaction_id)
          WHERE t.kind = 'renewal' AND t.owner_account_key IS NOT NULL
          """
        // The first one's, those that were polled, and the copies of the first one's.
        let count = try await pool.query(renewals).decodeOnly(Int.self)
        #expect(count >= 41)
      }
    }
  }

  @Test("a large ledger is filled with copied lives, and every report and page on it is answered")
  func reports() async throws {
    try await withBenchDatabase { database, directory in
      let (results, answers) = try await ReportsBenchmark(
        database: database, subscriptions: 50, seconds: 0, rounds: 1, directory: directory,
        logger: Self.quiet, executable: TenureProgram.executable
      ).run()
      #expect(results.isEmpty)
      #expect(answers.compactMap { answer in answer.fault.map { "\(answer.name): \($0)" } } == [])
      #expect(answers.contains { $0.name == "page revenue, three years" })
      #expect(answers.contains { $0.name == "search by transaction id" })
      #expect(answers.contains { $0.name.hasPrefix("page active: ") })
      try await database.withPool { pool in
        let (customers, lonely, charges) =
          try await pool.query(
            """
            SELECT (SELECT count(*) FROM tenure.account WHERE account_id NOT LIKE '%-2'),
              (SELECT count(*) FROM tenure.account AS a WHERE NOT EXISTS (
                SELECT FROM tenure.store_transaction
                WHERE original_transaction_id = '30000' || left(a.account_id, 10))),
              (SELECT count(*) FROM tenure.movement
                WHERE kind = 'charged' AND known_until = 'infinity')
            """
          ).decodeFirst(Int.self, Int.self, Int.self) ?? (0, 0, 0)
        #expect(customers == 50)
        #expect(lonely == 0)
        let summed = try await pool.query(
          "SELECT sum(number)::bigint FROM tenure.movement_day WHERE kind = 'charged' AND basis = 'at'"
        ).decodeOnly(Int.self)
        #expect(summed == charges)
      }
    }
  }

  private static let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })

  /// Runs a body with a database as the benchmarks make it.
  private func withBenchDatabase(
    _ body: (BenchDatabase, _ directory: URL) async throws -> Void
  ) async throws {
    try await withTemporaryDirectory { directory in
      let database = try await BenchDatabase.create(
        url: nil, in: directory, logger: Self.quiet)
      do {
        try await body(database, directory)
        await database.remove()
      } catch {
        await database.remove()
        throw error
      }
    }
  }

  /// The contents of a table: the columns filled in each row, and the size in bytes.
  private struct Contents: Sendable {
    var rows: [String]
    var bytes: Int
  }

  private func expect(_ made: [String: Contents], toBeLike real: [String: Contents]) {
    #expect(real.keys.sorted() == made.keys.sorted())
    #expect(real["ledger_entry"]?.rows.isEmpty == false)
    for (table, real) in real.sorted(by: { $0.key < $1.key }) {
      let made = made[table] ?? Contents(rows: [], bytes: 0)
      #expect(made.rows == real.rows, "\(table)")
      // Made-up values are about as long as real ones.
      let range = Double(real.bytes) * 0.8...Double(real.bytes) * 1.2
      #expect(range.contains(Double(made.bytes)), "\(table): \(made.bytes) of \(real.bytes)")
    }
  }

  private func contents(of database: ConnectionPool) async throws -> [String: Contents] {
    let tables = try await database.query(
      """
      SELECT relname::text FROM pg_class
      WHERE relnamespace = 'tenure'::regnamespace AND relkind IN ('r', 'v')
        AND relpersistence = 'p'
      """
    ).decode(String.self)
    var contents: [String: Contents] = [:]
    for table in tables {
      let rows = try await database.query(
        """
        WITH t AS MATERIALIZED (SELECT * FROM tenure.\(unescaped: table))
        SELECT array_to_string(ARRAY(
          SELECT jsonb_object_keys(jsonb_strip_nulls(to_jsonb(t))) ORDER BY 1), ' '),
          octet_length(t::text)
        FROM t ORDER BY 1
        """
      ).decode(String.self, Int.self)
      contents[table] = Contents(rows: rows.map(\.0), bytes: rows.map(\.1).reduce(0, +))
    }
    return contents
  }
}
