import Foundation
import Logging
import Postgres
import ScratchDatabases
import Synchronization
import Testing

@testable import LedgerStorage

/// The effects of a schema step on running programs.
struct SchemaUpgradeTests {
  private static let current = SchemaMigrator.currentVersion
  private static let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })

  private static func migrator(
    _ database: ConnectionPool, _ steps: SchemaStep..., logger: Logger = quiet,
    total: Duration = .seconds(240)
  ) -> SchemaMigrator {
    SchemaMigrator(
      database: database, logger: logger, steps: steps,
      patience: .init(lock: .milliseconds(50), pause: .milliseconds(5), total: total))
  }

  // MARK: Which programs a version serves

  // swift-format-ignore
  @Test(arguments: [
    // version      since        what this program says of it
    (current,      current,     SchemaStatus.current),
    (current,      1,           .current),
    (current + 1,  current,     .ahead(version: current + 1)),
    (current + 7,  current,     .ahead(version: current + 7)),
    (current + 1,  current + 1, nil),
    (current + 2,  current + 1, nil),
  ])
  func `a program works with its own version, and with later ones that serve it`(
    version: Int, since: Int, status: SchemaStatus?
  ) async throws {
    try await withScratchDatabase { database in
      _ = try await database.execute(
        "UPDATE tenure.schema_version SET version = \(version), compatible_since = \(since)")
      let migrator = SchemaMigrator(database: database, logger: Self.quiet)
      do {
        #expect(try await migrator.check() == status)
        // Migrating with the old program changes nothing.
        #expect(try await migrator.migrate() == version)
      } catch let error as LedgerError {
        #expect(status == nil)
        #expect(error == .schemaVersion(found: version, needed: Self.current))
        #expect("\(error)".contains("update Tenure"))
      }
    }
  }

  @Test func `a step says which programs it serves, and a new database as its last step`()
    async throws
  {
    try await withScratchDatabase { database in
      let contraction = SchemaStep(version: Self.current + 2, sql: "DROP TABLE tenure.rehearsal")
      let migrator = Self.migrator(database, .sample, contraction)
      _ = try await migrator.migrate()
      let rows = try await database.query(
        "SELECT version, compatible_since FROM tenure.schema_version ORDER BY version"
      ).decode(Int.self, Int.self)
      #expect(rows.map(\.0) == [Self.current, Self.current + 1, Self.current + 2])
      #expect(rows.map(\.1) == [1, Self.current, Self.current + 2])
    }
  }

  // MARK: Parts

  // swift-format-ignore
  @Test(arguments: [
    // text                                                           parts
    ("SELECT 1;",                                                     [SchemaStep.Part.transaction("SELECT 1;")]),
    ("-- A head.\n-- part: index\nA",                                 [.index("A")]),
    ("-- part: transaction\nA;\nB\n-- part: index\nC\n-- part: transaction\n\nD",
     [.transaction("A;\nB"), .index("C"), .transaction("\nD")]),
    ("A\n-- part: other\nB",                                          [.transaction("A\n-- part: other\nB")]),
  ])
  func `a step's text says its parts`(text: String, parts: [SchemaStep.Part]) {
    #expect(SchemaStep(version: 1, sql: text).parts == parts)
  }

  @Test func `the next step's parts are applied, and noted`() async throws {
    try await withScratchDatabase { database in
      let migrator = Self.migrator(database, .sample)
      #expect(try await migrator.migrate() == Self.current)
      #expect(try await migrator.migrate() == Self.current + 1)
      let parts = try await database.query("SELECT part FROM tenure.schema_part ORDER BY part")
      #expect(try parts.decode(Int.self).map(\.self) == [1, 2, 3])
      #expect(try await Self.isValid("submission_rehearsed", in: database) == true)
    }
  }

  private static func isValid(_ index: String, in database: ConnectionPool) async throws -> Bool? {
    try await database.query(
      "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(\("tenure." + index))"
    ).decodeFirst(Bool.self)
  }

  @Test func `a step that is interrupted goes on with the part that is missing`() async throws {
    try await withScratchDatabase { database in
      try await database.runScript(
        "CREATE TABLE tenure.doubled (id integer); INSERT INTO tenure.doubled VALUES (1), (1)")
      let text = """
        CREATE TABLE tenure.first (id integer)
        -- part: index
        CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS doubled_once ON tenure.doubled (id)
        -- part: transaction
        CREATE TABLE tenure.last (id integer)
        """
      let migrator = Self.migrator(
        database, SchemaStep(version: Self.current + 1, servesSince: Self.current, sql: text))
      let error = await #expect(throws: PostgresError.self) { try await migrator.migrate() }
      #expect(error?.sqlState == .uniqueViolation)
      // The failed attempt left an invalid index of the same name.
      #expect(try await Self.isValid("doubled_once", in: database) == false)
      #expect(try await migrator.version() == Self.current)
      #expect(try await migrator.check() == .current)

      try await database.runScript("TRUNCATE tenure.doubled")
      #expect(try await migrator.migrate() == Self.current)
      #expect(try await Self.isValid("doubled_once", in: database) == true)
      #expect(try await migrator.version() == Self.current + 1)
    }
  }

  @Test func `of several that migrate at once one makes the index`() async throws {
    try await withScratchDatabase { database in
      let migrator = Self.migrator(database, .sample)
      try await withThrowingTaskGroup { group in
        // Each takes two connections of the pool's.
        for _ in 1...2 { group.addTask { _ = try await migrator.migrate() } }
        try await group.waitForAll()
      }
      #expect(try await migrator.version() == Self.current + 1)
      #expect(try await Self.isValid("submission_rehearsed", in: database) == true)
    }
  }

  // MARK: Tables that are in use

  @Test func `while a long transaction uses a table, readers go on, and the step is tried again`()
    async throws
  {
    try await withScratchDatabase { database in
      let log = Notices()
      let migrator = Self.migrator(database, .sample, logger: log.logger)
      try await database.withTransaction { report in
        _ = try await report.query("SELECT count(*) FROM tenure.submission")
        async let before = migrator.migrate()
        var reads = 0
        // Waiting for the report behind the step would never end.
        while log.count < 3 || reads < 10 {
          _ = try await database.query(
            "SELECT count(*) FROM tenure.submission", deadline: .seconds(60))
          reads += 1
        }
        #expect(try await migrator.version() == Self.current)
        try await report.commit()
        #expect(try await before == Self.current)
      }
      #expect(try await migrator.version() == Self.current + 1)
    }
  }

  @Test func `a table that is never free is reported, and nothing is left half done`() async throws
  {
    try await withScratchDatabase { database in
      let migrator = Self.migrator(database, .sample, total: .zero)
      try await database.withTransaction { report in
        _ = try await report.query("SELECT count(*) FROM tenure.submission")
        await #expect(throws: LedgerError.schemaInUse(version: Self.current + 1)) {
          try await migrator.migrate()
        }
      }
      #expect(try await migrator.version() == Self.current)
    }
  }

  /// Counts messages of level notice.
  private final class Notices: Sendable {
    private let notices = Mutex(0)

    var count: Int { notices.withLock { $0 } }
    var logger: Logger { Logger(label: "test") { _ in Handler(notices: self) } }

    private struct Handler: LogHandler {
      let notices: Notices
      var logLevel = Logger.Level.notice
      var metadata: Logger.Metadata = [:]

      subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
      }

      func log(event: LogEvent) { notices.notices.withLock { $0 += 1 } }
    }
  }
}
