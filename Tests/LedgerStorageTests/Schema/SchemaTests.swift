import Foundation
import Logging
import Postgres
import ScratchDatabases
import Testing

@testable import LedgerStorage

@Suite("The schema")
struct SchemaTests {
  private static let checkViolation = SQLState(rawValue: "23514")
  private let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })

  @Test(
    "the file creates the schema without a notice, and refuses a database that has it",
    .disabled(if: ScratchPlace.environment.isDistributed))
  func appliedOnce() async throws {
    try await withScratchDatabase { database in
      let migrator = SchemaMigrator(database: database, logger: quiet)
      #expect(try await migrator.migrate() == 1)
      let again = try Self.psql(database)
      #expect(again.status != 0)
      #expect(again.errors.contains("already has the schema, at version 1"))
      try await database.runScript("DROP SCHEMA tenure CASCADE")
      let outcome = try Self.psql(database)
      #expect(outcome.status == 0)
      #expect(outcome.errors == "")
      try await migrator.check()
    }
  }

  @Test("of several programs that create the schema at once, one does")
  func createdOnce() async throws {
    try await withScratchDatabase { database in
      try await database.runScript("DROP SCHEMA tenure CASCADE")
      let migrator = SchemaMigrator(database: database, logger: quiet)
      let found = try await withThrowingTaskGroup(of: Int?.self) { group in
        for _ in 1...3 { group.addTask { try await migrator.migrate() } }
        return try await group.reduce(into: []) { $0.append($1) }
      }
      #expect(found.filter { $0 == nil }.count == 1)
      try await migrator.check()
    }
  }

  @Test("the program has schema.sql built in as it is")
  func embedded() throws {
    let file = try String(contentsOf: Self.schemaFile, encoding: .utf8)
    #expect(SchemaMigrator.schema == file, "An old copy is built in: build again.")
  }

  @Test("an app's own tables keep their names in a shared database")
  func searchPath() async throws {
    try await withScratchDatabase { database in
      try await database.runScript("CREATE TABLE public.account (id integer)")
      let outcome = try Self.psql(
        database, "-Atc",
        "SELECT relnamespace::regnamespace FROM pg_class WHERE oid IN ('account'::regclass, "
          + "'ledger_entry'::regclass) ORDER BY oid::regclass::text")
      #expect(outcome.output == "public\ntenure\n")
    }
  }

  private static let current = SchemaMigrator.currentVersion

  private static let steps = [
    SchemaStep(
      version: current + 1,
      sql: "CREATE TABLE tenure.second (id integer); INSERT INTO tenure.second VALUES (1)"),
    SchemaStep(
      version: current + 2, sql: "ALTER TABLE tenure.second ADD COLUMN name text;"),
  ]

  @Test("steps are applied in order, once, however many programs migrate")
  func steps() async throws {
    try await withScratchDatabase { database in
      let migrator = SchemaMigrator(database: database, logger: quiet, steps: Self.steps)
      try await withThrowingTaskGroup { group in
        for _ in 1...3 { group.addTask { _ = try await migrator.migrate() } }
        try await group.waitForAll()
      }
      #expect(try await migrator.migrate() == Self.current + 2)
      let versions = try await database.query(
        "SELECT version FROM tenure.schema_version ORDER BY version"
      ).decode(Int.self)
      #expect(versions == Array(Self.current...Self.current + 2))
      let rows = try await database.query("SELECT id, name FROM tenure.second")
        .decode(Int.self, String?.self)
      #expect(rows.count == 1)
      let locks = try await database.query(
        """
        SELECT count(*) FROM pg_locks JOIN pg_database AS d ON d.oid = database
        WHERE locktype = 'advisory' AND d.datname = current_database()
        """
      ).decodeOnly(Int.self)
      #expect(locks == 0)
    }
  }

  @Test("a step that fails is undone, and the version is that of the step before")
  func failingStep() async throws {
    try await withScratchDatabase { database in
      let failing = SchemaStep(
        version: Self.current + 2,
        sql: "ALTER TABLE tenure.second ADD COLUMN name text; SELECT 1 / 0;")
      let migrator = SchemaMigrator(
        database: database, logger: quiet, steps: [Self.steps[0], failing])
      let error = await #expect(throws: PostgresError.self) { try await migrator.migrate() }
      #expect(error?.sqlState == SQLState(rawValue: "22012"))
      let reached = try await migrator.version()
      #expect(reached == Self.current + 1)
      let repaired = SchemaMigrator(database: database, logger: quiet, steps: Self.steps)
      #expect(try await repaired.migrate() == Self.current + 1)
      #expect(try await repaired.version() == Self.current + 2)
    }
  }

  @Test("a second program waits for the first one longer than for a statement")
  func waits() async throws {
    try await withScratchDatabase { configuration in
      configuration.statementDeadline = .seconds(3)
    } _: { database in
      let migrator = SchemaMigrator(database: database, logger: quiet, steps: Self.steps)
      try await database.withTransaction { transaction in
        _ = try await transaction.query("SELECT pg_advisory_xact_lock(x'74656E757265'::bigint)")
        async let version = migrator.migrate()
        for _ in 1...8 {
          try await Task.sleep(for: .milliseconds(500))
          _ = try await transaction.query("SELECT 1")
        }
        try await transaction.commit()
        #expect(try await version == Self.current)
      }
      #expect(try await migrator.version() == Self.current + 2)
    }
  }

  private static let schemaFile = (0..<4).reduce(URL(filePath: #filePath)) { url, _ in
    url.deletingLastPathComponent()
  }.appending(path: "schema.sql")

  /// Runs psql: its standard error is where notices are to be seen.
  private static func psql(
    _ database: ConnectionPool, _ arguments: String...
  ) throws -> (status: Int32, output: String, errors: String) {
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments =
      ["psql", "-Xq", "-d", database.uri]
      + (arguments.isEmpty
        ? ["-v", "ON_ERROR_STOP=1", "-f", schemaFile.path()] : arguments)
    let (output, errors) = (Pipe(), Pipe())
    process.standardOutput = output
    process.standardError = errors
    try process.run()
    let messages = try errors.fileHandleForReading.readToEnd() ?? Data()
    let printed = try output.fileHandleForReading.readToEnd() ?? Data()
    process.waitUntilExit()
    return (
      process.terminationStatus, String(decoding: printed, as: UTF8.self),
      String(decoding: messages, as: UTF8.self)
    )
  }

  @Test("a database without it, or with a newer one, is refused in words")
  func refused() async throws {
    try await withScratchDatabase { database in
      let migrator = SchemaMigrator(database: database, logger: quiet)
      _ = try await database.execute(
        "INSERT INTO tenure.schema_version VALUES (99, now(), 99)")
      await #expect(throws: LedgerError.schemaVersion(found: 99, needed: Self.current)) {
        try await migrator.check()
      }
      await #expect(throws: LedgerError.schemaVersion(found: 99, needed: Self.current)) {
        try await migrator.migrate()
      }
      try await database.runScript("DROP SCHEMA tenure CASCADE")
      await #expect(throws: LedgerError.schemaVersion(found: nil, needed: Self.current)) {
        try await migrator.check()
      }
    }
  }

  @Test("the role for BI tools reads everything but what arrived as it came, and changes nothing")
  func reader() async throws {
    try await withScratchDatabase { database in
      func names(_ condition: SQL) async throws -> [String] {
        try await database.query(
          """
          SELECT c.relname::text FROM pg_class AS c
          WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind IN ('r', 'v')
            AND (\(condition))
          ORDER BY 1
          """
        ).decode(String.self).map(\.self)
      }
      let unread = try await names("NOT has_table_privilege('tenure_reader', c.oid, 'SELECT')")
      // Of accounts, all but the names.
      #expect(unread == ["account", "admin_session", "body", "imported_source"])
      let written = try await names(
        """
        has_table_privilege('tenure_reader', c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
          OR has_any_column_privilege('tenure_reader', c.oid, 'INSERT, UPDATE')
        """)
      #expect(written == [])
      let forbidden = try await database.query(
        """
        SELECT proname::text FROM pg_proc
        WHERE pronamespace = 'tenure'::regnamespace
          AND has_function_privilege('tenure_reader', oid, 'EXECUTE')
            = (prosecdef OR proname IN (
              'store_body', 'delete_bodies', 'erase_submissions', 'seal', 'record_action',
              'grant_privileges'))
        """
      ).decode(String.self).map(\.self)
      #expect(forbidden == [])
      try await database.withTransaction { transaction in
        _ = try await transaction.execute(
          "SET LOCAL ROLE \(unescaped: ScratchPlace.environment.reader)")
        _ = try await transaction.query("SELECT * FROM tenure.current_entitlement")
        _ = try await transaction.query(
          "SELECT * FROM tenure.report_active('2026-01-01')")
      }
      let error = await #expect(throws: PostgresError.self) {
        try await database.withTransaction { transaction in
          _ = try await transaction.execute(
            "SET LOCAL ROLE \(unescaped: ScratchPlace.environment.reader)")
          _ = try await transaction.query("SELECT content FROM tenure.body")
        }
      }
      #expect(error?.sqlState == SQLState(rawValue: "42501"))
    }
  }

  @Test(
    "a verified submission has an outcome and an environment",
    arguments: [("NULL", "'production'"), ("'{}'", "NULL")])
  func refusesBadSubmission(outcome: String, environment: String) async throws {
    try await withScratchDatabase { database in
      let error = await #expect(throws: PostgresError.self) {
        try await database.execute(
          """
          INSERT INTO tenure.submission (submission_id, account_key, received_at, restore, status,
            decided_at, outcome, environment)
          VALUES (gen_random_uuid(), gen_random_uuid(), now(), false, 'verified', now(),
            \(unescaped: outcome), \(unescaped: environment))
          """)
      }
      #expect(error?.sqlState == Self.checkViolation)
    }
  }

  @Test(
    "a body is whole or pruned",
    arguments: [
      ("'a'", "NULL", true), ("NULL", "now()", true),
      ("NULL", "NULL", false), ("'a'", "now()", false),
    ])
  func refusesBadBody(content: String, prunedAt: String, isFine: Bool) async throws {
    try await withScratchDatabase { database in
      let insert: SQL = """
        INSERT INTO tenure.body (sha256, bytes, content, stored_at, pruned_at)
        VALUES (sha256('a'), 1, \(unescaped: content), now(), \(unescaped: prunedAt))
        """
      do {
        try await database.execute(insert)
        #expect(isFine)
      } catch let error as PostgresError {
        #expect(!isFine && error.sqlState == Self.checkViolation, "\(error)")
      }
    }
  }

  @Test(
    "tables refuse bad states",
    arguments: [
      ("an owner without a rule", "owner_account_key", "gen_random_uuid()"),
      ("a revocation without the date of the answer", "revoked_at", "now()"),
      ("an expiry without the date of the answer", "expires_at", "now()"),
    ])
  func refusesBadTransaction(what: String, column: String, value: String) async throws {
    try await withScratchDatabase { database in
      _ = try await database.execute(
        """
        INSERT INTO tenure.original_transaction (environment, original_transaction_id)
        VALUES ('production', '1')
        """)
      let insert: SQL = """
        INSERT INTO tenure.store_transaction (environment, original_transaction_id,
          transaction_id, product_id, number, recorded_at, kind, purchased_at, charged_at,
          quantity, ownership_type, period_type, is_commitment, charge_original_transaction_id,
          charge_transaction_id, charge_product_id, \(unescaped: column))
        VALUES ('production', '1', '1', 'p', 1, now(), 'unknown', now(), now(), 1, 'purchased',
          'normal', false, '1', '1', 'p', \(unescaped: value))
        """
      let error = await #expect(throws: PostgresError.self) {
        _ = try await database.execute(insert)
      }
      #expect(error?.sqlState == Self.checkViolation, "\(what)")
    }
  }

  @Test("only a claim names a submission", arguments: [true, false])
  func submissionOfAction(isClaim: Bool) async throws {
    try await withScratchDatabase { database in
      _ = try await database.execute(
        """
        INSERT INTO tenure.original_transaction (environment, original_transaction_id)
        VALUES ('production', '1')
        """)
      let insert: SQL = """
        INSERT INTO tenure.ownership_action (environment, original_transaction_id, number,
          recorded_at, is_claim, transaction_id, product_id, account_key, effective_from,
          submission_id)
        VALUES ('production', '1', 1, now(), \(isClaim), '1', 'p', gen_random_uuid(), now(),
          gen_random_uuid())
        """
      do {
        _ = try await database.execute(insert)
        #expect(isClaim)
      } catch let error as PostgresError {
        #expect(!isClaim && error.sqlState == Self.checkViolation, "\(error)")
      }
    }
  }
}
