import Postgres
import ScratchDatabases
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("tenure migrate --distributed")
struct MigrateDistributedTests {
  private static func migrate(
    _ database: ConnectionPool, _ flags: String...
  ) async throws -> (status: Int32, output: String, errors: String) {
    let outcome = try await TenureProgram.run(
      arguments: ["migrate"] + flags, environment: ["DATABASE_URL": database.uri])
    return (Int32(outcome.status), outcome.output, outcome.errors)
  }

  @Test(
    "a server without Citus is reported, and stays as it is",
    .disabled(if: ScratchPlace.environment.isDistributed))
  func withoutCitus() async throws {
    try await withScratchDatabase { database in
      let outcome = try await Self.migrate(database, "--distributed")
      #expect(outcome.status == 1)
      #expect(outcome.errors.contains("The extension `citus` is not installed"))
      #expect(try await Self.migrate(database, "--check").status == 0)
      let check = try await Self.migrate(database, "--check", "--distributed")
      #expect(check.status == 1)
      #expect(check.errors.contains("No table is distributed"))
    }
  }

  @Test(
    "what is distributed stays so: later tables follow without saying it again",
    .enabled(if: ScratchPlace.environment.isDistributed))
  func staysDistributed() async throws {
    try await withEmptyCitus { database in
      let first = try await Self.migrate(database, "--distributed")
      #expect(first.status == 0, "\(first.errors)")
      #expect(first.output.contains("Tables distributed: "))
      let check = try await Self.migrate(database, "--check", "--distributed")
      #expect(check.output.contains(" tables distributed.") && check.status == 0)

      try await database.runScript(
        """
        CREATE TABLE tenure.later (id integer NOT NULL PRIMARY KEY);
        COMMENT ON TABLE tenure.later IS 'Of a later version. [by id]';
        """)
      let missing = try await Self.migrate(database, "--check")
      #expect(missing.status == 1 && missing.errors.contains("(later)"))
      #expect(try await Self.migrate(database).output.contains("Tables distributed: 1."))
      #expect(try await Self.migrate(database).output.contains("All tables were distributed."))
      #expect(try await Self.migrate(database, "--check").status == 0)
    }
  }
}
