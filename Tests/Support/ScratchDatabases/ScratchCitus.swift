import Foundation
import LedgerStorage
import Postgres
import Reports
import Secrets

/// Databases on a Citus that keeps running, made like those of an installation: one on each node,
/// with the documented roles.
///
/// The schema belongs to `tenure_owner`, which is not a superuser. Tests log in as `tenure_tester`:
/// not a superuser either, and not the owner, so that a function with the owner's rights writes as
/// another user, as it does for the programs. It may also change what no program may, as tests do.
package struct ScratchCitus: Sendable {
  /// Each shard of each table is a separate table.
  private static let shardsPerTable = 2

  /// A superuser's connection URIs of the nodes; the first is the coordinator's.
  package let nodes: [String]

  /// Asks Citus for its nodes.
  ///
  /// - Parameter coordinator: The URI of a superuser's database in which Citus knows its nodes.
  /// - Throws: Database errors.
  package init(coordinator: String) async throws {
    let nodes = try await withPool(coordinator) { pool in
      try await pool.query(
        """
        SELECT nodename, nodeport FROM pg_dist_node
        WHERE groupid > 0 AND noderole = 'primary' AND isactive ORDER BY groupid
        """
      ).decode(String.self, Int.self)
    }
    self.nodes = [coordinator] + nodes.map { Self.uri(coordinator, host: $0, port: $1) }
    try await run([Self.roles], on: coordinator)
  }

  /// Makes a database with the distributed schema, to be cloned.
  package func makeTemplate(_ name: String) async throws {
    let owner = try await make(name)
    try await withPool(owner) { pool in
      _ = try await SchemaMigrator(
        database: pool, reports: ReportSQL(Report.sql), logger: quiet
      ).migrate()
      _ = try await SchemaDistributor(database: pool, logger: quiet).distribute()
    }
    try await run(
      [
        """
        GRANT ALL ON ALL TABLES IN SCHEMA tenure TO tenure_tester;
        GRANT ALL ON ALL SEQUENCES IN SCHEMA tenure TO tenure_tester;
        """
      ], on: ScratchPlace.uri(nodes[0], database: name))
    for node in nodes {
      // The maintenance of Citus keeps a connection to it.
      try await run(
        [
          "ALTER DATABASE \(name) ALLOW_CONNECTIONS false",
          "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '\(name)'",
        ], on: node)
    }
  }

  /// Makes an empty database on each node, whose nodes know each other and the roles.
  ///
  /// - Returns: The owner's connection URI.
  package func make(_ name: String) async throws -> String {
    for node in nodes {
      try await run(["CREATE DATABASE \(name) OWNER tenure_owner"], on: node)
      try await run(["CREATE EXTENSION citus"], on: ScratchPlace.uri(node, database: name))
    }
    let parts = nodes.map { URLComponents(string: $0) }
    let additions = parts.enumerated().map { number, node in
      let function = number == 0 ? "citus_set_coordinator_host" : "citus_add_node"
      return "SELECT \(function)('\(node?.host ?? "localhost")', \(node?.port ?? 5432))"
    }
    let scripts =
      additions + [
        "ALTER DATABASE \(name) SET citus.shard_count TO \(Self.shardsPerTable)",
        """
        CREATE FUNCTION public.tenure_roles() RETURNS integer LANGUAGE sql AS 'SELECT 1';
        ALTER FUNCTION public.tenure_roles() OWNER TO tenure_owner;
        GRANT EXECUTE ON FUNCTION public.tenure_roles()
          TO tenure_program, tenure_reader, tenure_server, tenure_analyst, tenure_tester;
        DROP FUNCTION public.tenure_roles();
        """,
      ]
    for script in scripts {
      try await runUndisturbed(script, on: ScratchPlace.uri(nodes[0], database: name))
    }
    return uri(of: name, user: "tenure_owner")
  }

  /// Runs a script that changes roles on all nodes, again while other databases do the same.
  private func runUndisturbed(_ script: String, on uri: String) async throws {
    for _ in 1...20 {
      do {
        return try await run([script], on: uri)
      } catch let error as PostgresError
        where error.message == "tuple concurrently updated"
        || error.message.hasPrefix("failure on connection")
      {
        try await Task.sleep(for: .milliseconds(200))
      }
    }
    try await run([script], on: uri)
  }

  /// Makes a database like another one, on each node.
  ///
  /// - Returns: The tests' connection URI.
  func clone(_ template: String, as name: String) async throws -> String {
    try await withThrowingTaskGroup(of: Void.self) { group in
      for node in nodes {
        group.addTask {
          try await run(
            ["CREATE DATABASE \(name) TEMPLATE \(template) OWNER tenure_owner"], on: node)
        }
      }
      try await group.waitForAll()
    }
    // Settings of a database are not cloned.
    try await run(
      [
        """
        DO $$
        DECLARE
          setting text;
        BEGIN
          FOR setting IN
            SELECT unnest(s.setconfig) FROM pg_db_role_setting AS s
            JOIN pg_database AS d ON d.oid = s.setdatabase
            WHERE d.datname = '\(template)' AND s.setrole = 0
          LOOP
            EXECUTE format('ALTER DATABASE \(name) SET %s TO %s', split_part(setting, '=', 1),
              substr(setting, strpos(setting, '=') + 1));
          END LOOP;
        END
        $$
        """
      ], on: nodes[0])
    return uri(of: name, user: "tenure_tester")
  }

  /// Removes a database from each node.
  package func remove(_ name: String) async throws {
    for node in nodes { try await run(["DROP DATABASE IF EXISTS \(name) WITH (FORCE)"], on: node) }
  }

  /// The coordinator's connection URI of a database.
  package func uri(of database: String, user: String) -> String {
    var parts = URLComponents(string: nodes[0])
    parts?.user = user
    parts?.path = "/\(database)"
    // Tests append more parameters.
    if parts?.query == nil { parts?.query = "connect_timeout=60" }
    return parts?.string ?? ""
  }

  private static func uri(_ coordinator: String, host: String, port: Int) -> String {
    var parts = URLComponents(string: coordinator)
    parts?.host = host
    parts?.port = port
    return parts?.string ?? ""
  }

  /// Citus makes them on the other nodes, too.
  private static let roles = """
    DO $$
    DECLARE
      name text;
    BEGIN
      FOREACH name IN ARRAY ARRAY['tenure_program', 'tenure_reader', 'tenure_owner',
        'tenure_server', 'tenure_analyst', 'tenure_tester']
      LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
          EXECUTE format('CREATE ROLE %I %s', name,
            CASE WHEN name IN ('tenure_program', 'tenure_reader') THEN 'NOLOGIN' ELSE 'LOGIN' END);
        END IF;
      END LOOP;
      GRANT tenure_program TO tenure_server;
      GRANT tenure_reader TO tenure_analyst;
      GRANT tenure_owner, tenure_server, tenure_analyst TO tenure_tester;
      -- `tenure doctor` asks for it.
      ALTER ROLE tenure_tester SET jit = off;
    END
    $$;
    """
}
