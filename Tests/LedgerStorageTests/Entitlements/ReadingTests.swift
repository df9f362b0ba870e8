import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Reading")
struct ReadingTests {
  @Test("lines are one only as far as that was known at the time")
  func linkedLater() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      let other = OriginalTransactionKey(.production, "2000")
      try await ledger.submit(
        [charge("1", on: 0, lineItem: "w1"), status(true, on: 0.1)], claiming: [key("1")],
        by: "anna", on: 0.1)
      try await ledger.submit(
        [charge("8", on: 40, line: other)], claiming: [key("8", line: other)], by: "ben", on: 40)
      try await ledger.submit(
        [charge("9", on: 0, line: other, asOf: 50, lineItem: "w1")], claiming: [], by: "ben",
        on: 50)

      let then = try #require(
        try await ledger.ownership.original(of: originalKey, knownAt: day(45)))
      #expect(Set(then.line.heads.keys) == [originalKey])
      #expect(then.rule.charges.map(\.id) == [key("1")])
      #expect(then.line.decisions.count == 1)
      let now = try #require(try await ledger.ownership.original(of: originalKey, knownAt: day(51)))
      #expect(Set(now.line.heads.keys) == [originalKey, other])
      #expect(now.rule.charges.count == 2)
      let held = try await ledger.holdings.allHoldings(of: "ben", knownAt: day(45)).holdings
      #expect(held.map(\.charge) == [key("8", line: other)])
    }
  }

  @Test(
    "nothing but the catalogue is read from its beginning to its end",
    .disabled(if: ScratchPlace.environment.isDistributed))
  func plans() async throws {
    try await withScratchDatabase { configuration in
      // One connection, so that its work is counted before the next statement looks.
      configuration.connectionLimit = 1
    } _: { database in
      let ledger = Ledger(database: database)
      _ = try await ledger.products.describe(
        Product(id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      let order = try await ledger.orders.openOrder(
        accountID: "anna", productID: "monthly", at: start)
      let other = OriginalTransactionKey(.production, "2000")
      func submit(_ id: TransactionID, on date: Double) async throws {
        try await ledger.submit(
          [
            charge(id, on: date), status(false, on: date), charge(id, on: date, line: other),
          ], claiming: [key(id)], by: "anna", on: date)
      }
      try await submit("1", on: 0)
      try await Self.multiplyRows(of: database)

      try await submit("2", on: 30)
      let account = try #require(try await ledger.accounts.account("anna"))
      _ = try await database.query("SELECT pg_stat_force_next_flush()")
      _ = try await database.query("SELECT pg_stat_reset()")

      try await submit("3", on: 60)
      _ = try await ledger.orders.openOrder(accountID: "ben", productID: "monthly", at: start)
      #expect(try await ledger.orders.order(order.order.id) != nil)
      #expect(try await ledger.ownership.lines(of: account.key).count == 2)
      #expect(try await ledger.ownership.lines(of: "1" as TransactionID).contains(originalKey))
      #expect(try await ledger.ownership.environments(of: "1000") == [.production])
      #expect(
        try await ledger.ownership.original(of: originalKey, knownAt: day(90))?.rule.charges.count
          == 3)
      #expect(try await !ledger.ownership.history(of: [originalKey]).isEmpty)
      #expect(try await ledger.ownership.accountIDs(of: [account.key]) == [account.key: "anna"])
      _ = try await ledger.holdings.holdings(of: "anna")
      #expect(try await ledger.holdings.allHoldings(of: "anna", knownAt: nil).holdings.count == 3)
      let submission = try await ledger.submissions.store(
        ledger.submissions.new(
          id: UUID(), accountID: "anna", receivedAt: day(60), payload: .receipt("receipt"),
          transactionID: nil, orderID: nil, isRestore: false, bundleID: nil, retryAt: day(60)
        )
      ).id
      #expect(try await ledger.submissions.submission(submission) != nil)
      #expect(try await ledger.submissions.payload(of: submission) != nil)
      _ = try await ledger.submissions.exchanges(of: submission)
      _ = try await ledger.orders.acknowledgeDelivery(of: key("3"), by: account.key, at: day(61))
      _ = try await ledger.claimJobs(limit: 1, worker: "w", at: start, lease: .seconds(1))

      _ = try await database.query("SELECT pg_stat_force_next_flush()")
      let scanned = try await database.query(
        """
        SELECT s.relname::text FROM pg_stat_user_tables AS s JOIN pg_class AS c ON c.oid = s.relid
        WHERE s.schemaname = 'tenure' AND s.seq_scan > 0 AND c.reltuples > 1000
        """
      ).decode(String.self)
      #expect(scanned == [])
    }
  }

  @Test(
    "each statement of a purchase, a notification, an order and a read asks one shard",
    .enabled(if: ScratchPlace.environment.isDistributed))
  func routes() async throws {
    try await withScratchDatabase { database in
      let name = try #require(ScratchPlace.database(of: database.uri))
      try await database.runAsSuperuser(
        "ALTER DATABASE \(name) SET citus.enable_stat_counters TO on")
      let ledger = Ledger(database: database)
      var counted = (single: 0, several: 0)
      func ask(_ what: String, _ operation: () async throws -> Void) async throws {
        try await operation()
        let count = try await database.query(
          """
          SELECT query_execution_single_shard, query_execution_multi_shard
          FROM citus_stat_counters WHERE name = current_database()
          """
        ).decodeOnly(Int.self, Int.self)
        #expect(count.0 > counted.single, "\(what) asks no shard")
        #expect(count.1 == counted.several, "\(what) asks several shards")
        counted = count
      }
      _ = try await ledger.products.describe(
        Product(id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      try await ask("An order") {
        _ = try await ledger.orders.openOrder(
          accountID: "anna", productID: "monthly", at: start)
      }
      try await ask("A first purchase") {
        let submission = try await ledger.store(by: "anna", on: 1)
        try await ledger.verify(
          submission, [charge("1", on: 1), status(true, on: 1)], claiming: [key("1")], on: 1,
          exchanges: [exchange("answer")])
      }
      try await ask("The same purchase") {
        try await ledger.submit(
          [charge("1", on: 1), status(true, on: 1)], claiming: [key("1")], by: "anna", on: 2)
      }
      try await ask("A renewal by notification") {
        try await ledger.receive([charge("2", on: 31), status(true, on: 31)], on: 31)
      }
      try await ask("A refund by notification") {
        try await ledger.receive([charge("2", on: 31, asOf: 32, revokedOn: 32)], on: 32)
      }
      try await ask("A poll") { try await ledger.learn([status(false, on: 40)], on: 40) }
      try await ask("A read") { _ = try await ledger.holdings.holdings(of: "anna") }
      try await ask("An account") { _ = try await ledger.accounts.account("anna") }
    }
  }

  /// Adds thousands of rows like the existing ones, under new keys.
  private static func multiplyRows(of database: ConnectionPool) async throws {
    let keys = try await database.query(
      """
      SELECT c.relname::text, a.attname::text, a.atttypid = 'uuid'::regtype
      FROM pg_class AS c JOIN pg_index AS i ON i.indrelid = c.oid AND i.indisprimary
        JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)
      WHERE c.relnamespace = 'tenure'::regnamespace AND a.attname <> 'environment'
        AND a.atttypid IN ('uuid'::regtype, 'text'::regtype) AND c.relname NOT LIKE 'product%'
        AND (c.relname NOT LIKE 'movement%' AND c.relname NOT LIKE 'charge%'
          OR a.attname IN ('original_transaction_id', 'product_id'))
        AND c.relname NOT IN ('movement_change', 'app_store_write_back')
      """
    ).decode(String.self, String.self, Bool.self)
    let inserts = Dictionary(grouping: keys, by: \.0).map { table, columns in
      let changes = columns.map { _, column, isUUID in
        "'\(column)', " + (isUUID ? "md5(n::text)::uuid" : "row.\(column) || '-' || n")
      }
      // Only an alias may have another name than its charge.
      let isLike = table == "store_transaction" ? "WHERE rule IS NULL" : ""
      return """
        INSERT INTO tenure.\(table) OVERRIDING SYSTEM VALUE SELECT changed.*
        FROM (SELECT * FROM tenure.\(table) \(isLike) LIMIT 1) AS row, generate_series(1, 10000) AS n,
          jsonb_populate_record(row::tenure.\(table), jsonb_build_object(
            \(changes.joined(separator: ", ")))) AS changed;
        """
    }
    try await database.runScript(
      """
      SET LOCAL session_replication_role = replica;
      \(inserts.joined(separator: "\n"))
      """)
    try await database.runScript("ANALYZE")
  }
}
