import Logging
import Postgres
import ScratchDatabases
import Testing

@testable import LedgerStorage

@Suite(
  "Distributing the schema",
  .disabled(if: ScratchPlace.environment.distribution != .none, "It is distributed already."))
struct DistributionTests {
  private let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })

  private func distributor(_ database: ConnectionPool) -> SchemaDistributor {
    SchemaDistributor(database: database, logger: quiet)
  }

  private func withStandIn(
    _ test: @Sendable (ConnectionPool) async throws -> Void
  ) async throws {
    try await withScratchDatabase { database in
      try await CitusStandIn.install(in: database)
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

  @Test("every table is placed once, where its comment says and in an order that Citus takes")
  func places() async throws {
    try await withStandIn { database in
      let distributor = distributor(database)
      #expect(try await distributor.check() == 0)
      let outcome = try await distributor.distribute()
      #expect(outcome.unanswerable.isEmpty)
      let calls = try await CitusStandIn.calls(in: database)
      #expect(Set(outcome.tables).count == outcome.tables.count)
      let distributed = try await distributor.check()
      #expect(calls.count == distributed)
      let kinds = calls.map { $0.prefix { $0 != " " } }
      #expect(kinds == kinds.sorted { Self.rank($0) < Self.rank($1) })
      for call in [
        "reference product_entitlement", "by account_id account with none",
        "by account_id holding with account", "by submission_id submission_payload with submission",
        "local event", "local webhook_delivery",
      ] {
        #expect(calls.contains(call), "\(call) is not among \(calls)")
      }
      let again = try await distributor.distribute()
      #expect(again == SchemaDistributor.Outcome())
      #expect(try await CitusStandIn.calls(in: database) == calls)
    }
  }

  private static func rank(_ kind: Substring) -> Int {
    ["reference", "by", "local"].firstIndex { $0 == kind } ?? .max
  }

  @Test("what was interrupted goes on, and what a later version adds follows")
  func goesOn() async throws {
    try await withStandIn { database in
      let distributor = distributor(database)
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
      let group = try await database.query(
        """
        SELECT count(DISTINCT colocationid) FROM pg_dist_partition
        WHERE partmethod = 'h' AND partkey = 'account_id'
        """
      ).decodeOnly(Int.self)
      #expect(group == 1)

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
      let calls = try await CitusStandIn.calls(in: database)
      #expect(calls.last?.hasPrefix("by account_id later with ") == true)
      #expect(calls.last != "by account_id later with none")
    }
  }

  @Test("a server, database or schema that can't be distributed is told in words")
  func refuses() async throws {
    try await withScratchDatabase { database in
      await #expect(throws: DistributionError.notInstalled) {
        try await distributor(database).distribute()
      }
      let distributed = try await distributor(database).check()
      #expect(distributed == 0)
    }
    try await refuses(.coordinatorUnknown, after: "UPDATE pg_dist_node SET groupid = 1")
    try await refuses(
      .unsaid(table: "job"), after: "COMMENT ON TABLE tenure.job IS 'What is to be done.'")
    try await refuses(
      .otherwise(table: "account", placed: .reference, wanted: .by(column: "account_id")),
      after: "SELECT create_reference_table('tenure.account')")
    try await refuses(
      .notLoaded("Citus can only be loaded via shared_preload_libraries"),
      after: """
        CREATE OR REPLACE FUNCTION pg_catalog.citus_version() RETURNS text LANGUAGE plpgsql AS $$
        BEGIN
          RAISE EXCEPTION 'Citus can only be loaded via shared_preload_libraries';
        END $$
        """)
  }

  private func refuses(_ error: DistributionError, after script: String) async throws {
    try await withStandIn { database in
      try await database.runScript(
        "SET citus.enable_local_reference_table_foreign_keys = off; \(script)")
      await #expect(throws: error) { try await distributor(database).distribute() }
    }
  }

  @Test("no SQL function reads a table any more, and the nodes have those that read none")
  func functions() async throws {
    try await withStandIn { database in
      _ = try await distributor(database).distribute()
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
        WHERE objid::regproc::text ~ '(movement_basis|charge_basis|movement_stock)$' ORDER BY 1
        """
      ).decode(String.self)
      #expect(nodes.map { $0.split(separator: ".").last } == ["charge_basis", "movement_basis"])
      let marks = try await database.query(
        """
        SELECT proparallel::text, prosecdef FROM pg_proc
        WHERE oid = 'tenure.movement_item'::regproc
        """
      ).decodeOnly(String.self, Bool.self)
      #expect(marks == ("u", false))
    }
  }

  @Test("what can't be asked on a Citus is named, with what the server says")
  func unanswerable() async throws {
    try await withStandIn { database in
      try await database.runScript(
        "CREATE VIEW tenure.broken AS SELECT current_setting('tenure.none') AS setting")
      let outcome = try await distributor(database).distribute()
      let message = #"unrecognized configuration parameter "tenure.none""#
      #expect(outcome.unanswerable == ["broken": message])
    }
  }
}
