import LedgerStorage
import Logging
import Postgres
import Reports
import ScratchDatabases
import Testing

/// `tenure migrate` applies the reports' SQL whenever it has changed.
struct ReportSQLTests {
  private static let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })

  private func migrator(_ database: ConnectionPool, _ texts: [String]) -> SchemaMigrator {
    SchemaMigrator(database: database, reports: ReportSQL(texts), logger: Self.quiet)
  }

  @Test func `it is applied once, and again with the next version of the schema`() async throws {
    try await withScratchDatabase { database in
      let migrator = migrator(database, Report.sql)
      #expect(try await migrator.hasCurrentReports())
      try await database.runScript("DROP FUNCTION tenure.report_audit")
      #expect(try await migrator.migrate() == SchemaMigrator.currentVersion)
      #expect(try await exists("report_audit", in: database) == 0)
      try await database.runScript("UPDATE tenure.schema_version SET reports_sha256 = NULL")
      #expect(try await migrator.hasCurrentReports() == false)
      _ = try await migrator.migrate()
      #expect(try await migrator.hasCurrentReports())
      #expect(try await exists("report_audit", in: database) == 1)
    }
  }

  @Test func `a database of a later version keeps its reports`() async throws {
    try await withScratchDatabase { database in
      try await database.runScript(
        "INSERT INTO tenure.schema_version VALUES (\(SchemaMigrator.currentVersion + 1), now(), 1)")
      _ = try await migrator(database, Report.sql + ["SELECT 1 / 0;"]).migrate()
    }
  }

  /// Of the same name each time: other columns, other parameters, a view of other columns.
  private static let versions = [
    "CREATE OR REPLACE FUNCTION report_test(a integer) RETURNS TABLE (b integer)\n"
      + "LANGUAGE sql BEGIN ATOMIC SELECT a; END;\n"
      + "CREATE OR REPLACE VIEW report_view AS SELECT 1 AS one, 2 AS two;",
    "CREATE OR REPLACE FUNCTION report_test(a integer) RETURNS TABLE (b integer, c integer)\n"
      + "LANGUAGE sql BEGIN ATOMIC SELECT a, a; END;\n"
      + "CREATE OR REPLACE VIEW report_view AS SELECT 1 AS one, 2 AS two;",
    "CREATE OR REPLACE FUNCTION report_test(a integer, d integer DEFAULT 0)\n"
      + "RETURNS TABLE (b integer) LANGUAGE sql BEGIN ATOMIC SELECT a + d; END;\n"
      + "CREATE OR REPLACE VIEW report_view AS SELECT 1 AS one, 2 AS two;",
    "CREATE OR REPLACE FUNCTION report_test(a integer) RETURNS TABLE (b integer)\n"
      + "LANGUAGE sql BEGIN ATOMIC SELECT a; END;\n"
      + "CREATE OR REPLACE VIEW report_view AS SELECT 1 AS one;",
  ]

  @Test func `a changed signature replaces the old one, and readers may use it`() async throws {
    try await withScratchDatabase { database in
      for version in Self.versions {
        _ = try await migrator(database, Report.sql + [version]).migrate()
        #expect(try await exists("report_test", in: database) == 1, "\(version)")
        let rows = try await database.withTransaction { transaction in
          _ = try await transaction.execute(
            "SET LOCAL ROLE \(unescaped: ScratchPlace.environment.reader)")
          _ = try await transaction.query("SELECT * FROM tenure.report_intake")
          return try await transaction.query(
            "SELECT t.b, v.one FROM tenure.report_test(7) AS t, tenure.report_view AS v"
          ).decodeOnly(Int.self, Int.self)
        }
        #expect(rows == (7, 1))
      }
    }
  }

  @Test func `text that fails leaves everything as it was`() async throws {
    try await withScratchDatabase { database in
      await #expect(throws: PostgresError.self) {
        _ = try await migrator(database, ["DROP VIEW report_intake;", "SELECT 1 / 0;"]).migrate()
      }
      let isUnchanged = try await migrator(database, Report.sql).hasCurrentReports()
      #expect(isUnchanged)
      _ = try await database.query("SELECT * FROM tenure.report_intake")
    }
  }

  private func exists(_ function: String, in database: ConnectionPool) async throws -> Int {
    try await database.query(
      """
      SELECT count(*) FROM pg_proc
      WHERE pronamespace = 'tenure'::regnamespace AND proname = \(function)
      """
    ).decodeOnly(Int.self)
  }
}
