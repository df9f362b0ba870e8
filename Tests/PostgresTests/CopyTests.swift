import Foundation
import Testing

@testable import Postgres

@Suite struct CopyTests {
  private struct Broken: Error {}

  @Test func rowsAreCopiedFromASequence() async throws {
    try await TestServer.withPool { pool in
      try await pool.execute("CREATE TABLE copied (id int8, name text, at timestamptz)")
      let copied = try await pool.withTransaction { transaction in
        try await transaction.copyIn(
          "COPY copied (id, name, at) FROM STDIN", rows: 0..<50_000
        ) { number, row in
          row.append(
            number, number.isMultiple(of: 2) ? "even \(number)" : nil, PostgresTimestamp.infinity)
        }
      }
      #expect(copied == 50_000)
      let counts = try await pool.query("SELECT count(*), count(name), sum(id)::int8 FROM copied")
      #expect(
        try counts.decodeOnly(Int.self, Int.self, Int.self) == (50_000, 25_000, 1_249_975_000))
    }
  }

  @Test func rowsAreCopiedInATransaction() async throws {
    try await TestServer.withPool { pool in
      try await pool.execute("CREATE TABLE copied_in_transaction (id int8)")
      try await pool.withTransaction { transaction in
        try await transaction.execute("INSERT INTO copied_in_transaction VALUES (-1)")
        try await transaction.copyIn("COPY copied_in_transaction FROM STDIN", rows: 0..<1000) {
          $1.append($0)
        }
        try await transaction.commit(with: ["INSERT INTO copied_in_transaction VALUES (-2)"])
      }
      let count: SQL = "SELECT count(*) FROM copied_in_transaction"
      #expect(try await pool.query(count).decodeOnly(Int.self) == 1002)
    }
  }

  @Test func whatFailsCopiesNothing() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      try await pool.execute("CREATE TABLE uncopied (id int8 CHECK (id < 100))")
      await #expect(throws: Broken.self) {
        try await pool.withTransaction { transaction in
          try await transaction.copyIn("COPY uncopied FROM STDIN", rows: 0..<50) { number, row in
            row.append(number)
            if number == 40 { throw Broken() }
          }
        }
      }
      let refused = await postgresError {
        try await pool.withTransaction {
          _ = try await $0.copyIn("COPY uncopied FROM STDIN", rows: 0..<200_000) { $1.append($0) }
        }
      }
      #expect(refused?.sqlState?.rawValue == "23514")
      let noCopy = await postgresError {
        try await pool.withTransaction {
          _ = try await $0.copyIn("SELECT 1", rows: 0..<2) { $1.append($0) }
        }
      }
      #expect(noCopy != nil)
      #expect(try await pool.query("TABLE uncopied").isEmpty)
    }
  }

  /// The server empties the socket at any moment, also between two looks at it.
  @Test func muchMoreIsCopiedThanASocketHolds() async throws {
    try await TestServer.withPool { pool in
      try await pool.runScript(
        """
        CREATE TABLE copied_and_dropped (data bytea);
        CREATE FUNCTION drop_row() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER drop_row BEFORE INSERT ON copied_and_dropped
        FOR EACH ROW EXECUTE FUNCTION drop_row()
        """)
      let data = Array(repeating: UInt8(7), count: 30_000)
      try await withThrowingTaskGroup(of: Void.self) { group in
        for _ in 0..<4 {
          group.addTask {
            let copy: SQL = "COPY copied_and_dropped FROM STDIN"
            try await pool.withTransaction {
              try await $0.copyIn(copy, rows: 0..<10_000) { _, row in row.append(data) }
            }
          }
        }
        try await group.waitForAll()
      }
    }
  }

  @Test func rowsMayBeSlowToCome() async throws {
    try await TestServer.withPool { pool in
      try await pool.execute("CREATE TABLE copied_slowly (id int8)")
      let copied = try await pool.withTransaction {
        try await $0.copyIn(
          "COPY copied_slowly FROM STDIN", rows: 0..<5, deadline: .seconds(2)
        ) { number, row in
          Thread.sleep(forTimeInterval: 0.6)
          row.append(number)
        }
      }
      #expect(copied == 5)
    }
  }

  @Test func aLostConnectionIsNoticedBeforeTheNextRow() async throws {
    try await TestServer.withPool { pool in
      try await pool.execute("CREATE TABLE uncopied_too (id int8)")
      try await pool.withConnection { connection in
        let process = try await connection.query("SELECT pg_backend_pid()").decodeOnly(Int32.self)
        guard case .leased(let backend) = await connection.session.state else {
          Issue.record("no connection")
          return
        }
        let copy = try await ExclusiveUse.begin(connection.session, timeout: TestServer.patience)
        try await copy.beginCopy("COPY uncopied_too FROM STDIN")
        _ = try await pool.query("SELECT pg_terminate_backend(\(process))")
        let isNoticed = try await eventually { await backend.isClosed }
        #expect(isNoticed)
        await copy.end()
      }
    }
  }
}
