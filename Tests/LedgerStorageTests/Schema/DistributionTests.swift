import Logging
import Postgres
import Reports
import ScratchDatabases
import Testing

@testable import LedgerStorage

/// Distributing the schema, on a Citus: see `TENURE_TEST_CITUS_URL`.
@Suite("Distributing the schema")
struct DistributionTests {
  private let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })

  private func distributor(_ database: ConnectionPool) -> SchemaDistributor {
    SchemaDistributor(database: database, logger: quiet)
  }

  private func withSchema(
    _ test: @Sendable (ConnectionPool) async throws -> Void
  ) async throws {
    try await withEmptyCitus { database in
      _ = try await SchemaMigrator(
        database: database, reports: ReportSQL(Report.sql), logger: quiet
      ).migrate()
      try await test(database)
    }
  }

  // swift-format-ignore
  @Test("a table's comment says where its rows are", arguments: [
    // comment                         distribution
    ("What is to be done. [local]",    .local),
    ("The catalogue. [reference]",     .reference),
    ("Holdings. [by account_id]",      .by(column: "account_id")),
    ("Holdings [of all]. [by x]",      .by(column: "x")),
    ("[by x] Holdings.",               nil),
    ("Holdings. [by x, y]",            nil),
    ("Holdings. [by ]",                nil),
    ("Holdings. [Reference]",          nil),
    ("Holdings.",                      nil),
    ("",                               nil),
  ] as [(String, TableDistribution?)])
  func notes(comment: String, distribution: TableDistribution?) {
    #expect(TableDistribution(note: comment) == distribution)
  }

  @Test("what is referenced is placed first, and of each kind all before the next")
  func order() {
    let tables = [
      Self.table("d", .local, ["c"]), Self.table("a", .by(column: "k"), ["b", "z"]),
      Self.table("b", .by(column: "k"), ["b"]), Self.table("c", .local),
      Self.table("z", .reference), Self.table("y", .reference, ["z"]),
    ]
    #expect(CatalogueTable.inOrder(tables).map(\.name) == ["z", "y", "b", "a", "c", "d"])
    let circle = [Self.table("a", .local, ["b"]), Self.table("b", .local, ["a"])]
    #expect(CatalogueTable.inOrder(circle).map(\.name) == ["a", "b"])
  }

  private static func table(
    _ name: String, _ wanted: TableDistribution, _ parents: Set<String> = []
  ) -> CatalogueTable {
    CatalogueTable(name: name, wanted: wanted, placed: nil, parents: parents)
  }

  /// The properties of the schema that Citus must preserve, as text.
  private static func catalogue(_ database: ConnectionPool) async throws -> [String] {
    try await database.query(
      """
      SELECT concat_ws(' ', c.relkind, c.relname, obj_description(c.oid, 'pg_class'), (
        SELECT string_agg(concat_ws(' ', pg_get_userbyid(a.grantee), a.privilege_type), ', '
          ORDER BY a.grantee, a.privilege_type)
        FROM aclexplode(c.relacl) AS a))
      FROM pg_class AS c
      WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind IN ('r', 'v', 'S')
        AND c.relname !~ '_[0-9]{6,}(_|$)'
      ORDER BY c.relkind, c.relname
      """
    ).decode(String.self)
  }

  @Test(
    "every table is placed where its comment says, and keeps its comment and privileges",
    .enabled(if: ScratchPlace.environment.isDistributed))
  func places() async throws {
    try await withSchema { database in
      let distributor = distributor(database)
      #expect(try await distributor.check() == 0)
      let before = try await Self.catalogue(database)
      let outcome = try await distributor.distribute()
      #expect(outcome.unanswerable == [:])
      // The functions that store, erase and seal have the program's rights.
      #expect(
        try await Set(Self.catalogue(database)).subtracting(before)
          .compactMap { $0.split(separator: " ").dropFirst().first }.sorted() == [
            "account_chain", "account_entry", "administrator_action", "body", "certificate_chain",
            "submission", "submission_exchange",
          ])
      #expect(try await distributor.check() == outcome.tables.count)
      let groups = try await database.query(
        """
        SELECT count(DISTINCT colocationid), count(DISTINCT
          column_to_column_name(logicalrelid, partkey))
        FROM pg_dist_partition WHERE partmethod = 'h'
        """
      ).decodeOnly(Int.self, Int.self)
      #expect(groups.0 == groups.1)
      for table in ["ledger_entry", "ledger_checkpoint", "administrator_action", "movement"] {
        await #expect(throws: PostgresError.self, "the owner can change \(table)") {
          _ = try await database.execute("\(unescaped: "DELETE FROM tenure.\(table)")")
        }
      }
      #expect(try await distributor.distribute() == SchemaDistributor.Outcome())
    }
  }

  @Test(
    "an interrupted run is continued, and tables of a later version follow",
    .enabled(if: ScratchPlace.environment.isDistributed))
  func goesOn() async throws {
    try await withSchema { database in
      let distributor = distributor(database)
      _ = try await distributor.rewriteFunctions()
      try await distributor.dropTriggers()
      // As if the run had ended in the middle: a reference table and the first of a group.
      try await database.runScript(
        """
        SET citus.enable_local_reference_table_foreign_keys = off;
        SELECT create_reference_table('tenure.product');
        SELECT create_distributed_table('tenure.account', 'account_id', colocate_with => 'none');
        """)
      await #expect(throws: DistributionError.self) { try await distributor.check() }
      #expect(try await distributor.isBegun())
      let first = try await distributor.distribute().tables
      #expect(!first.contains("product") && !first.contains("account"))

      try await database.runScript(
        """
        CREATE TABLE tenure.later (
          account_id text NOT NULL, number integer NOT NULL, PRIMARY KEY (account_id, number));
        COMMENT ON TABLE tenure.later IS 'Of a later version. [by account_id]';
        """)
      await #expect(throws: DistributionError.incomplete(tables: ["later"])) {
        try await distributor.check()
      }
      #expect(try await distributor.distribute().tables == ["later"])
      let groups = try await database.query(
        """
        SELECT count(DISTINCT colocationid) FROM pg_dist_partition
        WHERE logicalrelid IN ('tenure.account'::regclass, 'tenure.holding'::regclass,
          'tenure.later'::regclass)
        """
      ).decodeOnly(Int.self)
      #expect(groups == 1)
    }
  }

  @Test("a server without Citus is refused", .disabled(if: ScratchPlace.environment.isDistributed))
  func refusesPlainServer() async throws {
    try await withScratchDatabase { database in
      await #expect(throws: DistributionError.notInstalled) {
        try await distributor(database).distribute()
      }
      let distributed = try await distributor(database).check()
      #expect(distributed == 0)
    }
  }

  @Test(
    "a schema that can't be distributed is refused in words",
    .enabled(if: ScratchPlace.environment.isDistributed))
  func refuses() async throws {
    try await withSchema { database in
      let comment = "COMMENT ON TABLE tenure.job IS"
      try await database.runScript("\(comment) 'What is to be done.'")
      await #expect(throws: DistributionError.unsaid(table: "job")) {
        try await distributor(database).distribute()
      }
      try await database.runScript(
        """
        \(comment) 'What is to be done. [local]';
        SET citus.enable_local_reference_table_foreign_keys = off;
        SELECT create_reference_table('tenure.rate_budget')
        """)
      await #expect(
        throws: DistributionError.otherwise(
          table: "rate_budget", placed: .reference, wanted: .local)
      ) {
        try await distributor(database).distribute()
      }
    }
  }

  @Test(
    "no SQL function reads a table any more, and the nodes have those that read none",
    .enabled(if: ScratchPlace.environment.isDistributed))
  func functions() async throws {
    try await withScratchDatabase { database in
      let reading = try await database.query(
        """
        SELECT p.proname::text FROM pg_proc AS p
        JOIN pg_language AS l ON l.oid = p.prolang AND l.lanname = 'sql'
        JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
          AND d.refclassid = 'pg_class'::regclass
        WHERE p.pronamespace = 'tenure'::regnamespace
        """
      ).decode(String.self)
      #expect(reading.isEmpty)
      let nodes = try await database.query(
        """
        SELECT objid::regproc::text FROM pg_dist_object
        WHERE classid = 'pg_proc'::regclass
          AND objid::regproc::text ~ 'movement_basis$' ORDER BY 1
        """
      ).decode(String.self)
      #expect(nodes.map { $0.split(separator: ".").last } == ["movement_basis"])
      let marks = try await database.query(
        """
        SELECT proparallel::text, prosecdef FROM pg_proc
        WHERE oid = 'tenure.movement_item'::regproc
        """
      ).decodeOnly(String.self, Bool.self)
      #expect(marks == ("u", false))
    }
  }

  @Test(
    "what can't be asked on a Citus is named, with what the server says",
    .enabled(if: ScratchPlace.environment.isDistributed))
  func unanswerable() async throws {
    try await withScratchDatabase { database in
      try await database.runScript(
        "CREATE VIEW tenure.broken AS SELECT current_setting('tenure.none') AS setting")
      let message = #"unrecognized configuration parameter "tenure.none""#
      #expect(try await distributor(database).tryReports() == ["broken": message])
    }
  }
}
