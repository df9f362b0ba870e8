package import Logging
package import Postgres

/// Distributes the schema over the nodes of a Citus, by what the comments of its tables say.
///
/// Each table is placed in a transaction of its own: what was interrupted is continued by the next
/// run, and what a later step of the schema adds is placed by the run after it.
package struct SchemaDistributor: Sendable {
  /// What a run did.
  package struct Outcome: Hashable, Sendable {
    /// The tables that it placed, in order.
    package var tables: [String] = []
    /// What can't be asked on this Citus, each with what the server says.
    package var unanswerable: [String: String] = [:]
  }

  /// Copying a large table takes its time.
  static let deadline: Duration = .seconds(24 * 3600)

  let database: ConnectionPool
  let logger: Logger

  /// Works on a database that holds the schema of this version.
  package init(database: ConnectionPool, logger: Logger) {
    self.database = database
    self.logger = logger
  }

  /// Checks that all tables are where their comments say, or none is distributed.
  ///
  /// - Returns: How many tables are distributed: all or none.
  /// - Throws: ``DistributionError`` if only some are, or one is elsewhere.
  package func check() async throws -> Int {
    guard try await Self.hasCitus(database) else { return 0 }
    let tables = try await Self.tables(database)
    guard tables.contains(where: { $0.placed != nil }) else { return 0 }
    try Self.requireAsWanted(tables)
    let missing = tables.filter { $0.placed == nil }.map(\.name)
    guard missing.isEmpty else { throw DistributionError.incomplete(tables: missing) }
    return tables.count
  }

  /// Whether any table is distributed.
  package func isBegun() async throws -> Bool {
    guard try await Self.hasCitus(database) else { return false }
    return try await Self.tables(database).contains { $0.placed != nil }
  }

  /// Places every table that is not where its comment says, and lets what reads tables do so there.
  ///
  /// - Returns: What was done; nothing if everything was in its place.
  /// - Throws: ``DistributionError``, or what the database says.
  package func distribute() async throws -> Outcome {
    try await requireCitus()
    try await requireRoles()
    // A local table with a foreign key may otherwise not be written after a question to several
    // shards in the same transaction.
    try await setSequentialMode()
    var outcome = Outcome()
    // Before the tables are placed: Citus takes an SQL function that reads a table and calls
    // another one that does for a circle of dependencies.
    let rewritten = try await rewriteFunctions()
    while let table = try await placeNext() {
      logger.info("Table distributed", metadata: ["table": "\(table)"])
      outcome.tables.append(table)
    }
    let changed = try await useInvokersRights()
    if !outcome.tables.isEmpty || changed || rewritten > 0 {
      // A local table is made anew by Citus, without the privileges on it and on its views.
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

  /// Checks that Citus knows the roles that own and use the schema: it names them on the nodes.
  ///
  /// Citus knows the roles that an object of the database depends on; those that were created in
  /// another database are unknown to it.
  private func requireRoles() async throws {
    let unknown = try await database.query(
      """
      SELECT r.rolname::text FROM pg_roles AS r
      WHERE r.rolname IN (current_user, 'tenure_program', 'tenure_reader') AND NOT r.rolsuper
        AND (SELECT count(*) FROM pg_dist_node) > 1
        AND NOT EXISTS (
          SELECT FROM pg_dist_object AS o
          WHERE o.classid = 'pg_authid'::regclass AND o.objid = r.oid)
      ORDER BY 1
      """
    ).decode(String.self)
    guard unknown.isEmpty else { throw DistributionError.unknownRoles(unknown) }
  }

  /// Lets the function that erases submissions work with the rights of the program that calls it.
  ///
  /// Citus refuses to write as the owner what the program has written in the same transaction. The
  /// other functions with the owner's rights are called on their own.
  ///
  /// - Returns: Whether it had the owner's rights.
  private func useInvokersRights() async throws -> Bool {
    let isOwners = try await database.query(
      "SELECT prosecdef FROM pg_proc WHERE oid = 'tenure.erase_submissions'::regproc"
    ).decodeOnly(Bool.self)
    if isOwners {
      try await database.runScript("ALTER FUNCTION tenure.erase_submissions SECURITY INVOKER")
    }
    return isOwners
  }

  private func setSequentialMode() async throws {
    let name = try await database.query("SELECT quote_ident(current_database())")
      .decodeOnly(String.self)
    try await database.runScript(
      "ALTER DATABASE \(name) SET citus.multi_shard_modify_mode TO 'sequential'")
  }

  private static func requireAsWanted(_ tables: [CatalogueTable]) throws {
    for table in tables {
      guard let wanted = table.wanted else { throw DistributionError.unsaid(table: table.name) }
      if let placed = table.placed, placed != wanted {
        throw DistributionError.otherwise(table: table.name, placed: placed, wanted: wanted)
      }
    }
  }

  /// Places the first table that is not placed yet.
  ///
  /// - Returns: The table; nil if all are placed.
  private func placeNext() async throws -> String? {
    while true {
      do {
        return try await tryPlacing()
      } catch is SomebodyMigrates {
        try await Task.sleep(for: SchemaMigrator.Patience().turn)
      }
    }
  }

  /// Another program migrates or distributes.
  ///
  /// Nobody waits for it in a transaction: an index that it makes would wait for that one.
  private struct SomebodyMigrates: Error {}

  private func tryPlacing() async throws -> String? {
    try await database.withTransaction { transaction in
      guard try await SchemaMigrator.takesLock(in: transaction) else { throw SomebodyMigrates() }
      let tables = try await Self.tables(transaction)
      try Self.requireAsWanted(tables)
      guard
        let table = CatalogueTable.inOrder(tables).first(where: { $0.placed == nil }),
        let wanted = table.wanted
      else { return nil }
      // Else a local table with a foreign key to a reference table would be placed with it.
      _ = try await transaction.execute(
        "SET LOCAL citus.enable_local_reference_table_foreign_keys = off")
      let name = "tenure.\(table.name)"
      let placing: SQL =
        switch wanted {
        case .reference: "SELECT create_reference_table(\(name)::regclass)"
        case .local:
          """
          SELECT citus_add_local_table_to_metadata(\(name)::regclass,
            cascade_via_foreign_keys => true)
          """
        case .by(let column):
          // What has one column of distribution is in one group, and nothing else is.
          """
          SELECT create_distributed_table(\(name)::regclass, \(column),
            colocate_with => \(Self.neighbour(of: wanted, in: tables) ?? "none"))
          """
        }
      let comments = try await Self.comments(in: transaction)
      _ = try await transaction.execute(placing, deadline: Self.deadline)
      // Citus replaces a local table, those that its foreign keys lead to and the views over them
      // by new ones without a comment.
      let left = try await Self.comments(in: transaction)
      for (name, comment) in comments.sorted(by: { $0.key < $1.key }) where left[name] == nil {
        _ = try await transaction.execute("\(unescaped: comment)")
      }
      return table.name
    }
  }

  /// The statements that make the comments of the tables and views, by the names of these.
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

  private static func neighbour(
    of wanted: TableDistribution, in tables: [CatalogueTable]
  ) -> String? {
    tables.first { $0.placed == wanted }.map { "tenure.\($0.name)" }
  }

  // MARK: The catalogue

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

  /// Says the privileges on single columns once more: Citus gives shards those on whole tables when
  /// it makes them, and takes those on columns from GRANT alone.
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

/// What reads tables, on a Citus.
///
/// PostgreSQL puts the text of an SQL function into the question that asks it, after Citus has
/// looked for its tables there; Citus refuses what comes of it, and names PL/pgSQL as the way out.
/// (https://github.com/citusdata/citus/issues/6102)
extension SchemaDistributor {
  /// Asking takes no longer than a page of the administrators' would wait.
  private static let trialDeadline: Duration = .seconds(60)

  /// Writes each SQL function that reads a table again, in PL/pgSQL with the same text.
  ///
  /// - Returns: The number of functions written again.
  func rewriteFunctions() async throws -> Int {
    let scripts = try await database.withTransaction { transaction in
      // So that the texts name everything with its schema.
      _ = try await transaction.execute("SET LOCAL search_path TO pg_catalog")
      return try await transaction.query(Self.rewritten).decode(String.self)
    }
    for script in scripts { try await database.runScript(script) }
    return scripts.count
  }

  /// Gives the functions that read no table to the nodes, where queries on shards call them.
  func distributeFunctions() async throws {
    let functions = try await database.query(Self.undistributed).decode(String.self)
    for function in functions {
      _ = try await database.execute(
        "SELECT create_distributed_function(\(function)::regprocedure)",
        deadline: Self.deadline)
    }
  }

  /// The texts of the functions as they are to be.
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

  /// SQL functions of which neither they nor what they call reads a table, and which Citus has not
  /// taken yet.
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

  /// Asks each report and each view once, for as little as it can be asked for.
  ///
  /// - Returns: What could not be asked, with what the server says.
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
    var refused: [String: String] = [:]
    for (name, question) in questions {
      do {
        _ = try await database.query("\(unescaped: question)", deadline: Self.trialDeadline)
      } catch let error as PostgresError where error.code == .server || error.code == .timedOut {
        refused[name] = error.message
      }
    }
    return refused
  }
}

/// Where a table's rows are when the schema is distributed with Citus.
///
/// The table's comment ends with it: `[by COLUMN]`, `[reference]` or `[local]`.
package enum TableDistribution: Hashable, Sendable, CustomStringConvertible {
  /// In shards, by the hash of a column.
  case by(column: String)
  /// On every node, whole.
  case reference
  /// On the coordinator, and known to Citus: what is written together with shards stays atomic.
  case local

  /// Takes it from a table's comment; nil if the comment says none.
  package init?(note comment: String) {
    guard comment.last == "]", let start = comment.lastIndex(of: "[") else { return nil }
    let note = comment[comment.index(after: start)...].dropLast()
    switch note.split(separator: " ", omittingEmptySubsequences: false) {
    case ["reference"]: self = .reference
    case ["local"]: self = .local
    case let words where words.count == 2 && words[0] == "by" && !words[1].isEmpty:
      self = .by(column: String(words[1]))
    default: return nil
    }
  }

  package var description: String {
    switch self {
    case .by(let column): "by \(column)"
    case .reference: "reference"
    case .local: "local"
    }
  }

  /// Citus takes what is referenced before what refers to it, and reference tables before all.
  var rank: Int {
    switch self {
    case .reference: 0
    case .by: 1
    case .local: 2
    }
  }
}

/// Why the schema is not, or can't be, distributed with Citus.
package enum DistributionError: Error, Hashable, Sendable, CustomStringConvertible {
  /// The server does not have the extension.
  case notInstalled
  /// The database does not have it.
  case notCreated
  /// Citus does not answer; with what the server says.
  case notLoaded(String)
  /// There are other nodes, and the coordinator is none of them.
  case coordinatorUnknown
  /// Citus does not know these roles in this database.
  case unknownRoles([String])
  /// The table's comment does not say where its rows are.
  case unsaid(table: String)
  /// Somebody placed the table otherwise.
  case otherwise(table: String, placed: TableDistribution, wanted: TableDistribution)
  /// No table is distributed.
  case notBegun
  /// Some tables are distributed, and these are not.
  case incomplete(tables: [String])

  package var description: String {
    switch self {
    case .notInstalled:
      "The server has no extension `citus`: install Citus on it and on every other node."
    case .notCreated:
      "The database has no extension `citus`: let a superuser say CREATE EXTENSION citus in it, "
        + "here and on every other node."
    case .notLoaded(let message):
      "Citus does not answer (\(message)): put citus first into shared_preload_libraries and start "
        + "the server again."
    case .coordinatorUnknown:
      "The other nodes do not know the coordinator: say "
        + "SELECT citus_set_coordinator_host('its host name') on it."
    case .unknownRoles(let roles):
      "Citus does not know the roles \(roles.joined(separator: ", ")) in this database: let a "
        + "superuser make a function depend on them there, as in the article on growing."
    case .unsaid(let table):
      "The comment of the table \(table) does not say how it is distributed."
    case .otherwise(let table, let placed, let wanted):
      "The table \(table) is distributed otherwise: \(placed) instead of \(wanted). "
        + "SELECT undistribute_table('tenure.\(table)') takes that back."
    case .notBegun: "No table is distributed: run `tenure migrate --distributed`."
    case .incomplete(let tables):
      "Not all tables are distributed (\(tables.joined(separator: ", "))): "
        + "run `tenure migrate --distributed`."
    }
  }
}
