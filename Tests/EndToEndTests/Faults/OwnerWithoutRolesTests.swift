import Foundation
import Logging
import Postgres
import PrivatePostgres
import Secrets
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// A schema whose owner may not create roles, as on many managed servers.
struct OwnerWithoutRolesTests {
  private static let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })

  private static func withServer(
    _ body: (PrivatePostgres, ConnectionPool) async throws -> Void
  ) async throws {
    let directory = FileManager.default.temporaryDirectory
      .appending(path: "tenure-owner-\(UUID().uuidString)")
    let server = try await PrivatePostgres.start(in: directory, options: .temporary)
    let superuser = ConnectionPool(
      configuration: .init(uri: Secret(await server.uri())), logger: quiet)
    do {
      try await body(server, superuser)
      await superuser.close()
      await server.stop()
    } catch {
      await superuser.close()
      await server.stop()
      throw error
    }
  }

  @Test func `a missing role is reported, and gets everything as soon as it exists`() async throws {
    try await Self.withServer { server, superuser in
      try await superuser.runScript(
        "CREATE ROLE proprietor LOGIN NOCREATEROLE; CREATE ROLE app LOGIN")
      try await superuser.runScript("CREATE DATABASE shop OWNER proprietor")
      let uri = await server.uri(database: "shop")
      func url(of role: String) -> String {
        uri.replacing("user=\(PrivatePostgres.userName)", with: "user=\(role)")
      }
      let owner = [
        "DATABASE_URL": url(of: "app"), "TENURE_MIGRATION_DATABASE_URL": url(of: "proprietor"),
      ]
      let created = try await TenureProgram.run("migrate", environment: owner)
      #expect(created.status == 0)
      #expect(created.output.contains("Created the schema"))
      for role in ["tenure_program", "tenure_reader"] {
        #expect(created.output.contains("The role \(role) is missing"), "\(created.output)")
      }
      let refused = try await TenureProgram.run("doctor", environment: owner)
      #expect(refused.output.contains("FAULT    database.role"), "\(refused.output)")

      try await superuser.runScript(
        """
        CREATE ROLE tenure_program NOLOGIN; CREATE ROLE tenure_reader NOLOGIN;
        GRANT tenure_program TO app;
        """)
      let repaired = try await TenureProgram.run("migrate", environment: owner)
      #expect(repaired.status == 0)
      #expect(!repaired.output.contains(" is missing"), "\(repaired.output)")
      let served = try await TenureProgram.run("doctor", environment: owner)
      #expect(served.output.contains("ok       database.role"), "\(served.output)")
      #expect(served.output.contains("ok       database.owner"), "\(served.output)")

      let program = ConnectionPool(
        configuration: .init(uri: Secret(url(of: "app"))), logger: Self.quiet)
      // The programs have no access to the owner's tables.
      let rights = try await program.query(
        """
        SELECT has_table_privilege('tenure.ledger_entry', 'INSERT'),
          has_table_privilege('tenure.ledger_entry', 'UPDATE'),
          has_function_privilege('tenure.grant_privileges()', 'EXECUTE'),
          has_table_privilege('tenure_reader', 'tenure.body', 'SELECT'),
          has_table_privilege('tenure_reader', 'tenure.store_transaction', 'SELECT')
        """
      ).decodeOnly(Bool.self, Bool.self, Bool.self, Bool.self, Bool.self)
      await program.close()
      #expect(rights == (true, false, false, false, true))
    }
  }

  @Test func `a role that can only read, and addresses that lead elsewhere`() async throws {
    try await Self.withServer { server, superuser in
      try await superuser.runScript("CREATE DATABASE shop")
      let uri = await server.uri(database: "shop")
      let migrated = try await TenureProgram.run("migrate", environment: ["DATABASE_URL": uri])
      #expect(migrated.status == 0)
      try await superuser.runScript("CREATE ROLE reader LOGIN IN ROLE tenure_reader")
      let reader = uri.replacing("user=\(PrivatePostgres.userName)", with: "user=reader")
      let doctor = try await TenureProgram.run(
        "doctor",
        environment: [
          "DATABASE_URL": reader, "TENURE_MIGRATION_DATABASE_URL": reader,
          "TENURE_LISTEN_DATABASE_URL": "postgresql://unknown@127.0.0.1:1/none",
        ])
      #expect(doctor.output.contains("FAULT    database.role"), "\(doctor.output)")
      #expect(doctor.output.contains("WARNING  database.owner"), "\(doctor.output)")
      #expect(doctor.output.contains("WARNING  database.listen"), "\(doctor.output)")
      let well = try await TenureProgram.run(
        "doctor", environment: ["DATABASE_URL": uri, "TENURE_LISTEN_DATABASE_URL": uri])
      #expect(well.output.contains("ok       database.listen"), "\(well.output)")
    }
  }
}
