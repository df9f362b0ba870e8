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
      let task = Task { try await pool.query("SELECT pg_sleep(600) AS \(unescaped: marker)") }
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
          _ = try await transaction.query("SELECT pg_sleep(600)")
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

  @Test func whatFollowsACancelledScriptIsNotHit() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      for number in 0..<20 {
        let script = Task { try await pool.runScript("SELECT pg_sleep(0.004)") }
        try await Task.sleep(for: .milliseconds(3))
        script.cancel()
        let next = try await pool.query("SELECT \(number) FROM pg_sleep(0.002)")
        #expect(try next.decodeOnly(Int.self) == number)
        _ = await script.result
      }
    }
  }

  @Test func aTransactionThatNeverBeganIsGivenUpAtOnce() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      try await pool.withConnection { connection in
        _ = try await connection.query("SELECT 1")
        let waiting = Task {
          try await pool.withTransaction { _ = try await $0.query("SELECT 2") }
        }
        try await Task.sleep(for: .milliseconds(30))
        let begin = ContinuousClock.now
        waiting.cancel()
        await #expect(throws: CancellationError.self) { try await waiting.value }
        #expect(ContinuousClock.now - begin < .seconds(60))
      }
    }
  }

  @Test func aStatementsOwnTimeoutIsNotAnUnrequestedCancellation() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      let before = await pool.driver.requestsSent
      let cancelled = Task { try await pool.query("SELECT pg_sleep(600)") }
      let isSent = try await eventually { await pool.driver.requestsSent == before + 1 }
      #expect(isSent)
      cancelled.cancel()
      await #expect(throws: CancellationError.self) { try await cancelled.value }
      let attempts = Counter()
      let error = await postgresError {
        try await pool.withTransaction { transaction in
          _ = await attempts.next()
          try await transaction.execute("SET LOCAL statement_timeout = '20ms'")
          _ = try await transaction.query("SELECT pg_sleep(600)")
        }
      }
      #expect(error?.sqlState == .queryCanceled)
      #expect(await attempts.count == 1)
    }
  }
}
