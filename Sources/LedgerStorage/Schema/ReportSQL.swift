import Crypto
import JSONText
import Postgres

/// The SQL of the reports: functions and views that hold no data.
///
/// Applied after the schema if its text changed; a step that alters a report's tables drops it.
package struct ReportSQL: Sendable {
  private let texts: [String]

  /// - Parameter texts: `CREATE OR REPLACE FUNCTION` and `VIEW`, in the order of their
  ///   dependencies; names are those of the schema `tenure`.
  package init(_ texts: [String]) {
    self.texts = texts
  }

  /// The remark on a database whose reports are not those of this program.
  package static let outdated =
    "The reports in the database are not those of this program: run `tenure migrate`."

  /// Stored in `schema_version` once it is applied.
  var sha256: String {
    SHA256.hash(data: Array(texts.joined().utf8)).hexadecimal
  }

  private var names: [String] {
    texts.flatMap { text in
      text.matches(of: /CREATE OR REPLACE (?:FUNCTION|VIEW) (?<name>\w+)/).map { String($0.name) }
    }
  }

  /// Creates or replaces everything, within a transaction.
  ///
  /// What changed its signature can't be replaced: all are then dropped first, which fails if other
  /// objects depend on them.
  func apply(in connection: Connection, deadline: Duration) async throws {
    _ = try await connection.query("SET LOCAL search_path TO tenure")
    _ = try await connection.query("SAVEPOINT reports")
    do {
      try await replace(in: connection, deadline: deadline)
      guard try await hasOverloads(in: connection) else { return }
    } catch let error as PostgresError where Self.changedSignature.contains(error.sqlState) {
      // Dropped below.
    }
    _ = try await connection.query("ROLLBACK TO SAVEPOINT reports")
    for drop in try await drops(in: connection) {
      try await connection.runScript(drop, deadline: deadline)
    }
    try await replace(in: connection, deadline: deadline)
  }

  /// `invalid_function_definition` and `invalid_table_definition`.
  private static let changedSignature: [SQLState?] = [
    SQLState(rawValue: "42P13"), SQLState(rawValue: "42P16"),
  ]

  private func replace(in connection: Connection, deadline: Duration) async throws {
    // ``SchemaDistributor`` rewrites them for Citus, which sees circles of dependencies in them.
    try await connection.runScript(
      """
      SET LOCAL citus.enable_ddl_propagation = off;
      \(texts.joined(separator: "\n"));
      SELECT grant_privileges();
      SET LOCAL citus.enable_ddl_propagation = on
      """, deadline: deadline)
  }

  /// Whether there are functions of the same names with other parameters.
  private func hasOverloads(in connection: Connection) async throws -> Bool {
    try await connection.query(
      """
      SELECT EXISTS (
        SELECT FROM pg_proc WHERE pronamespace = 'tenure'::regnamespace AND proname = ANY (\(names))
        GROUP BY proname HAVING count(*) > 1)
      """
    ).decodeOnly(Bool.self)
  }

  /// The statements that drop everything, functions before the views that they read.
  private func drops(in connection: Connection) async throws -> [String] {
    try await connection.query(
      """
      SELECT 'DROP FUNCTION ' || string_agg(oid::regprocedure::text, ', ') FROM pg_proc
      WHERE pronamespace = 'tenure'::regnamespace AND proname = ANY (\(names))
      HAVING count(*) > 0
      UNION ALL
      SELECT 'DROP VIEW ' || string_agg(oid::regclass::text, ', ') FROM pg_class
      WHERE relnamespace = 'tenure'::regnamespace AND relkind = 'v' AND relname = ANY (\(names))
      HAVING count(*) > 0
      """
    ).decode(String.self)
  }
}

extension SchemaMigrator {
  /// Whether the reports in the database are those of this program.
  package func hasCurrentReports() async throws -> Bool {
    guard let reports else { return true }
    return try await Self.appliedReports(in: database) == reports.sha256
  }

  /// Applies the reports' SQL if it differs, in a transaction; returns whether it did.
  func applyReports(in connection: Connection) async throws -> Bool {
    guard let reports, try await Self.appliedReports(in: connection) != reports.sha256 else {
      return false
    }
    try await reports.apply(in: connection, deadline: Self.deadline)
    _ = try await connection.query(
      """
      UPDATE tenure.schema_version SET reports_sha256 = \(reports.sha256)
      WHERE version = (SELECT max(version) FROM tenure.schema_version)
      """)
    return true
  }

  private static func appliedReports(in runner: some StatementRunner) async throws -> String? {
    try await runner.query(
      "SELECT reports_sha256 FROM tenure.schema_version ORDER BY version DESC LIMIT 1"
    ).decodeFirst(String?.self) ?? nil
  }
}
