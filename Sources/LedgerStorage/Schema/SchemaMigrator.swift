package import Logging
package import Postgres

/// Creates and upgrades a database's schema, and checks its version.
///
/// A new database gets `schema.sql`, an older one the missing steps, in order. A step's last part
/// and its version's row are one transaction. Programs of the versions that the row names may keep running.
package struct SchemaMigrator: Sendable {
  /// The version of `schema.sql`, which this program uses.
  package static let currentVersion = 1

  /// The steps after version 1, in order without gaps.
  package static let steps: [SchemaStep] = []

  /// Advisory lock that serializes migrations: "tenure" in ASCII, as in `schema.sql`.
  static let lock: Int64 = 0x7465_6E75_7265

  /// Tries to take the lock for the transaction, without waiting.
  static func takesLock(in runner: some StatementRunner) async throws -> Bool {
    try await runner.query("SELECT pg_try_advisory_xact_lock(\(lock))").decodeOnly(Bool.self)
  }

  /// The timeout of a step, which may rewrite a large table.
  static let deadline: Duration = .seconds(24 * 3600)

  package struct RetryWindow: Sendable {
    /// The lock timeout: short, because all later statements wait behind it; the step is retried.
    var lock: Duration = .milliseconds(500)
    var pause: Duration = .seconds(2)
    /// The time after which the migration fails.
    var total: Duration = .seconds(3600)
    /// The poll interval while another migration runs.
    var turn: Duration = .milliseconds(200)
  }

  let database: ConnectionPool
  /// Nil: they are left as they are.
  let reports: ReportSQL?
  private let logger: Logger
  private let steps: [SchemaStep]
  private let patience: RetryWindow

  /// - Parameter steps: Others than the program's own test upgrades to a later version.
  package init(
    database: ConnectionPool, reports: ReportSQL? = nil, logger: Logger,
    steps: [SchemaStep] = Self.steps, patience: RetryWindow = RetryWindow()
  ) {
    self.database = database
    self.reports = reports
    self.logger = logger
    self.steps = steps
    self.patience = patience
  }

  /// Creates a database unless it exists, by a pool for another one of the same server.
  ///
  /// - Parameter name: A plain lower-case identifier; inserted into the statement unquoted.
  package static func createDatabase(_ name: String, on server: ConnectionPool) async throws {
    do {
      try await server.runScript("CREATE DATABASE \(name)")
    } catch let error as PostgresError where error.sqlState == SQLState(rawValue: "42P04") {
      // It exists, or was created concurrently.
    }
  }

  package static var schema: String {
    String(decoding: PackageResources.schema_sql, as: UTF8.self)
  }

  package func version() async throws -> Int? {
    try await Self.found(in: database)?.version
  }

  /// A schema's version, and the oldest version whose programs work with it.
  private typealias Found = (version: Int, servesSince: Int)

  private static func found(in runner: some StatementRunner) async throws -> Found? {
    do {
      return try await runner.query(
        "SELECT version, compatible_since FROM tenure.schema_version ORDER BY version DESC LIMIT 1"
      ).decodeFirst(Int.self, Int.self).map { (version: $0, servesSince: $1) }
    } catch let error as PostgresError
      where [.undefinedTable, .undefinedSchema].contains(error.sqlState)
    {
      return nil
    }
  }

  /// Checks that this program works with the schema: its own version, or a later compatible one.
  @discardableResult
  package func check() async throws -> SchemaStatus {
    try Self.status(of: try await Self.found(in: database), for: Self.currentVersion)
  }

  private static func status(of found: Found?, for version: Int) throws -> SchemaStatus {
    guard let found, (found.servesSince...found.version).contains(version) else {
      throw LedgerError.schemaVersion(found: found?.version, needed: version)
    }
    return found.version == version ? .current : .ahead(version: found.version)
  }

  // MARK: Migrating

  /// Creates the schema or applies the missing steps and the reports' SQL; returns the old version.
  ///
  /// A later compatible version is left unchanged, and so are its reports.
  ///
  /// - Throws: ``LedgerError/schemaVersion(found:needed:)`` for a schema newer than this program
  ///   supports, ``LedgerError/schemaInUse(version:)`` if a step's tables stayed locked.
  package func migrate() async throws -> Int? {
    let before = try await Self.found(in: database)
    if let before {
      if before.version >= latestVersion { _ = try Self.status(of: before, for: latestVersion) }
    } else {
      do {
        try await database.runScript(Self.schema, deadline: Self.deadline)
      } catch let error as PostgresError where error.sqlState == .duplicateSchema {
        // Created concurrently while this program waited for the lock.
        return try await migrate()
      }
      logger.info("Schema created", metadata: ["version": "\(Self.currentVersion)"])
    }
    while let progress = try await applyNextPart() {
      switch progress {
      case .part: continue
      case .version(let version):
        logger.info("Schema step applied", metadata: ["version": "\(version)"])
      case .reports: logger.info("Reports applied")
      }
    }
    return before?.version
  }

  private var latestVersion: Int { steps.last?.version ?? Self.currentVersion }

  private enum Progress {
    case part
    /// The last part of the step that leads to a version.
    case version(Int)
    case reports
  }

  /// Applies the next part, retrying while its tables are in use.
  private func applyNextPart() async throws -> Progress? {
    let end = ContinuousClock.now + patience.total
    while true {
      do {
        return try await tryNextPart()
      } catch let error as PostgresError
        where error.sqlState == .lockNotAvailable || error.isRetryableTransaction
      {
        let found = try await Self.found(in: database)?.version ?? 0
        let version = steps.first { $0.version > found }?.version ?? found
        guard ContinuousClock.now < end else { throw LedgerError.schemaInUse(version: version) }
        let oldest = try await oldestTransaction()
        logger.notice(
          "Schema step postponed: its tables are in use",
          metadata: ["version": "\(version)", "oldest_transaction": "\(oldest)"])
        try await Task.sleep(for: patience.pause)
      }
    }
  }

  /// Applies and records the next part of the first missing step, or the reports; nil: nothing.
  ///
  /// The lock ends with the transaction, so none is left behind PgBouncer. On an error the
  /// transaction stays open and its connection is closed.
  private func tryNextPart() async throws -> Progress? {
    try await database.withConnection { connection in
      // READ COMMITTED, so that it holds no snapshot while an index is created.
      _ = try await connection.query("BEGIN ISOLATION LEVEL READ COMMITTED")
      // Each attempt is a transaction: a waiting one would block CREATE INDEX CONCURRENTLY.
      while try await !Self.takesLock(in: connection) {
        _ = try await connection.query("ROLLBACK")
        try await Task.sleep(for: patience.turn)
        _ = try await connection.query("BEGIN ISOLATION LEVEL READ COMMITTED")
      }
      // It may have been applied concurrently.
      let found = try await Self.found(in: connection)?.version ?? 0
      guard let step = steps.first(where: { $0.version > found }) else {
        try await limitLockWaits(of: connection)
        let hasApplied = found == latestVersion ? try await applyReports(in: connection) : false
        _ = try await connection.query("COMMIT")
        return hasApplied ? .reports : nil
      }
      let applied =
        step.parts.count == 1
        ? 0
        : try await connection.query(
          "SELECT count(*) FROM tenure.schema_part WHERE version = \(step.version)"
        ).decodeOnly(Int.self)
      switch step.parts[applied] {
      case .transaction(let text):
        try await limitLockWaits(of: connection)
        try await connection.runScript(text, deadline: Self.deadline)
      case .index(let statement):
        _ = try await connection.query("SET LOCAL idle_in_transaction_session_timeout = 0")
        try await createIndex(statement)
      }
      let isReached = applied == step.parts.count - 1
      _ = try await connection.query(
        isReached
          ? """
          INSERT INTO tenure.schema_version (version, applied_at, compatible_since)
          VALUES (\(step.version), now(), \(step.servesSince))
          """
          : """
          INSERT INTO tenure.schema_part (version, part, applied_at)
          VALUES (\(step.version), \(applied + 1), now())
          """)
      _ = try await connection.query("COMMIT")
      return isReached ? .version(step.version) : .part
    }
  }

  private func limitLockWaits(of connection: Connection) async throws {
    let milliseconds = Int(patience.lock / .milliseconds(1))
    _ = try await connection.query("SET LOCAL lock_timeout = \(unescaped: "\(milliseconds)")")
  }

  /// Creates an index concurrently, after dropping an invalid one left by an interrupted attempt.
  private func createIndex(_ statement: String) async throws {
    let words = Set(statement.split { !$0.isLetter && !$0.isNumber && $0 != "_" }.map(String.init))
    let unfinished = try await database.query(
      """
      SELECT c.relname::text FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
      WHERE c.relnamespace = 'tenure'::regnamespace AND NOT i.indisvalid
      """
    ).decode(String.self)
    for name in unfinished where words.contains(name) {
      try await database.runScript(
        "DROP INDEX CONCURRENTLY IF EXISTS tenure.\(name)", deadline: Self.deadline)
    }
    try await database.runScript(statement, deadline: Self.deadline)
  }

  private func oldestTransaction() async throws -> String {
    let oldest = try await database.query(
      """
      SELECT pid, application_name, extract(epoch FROM now() - xact_start)::bigint
      FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
      ORDER BY xact_start LIMIT 1
      """
    ).decodeFirst(Int.self, String.self, Int.self)
    return oldest.map { "process \($0) of \($1), for \($2) s" } ?? "unknown"
  }

  // MARK: Privileges

  /// Grants the group roles their privileges where they are missing.
  ///
  /// An owner without the right to create roles makes a schema without them; they can be created
  /// later.
  ///
  /// - Returns: The roles that don't exist.
  package func grantPrivileges() async throws -> [String] {
    let before = try await roles()
    guard before.contains(where: { $0.isEquipped != true }) else { return [] }
    _ = try await database.query("SELECT tenure.grant_privileges()")
    return try await roles().filter { $0.isEquipped == nil }.map(\.name)
  }

  /// The group roles, and whether they have their privileges; nil if the role does not exist.
  private func roles() async throws -> [(name: String, isEquipped: Bool?)] {
    try await database.query(
      """
      SELECT n.name, CASE WHEN r.oid IS NOT NULL THEN has_schema_privilege(r.oid, 'tenure', 'USAGE')
        END
      FROM unnest(ARRAY['tenure_program', 'tenure_reader']) AS n (name)
      LEFT JOIN pg_roles AS r ON r.rolname = n.name
      ORDER BY n.name
      """
    ).decode(String.self, Bool?.self).map { (name: $0, isEquipped: $1) }
  }

  /// Whether this connection's role could change ledger entries: the owner and superusers can.
  package func roleCanRewriteLedger() async throws -> Bool {
    try await database.query(
      """
      SELECT has_table_privilege('tenure.ledger_entry', 'UPDATE, DELETE, TRUNCATE')
        OR pg_has_role((SELECT relowner FROM pg_class WHERE oid = 'tenure.ledger_entry'::regclass),
          'USAGE')
      """
    ).decodeOnly(Bool.self)
  }

  /// Whether this connection's role may change the schema; true if there is none.
  package func roleOwnsSchema() async throws -> Bool {
    try await database.query(
      """
      SELECT coalesce(bool_and(pg_has_role(nspowner, 'USAGE')), true)
      FROM pg_namespace WHERE nspname = 'tenure'
      """
    ).decodeOnly(Bool.self)
  }

  /// The tables that this connection's role can't read, or insert into where programs do, in order.
  package func tablesOutOfReach() async throws -> [String] {
    try await database.query(
      """
      SELECT relname::text FROM pg_class
      WHERE relnamespace = 'tenure'::regnamespace AND relkind IN ('r', 'p')
        AND NOT (has_schema_privilege(relnamespace, 'USAGE') AND has_table_privilege(oid, 'SELECT')
          -- Only the owner and its functions write these.
          AND (relname IN ('body', 'certificate_chain', 'schema_version',
              'schema_part', 'account_chain', 'account_entry', 'administrator_action')
            OR has_table_privilege(oid, 'INSERT')))
      ORDER BY relname
      """
    ).decode(String.self)
  }
}

/// The schema's version relative to a program that works with it.
package enum SchemaStatus: Hashable, Sendable {
  case current
  /// A later version that supports the program until it is replaced.
  case ahead(version: Int)

  package static func sentence(on version: Int) -> String {
    "The database schema is version \(version), which also supports version "
      + "\(SchemaMigrator.currentVersion): an upgrade is in progress."
  }
}
