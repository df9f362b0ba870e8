import Postgres

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
