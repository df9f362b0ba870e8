package import Logging
package import Postgres

/// Brings a database's schema up to date, and says whether it is.
///
/// A new database gets `schema.sql` as a whole. An older one gets the steps that lie between: each
/// once, in order, and in one transaction with the row that says so.
package struct SchemaMigrator: Sendable {
  /// The version that `schema.sql` describes and this program works with.
  package static let currentVersion = 1

  /// What leads from the version before to `version`; `schema.sql` has it built in.
  struct Step: Sendable {
    var version: Int
    var sql: String
  }

  /// In order, without gaps, from version 2 to the current one: none so far, for version 1 is the
  /// first.
  static let steps: [Step] = []

  /// Two programs that migrate at once do so one after the other: "tenure" in ASCII.
  private static let lock: Int64 = 0x7465_6E75_7265

  private let database: ConnectionPool
  private let logger: Logger

  package init(database: ConnectionPool, logger: Logger) {
    self.database = database
    self.logger = logger
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
    let exists = try await database.query(
      "SELECT to_regclass('tenure.schema_version') IS NOT NULL"
    ).decodeOnly(Bool.self)
    guard exists else { return nil }
    return try await database.query("SELECT max(version) FROM tenure.schema_version")
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
    try await database.withConnection { connection in
      _ = try await connection.query("SELECT pg_advisory_lock(\(Self.lock))")
      do {
        let before = try await migrateLocked(connection)
        _ = try await connection.query("SELECT pg_advisory_unlock(\(Self.lock))")
        return before
      } catch {
        _ = try? await connection.query("SELECT pg_advisory_unlock(\(Self.lock))")
        throw error
      }
    }
  }

  private func migrateLocked(_ connection: Connection) async throws -> Int? {
    guard let before = try await version() else {
      try await connection.runScript(Self.schema, deadline: .seconds(300))
      logger.info("The schema is created", metadata: ["version": "\(Self.currentVersion)"])
      return nil
    }
    guard before <= Self.currentVersion else {
      throw LedgerError.schemaVersion(found: before, needed: Self.currentVersion)
    }
    for step in Self.steps where step.version > before {
      // A step may rewrite a large table: it has the time that it needs.
      try await connection.runScript(
        """
        BEGIN;
        \(step.sql);
        INSERT INTO tenure.schema_version (version, applied_at) VALUES (\(step.version), now());
        COMMIT;
        """, deadline: .seconds(24 * 3600))
      logger.info("A step of the schema is applied", metadata: ["version": "\(step.version)"])
    }
    return before
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
