import BackgroundJobs
import LedgerStorage
import Logging
import Postgres
import ScratchDatabases
import ServiceLifecycle
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// Programs that keep running while the schema is upgraded.
struct SchemaWatchTests {
  private static let current = SchemaMigrator.currentVersion
  private static let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })

  private static func bring(
    _ database: ConnectionPool, to version: Int, serving since: Int
  ) async throws {
    _ = try await database.execute(
      """
      INSERT INTO tenure.schema_version (version, applied_at, compatible_since)
      VALUES (\(version), now(), \(since))
      """)
  }

  @Test func `a worker ends when the schema serves it no longer, and not before`() async throws {
    try await withScratchDatabase { database in
      let watch = SchemaWatch(
        schema: SchemaMigrator(database: database, logger: Self.quiet), ending: .program,
        interval: .milliseconds(1), logger: Self.quiet)
      try await Self.bring(database, to: Self.current + 1, serving: Self.current)
      async let watching: Void = watch.run()
      // It looks at this one, too, or goes on to the next: either way it has not ended for it.
      try await Self.bring(database, to: Self.current + 2, serving: Self.current + 1)
      do {
        try await watching
        Issue.record("It has not said why it ended.")
      } catch let error as LedgerError {
        #expect(error == .schemaVersion(found: Self.current + 2, needed: Self.current))
      }
    }
  }

  @Test func `while an upgrade is under way the doctor, migrate and others say so`() async throws {
    try await withScratchDatabase { database in
      try await Self.bring(database, to: Self.current + 1, serving: Self.current)
      let environment = ["DATABASE_URL": database.uri]
      for outcome in [
        try await TenureProgram.run("migrate", environment: environment),
        try await TenureProgram.run("migrate", "--check", environment: environment),
      ] {
        #expect(outcome.status == 0, "\(outcome.errors)")
        #expect(outcome.output.contains("an upgrade is in progress"))
      }
      let audit = try await TenureProgram.run("audit", environment: environment)
      #expect(audit.status == 0)
      #expect(audit.errors.contains("an upgrade is in progress"))
      // Only the schema matters here: there is no Apple to ask.
      let unreachable = "http://127.0.0.1:1/"
      let doctor = try await TenureProgram.run(
        "doctor",
        environment: environment.merging([
          "TENURE_APPSTORE_VERIFY_RECEIPT_URL": unreachable,
          "TENURE_APPSTORE_SANDBOX_VERIFY_RECEIPT_URL": unreachable,
          "TENURE_APPSTORE_API_URL": unreachable, "TENURE_APPSTORE_SANDBOX_API_URL": unreachable,
        ]) { $1 })
      #expect(doctor.output.contains("Restart `tenure serve` and `tenure work`"))
    }
  }
}
