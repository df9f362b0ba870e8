import Foundation
import LedgerStorage
import Postgres
import ScratchDatabases
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("tenure migrate")
struct MigrateCommandTests {
  private let current = SchemaMigrator.currentVersion

  @Test("creates the schema once, and --check says whether it is there")
  func createsOnce() async throws {
    try await withScratchDatabase { database in
      try await database.runScript("DROP SCHEMA tenure CASCADE")
      let environment = ["DATABASE_URL": database.uri]

      let missing = try await TenureProgram.run("migrate", "--check", environment: environment)
      #expect(missing.status == 1)
      #expect(missing.errors.contains("tenure migrate"))
      let unready = try await TenureProgram.run(
        "serve",
        environment: environment.merging(CommandTests.settings) { mine, _ in mine })
      #expect(unready.status == 1)
      #expect(unready.errors.contains("tenure migrate"))

      let created = try await TenureProgram.run("migrate", environment: environment)
      #expect(created.status == 0)
      #expect(created.output == "Created the schema: version \(current).\n")
      let again = try await TenureProgram.run("migrate", environment: environment)
      #expect(again.status == 0)
      #expect(again.output == "The schema was already up to date: version \(current).\n")
      let checked = try await TenureProgram.run("migrate", "--check", environment: environment)
      #expect(checked.status == 0)
      #expect(checked.output == "The schema is up to date: version \(current).\n")
    }
  }

  @Test("applies the reports' SQL when it has changed, and --check says whether it has")
  func appliesReports() async throws {
    try await withScratchDatabase { database in
      try await database.runScript("UPDATE tenure.schema_version SET reports_sha256 = NULL")
      let environment = ["DATABASE_URL": database.uri]
      let outdated = try await TenureProgram.run("migrate", "--check", environment: environment)
      #expect(outdated.status == 0, "\(outdated.errors)")
      #expect(outdated.output.contains("run `tenure migrate`"))
      let applied = try await TenureProgram.run("migrate", environment: environment)
      #expect(applied.status == 0, "\(applied.errors)")
      #expect(applied.output.contains("Updated the reports.\n"))
      let checked = try await TenureProgram.run("migrate", "--check", environment: environment)
      #expect(checked.status == 0 && !checked.output.contains("run `tenure migrate`"))
    }
  }

  @Test("--check without a database says so and makes none")
  func checksNothing() async throws {
    try await withTemporaryDirectory { directory in
      let data = directory.appending(path: "data").path(percentEncoded: false)
      let outcome = try await TenureProgram.run(
        "migrate", "--check", environment: ["TENURE_DATA_DIR": data])
      #expect(outcome.status == 1)
      #expect(outcome.errors.hasPrefix("Error: DATABASE_URL: "), "\(outcome.errors)")
      #expect(!FileManager.default.fileExists(atPath: data))
    }
  }

  /// With the folders above it, through which another user has to pass where this is root.
  @Test("without DATABASE_URL it makes a private database, which the other commands find")
  func makesPrivateDatabase() async throws {
    try await withTemporaryDirectory { directory in
      let data = directory.appending(path: "not/there/yet").path(percentEncoded: false)
      let environment = ["TENURE_DATA_DIR": data]
      let created = try await TenureProgram.run("migrate", environment: environment)
      #expect(created.status == 0, "\(created.errors)")
      let checked = try await TenureProgram.run("migrate", "--check", environment: environment)
      #expect(
        checked.output == "The schema is up to date: version \(current).\n", "\(checked.errors)")
      let audited = try await TenureProgram.run("audit", environment: environment)
      #expect(audited.status == 0, "\(audited.errors)")
    }
  }

  @Test("refuses a schema that is newer than the program")
  func refusesNewer() async throws {
    try await withScratchDatabase { database in
      try await database.execute(
        "INSERT INTO tenure.schema_version VALUES (1000, now(), 1000)")
      let environment = ["DATABASE_URL": database.uri]
      for arguments in [["migrate"], ["migrate", "--check"], ["audit"]] {
        let outcome = try await withTemporaryDirectory { directory in
          try await ChildProcess.run(
            try TenureProgram.executable, arguments, environment: environment, in: directory)
        }
        #expect(outcome.status == 1)
        #expect(outcome.errors.contains("version 1000"))
      }
    }
  }
}
