import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Synchronization
import Testing

@testable import LedgerStorage

@Suite("Reading holdings for many callers")
struct HoldingBatcherTests {
  /// Gives each account one charge of a separate line, named after it.
  private static func fill(_ ledger: Ledger, _ accounts: [String]) async throws {
    for account in accounts {
      let line = OriginalTransactionKey(.production, OriginalTransactionID(account))
      try await ledger.submit(
        [charge(TransactionID(account), on: 0, line: line)],
        claiming: [key(TransactionID(account), line: line)], by: account, on: 0.1)
    }
  }

  private static func run(
    _ test: @Sendable (HoldingBatcher, ConnectionPool) async throws -> Void
  ) async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      try await fill(ledger, ["anna", "ben", "carla"])
      try await test(ledger.core.holdingBatcher, database)
    }
  }

  /// The charges of an account, which are named after it.
  private static func charges(_ holdings: AccountHoldings) -> [String] {
    holdings.holdings.map(\.charge.transactionID.rawValue)
  }

  private static func holdings(_ reader: HoldingBatcher, _ account: String) async throws
    -> AccountHoldings
  {
    try await reader.read([account]).holdings(of: account)
  }

  private static func whileLocked(
    _ database: ConnectionPool, _ body: (Connection) async throws -> Void
  ) async throws {
    try await database.withConnection { connection in
      try await connection.runScript("BEGIN; LOCK TABLE tenure.holding")
      try await body(connection)
      try await connection.runScript("ROLLBACK")
    }
  }

  @Test("everybody gets his own, however many wait")
  func manyCallers() async throws {
    try await Self.run { reader, database in
      let names = (0..<450).map { ["anna", "ben", "carla", "unknown"][$0 % 4] }
      let tasks = Mutex<[Task<[String], any Error>]>([])
      try await Self.whileLocked(database) { _ in
        for name in names {
          let task = Task { Self.charges(try await Self.holdings(reader, name)) }
          tasks.withLock { $0.append(task) }
        }
        try await Task.sleep(for: .milliseconds(50))
      }
      for (name, task) in zip(names, tasks.withLock { $0 }) {
        #expect(try await task.value == (name == "unknown" ? [] : [name]))
      }
    }
  }

  @Test(
    "a read of several accounts is not batched, and is repeated as the pool's other reads",
    .disabled(if: ScratchPlace.environment.isDistributed, "A view can't take a table's place."))
  func severalAccounts() async throws {
    try await Self.run { reader, database in
      // The first read fails as of a serialization failure.
      try await database.runScript(
        """
        ALTER TABLE tenure.holding RENAME TO elsewhere;
        CREATE SEQUENCE tenure.reads;
        CREATE FUNCTION tenure.fails_once() RETURNS boolean LANGUAGE plpgsql AS $$
        BEGIN
          IF nextval('tenure.reads') = 1 THEN RAISE SQLSTATE '40001'; END IF;
          RETURN true;
        END $$;
        CREATE VIEW tenure.holding AS
          SELECT h.* FROM tenure.elsewhere AS h, (SELECT tenure.fails_once() OFFSET 0) AS once
        """)
      let rows = try await reader.read(["anna", "ben"])
      #expect(Self.charges(try rows.holdings(of: "ben")) == ["ben"])
    }
  }

  @Test("a reader that gives up waits no longer, and affects no other")
  func cancellation() async throws {
    try await Self.run { reader, database in
      let others = Mutex<[Task<[String], any Error>]>([])
      try await Self.whileLocked(database) { _ in
        // The first two have a statement out; the last two wait for the next one.
        for _ in 0..<2 {
          let first = Task { try await Self.holdings(reader, "anna") }
          let second = Task { Self.charges(try await Self.holdings(reader, "ben")) }
          try await Task.sleep(for: .milliseconds(30))
          first.cancel()
          await #expect(throws: CancellationError.self) { try await first.value }
          others.withLock { $0.append(second) }
        }
      }
      for task in others.withLock({ $0 }) { #expect(try await task.value == ["ben"]) }
      #expect(Self.charges(try await Self.holdings(reader, "anna")) == ["anna"])
      let cancelled = Task {
        try? await Task.sleep(for: .seconds(600))
        return try await Self.holdings(reader, "anna")
      }
      cancelled.cancel()
      await #expect(throws: CancellationError.self) { try await cancelled.value }
    }
  }

  @Test("a failing statement fails for all its readers, and for none after them")
  func failure() async throws {
    try await Self.run { reader, database in
      try await database.runScript("ALTER TABLE tenure.holding RENAME TO elsewhere")
      for _ in 0..<5 {
        await #expect(throws: PostgresError.self) { try await Self.holdings(reader, "anna") }
        await #expect(throws: PostgresError.self) { try await reader.read(["anna", "ben"]) }
      }
      try await database.runScript("ALTER TABLE tenure.elsewhere RENAME TO holding")
      #expect(Self.charges(try await Self.holdings(reader, "anna")) == ["anna"])
      let rows = try await reader.read(["ben", "unknown"])
      #expect(Self.charges(try rows.holdings(of: "ben")) == ["ben"])
      #expect(try rows.holdings(of: "unknown").holdings.isEmpty)
      await database.close()
      await #expect(throws: PostgresError.self) { try await reader.read(["anna"]) }
    }
  }

  @Test("a row that can't be read is a failure for its own account alone")
  func unreadableRow() async throws {
    try await Self.run { reader, database in
      try await database.execute(
        "UPDATE tenure.holding SET starts_at = 'infinity' WHERE account_id = 'anna'")
      let rows = try await reader.read(["anna", "ben"])
      #expect(throws: PostgresError.self) { try rows.holdings(of: "anna") }
      #expect(Self.charges(try rows.holdings(of: "ben")) == ["ben"])
    }
  }

  @Test("a read misses neither a provisional grant nor the purchase that replaces it")
  func oneSnapshot() async throws {
    try await withLedger { ledger in
      try await ledger.database.runScript(
        """
        INSERT INTO tenure.account_grant (account_id, grant_id, entitlement, source, starts_at,
          ends_at, reason, submission_id, environment, original_transaction_id)
        VALUES ('anna', gen_random_uuid(), 'premium', 'provisional', now(), now() + '1 day', 'r',
          gen_random_uuid(), 'production', '1000')
        """)
      try await ledger.database.withConnection { decision in
        // The read stops at this table; everything is decided before it goes on.
        try await decision.runScript(
          "BEGIN; LOCK TABLE tenure.account_grant IN ACCESS EXCLUSIVE MODE")
        async let held = ledger.holdings.holdings(of: "anna")
        // Asked on this connection: the pool's may be behind the read that waits.
        let waiting: SQL = """
          SELECT count(*) FROM pg_locks
          WHERE relation = 'tenure.account_grant'::regclass AND NOT granted
          """
        while try await decision.query(waiting).decodeOnly(Int.self) == 0 {
          try await Task.sleep(for: .milliseconds(5))
        }
        try await decision.runScript(
          """
          DELETE FROM tenure.account_grant;
          INSERT INTO tenure.holding (account_id, environment, original_transaction_id,
            transaction_id, product_id, period_type, starts_at)
          VALUES ('anna', 'production', '1000', '1', 'monthly', 'normal', now());
          COMMIT
          """)
        let found = try await held
        #expect(found.holdings.count + found.grants.count == 1)
      }
    }
  }
}
