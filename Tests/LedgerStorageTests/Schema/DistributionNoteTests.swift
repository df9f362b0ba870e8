import Postgres
import ScratchDatabases
import Testing

@testable import LedgerStorage

/// Whether the schema can be distributed: what Citus asks of tables, read from the catalogue.
@Suite("The schema keeps the rules of Citus")
struct DistributionNoteTests {
  /// A question to which a database that keeps the rule has no answer, and what breaks the rule.
  struct Rule: CustomTestStringConvertible, Sendable {
    var says: String
    var query: String
    var broken: String
    var testDescription: String { says }
  }

  /// The tables with their notes.
  private static let noted = """
    WITH noted AS (
      SELECT c.oid, c.relname::text AS name,
        substring(obj_description(c.oid, 'pg_class') FROM '\\[([a-z0-9_ ]+)\\]$') AS note
      FROM pg_class AS c
      WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind IN ('r', 'p')
    ), sharded AS (
      SELECT t.oid, t.name, a.attnum AS key, substring(t.note FROM '^by (.*)') AS key_name,
        a.attnotnull AS is_required, a.attgenerated <> '' OR a.attidentity <> '' AS is_generated
      FROM noted AS t
      LEFT JOIN pg_attribute AS a
        ON a.attrelid = t.oid AND a.attname = substring(t.note FROM '^by (.*)')
      WHERE t.note LIKE 'by %'
    )
    """

  static let rules = [
    Rule(
      says: "the comment of each table says [reference], [local] or [by COLUMN]",
      query: """
        SELECT name FROM noted
        WHERE note IS NULL OR note NOT IN ('reference', 'local') AND note NOT LIKE 'by %'
        """,
      broken: "CREATE TABLE tenure.bad (id integer PRIMARY KEY)"),
    Rule(
      says: "the column of distribution exists, is required and not generated",
      query: """
        SELECT name FROM sharded WHERE key IS NULL OR NOT is_required OR is_generated
        """,
      broken: """
        CREATE TABLE tenure.bad (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
        COMMENT ON TABLE tenure.bad IS 'Bad. [by id]'
        """),
    Rule(
      says: "each table but the log of account changes has a primary key",
      query: """
        SELECT name FROM noted WHERE name <> 'account_change' AND NOT EXISTS (
          SELECT FROM pg_index WHERE indrelid = noted.oid AND indisprimary)
        """,
      broken: """
        CREATE TABLE tenure.bad (id integer NOT NULL);
        COMMENT ON TABLE tenure.bad IS 'Bad. [by id]'
        """),
    Rule(
      says: "each unique key has the column of distribution",
      query: """
        SELECT i.indexrelid::regclass::text FROM sharded
        JOIN pg_index AS i ON i.indrelid = sharded.oid AND (i.indisunique OR i.indisexclusion)
        WHERE NOT key = ANY (i.indkey::smallint[])
        """,
      broken: """
        CREATE TABLE tenure.bad (id integer NOT NULL PRIMARY KEY, name text UNIQUE);
        COMMENT ON TABLE tenure.bad IS 'Bad. [by id]'
        """),
    Rule(
      says: "a foreign key stays in the shard or points to a reference table",
      query: """
        SELECT f.conname::text FROM pg_constraint AS f
        JOIN sharded AS child ON child.oid = f.conrelid
        JOIN noted AS target ON target.oid = f.confrelid
        LEFT JOIN sharded AS parent ON parent.oid = f.confrelid
        WHERE f.contype = 'f' AND target.note <> 'reference'
          AND (parent.key_name IS DISTINCT FROM child.key_name
            OR f.confkey[array_position(f.conkey, child.key)] IS DISTINCT FROM parent.key)
        """,
      broken: """
        CREATE TABLE tenure.bad (
          id integer NOT NULL PRIMARY KEY, other text REFERENCES tenure.account);
        COMMENT ON TABLE tenure.bad IS 'Bad. [by id]'
        """),
    Rule(
      says: "a reference or local table points to none in shards",
      query: """
        SELECT f.conname::text FROM pg_constraint AS f
        JOIN noted AS child ON child.oid = f.conrelid AND child.note IN ('reference', 'local')
        JOIN noted AS target ON target.oid = f.confrelid
        WHERE f.contype = 'f'
          AND (target.note LIKE 'by %' OR child.note = 'reference' AND target.note = 'local')
        """,
      broken: """
        CREATE TABLE tenure.bad (id text NOT NULL PRIMARY KEY REFERENCES tenure.account);
        COMMENT ON TABLE tenure.bad IS 'Bad. [local]'
        """),
    Rule(
      says: "no table in shards has a trigger that stays, a rule or a policy",
      query: """
        SELECT tgname::text FROM pg_trigger JOIN sharded ON sharded.oid = tgrelid
        WHERE NOT tgisinternal AND tgname NOT LIKE 'account_change%'
        UNION ALL SELECT rulename::text FROM pg_rewrite JOIN sharded ON sharded.oid = ev_class
        UNION ALL SELECT polname::text FROM pg_policy JOIN sharded ON sharded.oid = polrelid
        """,
      broken: """
        CREATE TABLE tenure.bad (id integer NOT NULL PRIMARY KEY);
        COMMENT ON TABLE tenure.bad IS 'Bad. [by id]';
        CREATE RULE bad AS ON DELETE TO tenure.bad DO INSTEAD NOTHING
        """),
    Rule(
      says: "what a shard numbers is a bigint: each node has its own range of numbers",
      query: """
        SELECT a.attname::text FROM pg_attribute AS a JOIN sharded ON sharded.oid = a.attrelid
        WHERE a.attidentity <> '' AND a.atttypid <> 'bigint'::regtype
        """,
      broken: """
        CREATE TABLE tenure.bad (
          id integer NOT NULL, number integer GENERATED ALWAYS AS IDENTITY,
          PRIMARY KEY (id, number));
        COMMENT ON TABLE tenure.bad IS 'Bad. [by id]'
        """),
    Rule(
      says: "the catalogue knows what each function in SQL reads",
      query: """
        SELECT p.proname::text FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang
        WHERE p.pronamespace = 'tenure'::regnamespace AND l.lanname = 'sql'
          AND p.prosqlbody IS NULL
        """,
      broken: """
        CREATE FUNCTION tenure.bad() RETURNS bigint LANGUAGE sql
        AS $$ SELECT count(*) FROM tenure.account $$
        """),
  ]

  private static func findings(
    of rule: Rule, in database: ConnectionPool
  ) async throws -> [String] {
    try await database.query("\(unescaped: "\(noted) \(rule.query) ORDER BY 1")")
      .decode(String.self)
  }

  @Test(
    "every table and function of the schema",
    .disabled(if: ScratchPlace.environment.isDistributed, "It is distributed already."),
    arguments: rules)
  func keeps(rule: Rule) async throws {
    try await withScratchDatabase { database in
      #expect(try await Self.findings(of: rule, in: database) == [])
      try await database.runScript(rule.broken)
      #expect(try await Self.findings(of: rule, in: database) != [])
    }
  }
}
