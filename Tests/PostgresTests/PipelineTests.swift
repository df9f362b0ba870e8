import Testing

@testable import Postgres

@Suite struct PipelineTests {
  @Test func manyStatementsShareOneConnection() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      let processes = try await withThrowingTaskGroup(of: Int32.self) { group in
        for _ in 0..<200 {
          group.addTask {
            try await pool.query("SELECT pg_backend_pid()").decodeOnly(Int32.self)
          }
        }
        return try await group.reduce(into: Set()) { $0.insert($1) }
      }
      #expect(processes.count == 1)
    }
  }

  @Test func statementsAreUnderWayAtOnce() async throws {
    // Nothing is put behind a statement known to be slow; so all of them are sent at once, the slow
    // one first.
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      _ = try await pool.query("SELECT 1")
      let before = await pool.driver.requestsSent
      async let slow = pool.query("SELECT pg_sleep(0.3)")
      let quick = (0..<20).map { number in
        Task { try await pool.query("SELECT \(number)").decodeOnly(Int.self) }
      }
      try await Task.sleep(for: .milliseconds(100))
      #expect(await pool.driver.requestsSent > before + 1)
      for (number, task) in quick.enumerated() { #expect(try await task.value == number) }
      _ = try await slow
    }
  }

  @Test func anErrorLeavesTheOthersAlone() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      let outcomes = await withTaskGroup(of: (Int, Int?, SQLState?).self) { group in
        for number in 0..<50 {
          group.addTask {
            do {
              let rows = try await pool.query("SELECT 10 / \(number % 5)")
              return (number, try rows.decodeOnly(Int.self), nil)
            } catch {
              return (number, nil, (error as? PostgresError)?.sqlState)
            }
          }
        }
        return await group.reduce(into: []) { $0.append($1) }
      }
      for (number, value, state) in outcomes {
        #expect(value == (number % 5 == 0 ? nil : 10 / (number % 5)))
        #expect(state == (number % 5 == 0 ? SQLState(rawValue: "22012") : nil))
      }
    }
  }

  @Test func aBatchIsOneTransactionAndOneRoundTrip() async throws {
    try await TestServer.withPool { pool in
      try await pool.execute("CREATE TABLE batch (id int PRIMARY KEY)")
      let before = await pool.driver.requestsSent
      let error = await postgresError {
        try await pool.batch([
          "INSERT INTO batch VALUES (\(1))", "INSERT INTO batch VALUES (\(1))", "SELECT 1",
        ])
      }
      #expect(error?.sqlState == .uniqueViolation)
      #expect(error?.statement == "INSERT INTO batch VALUES ($1)")
      #expect(await pool.driver.requestsSent == before + 1)
      #expect(try await pool.query("SELECT * FROM batch").isEmpty)
      let results = try await pool.batch(["INSERT INTO batch VALUES (\(2))", "TABLE batch"])
      #expect(results[0].affectedRows == 1)
      #expect(try results[1].decodeOnly(Int.self) == 2)
    }
  }

  @Test func resultsLargerThanTheSocketBufferArrive() async throws {
    try await TestServer.withPool { pool in
      let text = String(repeating: "x", count: 3_000_000)
      let rows = try await pool.query("SELECT \(text) || \(text), 1 FROM generate_series(1, 3)")
      let values = try rows.decode(String.self, Int.self)
      #expect(values.map(\.0.count) == [6_000_000, 6_000_000, 6_000_000])
    }
  }
}
