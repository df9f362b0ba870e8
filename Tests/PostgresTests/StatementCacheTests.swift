import Testing

@testable import Postgres

@Suite struct StatementCacheTests {
  @Test func theLeastRecentlyUsedGivesWay() {
    var cache = StatementCache(capacity: 2)
    let (a, b, c): (SQL, SQL, SQL) = ("SELECT \(1)", "SELECT \("text")", "SELECT 3")
    #expect(cache.lookUp(a) == .mustPrepare(name: "s1"))
    #expect(cache.lookUp(b) == .mustPrepare(name: "s2"))
    #expect(cache.lookUp(a) == .prepared(name: "s1"))
    #expect(cache.lookUp(c) == .mustPrepare(name: "s4"))
    #expect(cache.takeEvicted() == ["s2"])
    #expect(cache.takeEvicted().isEmpty)
    #expect(cache.lookUp(a) == .prepared(name: "s1"))
    cache.forget(name: "s1")
    #expect(cache.lookUp(a) == .mustPrepare(name: "s6"))
    #expect(cache.count == 2)
  }

  private static let prepared: SQL = "SELECT count(*) FROM pg_prepared_statements"

  @Test func theServerKeepsNoMoreThanTheLimit() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
      $0.preparedStatementLimit = 5
    } _: { pool in
      for number in 0..<40 {
        let rows = try await pool.query("SELECT \(unescaped: "\(number)") + \(number)")
        #expect(try rows.decodeOnly(Int.self) == 2 * number)
      }
      #expect(try await pool.query(Self.prepared).decodeOnly(Int.self) <= 6)
    }
  }

  @Test func changedTablesAreNoticed() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      try await pool.execute("CREATE TABLE changing (id int)")
      let all: SQL = "SELECT * FROM changing"
      #expect(try await pool.query(all).columnNames.count == 1)
      try await pool.execute("ALTER TABLE changing ADD COLUMN more text")
      #expect(try await pool.query(all).columnNames.count == 2)
      try await pool.execute("DEALLOCATE ALL")
      #expect(try await pool.query(all).columnNames.count == 2)
    }
  }

  @Test func changedTablesRepeatATransaction() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      try await pool.execute("CREATE TABLE changing_too (id int)")
      let all: SQL = "SELECT * FROM changing_too"
      _ = try await pool.query(all)
      try await pool.execute("ALTER TABLE changing_too ADD COLUMN more text")
      let columns = try await pool.withTransaction { try await $0.query(all).columnNames.count }
      #expect(columns == 2)
    }
  }

  @Test func statementsCanStayUnnamed() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
      $0.usesPreparedStatements = false
    } _: { pool in
      for number in 0..<3 {
        #expect(try await pool.query("SELECT \(number)").decodeOnly(Int.self) == number)
      }
      try await pool.withTransaction { _ = try await $0.query("SELECT \(1)") }
      #expect(try await pool.query(Self.prepared).decodeOnly(Int.self) == 0)
    }
  }

  @Test func whoLeasesConnectionsLeavesNoPlansBehind() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
      $0.preparedStatementLimit = 5
    } _: { pool in
      for number in 0..<20 {
        let rows = try await pool.withTransaction {
          try await $0.query("SELECT \(unescaped: "\(number)") + \(number)")
        }
        #expect(try rows.decodeOnly(Int.self) == 2 * number)
      }
      let kept = try await pool.withTransaction {
        try await $0.query(Self.prepared).decodeOnly(Int.self)
      }
      #expect(kept <= 6)
    }
  }

  @Test func aRepeatedStatementStaysOutOfTransactions() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      try await pool.execute("CREATE TABLE changing_behind (id int)")
      let insert: SQL = "INSERT INTO changing_behind VALUES (1) RETURNING *"
      _ = try await pool.query(insert)
      try await pool.execute("ALTER TABLE changing_behind ADD COLUMN more text")
      let session = Session()
      let limit = TestServer.patience
      let answers = await Answers(
        of: [
          Request([insert], timeout: limit), Request(["BEGIN"], session: session, timeout: limit),
        ], from: pool)
      #expect(try await answers.rows(of: 1) != nil)
      _ = try await pool.run(
        Request(["ROLLBACK"], session: session, endsSession: true, timeout: limit))
      #expect(try await answers.rows(of: 0)?.first?.columnNames.count == 2)
      #expect(try await pool.query("TABLE changing_behind").count == 2)
    }
  }

  @Test func theServersWordsAreNotTakenForAStalePlan() async throws {
    try await TestServer.withPool { pool in
      let attempts = Counter()
      let error = await postgresError {
        try await pool.withTransaction { transaction in
          _ = await attempts.next()
          _ = try await transaction.query(
            "DO $$ BEGIN RAISE 'a cached plan' USING ERRCODE = '0A000'; END $$")
        }
      }
      #expect(error?.sqlState == .featureNotSupported)
      #expect(await attempts.count == 1)
    }
  }
}
