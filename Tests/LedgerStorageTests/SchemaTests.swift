import LedgerStorage
import Logging
import Postgres
import ScratchDatabases
import Testing

@Suite("The schema")
struct SchemaTests {
  private let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })

  @Test("applying it twice is harmless")
  func twice() async throws {
    try await withScratchDatabase { database in
      let migrator = SchemaMigrator(database: database, logger: quiet)
      #expect(try await migrator.migrate() == SchemaMigrator.currentVersion)
      try await database.runScript(SchemaMigrator.schema)
      #expect(try await migrator.version() == SchemaMigrator.currentVersion)
      try await migrator.check()
    }
  }

  @Test("a database without it, or with a newer one, is refused in words")
  func refused() async throws {
    try await withScratchDatabase { database in
      let migrator = SchemaMigrator(database: database, logger: quiet)
      _ = try await database.execute(
        "INSERT INTO tenure.schema_version (version, applied_at) VALUES (99, now())")
      await #expect(throws: LedgerError.schemaVersion(found: 99, needed: 1)) {
        try await migrator.check()
      }
      await #expect(throws: LedgerError.schemaVersion(found: 99, needed: 1)) {
        try await migrator.migrate()
      }
      try await database.runScript("DROP SCHEMA tenure CASCADE")
      await #expect(throws: LedgerError.schemaVersion(found: nil, needed: 1)) {
        try await migrator.check()
      }
    }
  }

  @Test(
    "the programs' role can append to the ledger, and neither change nor delete",
    arguments: ["ledger_entry", "ledger_checkpoint", "administrator_action"])
  func appendOnly(table: String) async throws {
    try await withScratchDatabase { database in
      let rights = try await database.query(
        """
        SELECT has_table_privilege('tenure_program', \("tenure." + table), 'INSERT'),
          has_table_privilege('tenure_program', \("tenure." + table), 'UPDATE'),
          has_table_privilege('tenure_program', \("tenure." + table), 'DELETE'),
          has_table_privilege('tenure_program', \("tenure." + table), 'TRUNCATE')
        """
      ).decodeOnly(Bool.self, Bool.self, Bool.self, Bool.self)
      #expect(rights == (true, false, false, false))
    }
  }

  @Test(
    "what arrived stays as it arrived, but a notification is marked when it is processed",
    arguments: ["submission_payload", "submission_exchange", "notification"])
  func rawEvidence(table: String) async throws {
    try await withScratchDatabase { database in
      let rights = try await database.query(
        """
        SELECT has_table_privilege('tenure_program', \("tenure." + table), 'INSERT'),
          has_table_privilege('tenure_program', \("tenure." + table), 'UPDATE'),
          has_table_privilege('tenure_program', \("tenure." + table), 'DELETE'),
          has_any_column_privilege('tenure_program', \("tenure." + table), 'UPDATE')
        """
      ).decodeOnly(Bool.self, Bool.self, Bool.self, Bool.self)
      #expect(rights == (true, false, false, table == "notification"))
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
      #expect(error?.sqlState == .checkViolation)
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
      #expect(error?.sqlState == .checkViolation, "\(what)")
    }
  }
}
