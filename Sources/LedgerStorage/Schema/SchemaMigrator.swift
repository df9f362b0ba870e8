package import Logging
package import Postgres

/// Brings a database's schema up to date, and says whether it is.
///
/// A new database gets `schema.sql` as a whole. An older one gets the steps that lie between: each
/// once, in order, and its last part in one transaction with the row that says so. Programs may go
/// on meanwhile: which of them, that row says, too.
package struct SchemaMigrator: Sendable {
  /// The version that `schema.sql` describes and this program works with.
  package static let currentVersion = 1

  /// The steps from version 1 to the current one, in order and without gaps.
  static let steps: [SchemaStep] = []

  /// Two programs that migrate at once do so one after the other: "tenure" in ASCII, as in
  /// `schema.sql`.
  static let lock: Int64 = 0x7465_6E75_7265

  /// Takes the lock until the transaction ends, without waiting for it.
  ///
  /// - Returns: Whether nobody else has it.
  static func takesLock(in runner: some StatementRunner) async throws -> Bool {
    try await runner.query("SELECT pg_try_advisory_xact_lock(\(lock))").decodeOnly(Bool.self)
  }

  /// A step may rewrite a large table: it has the time that it needs.
  static let deadline: Duration = .seconds(24 * 3600)

  /// How long a step waits for tables that others use.
  struct Patience: Sendable {
    /// How long a statement waits for a lock.
    ///
    /// Whoever comes later waits behind it, readers, too: so it is short, and the step is tried
    /// again.
    var lock: Duration = .milliseconds(500)
    /// How long everybody is left alone before it is tried again.
    var pause: Duration = .seconds(2)
    /// How long it is tried at all.
    var total: Duration = .seconds(3600)
    /// How often it is looked whether another program that migrates has ended.
    var turn: Duration = .milliseconds(200)
  }

  let database: ConnectionPool
  /// Nil: they are left as they are.
  let reports: ReportSQL?
  private let logger: Logger
  private let steps: [SchemaStep]
  private let patience: Patience

  /// Works on a database, whatever it holds.
  package init(database: ConnectionPool, reports: ReportSQL? = nil, logger: Logger) {
    self.init(
      database: database, reports: reports, logger: logger, steps: Self.steps,
      patience: Patience())
  }

  /// Works on a database with other steps than the program's own, to see what a later version does
  /// to programs of this one.
  package init(database: ConnectionPool, logger: Logger, steps: [SchemaStep]) {
    self.init(database: database, logger: logger, steps: steps, patience: Patience())
  }

  init(
    database: ConnectionPool, reports: ReportSQL? = nil, logger: Logger, steps: [SchemaStep],
    patience: Patience
  ) {
    self.database = database
    self.reports = reports
    self.logger = logger
    self.steps = steps
    self.patience = patience
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
    try await Self.found(in: database)?.version
  }

  /// What a database says of its schema.
  private struct Found {
    var version: Int
    /// The oldest version whose programs work with it.
    var servesSince: Int

    func serves(_ version: Int) -> Bool { (servesSince...self.version).contains(version) }
  }

  private static func found(in runner: some StatementRunner) async throws -> Found? {
    let exists = try await runner.query(
      "SELECT to_regclass('tenure.schema_version') IS NOT NULL"
    ).decodeOnly(Bool.self)
    guard exists else { return nil }
    return try await runner.query(
      "SELECT version, serves_since FROM tenure.schema_version ORDER BY version DESC LIMIT 1"
    ).decodeFirst(Int.self, Int.self).map { Found(version: $0, servesSince: $1) }
  }

  /// Checks that the schema is one that this program works with: its own, or a later one that
  /// serves it.
  ///
  /// - Returns: Which of them.
  /// - Throws: ``LedgerError/schemaVersion(found:needed:)``.
  @discardableResult
  package func check() async throws -> SchemaStanding {
    try Self.standing(of: try await Self.found(in: database), for: Self.currentVersion)
  }

  private static func standing(of found: Found?, for version: Int) throws -> SchemaStanding {
    guard let found, found.serves(version) else {
      throw LedgerError.schemaVersion(found: found?.version, needed: version)
    }
    return found.version == version ? .current : .ahead(version: found.version)
  }

  // MARK: Migrating

  /// Creates the schema, or applies the steps that it lacks; then the reports' SQL if it differs.
  ///
  /// A later version that serves this program stays as it is, and so do its reports.
  ///
  /// - Returns: The version before; nil if there was no schema.
  /// - Throws: ``LedgerError/schemaVersion(found:needed:)`` for a schema that is too new for this
  ///   program, ``LedgerError/schemaInUse(version:)`` where others kept the tables of a step.
  package func migrate() async throws -> Int? {
    let before = try await Self.found(in: database)
    if let before {
      if before.version >= latestVersion { _ = try Self.standing(of: before, for: latestVersion) }
    } else {
      do {
        try await database.runScript(Self.schema, deadline: Self.deadline)
      } catch let error as PostgresError where error.sqlState == .duplicateSchema {
        // Another program created it while this one waited for the lock.
        return try await migrate()
      }
      logger.info("Schema created", metadata: ["version": "\(Self.currentVersion)"])
    }
    while let progress = try await applyNextPart() {
      switch progress {
      case .part: continue
      case .version(let version):
        logger.info("A step of the schema is applied", metadata: ["version": "\(version)"])
      case .reports: logger.info("The reports' SQL is applied")
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

  /// Applies the next part, again and again until nobody is in its way.
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
          "Somebody uses what a step of the schema changes: it will be tried again",
          metadata: ["version": "\(version)", "oldest_transaction": "\(oldest)"])
        try await Task.sleep(for: patience.pause)
      }
    }
  }

  /// Applies the next part of the first step that the database lacks, together with the row that
  /// says so; after the last step the reports' SQL.
  ///
  /// The lock ends with the transaction, so that behind a PgBouncer, too, nothing is left of it. On
  /// an error the transaction is left open, and its connection closed.
  ///
  /// - Returns: What was applied; nil if there was nothing to do.
  private func tryNextPart() async throws -> Progress? {
    try await database.withConnection { connection in
      // Without a snapshot of its own while it waits for an index to be made.
      _ = try await connection.query("BEGIN ISOLATION LEVEL READ COMMITTED")
      // Asked for again and again, each time in a transaction of its own: for a statement that
      // waits, and for a transaction that has asked anything, an index waits, whose maker has the
      // lock.
      while try await !Self.takesLock(in: connection) {
        _ = try await connection.query("ROLLBACK")
        try await Task.sleep(for: patience.turn)
        _ = try await connection.query("BEGIN ISOLATION LEVEL READ COMMITTED")
      }
      // Another program may have applied it while this one waited.
      let found = try await Self.found(in: connection)?.version ?? 0
      guard let step = steps.first(where: { $0.version > found }) else {
        try await limitLockWaits(of: connection)
        let hasApplied =
          found == latestVersion ? try await applyReports(in: connection) : false
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
        isReached ? Self.note(step) : Self.note(part: applied + 1, of: step))
      _ = try await connection.query("COMMIT")
      return isReached ? .version(step.version) : .part
    }
  }

  private func limitLockWaits(of connection: Connection) async throws {
    let milliseconds = Int(patience.lock / .milliseconds(1))
    _ = try await connection.query("SET LOCAL lock_timeout = \(unescaped: "\(milliseconds)")")
  }

  private static func note(_ step: SchemaStep) -> SQL {
    """
    INSERT INTO tenure.schema_version (version, applied_at, serves_since)
    VALUES (\(step.version), now(), \(step.servesSince))
    """
  }

  private static func note(part: Int, of step: SchemaStep) -> SQL {
    """
    INSERT INTO tenure.schema_part (version, part, applied_at)
    VALUES (\(step.version), \(part), now())
    """
  }

  /// Makes an index beside those who write.
  ///
  /// What an attempt that was interrupted has left, an index that is not valid, goes first.
  private func createIndex(_ statement: String) async throws {
    let words = Set(
      statement.split { !$0.isLetter && !$0.isNumber && $0 != "_" }.map(String.init))
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

  /// Says which transaction in the database is the oldest: mostly it is in the way.
  private func oldestTransaction() async throws -> String {
    let oldest = try await database.query(
      """
      SELECT pid, application_name, extract(epoch FROM now() - xact_start)::bigint
      FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
      ORDER BY xact_start LIMIT 1
      """
    ).decodeFirst(Int.self, String.self, Int.self)
    return oldest.map { "process \($0) of \($1), since \($2) s" } ?? "unknown"
  }
}

/// What the roles of the schema may do.
extension SchemaMigrator {
  /// Gives the group roles what is theirs, where one lacks it or there is none.
  ///
  /// A schema is made without a role that its owner may not create; whoever may makes it later.
  ///
  /// - Returns: The names of the roles that are still missing.
  /// - Throws: What the database says.
  package func grantPrivileges() async throws -> [String] {
    let before = try await roles()
    guard before.contains(where: { $0.isEquipped != true }) else { return [] }
    _ = try await database.query("SELECT tenure.grant_privileges()")
    return try await roles().filter { $0.isEquipped == nil }.map(\.name)
  }

  /// The group roles, and whether they have what is theirs; nil: there is no such role.
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

  /// Whether the role of this connection could change or delete entries of the ledger.
  ///
  /// With one role for everything it can grant itself the right again; a superuser is bound by
  /// nothing.
  ///
  /// - Throws: What the database says.
  package func roleCanRewriteLedger() async throws -> Bool {
    try await database.query(
      """
      SELECT has_table_privilege('tenure.ledger_entry', 'UPDATE, DELETE, TRUNCATE')
        OR pg_has_role((SELECT relowner FROM pg_class WHERE oid = 'tenure.ledger_entry'::regclass),
          'USAGE')
      """
    ).decodeOnly(Bool.self)
  }

  /// Whether the role of this connection may change the schema, where there is one.
  ///
  /// - Throws: What the database says.
  package func roleOwnsSchema() async throws -> Bool {
    try await database.query(
      """
      SELECT coalesce(bool_and(pg_has_role(nspowner, 'USAGE')), true)
      FROM pg_namespace WHERE nspname = 'tenure'
      """
    ).decodeOnly(Bool.self)
  }

  /// The tables that the role of this connection can't read or add to as the programs do.
  ///
  /// - Returns: Their names, without the schema's, in order.
  /// - Throws: What the database says.
  package func tablesOutOfReach() async throws -> [String] {
    try await database.query(
      """
      SELECT relname::text FROM pg_class
      WHERE relnamespace = 'tenure'::regnamespace AND relkind IN ('r', 'p')
        AND NOT (has_schema_privilege(relnamespace, 'USAGE') AND has_table_privilege(oid, 'SELECT')
          -- These are filled by the owner alone.
          AND (relname IN ('exchange_rate', 'schema_version', 'schema_part')
            OR has_table_privilege(oid, 'INSERT')))
      ORDER BY relname
      """
    ).decode(String.self)
  }
}

/// How the database's schema stands to a program that can work with it.
package enum SchemaStanding: Hashable, Sendable {
  /// It is of the version that the program knows.
  case current
  /// A newer program has brought it further, and this one may go on until it is replaced.
  case ahead(version: Int)
}

extension SchemaStanding {
  /// What there is to say of a schema that a newer program has brought to a version.
  package static func sentence(on version: Int) -> String {
    "The database's schema is version \(version), and serves programs of version "
      + "\(SchemaMigrator.currentVersion) as well: an upgrade is under way."
  }
}
