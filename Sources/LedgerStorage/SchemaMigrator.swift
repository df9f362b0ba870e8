package import Logging
package import Postgres

/// Brings a database's schema up to date, and says whether it is.
///
/// A new database gets `schema.sql` as a whole. An older one gets the steps that lie between: each
/// once, in order, and its last part in one transaction with the row that says so. Programs may go
/// on meanwhile: which of them, that row says, too.
package struct SchemaMigrator: Sendable {
  /// The version that `schema.sql` describes and this program works with.
  package static let currentVersion = 8

  /// In order, without gaps, from version 2 to the current one; version 1 is the first.
  static let steps = [
    SchemaStep(version: 2, sql: String(decoding: PackageResources.step_2_sql, as: UTF8.self)),
    SchemaStep(version: 3, sql: String(decoding: PackageResources.step_3_sql, as: UTF8.self)),
    SchemaStep(version: 4, sql: String(decoding: PackageResources.step_4_sql, as: UTF8.self)),
    SchemaStep(version: 5, sql: String(decoding: PackageResources.step_5_sql, as: UTF8.self)),
    SchemaStep(
      version: 6, servesSince: 5,
      sql: String(decoding: PackageResources.step_6_sql, as: UTF8.self)),
    SchemaStep(
      version: 7, servesSince: 6,
      sql: String(decoding: PackageResources.step_7_sql, as: UTF8.self)),
    SchemaStep(
      version: 8, servesSince: 7,
      sql: String(decoding: PackageResources.step_8_sql, as: UTF8.self)),
  ]

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
  private static let deadline: Duration = .seconds(24 * 3600)
  /// The first version that notes which programs it serves.
  private static let firstServing = 5

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
  private let logger: Logger
  private let steps: [SchemaStep]
  private let patience: Patience

  /// Works on a database, whatever it holds.
  package init(database: ConnectionPool, logger: Logger) {
    self.init(database: database, logger: logger, steps: Self.steps)
  }

  /// A step as the next version may have one, which changes what nobody needs and serves this
  /// program.
  static let nextStep = SchemaStep(
    version: currentVersion + 1, servesSince: currentVersion,
    sql: String(decoding: PackageResources.next_step_sql, as: UTF8.self))

  /// Works on a database as the next version's program will, to see what that does to programs of
  /// this one.
  package static func ofNextVersion(database: ConnectionPool, logger: Logger) -> SchemaMigrator {
    SchemaMigrator(database: database, logger: logger, steps: steps + [nextStep])
  }

  init(
    database: ConnectionPool, logger: Logger, steps: [SchemaStep], patience: Patience = Patience()
  ) {
    self.database = database
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
    /// Nil: programs of this version alone.
    var servesSince: Int?

    func serves(_ version: Int) -> Bool {
      self.version == version || (servesSince ?? self.version) <= version && version < self.version
    }
  }

  private static func found(in runner: some StatementRunner) async throws -> Found? {
    let exists = try await runner.query(
      "SELECT to_regclass('tenure.schema_version') IS NOT NULL"
    ).decodeOnly(Bool.self)
    guard exists else { return nil }
    // By way of JSON, for version 4 and older ones don't have the column.
    return try await runner.query(
      """
      SELECT version, (to_jsonb(s) ->> 'serves_since')::integer
      FROM tenure.schema_version AS s ORDER BY version DESC LIMIT 1
      """
    ).decodeFirst(Int.self, Int?.self).map { Found(version: $0, servesSince: $1) }
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

  /// Creates the schema or brings it up to date.
  ///
  /// A later version that serves this program stays as it is.
  ///
  /// - Returns: The version before; nil if there was no schema.
  /// - Throws: ``LedgerError/schemaVersion(found:needed:)`` for a schema that is too new for this
  ///   program, ``LedgerError/schemaInUse(version:)`` where others kept the tables of a step.
  package func migrate() async throws -> Int? {
    guard let found = try await Self.found(in: database) else {
      try await database.runScript(Self.schema, deadline: Self.deadline)
      logger.info("The schema is created", metadata: ["version": "\(Self.currentVersion)"])
      return nil
    }
    let known = steps.last?.version ?? Self.currentVersion
    if found.version >= known { _ = try Self.standing(of: found, for: known) }
    while let progress = try await applyNextPart() {
      guard progress.isReached else { continue }
      logger.info("A step of the schema is applied", metadata: ["version": "\(progress.version)"])
    }
    return found.version
  }

  /// Applies the next part, again and again until nobody is in its way.
  private func applyNextPart() async throws -> (version: Int, isReached: Bool)? {
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
  /// says so.
  ///
  /// The lock ends with the transaction, so that behind a PgBouncer, too, nothing is left of it. On
  /// an error the transaction is left open, and its connection closed.
  ///
  /// - Returns: The version to which the part leads, and whether it is reached with it; nil if
  ///   there was nothing to do.
  private func tryNextPart() async throws -> (version: Int, isReached: Bool)? {
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
        _ = try await connection.query("COMMIT")
        return nil
      }
      let applied =
        step.parts.count == 1
        ? 0
        : try await connection.query(
          "SELECT count(*) FROM tenure.schema_part WHERE version = \(step.version)"
        ).decodeOnly(Int.self)
      switch step.parts[applied] {
      case .transaction(let text):
        let milliseconds = Int(patience.lock / .milliseconds(1))
        _ = try await connection.query("SET LOCAL lock_timeout = \(unescaped: "\(milliseconds)")")
        try await connection.runScript(text, deadline: Self.deadline)
      case .index(let statement):
        _ = try await connection.query("SET LOCAL idle_in_transaction_session_timeout = 0")
        try await createIndex(statement)
      }
      let isReached = applied == step.parts.count - 1
      _ = try await connection.query(
        isReached ? Self.note(step) : Self.note(part: applied + 1, of: step))
      _ = try await connection.query("COMMIT")
      return (step.version, isReached)
    }
  }

  private static func note(_ step: SchemaStep) -> SQL {
    step.version < firstServing
      ? "INSERT INTO tenure.schema_version (version, applied_at) VALUES (\(step.version), now())"
      : """
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
