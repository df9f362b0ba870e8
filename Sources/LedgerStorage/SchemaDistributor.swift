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
    if !outcome.tables.isEmpty || changed {
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
