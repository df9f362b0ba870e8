package import Logging
package import Postgres
package import Subscriptions

/// Distributes the schema over a Citus cluster, as the tables' comments specify.
///
/// Each table is one transaction; another run continues an interrupted one and places new tables.
package struct SchemaDistributor: Sendable {
  package struct Outcome: Hashable, Sendable {
    package var tables: [String] = []
    /// Reports and views that this Citus rejects, with the server's message.
    package var unanswerable: [String: String] = [:]
  }

  /// The timeout for placing a table, whose rows are copied.
  static let deadline: Duration = .seconds(24 * 3600)

  let database: ConnectionPool
  let logger: Logger

  /// Expects a schema of this version.
  package init(database: ConnectionPool, logger: Logger) {
    self.database = database
    self.logger = logger
  }

  /// Checks that all tables are distributed as specified, or none, and returns their number.
  ///
  /// - Throws: ``DistributionError`` if only some are, one differs, or Citus lacks a role.
  package func check() async throws -> Int {
    guard try await Self.hasCitus(database) else { return 0 }
    let tables = try await Self.tables(database)
    guard tables.contains(where: { $0.placed != nil }) else { return 0 }
    try Self.requireAsWanted(tables)
    let missing = tables.filter { $0.placed == nil }.map(\.name)
    guard missing.isEmpty else { throw DistributionError.incomplete(tables: missing) }
    try await requireRoles()
    return tables.count
  }

  package func isBegun() async throws -> Bool {
    guard try await Self.hasCitus(database) else { return false }
    return try await Self.tables(database).contains { $0.placed != nil }
  }

  /// Distributes every table that is not distributed yet, and the functions and views that read
  /// tables.
  package func distribute() async throws -> Outcome {
    try await requireCitus()
    try await requireRoles()
    try await setDefaults()
    var outcome = Outcome()
    // First, since Citus sees a circle of dependencies in functions that read tables.
    let rewritten = try await rewriteFunctions()
    try await dropTriggers()
    // One that a foreign key of a local table references is placed together with it.
    outcome.tables = try await Self.tables(database).filter { $0.placed == nil }.map(\.name)
    while let table = try await placeNext() {
      logger.info("Table distributed", metadata: ["table": "\(table)"])
    }
    let changed = try await useInvokersRights()
    if !outcome.tables.isEmpty || changed || rewritten > 0 {
      // Citus recreates local tables without the privileges on them and their views.
      _ = try await database.query("SELECT tenure.grant_privileges()")
    }
    try await distributeFunctions()
    try await repeatColumnPrivileges()
    if !outcome.tables.isEmpty || rewritten > 0 { outcome.unanswerable = try await tryReports() }
    return outcome
  }

  private func requireCitus() async throws {
    guard try await Self.hasCitus(database) else {
      let isInstalled = try await database.query(
        "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'citus')"
      ).decodeOnly(Bool.self)
      throw isInstalled ? DistributionError.notCreated : .notInstalled
    }
    do {
      _ = try await database.query("SELECT citus_version()")
    } catch let error as PostgresError where error.code == .server {
      throw DistributionError.notLoaded(error.message)
    }
    let (nodes, coordinators) = try await database.query(
      "SELECT count(*), count(*) FILTER (WHERE groupid = 0) FROM pg_dist_node"
    ).decodeOnly(Int.self, Int.self)
    guard nodes == 0 || coordinators > 0 else { throw DistributionError.coordinatorUnknown }
  }

  /// Checks that Citus knows the roles that own and use the schema, which it names on the nodes.
  ///
  /// It knows only roles that an object of this database depends on, not those created in another
  /// database.
  ///
  /// To be called before the schema is made on a Citus, which fails otherwise.
  package func requireRoles() async throws {
    guard try await Self.hasCitus(database) else { return }
    let unknown = try await database.query(
      """
      SELECT r.rolname::text FROM pg_roles AS r
      WHERE NOT r.rolsuper AND (
          r.rolname IN ('tenure_program', 'tenure_reader')
          OR r.rolname = coalesce((
            SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'tenure'),
            current_user))
        AND (SELECT count(*) FROM pg_dist_node) > 1
        AND NOT EXISTS (
          SELECT FROM pg_dist_object AS o
          WHERE o.classid = 'pg_authid'::regclass AND o.objid = r.oid)
      ORDER BY 1
      """
    ).decode(String.self)
    guard unknown.isEmpty else { throw DistributionError.unknownRoles(unknown) }
  }

  /// Makes functions that programs call in transactions run with the caller's privileges, and
  /// returns whether any changed.
  ///
  /// Citus refuses rows written both as caller and as owner in one transaction.
  private func useInvokersRights() async throws -> Bool {
    let owners = try await database.query(
      """
      SELECT oid::regproc::text FROM pg_proc
      WHERE pronamespace = 'tenure'::regnamespace AND prosecdef
        AND proname IN ('store_body', 'delete_bodies', 'erase_submissions', 'seal', 'record_action')
      """
    ).decode(String.self)
    for function in owners {
      try await database.runScript("ALTER FUNCTION \(function) SECURITY INVOKER")
    }
    return !owners.isEmpty
  }

  /// Drops triggers and the log of account changes: Citus has none, and no server keeps answers.
  func dropTriggers() async throws {
    try await database.runScript(
      """
      DROP FUNCTION IF EXISTS tenure.note_account_change CASCADE;
      DELETE FROM tenure.account_change_log;
      """)
  }

  /// Sets the defaults of the database's connections.
  private func setDefaults() async throws {
    let name = try await database.query("SELECT quote_ident(current_database())")
      .decodeOnly(String.self)
    let defaults = [
      // Otherwise a multi-shard query forbids writing local tables with foreign keys after it.
      ("multi_shard_modify_mode", "sequential"),
      // A read of several accounts asks its shards at the same time, by connections that are kept:
      // opening one takes longer than the read.
      ("executor_slow_start_interval", "0"), ("max_cached_conns_per_worker", "4"),
      ("max_adaptive_executor_pool_size", "4"),
    ]
    try await database.runScript(
      defaults.map { "ALTER DATABASE \(name) SET citus.\($0) TO '\($1)'" }
        .joined(separator: ";\n"))
  }

  private static func requireAsWanted(_ tables: [CatalogueTable]) throws {
    for table in tables {
      guard let wanted = table.wanted else { throw DistributionError.unsaid(table: table.name) }
      if let placed = table.placed, placed != wanted {
        throw DistributionError.otherwise(table: table.name, placed: placed, wanted: wanted)
      }
    }
  }

  /// Places the first table that is not placed yet; nil if all are.
  private func placeNext() async throws -> String? {
    while true {
      do {
        return try await tryPlacing()
      } catch is MigrationInProgress {
        try await Task.sleep(for: SchemaMigrator.RetryWindow().turn)
      }
    }
  }

  /// Another program migrates; waited for outside of transactions, which would block its index.
  private struct MigrationInProgress: Error {}

  private func tryPlacing() async throws -> String? {
    try await database.withTransaction { transaction in
      guard try await SchemaMigrator.takesLock(in: transaction) else { throw MigrationInProgress() }
      let tables = try await Self.tables(transaction)
      try Self.requireAsWanted(tables)
      guard let table = CatalogueTable.inOrder(tables).first(where: { $0.placed == nil }),
        let wanted = table.wanted
      else { return nil }
      // Otherwise a local table with a foreign key to a reference table would be placed with it.
      _ = try await transaction.execute(
        "SET LOCAL citus.enable_local_reference_table_foreign_keys = off")
      let name = "tenure.\(table.name)"
      let neighbour = tables.first { $0.placed == wanted }.map { "tenure.\($0.name)" }
      let placing: SQL =
        switch wanted {
        case .reference: "SELECT create_reference_table(\(name)::regclass)"
        case .local:
          """
          SELECT citus_add_local_table_to_metadata(\(name)::regclass,
            cascade_via_foreign_keys => true)
          """
        case .by(let column):
          // Tables with the same distribution column are colocated, and no others.
          """
          SELECT create_distributed_table(\(name)::regclass, \(column),
            colocate_with => \(neighbour ?? "none"))
          """
        }
      let comments = try await Self.comments(in: transaction)
      _ = try await transaction.execute(placing, deadline: Self.deadline)
      // Citus replaces local tables, those that they reference and their views, without comments.
      let left = try await Self.comments(in: transaction)
      for (name, comment) in comments.sorted(by: { $0.key < $1.key }) where left[name] == nil {
        _ = try await transaction.execute("\(unescaped: comment)")
      }
      return table.name
    }
  }

  /// The statements that restore the comments, by table or view.
  private static func comments(in transaction: Transaction) async throws -> [String: String] {
    let rows = try await transaction.query(
      """
      SELECT relname::text, format('COMMENT ON %s tenure.%I IS %L',
        CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, relname,
        obj_description(oid, 'pg_class'))
      FROM pg_class
      WHERE relnamespace = 'tenure'::regnamespace AND relkind IN ('r', 'v')
        AND obj_description(oid, 'pg_class') IS NOT NULL
      """
    ).decode(String.self, String.self)
    return Dictionary(uniqueKeysWithValues: rows.map { ($0, $1) })
  }

  private static func hasCitus(_ runner: some StatementRunner) async throws -> Bool {
    try await runner.query(
      "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"
    ).decodeOnly(Bool.self)
  }

  private static func tables(_ runner: some StatementRunner) async throws -> [CatalogueTable] {
    try await runner.query(
      """
      SELECT c.relname::text, coalesce(obj_description(c.oid, 'pg_class'), ''),
        ARRAY(
          SELECT DISTINCT f.confrelid::regclass::text FROM pg_constraint AS f
          WHERE f.conrelid = c.oid AND f.contype = 'f'),
        CASE
          WHEN p.partmethod = 'h' THEN 'by ' || column_to_column_name(p.logicalrelid, p.partkey)
          WHEN p.repmodel = 't' THEN 'reference'
          WHEN p.logicalrelid IS NOT NULL THEN 'local'
        END
      FROM pg_class AS c
      LEFT JOIN pg_dist_partition AS p ON p.logicalrelid = c.oid
      WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind = 'r'
      ORDER BY c.relname
      """
    ).decode(String.self, String.self, [String].self, String?.self).map { row in
      CatalogueTable(
        name: row.0, wanted: TableDistribution(note: row.1),
        placed: row.3.flatMap { TableDistribution(note: "[\($0)]") },
        parents: Set(row.2.map { String($0.split(separator: ".").last ?? "") }))
    }
  }

  /// Repeats the column privileges, which new shards don't inherit.
  private func repeatColumnPrivileges() async throws {
    let grants = try await database.query(
      """
      SELECT format('GRANT %s (%s) ON tenure.%I TO %I', g.privilege_type,
        string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum), c.relname,
        pg_get_userbyid(g.grantee))
      FROM pg_class AS c
      JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
      CROSS JOIN LATERAL aclexplode(a.attacl) AS g
      WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind = 'r' AND g.grantee <> 0
      GROUP BY c.relname, g.grantee, g.privilege_type
      ORDER BY c.relname, 1
      """
    ).decode(String.self)
    for grant in grants { try await database.runScript(grant) }
  }
}

// PostgreSQL inlines SQL functions after Citus has looked for distributed tables in the query, and
// Citus rejects the result; it recommends PL/pgSQL.
// (https://github.com/citusdata/citus/issues/6102)
extension SchemaDistributor {
  /// The timeout for trying a statement: Citus refuses unsupported ones sooner.
  private static let trialDeadline: Duration = .seconds(10)

  /// Rewrites the SQL functions that read tables in PL/pgSQL, and returns their number.
  func rewriteFunctions() async throws -> Int {
    let scripts = try await database.withTransaction { transaction in
      // An empty search path, so that the texts qualify all names.
      _ = try await transaction.execute("SET LOCAL search_path TO pg_catalog")
      return try await transaction.query(Self.rewritten).decode(String.self)
    }
    for script in scripts { try await database.runScript(script) }
    return scripts.count
  }

  /// Distributes the functions that read no table, which queries on shards call.
  func distributeFunctions() async throws {
    let functions = try await database.query(Self.undistributed).decode(String.self)
    for function in functions {
      _ = try await database.execute(
        "SELECT create_distributed_function(\(function)::regprocedure)", deadline: Self.deadline)
    }
  }

  private static let rewritten: SQL = #"""
    WITH reader AS (
      SELECT p.oid, p.proretset, pg_get_functiondef(p.oid) AS definition,
        pg_get_function_sqlbody(p.oid) AS body
      FROM pg_proc AS p
      JOIN pg_language AS l ON l.oid = p.prolang
      WHERE p.pronamespace = 'tenure'::regnamespace AND l.lanname = 'sql' AND EXISTS (
        SELECT FROM pg_depend AS d
        JOIN pg_class AS c ON c.oid = d.refobjid AND c.relnamespace = p.pronamespace
        WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid
          AND d.refclassid = 'pg_class'::regclass)
    )
    SELECT replace(replace(left(definition, strpos(definition, body) - 1),
        E'\n LANGUAGE sql\n', E'\n LANGUAGE plpgsql\n'), ' PARALLEL SAFE', '')
      || E'AS $reading$\n#variable_conflict use_column\nBEGIN\n'
      || CASE
        WHEN proretset THEN 'RETURN QUERY' || regexp_replace(body, '^BEGIN ATOMIC(.*)END$', '\1')
        WHEN body LIKE 'RETURN %' THEN body || ';'
        ELSE 'RETURN (' || regexp_replace(body, '^BEGIN ATOMIC(.*);\s*END$', '\1') || ');'
      END
      || E'\nEND\n$reading$;'
    FROM reader
    ORDER BY oid
    """#

  /// The SQL functions that read no table, directly or through others, and are not distributed yet.
  private static let undistributed: SQL = """
    WITH RECURSIVE call AS (
      SELECT d.objid AS caller, d.refobjid AS called
      FROM pg_depend AS d
      JOIN pg_proc AS p ON p.oid = d.objid AND p.pronamespace = 'tenure'::regnamespace
      JOIN pg_proc AS q ON q.oid = d.refobjid AND q.pronamespace = p.pronamespace
      WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_proc'::regclass
    ), reader AS (
      SELECT p.oid FROM pg_proc AS p
      JOIN pg_language AS l ON l.oid = p.prolang
      WHERE p.pronamespace = 'tenure'::regnamespace AND l.lanname <> 'sql'
      UNION
      SELECT call.caller FROM call JOIN reader ON reader.oid = call.called
    )
    SELECT p.oid::regprocedure::text FROM pg_proc AS p
    WHERE p.pronamespace = 'tenure'::regnamespace AND p.oid NOT IN (SELECT oid FROM reader)
      AND NOT EXISTS (
        SELECT FROM pg_dist_object AS o
        WHERE o.classid = 'pg_proc'::regclass AND o.objid = p.oid)
    ORDER BY 1
    """

  /// Claims jobs and runs each report and view once, rolled back, and returns the failures.
  ///
  /// - Returns: The failures, with their messages. Long answers are not failures.
  package func tryStatements(at now: Timestamp) async throws -> [String: String] {
    var refused = try await tryReports()
    let queues = Dictionary(uniqueKeysWithValues: Job.Queue.allCases.map { ($0, 1) })
    refused["the claim of a job"] = await trial(
      of: JobQueue.claim(queues, worker: "tenure doctor", at: now, lease: Self.trialDeadline))
    return refused
  }

  /// Runs each report and view once, for one row, and returns the messages of those that failed.
  func tryReports() async throws -> [String: String] {
    let questions = try await database.query(
      """
      SELECT p.proname::text, format('SELECT * FROM tenure.%I(%s) LIMIT 1', p.proname, (
          SELECT string_agg(format('%I => ''1970-01-01''', name), ', ')
          FROM unnest(p.proargnames[:p.pronargs]) AS name
          WHERE name IN ('from_date', 'to_date')))
      FROM pg_proc AS p
      WHERE p.pronamespace = 'tenure'::regnamespace AND p.proname LIKE 'report\\_%'
        AND p.pronargs = p.pronargdefaults
      UNION ALL
      SELECT c.relname::text, format('SELECT * FROM tenure.%I LIMIT 1', c.relname)
      FROM pg_class AS c
      WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind = 'v'
      ORDER BY 1
      """
    ).decode(String.self, String.self)
    let answers = try await questions.mapConcurrently(atOnce: 4) { name, question in
      (name, await trial(of: "\(unescaped: question)"))
    }
    return Dictionary(uniqueKeysWithValues: answers).compactMapValues(\.self)
  }

  private struct RolledBack: Error {}

  /// Runs a statement in a transaction that is rolled back, and returns the message if it failed.
  private func trial(of statement: SQL) async -> String? {
    do {
      return try await database.withTransaction { transaction in
        _ = try await transaction.query(statement, deadline: Self.trialDeadline)
        throw RolledBack()
      }
    } catch is RolledBack {
      return nil
    } catch {
      let error = error as? PostgresError
      return error?.code == .timedOut ? nil : error?.message ?? "it was interrupted"
    }
  }
}

/// The reason why the schema is not or can't be distributed.
package enum DistributionError: Error, Hashable, Sendable, CustomStringConvertible {
  case notInstalled
  case notCreated
  /// Citus is not loaded; with the server's message.
  case notLoaded(String)
  case coordinatorUnknown
  case unknownRoles([String])
  case unsaid(table: String)
  case otherwise(table: String, placed: TableDistribution, wanted: TableDistribution)
  case notBegun
  /// These tables are not distributed, but others are.
  case incomplete(tables: [String])

  package var description: String {
    switch self {
    case .notInstalled:
      "The extension `citus` is not installed on the server: install Citus on every node."
    case .notCreated:
      "The database has no extension `citus`: run CREATE EXTENSION citus in it as a superuser, on "
        + "every node."
    case .notLoaded(let message):
      "Citus does not answer (\(message)): put citus first in shared_preload_libraries and restart "
        + "the server."
    case .coordinatorUnknown:
      "The other nodes don't know the coordinator: run "
        + "SELECT citus_set_coordinator_host('its host name') on it."
    case .unknownRoles(let roles):
      "Citus does not know the roles \(roles.joined(separator: ", ")), on which no object of this "
        + "database depended since its nodes were added. As a superuser, run in it on the "
        + "coordinator: CREATE FUNCTION public.tenure_roles() RETURNS integer LANGUAGE sql AS "
        + "'SELECT 1'; GRANT EXECUTE ON FUNCTION public.tenure_roles() TO "
        + "\(roles.joined(separator: ", ")); DROP FUNCTION public.tenure_roles()"
    case .unsaid(let table): "The comment of table \(table) does not specify its distribution."
    case .otherwise(let table, let placed, let wanted):
      "Table \(table) is distributed differently: \(placed) instead of \(wanted). "
        + "SELECT undistribute_table('tenure.\(table)') undoes that."
    case .notBegun: "No table is distributed: run `tenure migrate --distributed`."
    case .incomplete(let tables):
      "Not all tables are distributed (\(tables.joined(separator: ", "))): "
        + "run `tenure migrate --distributed`."
    }
  }
}
