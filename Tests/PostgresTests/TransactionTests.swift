import Foundation
import Secrets
import Testing

@testable import Postgres

@Suite struct TransactionTests {
  private struct Refused: Error {}

  @Test func lockLoadAndWriteAreTwoRoundTrips() async throws {
    try await TestServer.withPool { pool in
      try await pool.execute("CREATE TABLE two_trips AS SELECT 1 AS id, 10 AS amount")
      let before = await pool.driver.requestsSent
      let amount = try await pool.withTransaction { transaction in
        let results = try await transaction.batch([
          "SELECT id FROM two_trips WHERE id = \(1) FOR UPDATE",
          "SELECT amount FROM two_trips WHERE id = \(1)",
        ])
        let amount = try results[1].decodeOnly(Int.self)
        let written = try await transaction.commit(with: [
          "UPDATE two_trips SET amount = \(amount + 1)",
          "SELECT amount FROM two_trips",
        ])
        return try written[1].decodeOnly(Int.self)
      }
      #expect(amount == 11)
      #expect(await pool.driver.requestsSent == before + 2)
    }
  }

  @Test func timeoutsAreSetForTheTransactionWithBegin() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
      $0.lockTimeout = .milliseconds(1234)
      $0.idleTransactionTimeout = .seconds(5)
    } _: { pool in
      let settings: SQL =
        """
        SELECT current_setting('lock_timeout'),
          current_setting('idle_in_transaction_session_timeout')
        """
      let inside = try await pool.withTransaction { transaction in
        let pair = try await transaction.query(settings).decodeOnly(String.self, String.self)
        try await transaction.commit(with: ["SELECT 1"])
        return pair
      }
      #expect(inside == ("1234ms", "5s"))
      #expect(await pool.driver.requestsSent == 2)
      let outside = try await pool.query(settings).decodeOnly(String.self, String.self)
      #expect(outside == ("0", "0"))
    }
  }

  @Test func aLockIsNotWaitedForForEver() async throws {
    try await TestServer.withPool {
      $0.lockTimeout = .milliseconds(50)
    } _: { pool in
      try await pool.execute("CREATE TABLE held AS SELECT 1 AS n")
      try await pool.withTransaction { holder in
        try await holder.execute("UPDATE held SET n = 2")
        let error = await postgresError {
          try await pool.withTransaction { _ = try await $0.execute("UPDATE held SET n = 3") }
        }
        #expect(error?.sqlState == .lockNotAvailable)
        #expect(error?.isTransient == true)
      }
    }
  }

  @Test func aFrozenTransactionLosesItsLocksAndIsRunAgain() async throws {
    try await TestServer.withPool {
      $0.idleTransactionTimeout = .seconds(3)
    } _: { pool in
      try await pool.execute("CREATE TABLE frozen AS SELECT 0 AS n")
      let attempts = Counter()
      try await pool.withTransaction { holder in
        try await holder.execute("UPDATE frozen SET n = n + 1")
        if await attempts.next() == 1 {
          // It sends nothing more until another connection has waited for its lock.
          try await pool.withTransaction {
            _ = try await $0.execute("UPDATE frozen SET n = n + 10")
          }
        }
        try await holder.execute("UPDATE frozen SET n = n + 1")
      }
      // On a busy machine one that goes on can take as long, too.
      #expect(await attempts.count >= 2)
      #expect(try await pool.query("SELECT n FROM frozen").decodeOnly(Int.self) == 12)
    }
  }

  @Test func nothingIsSentForATransactionThatAsksNothing() async throws {
    try await TestServer.withPool { pool in
      #expect(try await pool.withTransaction { _ in 5 } == 5)
      try await pool.withTransaction { try await $0.commit() }
      #expect(await pool.driver.requestsSent == 0)
    }
  }

  @Test func aThrowRollsBack() async throws {
    try await TestServer.withPool { pool in
      try await pool.execute("CREATE TABLE rolled_back (id int)")
      await #expect(throws: Refused.self) {
        try await pool.withTransaction { transaction in
          try await transaction.execute("INSERT INTO rolled_back VALUES (1)")
          throw Refused()
        }
      }
      #expect(try await pool.query("TABLE rolled_back").isEmpty)
      try await pool.withTransaction { try await $0.execute("INSERT INTO rolled_back VALUES (2)") }
      #expect(try await pool.query("TABLE rolled_back").count == 1)
    }
  }

  @Test func aFailedStatementThatIsIgnoredCannotCommit() async throws {
    try await TestServer.withPool { pool in
      let error = await postgresError {
        try await pool.withTransaction { transaction in
          _ = try? await transaction.query("SELECT 1 / 0")
        }
      }
      #expect(error?.sqlState == .inFailedTransaction)
      let alive = try await pool.query("SELECT 1").count
      #expect(alive == 1)
    }
  }

  @Test func isolationAndReadOnlyAreSet() async throws {
    try await TestServer.withPool { pool in
      let settings: SQL =
        "SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only')"
      let pair = try await pool.withTransaction(isolation: .serializable, readOnly: true) {
        try await $0.query(settings).decodeOnly(String.self, String.self)
      }
      #expect(pair == ("serializable", "on"))
    }
  }

  @Test(arguments: [("repeatable read", "tallied"), ("serializable", "counted_again")])
  func theDatabasesDefaultIsolationDoesNotMatter(level: String, table: String) async throws {
    let value = level.replacingOccurrences(of: " ", with: "%5C%20")
    try await TestServer.withPool {
      let uri = $0.uri.revealed
      $0.uri = Secret(
        uri + (uri.contains("?") ? "&" : "?")
          + "options=-c%20default_transaction_isolation%3D\(value)")
    } _: { pool in
      let isolation: SQL = "SELECT current_setting('transaction_isolation')"
      #expect(try await pool.query(isolation).decodeOnly(String.self) == level)
      let inside = try await pool.withTransaction {
        try await $0.query(isolation).decodeOnly(String.self)
      }
      #expect(inside == "read committed")

      // Statements outside of transactions that collide are sent again.
      try await pool.runScript("CREATE TABLE \(table) AS SELECT 0 AS n")
      try await withThrowingTaskGroup(of: Void.self) { group in
        for _ in 0..<2 {
          group.addTask {
            for _ in 0..<10 {
              _ = try await pool.batch(
                ["SELECT pg_sleep(0.002)", "UPDATE \(unescaped: table) SET n = n + 1"],
                deadline: nil)
            }
          }
        }
        try await group.waitForAll()
      }
      #expect(try await pool.query("SELECT n FROM \(unescaped: table)").decodeOnly(Int.self) == 20)
    }
  }

  @Test func serializationFailuresAreRepeated() async throws {
    try await TestServer.withPool { pool in
      try await pool.execute("CREATE TABLE counted AS SELECT 0 AS n")
      let attempts = Counter()
      let twoHaveRead = Barrier(of: 2)
      try await withThrowingTaskGroup(of: Void.self) { group in
        for _ in 0..<8 {
          group.addTask {
            try await pool.withTransaction(isolation: .repeatableRead, maxAttempts: 50) {
              let attempt = await attempts.next()
              let n = try await $0.query("SELECT n FROM counted").decodeOnly(Int.self)
              // Before either writes, however busy the machine is: one of them fails.
              if attempt <= 2 { await twoHaveRead.arrive() }
              try await $0.commit(with: ["UPDATE counted SET n = \(n + 1)"])
            }
          }
        }
        try await group.waitForAll()
      }
      #expect(try await pool.query("SELECT n FROM counted").decodeOnly(Int.self) == 8)
      #expect(await attempts.count > 8)
    }
  }

  @Test func deadlocksAreRepeated() async throws {
    try await TestServer.withPool { pool in
      try await pool.runScript(
        "CREATE TABLE locked (id int, n int); INSERT INTO locked VALUES (1, 0), (2, 0)")
      let attempts = Counter()
      let bothHoldOne = Barrier(of: 2)
      try await withThrowingTaskGroup(of: Void.self) { group in
        for (first, second) in [(1, 2), (2, 1)] {
          group.addTask {
            try await pool.withTransaction { transaction in
              let attempt = await attempts.next()
              _ = try await transaction.query("SET LOCAL deadlock_timeout = '20ms'")
              try await transaction.execute("UPDATE locked SET n = n + 1 WHERE id = \(first)")
              if attempt <= 2 { await bothHoldOne.arrive() }
              try await transaction.execute("UPDATE locked SET n = n + 1 WHERE id = \(second)")
            }
          }
        }
        try await group.waitForAll()
      }
      // On a busy machine the victim can be back before the other one has woken, and collide again.
      #expect(await attempts.count >= 3)
      #expect(try await pool.query("SELECT sum(n) FROM locked").count == 1)
      #expect(try await pool.query("SELECT n FROM locked").decode(Int.self) == [2, 2])
    }
  }

  @Test func attemptsAreLimited() async throws {
    try await TestServer.withPool { pool in
      let attempts = Counter()
      let error = await postgresError {
        try await pool.withTransaction(maxAttempts: 3) { transaction in
          _ = await attempts.next()
          _ = try await transaction.query(
            "DO $$ BEGIN RAISE serialization_failure; END $$")
        }
      }
      #expect(error?.sqlState == .serializationFailure)
      // On a busy machine the victim can be back before the other one has woken, and collide again.
      #expect(await attempts.count >= 3)
    }
  }

  @Test func aFinishedTransactionIsRefused() async throws {
    try await TestServer.withPool { pool in
      let leaked = try await pool.withTransaction { transaction in
        _ = try await transaction.query("SELECT 1")
        return transaction
      }
      #expect(await postgresError { _ = try await leaked.query("SELECT 1") }?.code == .closed)
    }
  }
}

/// Lets tasks go on when all have come.
actor Barrier {
  private let count: Int
  private var waiting: [CheckedContinuation<Void, Never>] = []

  init(of count: Int) { self.count = count }

  func arrive() async {
    guard waiting.count + 1 < count else {
      for continuation in waiting { continuation.resume() }
      waiting.removeAll()
      return
    }
    await withCheckedContinuation { waiting.append($0) }
  }
}
