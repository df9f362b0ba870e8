package import Logging
package import Postgres

/// Brings a database's schema up to date, and says whether it is.
///
/// A new database gets `schema.sql` as a whole. An older one gets the steps that lie between: each
/// once, in order, and in one transaction with the row that says so.
package struct SchemaMigrator: Sendable {
  /// The version that `schema.sql` describes and this program works with.
  package static let currentVersion = 5

  /// What leads from the version before to `version`; `schema.sql` has it built in.
  struct Step: Sendable {
    var version: Int
    var sql: String
  }

  /// In order, without gaps, from version 2 to the current one; version 1 is the first.
  static let steps = [
    Step(version: 2, sql: String(decoding: PackageResources.step_2_sql, as: UTF8.self)),
    Step(version: 3, sql: String(decoding: PackageResources.step_3_sql, as: UTF8.self)),
    Step(version: 4, sql: String(decoding: PackageResources.step_4_sql, as: UTF8.self)),
    Step(version: 5, sql: String(decoding: PackageResources.step_5_sql, as: UTF8.self)),
  ]

  /// Two programs that migrate at once do so one after the other: "tenure" in ASCII, as in
  /// `schema.sql`.
  static let lock: Int64 = 0x7465_6E75_7265
  /// A step may rewrite a large table, and another program may be at it: both have the time that
  /// they need.
  private static let deadline: Duration = .seconds(24 * 3600)

  private let database: ConnectionPool
  private let logger: Logger
  private let steps: [Step]

  /// Works on a database, whatever it holds.
  package init(database: ConnectionPool, logger: Logger) {
    self.init(database: database, logger: logger, steps: Self.steps)
  }

  init(database: ConnectionPool, logger: Logger, steps: [Step]) {
    self.database = database
    self.logger = logger
    self.steps = steps
  }

  /// Creates a database, unless there is one of this name already.
  ///
  /// - Parameters:
  ///   - name: A plain lower-case identifier of ours: it is pasted into the statement.
  ///   - server: Connected to another database of the same server.
  /// - Throws: What the database says.
  package static func createDatabase(_ name: String, on server: ConnectionPool) async throws {
    do {
      try await server.runScript("CREATE DATABASE \(name)")
    } catch let error as PostgresError where error.sqlState == SQLState(rawValue: "42P04") {
      // An earlier start made it, or another program a moment ago.
    }
  }

  /// The text of `schema.sql`.
  package static var schema: String {
    String(decoding: PackageResources.schema_sql, as: UTF8.self)
  }

  /// The version of the database's schema; nil if there is none.
  package func version() async throws -> Int? {
    try await Self.version(on: database)
  }

  private static func version(on runner: some StatementRunner) async throws -> Int? {
    let exists = try await runner.query(
      "SELECT to_regclass('tenure.schema_version') IS NOT NULL"
    ).decodeOnly(Bool.self)
    guard exists else { return nil }
    return try await runner.query("SELECT max(version) FROM tenure.schema_version")
      .decodeOnly(Int?.self)
  }

  /// Checks that the schema is the one that this program works with.
  ///
  /// - Throws: ``LedgerError/schemaVersion(found:needed:)``.
  package func check() async throws {
    let found = try await version()
    guard found == Self.currentVersion else {
      throw LedgerError.schemaVersion(found: found, needed: Self.currentVersion)
    }
  }

  /// Creates the schema or brings it up to date.
  ///
  /// - Returns: The version before; nil if there was no schema.
  /// - Throws: ``LedgerError/schemaVersion(found:needed:)`` for a schema that is newer than this
  ///   program.
  package func migrate() async throws -> Int? {
    guard let before = try await version() else {
      try await database.runScript(Self.schema, deadline: Self.deadline)
      logger.info("The schema is created", metadata: ["version": "\(Self.currentVersion)"])
      return nil
    }
    let known = steps.last?.version ?? Self.currentVersion
    guard before <= known else {
      throw LedgerError.schemaVersion(found: before, needed: known)
    }
    while let version = try await applyNextStep() {
      logger.info("A step of the schema is applied", metadata: ["version": "\(version)"])
    }
    return before
  }

  /// Applies the first step that the database lacks, together with the row that says so.
  ///
  /// The lock ends with the transaction, so that behind a PgBouncer, too, nothing is left of it. On
  /// an error the transaction is left open, and its connection closed.
  ///
  /// - Returns: The version that was reached; nil if there was nothing to do.
  private func applyNextStep() async throws -> Int? {
    try await database.withConnection { connection in
      _ = try await connection.query("BEGIN")
      _ = try await connection.query(
        "SELECT pg_advisory_xact_lock(\(Self.lock))", deadline: Self.deadline)
      // Another program may have applied it while this one waited.
      let found = try await Self.version(on: connection) ?? 0
      let step = steps.first { $0.version > found }
      if let step {
        try await connection.runScript(step.sql, deadline: Self.deadline)
        _ = try await connection.query(
          """
          INSERT INTO tenure.schema_version (version, applied_at) VALUES (\(step.version), now())
          """)
      }
      _ = try await connection.query("COMMIT")
      return step?.version
    }
  }

  /// Whether the role of this connection could change or delete entries of the ledger.
  ///
  /// With one role for everything it can grant itself the right again; a superuser is bound by
  /// nothing.
  package func roleCanRewriteLedger() async throws -> Bool {
    try await database.query(
      """
      SELECT has_table_privilege('tenure.ledger_entry', 'UPDATE, DELETE, TRUNCATE')
        OR pg_has_role((SELECT relowner FROM pg_class WHERE oid = 'tenure.ledger_entry'::regclass),
          'USAGE')
      """
    ).decodeOnly(Bool.self)
  }
}
