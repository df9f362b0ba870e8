import Testing

@testable import Postgres

@Suite struct CancellationTests {
  private static func running(_ marker: String) -> SQL {
    """
    SELECT count(*) FROM pg_stat_activity
    WHERE state = 'active' AND query LIKE \("%" + marker + "%") AND pid <> pg_backend_pid()
    """
  }

  @Test func cancellingTheTaskStopsTheServer() async throws {
    try await TestServer.withPool { pool in
      let marker = "cancelled_one"
      let task = Task { try await pool.query("SELECT pg_sleep(30) AS \(unescaped: marker)") }
      let isRunning = {
        try await pool.query(Self.running(marker)).decodeOnly(Int.self) > 0
      }
      let begun = try await eventually(isRunning)
      #expect(begun)
      task.cancel()
      await #expect(throws: CancellationError.self) { try await task.value }
      let goesOn = try await isRunning()
      #expect(!goesOn)
    }
  }

  @Test func neighboursOnTheConnectionAreRepeated() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      _ = try await pool.query("SELECT 1")
      for _ in 0..<20 {
        let cancelled = Task { try await pool.query("SELECT pg_sleep(0.004)") }
        let neighbours = (0..<5).map { number in
          Task {
            try await pool.query("SELECT \(number) FROM pg_sleep(0.001)").decodeOnly(Int.self)
          }
        }
        try await Task.sleep(for: .milliseconds(3))
        cancelled.cancel()
        for (number, neighbour) in neighbours.enumerated() {
          #expect(try await neighbour.value == number)
        }
        _ = await cancelled.result
      }
    }
  }

  @Test func aCancelledTransactionIsRolledBack() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      try await pool.execute("CREATE TABLE not_written (id int)")
      let task = Task {
        try await pool.withTransaction { transaction in
          try await transaction.execute("INSERT INTO not_written VALUES (1)")
          _ = try await transaction.query("SELECT pg_sleep(30)")
        }
      }
      try await Task.sleep(for: .milliseconds(100))
      task.cancel()
      await #expect(throws: CancellationError.self) { try await task.value }
      #expect(try await pool.query("TABLE not_written").isEmpty)
    }
  }

  @Test func waitingForAConnectionCanBeCancelled() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      try await pool.withConnection { connection in
        _ = try await connection.query("SELECT 1")
        let waiting = Task { try await pool.query("SELECT 2") }
        try await Task.sleep(for: .milliseconds(30))
        waiting.cancel()
        await #expect(throws: CancellationError.self) { try await waiting.value }
      }
      #expect(try await pool.query("SELECT 3").decodeOnly(Int.self) == 3)
    }
  }

  @Test func aCancelledTaskSendsNothing() async throws {
    try await TestServer.withPool { pool in
      let task = Task {
        try? await Task.sleep(for: .seconds(5))
        _ = try await pool.query("SELECT 1")
      }
      task.cancel()
      await #expect(throws: CancellationError.self) { try await task.value }
    }
  }
}
