import Testing

@testable import Postgres

@Suite struct PoolTests {
  @Test func theLimitHoldsAndWaitingEnds() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 2
      // Time enough to connect, on a busy machine too.
      $0.acquireTimeout = .seconds(8)
    } _: { pool in
      try await pool.withTransaction { transaction in
        _ = try await transaction.query("SELECT 1")
        // The other connection is for everybody, and no transaction's.
        let lease = await postgresError {
          try await pool.withTransaction { _ = try await $0.query("SELECT 1") }
        }
        #expect(lease?.code == .poolTimeout)
        #expect(try await pool.query("SELECT 1").count == 1)
      }
      try await pool.withTransaction { _ = try await $0.query("SELECT 1") }
    }
  }

  @Test func aSingleConnectionIsForTransactionsToo() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
      $0.acquireTimeout = .seconds(8)
    } _: { pool in
      try await pool.withTransaction { transaction in
        _ = try await transaction.query("SELECT 1")
        let shared = await postgresError { _ = try await pool.query("SELECT 1") }
        #expect(shared?.code == .poolTimeout)
      }
    }
  }

  @Test func transactionsThatWaitForALockStopNoOther() async throws {
    try await TestServer.withPool { pool in
      try await pool.runScript("CREATE TABLE hot (n int); INSERT INTO hot VALUES (0)")
      try await withThrowingTaskGroup(of: Void.self) { group in
        try await pool.withTransaction { holder in
          try await holder.execute("UPDATE hot SET n = n + 1")
          for _ in 0..<8 {
            group.addTask {
              try await pool.withTransaction {
                _ = try await $0.execute("UPDATE hot SET n = n + 1")
              }
            }
          }
          let waiting: SQL =
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
          let isCrowded = try await eventually {
            try await pool.query(waiting).decodeOnly(Int.self) >= 1
          }
          #expect(isCrowded)
          #expect(try await pool.query("SELECT n FROM hot").decodeOnly(Int.self) == 0)
        }
        try await group.waitForAll()
      }
      #expect(try await pool.query("SELECT n FROM hot").decodeOnly(Int.self) == 9)
    }
  }

  @Test func manyTransactionsTakeTurns() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 2
    } _: { pool in
      try await withThrowingTaskGroup(of: Int.self) { group in
        for number in 0..<60 {
          group.addTask {
            if number.isMultiple(of: 3) {
              return try await pool.query("SELECT \(number)").decodeOnly(Int.self)
            }
            return try await pool.withTransaction {
              _ = try await $0.query("SELECT 1")
              return try await $0.query("SELECT \(number)").decodeOnly(Int.self)
            }
          }
        }
        let sum = try await group.reduce(0, +)
        #expect(sum == 59 * 60 / 2)
      }
    }
  }

  @Test func aSlowStatementHoldsUpNoOther() async throws {
    try await TestServer.withPool { pool in
      _ = try await pool.query("SELECT 1")
      let slow = Task { try await pool.query("SELECT pg_sleep(600)") }
      let isSent = try await eventually { await pool.driver.requestsSent == 2 }
      #expect(isSent)
      try await Task.sleep(for: .milliseconds(50))
      let begin = ContinuousClock.now
      _ = try await pool.query("SELECT 1")
      #expect(ContinuousClock.now - begin < .seconds(60))
      slow.cancel()
    }
  }

  @Test func closingWaitsForWhatIsUnderWay() async throws {
    try await TestServer.withPool { pool in
      _ = try await pool.query("SELECT 1")
      async let slow = pool.query("SELECT 5 FROM pg_sleep(0.2)")
      try await Task.sleep(for: .milliseconds(50))
      await pool.close()
      #expect(try await slow.decodeOnly(Int.self) == 5)
      #expect(await postgresError { _ = try await pool.query("SELECT 1") }?.code == .closed)
    }
  }

  @Test func closingDoesNotWaitForEver() async throws {
    try await TestServer.withPool { pool in
      _ = try await pool.query("SELECT 1")
      let slow = Task { await postgresError { _ = try await pool.query("SELECT pg_sleep(600)") } }
      try await Task.sleep(for: .milliseconds(50))
      await pool.close(within: .milliseconds(100))
      #expect(await slow.value?.code == .closed)
    }
  }

  @Test func aConnectionOfOnesOwnKeepsItsSettings() async throws {
    try await TestServer.withPool { pool in
      let value = try await pool.withConnection { connection in
        try await connection.execute("SET application_name = 'mine'")
        try await connection.runScript("SELECT 1; SELECT 2; CREATE TEMP TABLE scratch (id int)")
        try await connection.execute("INSERT INTO scratch VALUES (\(Int32(1)))")
        return try await connection.query("SHOW application_name").decodeOnly(String.self)
      }
      #expect(value == "mine")
    }
  }

  @Test func aScriptFailsAsAWhole() async throws {
    try await TestServer.withPool { pool in
      let error = await postgresError {
        try await pool.runScript("CREATE TABLE half_done (id int); SELECT nothing")
      }
      #expect(error?.sqlState?.rawValue == "42703")
      let exists: SQL = "SELECT to_regclass('half_done') IS NOT NULL"
      let isThere = try await pool.query(exists).decodeOnly(Bool.self)
      #expect(!isThere)
    }
  }

  @Test func aTransactionLeftOpenClosesItsConnection() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      let first = try await pool.withConnection { connection in
        try await connection.execute("BEGIN")
        return try await connection.query("SELECT pg_backend_pid()").decodeOnly(Int32.self)
      }
      let second = try await pool.query("SELECT pg_backend_pid()").decodeOnly(Int32.self)
      #expect(first != second)
    }
  }

  @Test func aWrongAddressIsSaidAtOnce() async throws {
    let error = await postgresError {
      try await TestServer.withPool(uri: "postgresql:///x?host=/nowhere") {
        _ = try await $0.query("SELECT 1")
      }
    }
    #expect(error?.code == .connectionFailed)
    #expect(error?.message.contains("/nowhere") == true)
  }

  @Test func whatWaitsInASessionThatEndsIsAnswered() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      let session = Session()
      let answers = try await pool.withConnection { connection in
        _ = try await connection.query("SELECT 1")
        let requests = ["SELECT 2", "SELECT 3"].map {
          Request([SQL(unescaped: $0)], session: session, timeout: TestServer.patience)
        }
        let answers = await Answers(of: requests, from: pool)
        await pool.driver.end(session)
        return answers
      }
      #expect(await answers.error(of: 0)?.code == .closed)
      #expect(await answers.error(of: 1)?.code == .closed)
      #expect(try await pool.query("SELECT 4").decodeOnly(Int.self) == 4)
    }
  }
}
