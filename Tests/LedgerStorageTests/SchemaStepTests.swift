import Foundation
import Logging
import Postgres
import ScratchDatabases
import Testing

@testable import LedgerStorage

@Suite("The steps of the schema")
struct SchemaStepTests {
  private let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })

  /// What a database's own catalogue says of the schema: one sorted line for each thing.
  private static func catalogue(of database: ConnectionPool) async throws -> [String] {
    let queries: [SQL] = [
      // Tables, views, indexes and sequences.
      """
      SELECT format('%s %s: %s, %s', c.relkind, c.relname,
        obj_description(c.oid, 'pg_class'), c.reloptions)
      FROM pg_class AS c WHERE c.relnamespace = 'tenure'::regnamespace
      """,
      """
      SELECT format('column %s.%s: %s, not null %s, default %s, identity %s, comment %s', c.relname,
        a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
        pg_get_expr(d.adbin, d.adrelid), a.attidentity, col_description(c.oid, a.attnum))
      FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
      LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
      WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind IN ('r', 'v')
        AND a.attnum > 0 AND NOT a.attisdropped
      """,
      """
      SELECT format('constraint %s.%s: %s, valid %s', conrelid::regclass, conname,
        pg_get_constraintdef(oid), convalidated)
      FROM pg_constraint WHERE connamespace = 'tenure'::regnamespace
      """,
      """
      SELECT format('index: %s', pg_get_indexdef(indexrelid)) FROM pg_index
      JOIN pg_class AS c ON c.oid = indrelid WHERE c.relnamespace = 'tenure'::regnamespace
      """,
      """
      SELECT format('view %s: %s', relname, pg_get_viewdef(oid)) FROM pg_class
      WHERE relnamespace = 'tenure'::regnamespace AND relkind = 'v'
      """,
      """
      SELECT format('privilege on %s: %s may %s', c.relname, r.grantee::regrole, r.privilege_type)
      FROM pg_class AS c CROSS JOIN aclexplode(coalesce(c.relacl, acldefault(
        CASE c.relkind WHEN 'S' THEN 's'::"char" ELSE 'r'::"char" END, c.relowner))) AS r
      WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind IN ('r', 'v', 'S')
      """,
      """
      SELECT format('privilege on %s.%s: %s may %s', c.relname, a.attname, r.grantee::regrole,
        r.privilege_type)
      FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
      CROSS JOIN aclexplode(a.attacl) AS r WHERE c.relnamespace = 'tenure'::regnamespace
      """,
      """
      SELECT format('function %s: %s, %s', p.oid::regprocedure, pg_get_functiondef(p.oid),
        obj_description(p.oid, 'pg_proc'))
      FROM pg_proc AS p WHERE p.pronamespace = 'tenure'::regnamespace
      """,
      """
      SELECT format('privilege on %s: %s may %s', p.oid::regprocedure, r.grantee::regrole,
        r.privilege_type)
      FROM pg_proc AS p
      CROSS JOIN aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS r
      WHERE p.pronamespace = 'tenure'::regnamespace
      """,
      """
      SELECT format('privilege on the schema: %s may %s', r.grantee::regrole, r.privilege_type)
      FROM pg_namespace AS n CROSS JOIN aclexplode(n.nspacl) AS r WHERE n.nspname = 'tenure'
      """,
    ]
    var lines: [String] = []
    for query in queries { lines += try await database.query(query).decode(String.self) }
    #expect(!lines.isEmpty)
    return lines.sorted()
  }

  /// The schema as a program of an older version made it.
  private static func schema(ofVersion version: Int) throws -> String {
    let file = try #require(
      Bundle.module.url(
        forResource: "version-\(version)", withExtension: "sql", subdirectory: "Schemas"))
    return try String(contentsOf: file, encoding: .utf8)
  }

  /// Makes a scratch database one of an older version.
  private static func returnToVersion(_ version: Int, _ database: ConnectionPool) async throws {
    try await database.runScript("DROP SCHEMA tenure CASCADE")
    try await database.runScript(try schema(ofVersion: version))
  }

  @Test(
    "a database of an older version becomes what a new one is",
    arguments: 1..<SchemaMigrator.currentVersion)
  func sameCatalogue(version: Int) async throws {
    try await withScratchDatabase { database in
      try await database.runScript("DROP SCHEMA tenure CASCADE")
      try await database.runScript(SchemaMigrator.schema)
      let new = try await Self.catalogue(of: database)

      try await Self.returnToVersion(version, database)
      let old = try await Self.catalogue(of: database)
      #expect(old != new)
      let migrator = SchemaMigrator(database: database, logger: quiet)
      #expect(try await migrator.migrate() == version)
      #expect(try await migrator.version() == SchemaMigrator.currentVersion)
      let broughtUp = try await Self.catalogue(of: database)
      for line in Set(broughtUp).symmetricDifference(new).sorted() {
        Issue.record("\(new.contains(line) ? "only new" : "only brought up"): \(line)")
      }
      #expect(broughtUp == new)
    }
  }

  @Test("what version 1 stored stays")
  func keepsRows() async throws {
    try await withScratchDatabase { database in
      try await Self.returnToVersion(1, database)
      try await database.runScript(
        """
        INSERT INTO tenure.notification (notification_id, version, received_at, body, processed_at)
        VALUES ('a', 2, now(), 'b', now()), ('c', 1, now(), 'd', NULL);
        INSERT INTO tenure.job (kind, subject, run_at, created_at)
        VALUES ('verify_submission', 'e', now(), now());
        INSERT INTO tenure.submission (submission_id, account_key, received_at, restore, status)
        VALUES ('\(Self.submission)', gen_random_uuid(), now(), false, 'pending');
        INSERT INTO tenure.submission_payload (submission_id, receipt_data)
        VALUES ('\(Self.submission)', 'f');
        """)
      _ = try await SchemaMigrator(database: database, logger: quiet).migrate()
      let notifications = try await database.query(
        "SELECT notification_id, outcome FROM tenure.notification ORDER BY notification_id"
      ).decode(String.self, String?.self)
      #expect(notifications.map(\.0) == ["a", "c"])
      #expect(notifications.map(\.1) == ["nothing_to_record", nil])
      let jobs = try await database.query("SELECT kind, lane FROM tenure.job ORDER BY kind")
        .decode(String.self, String.self)
      #expect(jobs.map(\.0) == ["survey", "verify_submission"])
      #expect(jobs.map(\.1) == ["upkeep", "submissions"])
      let payload = try await Ledger(database: database).payload(of: Self.submission)
      #expect(payload == .receipt("f"))
    }
  }

  private static let submission = UUID()

  @Test("the steps lead from version 1 to the current one without gaps")
  func noGaps() {
    #expect(SchemaMigrator.steps.map(\.version) == Array(2...SchemaMigrator.currentVersion))
  }
}
