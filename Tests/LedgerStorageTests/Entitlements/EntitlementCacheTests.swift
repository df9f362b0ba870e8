import Foundation
import JSONText
import Logging
import Postgres
import ScratchDatabases
import Subscriptions
import Synchronization
import Testing

@testable import LedgerStorage

@Suite("Answers in memory", .disabled(if: ScratchPlace.environment.isDistributed))
struct EntitlementCacheTests {
  private static let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
  private static let table = "tenure.account_grant"

  /// One server that keeps answers.
  private struct Server: Sendable {
    let catalogue: CatalogueCache
    let cache: EntitlementCache
    let reader: EntitlementReader

    init(_ database: ConnectionPool) async throws {
      let ledger = Ledger(database: database)
      catalogue = try await CatalogueCache(ledger: ledger, logger: quiet)
      cache = EntitlementCache(
        limit: 1 << 20, ledger: ledger, catalogue: catalogue, logger: quiet)
      reader = EntitlementReader(
        ledger: ledger, catalogue: catalogue, sandboxAccess: .all, cache: cache)
    }

    /// Reads as the event loops do.
    func read(_ accountIDs: [String], at moment: Timestamp = start, anew: Bool = false)
      async throws -> [String]
    {
      let read = try await withCheckedThrowingContinuation { continuation in
        reader.read(accountIDs, anew: anew) { continuation.resume(with: $0) }
      }
      var answers: [String] = []
      for id in accountIDs {
        var json = JSONWriter(capacity: 100)
        if try !read.write(id, at: moment, to: &json) {
          json = JSONWriter(capacity: 100)
          json.write(json: try await self.read([id], at: moment, anew: true)[0])
        }
        answers.append(json.text)
      }
      return answers
    }

    func read(_ accountID: String, at moment: Timestamp = start) async throws -> String {
      try await read([accountID], at: moment)[0]
    }

    /// Whether an account's next read is answered from memory, unless it changes.
    func keeps(_ accountID: String) -> Bool {
      cache.inquiry(for: [accountID]).map(\.missing.isEmpty) ?? false
    }

    /// Reads an account until it is kept.
    func warmUp(_ accountIDs: String...) async throws {
      for _ in 0..<1000 {
        _ = try await read(accountIDs)
        if accountIDs.allSatisfy(keeps) { return }
        try await Task.sleep(for: .milliseconds(2))
      }
      Issue.record("It is never kept.")
    }
  }

  private static func grant(_ entitlement: String, to account: String, until end: Timestamp? = nil)
    -> SQL
  {
    """
    INSERT INTO tenure.account_grant (account_id, grant_id, entitlement, source, starts_at,
      ends_at, reason)
    VALUES (\(account), gen_random_uuid(), \(entitlement), 'grant', \(day(-1)), \(end), 'r')
    """
  }

  private static func withServer(
    _ test: @Sendable (Server, ConnectionPool) async throws -> Void
  ) async throws {
    try await withScratchDatabase { database in
      try await database.batch([grant("gold", to: "anna"), grant("gold", to: "ben")])
      let server = try await Server(database)
      try await server.warmUp("anna", "ben")
      try await test(server, database)
    }
  }

  /// The tables that statements read.
  private static func tablesRead(by statements: [SQL], in transaction: Transaction) async throws
    -> Set<String>
  {
    try await transaction.batch(statements)
    return Set(
      try await transaction.query(
        """
        SELECT c.relname::text FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
        WHERE l.pid = pg_backend_pid() AND c.relkind = 'r'
          AND c.relnamespace = 'tenure'::regnamespace
        """
      ).decode(String.self))
  }

  @Test("every table from which an answer follows has the triggers")
  func triggers() async throws {
    try await withScratchDatabase { database in
      let read = try await database.withTransaction { transaction in
        let tables = try await Self.tablesRead(
          by: [HoldingBatcher.statement(["anna"])], in: transaction)
        #expect(tables == ["holding", "account_grant"])
        _ = try await Ledger(database: database).products.catalogue(from: transaction)
        return try await Self.tablesRead(by: [], in: transaction)
      }
      // 4: insert, 8: delete, 16: update, 32: truncate.
      let watched = try await database.query(
        """
        SELECT c.relname::text, sum(DISTINCT t.tgtype & 4) + sum(DISTINCT t.tgtype & 8)
          + sum(DISTINCT t.tgtype & 16) + sum(DISTINCT t.tgtype & 32)
        FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
        WHERE t.tgname LIKE 'account\\_change%' AND t.tgenabled = 'A'
        GROUP BY 1
        """
      ).decode(String.self, Int.self)
      #expect(
        Dictionary(uniqueKeysWithValues: watched)
          == Dictionary(
            uniqueKeysWithValues: read.map { ($0, 60) }))
    }
  }

  @Test("an answer comes from memory, without a look at the tables, and is the same")
  func hits() async throws {
    try await Self.withServer { server, database in
      let answer = try await server.read("anna")
      #expect(answer.contains("gold"))
      try await database.withConnection { connection in
        try await connection.runScript("BEGIN; LOCK TABLE \(Self.table)")
        #expect(try await server.read(["ben", "anna", "anna"])[1...] == [answer, answer])
        try await connection.runScript("ROLLBACK")
      }
      #expect(try await server.read(["anna"], anew: true) == [answer])
      #expect(try await server.read(["nobody", "ben"])[0] == "[]")
      #expect(server.keeps("nobody"), "an account without anything, too")
      // It ends by time, without a change.
      try await database.execute(Self.grant("silver", to: "ben", until: day(5)))
      try await server.warmUp("ben")
      for (moment, isActive) in [(day(4), true), (day(5), false), (day(4), true)] {
        let answer = try await server.read("ben", at: moment)
        #expect(answer.contains("expired") != isActive, "\(moment)")
      }
    }
  }

  @Test("a commit that ends late, with savepoints, among others that end before, is not missed")
  func lateCommit() async throws {
    try await Self.withServer { server, database in
      try await database.withConnection { late in
        try await late.runScript(
          """
          BEGIN;
          SAVEPOINT one;
          UPDATE \(Self.table) SET entitlement = 'late' WHERE account_id = 'anna';
          RELEASE one;
          SAVEPOINT two;
          """)
        for number in 1...5 {
          try await database.execute(
            "UPDATE tenure.account_grant SET entitlement = \("n\(number)") WHERE account_id = 'ben'"
          )
          #expect(
            try await server.read(["ben", "anna"]).map { $0.contains("late") } == [false, false])
          #expect(try await server.read("ben").contains("n\(number)"))
          #expect(server.keeps("anna"))
        }
        try await late.runScript("COMMIT")
      }
      #expect(try await server.read("anna").contains("late"))
    }
  }

  @Test("no read that began after a commit misses it, with ten writers and two servers")
  func race() async throws {
    try await withScratchDatabase { database in
      let accounts = (0..<20).map { "account-\($0)" }
      try await database.batch(accounts.map { Self.grant("gold", to: $0, until: day(1)) })
      let servers = [try await Server(database), try await Server(database)]
      for server in servers { try await server.warmUp(accounts[0]) }
      var configuration = database.configuration
      configuration.connectionLimit = 11
      let writing = ConnectionPool(configuration: configuration, logger: Self.quiet)
      // The days that are committed, by account.
      let committed = Guarded(Dictionary(uniqueKeysWithValues: accounts.map { ($0, 1) }))
      let hits = Guarded(0)
      let reads = Guarded(0)
      let end = ContinuousClock.now + .seconds(2)
      try await withThrowingTaskGroup(of: Void.self) { group in
        for writer in 0..<10 {
          group.addTask {
            var day = 1
            while ContinuousClock.now < end {
              day += 1
              let account = accounts[writer + (day % 2) * 10]
              let pause = Double.random(in: 0...0.02)
              try await writing.batch([
                """
                UPDATE tenure.account_grant SET ends_at = \(LedgerStorageTests.day(Double(day)))
                WHERE account_id = \(account)
                """,
                // The transaction is in progress for some snapshots.
                "SELECT pg_sleep(\(pause))",
              ])
              committed.value.withLock { $0[account] = day }
              try await Task.sleep(for: .milliseconds(Int.random(in: 0...30)))
            }
          }
        }
        for number in 0..<8 {
          group.addTask {
            let server = servers[number % 2]
            while ContinuousClock.now < end {
              let chosen = (0..<3).map { _ in accounts[Int.random(in: 0..<accounts.count)] }
              let days = committed.value.withLock(\.self)
              let least = chosen.map { days[$0] ?? 0 }
              if server.keeps(chosen[0]) { hits.value.withLock { $0 += 1 } }
              for (answer, day) in zip(try await server.read(chosen), least) {
                let parts = answer.split(separator: "\"access_ends_at\":\"")
                let found = try #require(parts.dropFirst().first).prefix { $0 != "\"" }
                // Text in this form sorts by time.
                #expect(String(found) >= LedgerStorageTests.day(Double(day)).description)
                reads.value.withLock { $0 += 1 }
              }
            }
          }
        }
        try await group.waitForAll()
      }
      await writing.close()
      print(
        "Answers in memory: \(reads.value.withLock(\.self)) reads, \(hits.value.withLock(\.self)) hits"
      )
      #expect(hits.value.withLock(\.self) > 0, "the race is about answers in memory")
      #expect(committed.value.withLock { $0.values.reduce(0, +) } > accounts.count + 10)
    }
  }

  @Test("changes that were trimmed, or lost with an unlogged table, leave nothing in memory")
  func incomplete() async throws {
    try await Self.withServer { server, database in
      func rename(_ name: String) async throws {
        try await database.execute(
          "UPDATE tenure.account_grant SET entitlement = \(name) WHERE account_id = 'anna'")
      }
      try await rename("trimmed")
      // Transactions in other databases of the server delay it.
      for _ in 0..<1000 {
        try await database.batch(Maintenance.trimAccountChanges)
        if try await database.query("SELECT FROM tenure.account_change").isEmpty { break }
        try await Task.sleep(for: .milliseconds(10))
      }
      #expect(try await server.read("anna").contains("trimmed"))
      try await server.warmUp("anna")
      // As after a crash.
      try await rename("lost")
      try await database.runScript("TRUNCATE tenure.account_change, tenure.account_change_log")
      #expect(try await server.read("anna").contains("lost"))
      try await server.warmUp("anna")
      // As after a crash, where another server has started a new log.
      try await rename("again")
      try await database.runScript("TRUNCATE tenure.account_change, tenure.account_change_log")
      try await database.execute(Maintenance.beginAccountChanges)
      #expect(try await server.read("anna").contains("again"))
    }
  }

  @Test("a change of the catalogue by another process counts at once")
  func catalogue() async throws {
    try await Self.withServer { server, database in
      let ledger = Ledger(database: database)
      try await ledger.submit([charge("1", on: -1)], claiming: [key("1")], by: "anna", on: 0)
      try await server.warmUp("anna")
      #expect(try await !server.read("anna").contains("premium"))
      for name in ["premium", "platinum"] {
        _ = try await ledger.products.describe(
          Product(id: "monthly", validFrom: start, type: .autoRenewable, entitlements: [name]))
        let answers = try await withThrowingTaskGroup(of: String.self) { group in
          for _ in 0..<10 { group.addTask { try await server.read("anna") } }
          return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(answers.allSatisfy { $0.contains(name) })
        try await server.warmUp("anna")
        #expect(try await server.read("anna").contains(name))
      }
      // So many changes at once that everything is dropped.
      try await database.execute(
        "INSERT INTO tenure.account_change (account_id) SELECT 'x' FROM generate_series(1, 10001)")
      #expect(server.keeps("anna"))
      _ = try await server.read("ben")
      #expect(!server.keeps("anna"))
      try await database.runScript("TRUNCATE tenure.account_grant, tenure.holding")
      #expect(try await server.read(["anna", "ben"]) == ["[]", "[]"])
    }
  }

  @Test("merges, erasures and grants by other processes are seen")
  func writers() async throws {
    try await Self.withServer { server, database in
      let ledger = Ledger(database: database)
      _ = try await ledger.accounts.findOrCreateAccount("carla", at: day(-3))
      let granted = try await ledger.grants.grant(
        "silver", to: "carla", until: nil, by: support, terms: .everything, at: day(-2))
      try await server.warmUp("carla", "anna")
      _ = try await ledger.grants.revokeGrant(
        granted.grant.grant.id, by: support, terms: .everything, at: day(-1))
      #expect(try await server.read("carla").contains("revoked"))
      try await server.warmUp("carla")
      _ = try await ledger.accounts.erase("carla", by: support, at: start)
      #expect(try await server.read("carla") == "[]")
      let named = try await database.query(
        "SELECT FROM tenure.account_change WHERE account_id = 'carla'")
      #expect(named.isEmpty, "the log does not keep the name")
    }
  }

  @Test("nothing is kept where a trigger is missing, or the log can't be read")
  func off() async throws {
    try await Self.withServer { _, database in
      try await database.runScript(
        """
        DROP TRIGGER account_change ON tenure.account_grant;
        TRUNCATE tenure.account_change_log;
        """)
      let other = try await Server(database)
      for name in ["one", "two"] {
        try await database.execute("UPDATE tenure.account_grant SET entitlement = \(name)")
        for _ in 0..<10 { #expect(try await other.read("anna").contains(name)) }
        #expect(!other.keeps("anna"))
      }
    }
    try await Self.withServer { server, database in
      try await database.runScript("DROP TABLE tenure.account_change CASCADE")
      #expect(try await server.read("anna").contains("gold"))
      #expect(!server.keeps("anna"))
    }
  }

  @Test(
    "of two snapshots, the later one is known",
    arguments: [
      ("10:10:", "10:11:"), ("10:12:10,11", "10:12:11"), ("10:12:10", "10:12:10"),
      ("10:12:10,11", "11:20:11,12,13,14"), ("99:99:", "99:100:"),
      ("18446744073709551613:18446744073709551613:", "18446744073709551613:18446744073709551614:"),
    ])
  func snapshots(earlier: String, later: String) throws {
    let (first, second) = (
      try #require(TransactionSnapshot(earlier)), try #require(TransactionSnapshot(later))
    )
    #expect(second.includes(first))
    #expect(first.includes(second) == (earlier == later))
    #expect(TransactionSnapshot("10") == nil)
  }
}

/// A value that concurrent tasks change.
private final class Guarded<Value: Sendable>: Sendable {
  let value: Mutex<Value>

  init(_ value: Value) { self.value = Mutex(value) }
}
