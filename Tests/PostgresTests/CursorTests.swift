import Testing

@testable import Postgres

@Suite struct CursorTests {
  private func open(
    _ pool: ConnectionPool, _ query: SQL, rowsAtOnce: Int, idleTimeout: Duration = .seconds(60)
  ) async throws -> Cursor {
    try await pool.openCursor(
      for: query, settings: ["SET LOCAL work_mem = '1MB'"], rowsAtOnce: rowsAtOnce,
      idleTimeout: idleTimeout)
  }

  private func isGivenBack(_ pool: ConnectionPool) async throws -> Bool {
    try await eventually { await pool.reading().leased == 0 }
  }

  /// How many rows the next piece has.
  private func count(_ cursor: Cursor) async throws -> Int? { try await cursor.next()?.count }

  @Test func rowsComeInPiecesAllAsOfOneMoment() async throws {
    try await TestServer.withPool { pool in
      try await pool.execute("CREATE TABLE pieces AS SELECT generate_series(1, 10) AS n")
      let cursor = try await open(
        pool, "SELECT n FROM pieces WHERE n <> \(4) ORDER BY n", rowsAtOnce: 4)
      try await pool.execute("INSERT INTO pieces VALUES (11)")
      var pieces: [[Int]] = []
      while let rows = try await cursor.next() { pieces.append(try rows.decode(Int.self)) }
      #expect(pieces == [[1, 2, 3, 5], [6, 7, 8, 9], [10]])
      let beyond = try await count(cursor)
      #expect(beyond == nil)
      let isBack = try await isGivenBack(pool)
      #expect(isBack)
    }
  }

  @Test(arguments: [(0, []), (4, [4]), (3, [3])])
  func aPieceIsNeverEmpty(rows: Int, pieces: [Int]) async throws {
    try await TestServer.withPool { pool in
      let cursor = try await open(pool, "SELECT generate_series(1, \(rows))", rowsAtOnce: 4)
      var counts: [Int] = []
      while let rows = try await cursor.next() { counts.append(rows.count) }
      #expect(counts == pieces)
    }
  }

  @Test func theLastPieceNeedsNoConnection() async throws {
    try await TestServer.withPool { pool in
      let cursor = try await open(pool, "SELECT generate_series(1, 3)", rowsAtOnce: 4)
      let isBack = try await isGivenBack(pool)
      #expect(isBack)
      let left = try await count(cursor)
      #expect(left == 3)
    }
  }

  @Test(arguments: [true, false])
  func whoReadsNoFurtherGivesTheConnectionBack(isClosed: Bool) async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 2
    } _: { pool in
      do {
        let cursor = try await open(pool, "SELECT generate_series(1, 9)", rowsAtOnce: 4)
        #expect(await pool.reading().leased == 1)
        let first = try await count(cursor)
        #expect(first == 4)
        if isClosed {
          await cursor.close()
          let closed = try await count(cursor)
          #expect(closed == nil)
        }
      }
      let isBack = try await isGivenBack(pool)
      #expect(isBack)
      let isUsable = try await pool.query("SELECT true").decodeOnly(Bool.self)
      #expect(isUsable)
    }
  }

  @Test func whatIsWrongIsSaidAtOnce() async throws {
    try await TestServer.withPool { pool in
      let error = await postgresError {
        _ = try await open(pool, "SELECT 1 / generate_series(0, 1)", rowsAtOnce: 4)
      }
      #expect(error?.sqlState?.rawValue == "22012")
      let isBack = try await isGivenBack(pool)
      #expect(isBack)
    }
  }

  @Test func aReaderWhoTakesTooLongFails() async throws {
    try await TestServer.withPool { pool in
      let cursor = try await open(
        pool, "SELECT generate_series(1, 9)", rowsAtOnce: 4, idleTimeout: .milliseconds(1))
      let isBack = try await isGivenBack(pool)
      #expect(isBack)
      let first = try await count(cursor)
      #expect(first == 4)
      let error = await postgresError { _ = try await cursor.next() }
      #expect(error != nil)
      let beyond = try await count(cursor)
      #expect(beyond == nil)
    }
  }
}
