import Foundation
import LedgerStorage
import Logging
import Postgres

/// Recorded histories, multiplied to the size of a large ledger: with other numbers, and each copy
/// shifted in time.
///
/// Each table is written with one statement, in the order in which its rows would have been written
/// over the years, and its indexes and constraints are rebuilt afterwards. Tables and columns with
/// customer numbers are found from the database.
struct CopiedCustomers: Sendable {
  /// Tables that neither reports nor pages read.
  ///
  /// Tables without customer numbers are left out as well.
  private static let leftOut: Set<String> = [
    "body", "published_entitlement", "history_revision", "account_chain", "account_entry",
  ]
  /// The suffix of tables with changes to roll up; everything is rolled up at the end instead.
  private static let changes = "_change"
  /// Large tables that only pages about one customer read: every tenth customer has rows in them.
  private static let sampled: Set<String> = ["ledger_entry", "notification", "event"]
  static let sampling = 10
  /// Columns of compressed texts, which the histories have as texts.
  private static let compressed = ["ledger_entry": "body", "event": "data"]
  private static let eventDays = 30
  /// The schema of the recorded histories.
  private static let schema = "bench"
  private static let deadline: Duration = .seconds(7200)
  /// A table's rows are ordered by the first of these columns that it has.
  private static let dates = [
    "known_from", "recorded_at", "received_at", "decided_at", "bound_at", "starts_at", "as_of",
    "created_at", "occurred_at", "acted_at", "asked_at", "head_recorded_at",
  ]
  /// Timestamps that are not shifted.
  private static let fixedDates = ["run_at", "stored_at", "locked_until"]

  /// The histories of the first customers, in order.
  let lives: [SampleLife]
  /// The number of customers after copying.
  let subscriptions: Int
  let database: ConnectionPool
  let logger: Logger

  private struct Part {
    var table: CopiedRows.Table
    /// The columns that contain a customer's number.
    var numbered: Set<String>
    var name: String { table.name }
  }

  /// Writes the copies; needs exclusive use of the database.
  func write() async throws {
    try await rememberLives()
    var parts: [Part] = []
    let tables = try await CopiedRows.tables(of: database)
    let changes = tables.map(\.name).filter { $0.hasSuffix(Self.changes) }
    for table in tables where !Self.leftOut.union(changes).contains(table.name) {
      if let part = try await remember(table) { parts.append(part) }
    }
    try await adjust()
    let references = try await references(to: parts.map(\.name))
    for reference in references { try await run(reference.drop) }
    for part in parts {
      let start = ContinuousClock.now
      try await write(part)
      logger.notice(
        "Filled a table",
        metadata: ["table": "\(part.name)", "seconds": "\(Self.seconds(since: start))"])
    }
    for reference in references { try await run(reference.create) }
    try await run(
      """
      TRUNCATE \(changes.map { "tenure.\($0)" }.joined(separator: ", "));
      """)
  }

  private func run(_ script: String) async throws {
    try await database.runScript(script, deadline: Self.deadline)
  }

  private static func seconds(since start: ContinuousClock.Instant) -> Int {
    Int((ContinuousClock.now - start) / .seconds(1))
  }

  // MARK: Recorded histories

  private func rememberLives() async throws {
    try await run(
      """
      DROP SCHEMA IF EXISTS \(Self.schema) CASCADE;
      CREATE SCHEMA \(Self.schema);
      CREATE SEQUENCE \(Self.schema).place;
      CREATE TABLE \(Self.schema).life (number text PRIMARY KEY, place bigint,
        earliest double precision, latest double precision);
      CREATE TABLE \(Self.schema).name (made uuid PRIMARY KEY, marked uuid);
      """)
    let names = lives.flatMap(\.names)
    try await database.batch([
      """
      INSERT INTO bench.life (number, place, earliest, latest)
      SELECT * FROM unnest(\(lives.map { String($0.customer.number) }),
        \(Array(0..<lives.count)), \(lives.map { Int($0.leeway.earliest / .seconds(1)) }),
        \(lives.map { Int($0.leeway.latest / .seconds(1)) }))
      """,
      """
      INSERT INTO bench.name (made, marked)
      SELECT * FROM unnest(\(names.map(\.made)), \(names.map(\.marked)))
      """,
    ])
  }

  /// Copies a table's customer rows to the schema of the histories; returns nil if there are none.
  private func remember(_ table: CopiedRows.Table) async throws -> Part? {
    let compressed = Self.compressed[table.name]
    var texts = table.columns.filter { $0.type == "text" || $0.type == "uuid" }.map(\.name)
    let suffixes = ["_id", "_key", "_token"]
    let names = texts.filter { name in
      name == "subject" || suffixes.contains(where: name.hasSuffix)
    }
    guard !names.isEmpty else { return nil }
    let columns = table.columns.map { "t.\($0.name)" }.joined(separator: ", ")
    let ids = names.map { "t.\($0)" }.joined(separator: ", ")
    let order = Self.dates.first { date in table.columns.contains { $0.name == date } }
    let name = "\(Self.schema).\(table.name)"
    var script = """
      CREATE TABLE \(name) AS
      SELECT \(columns), l.number AS bench_number, l.place AS bench_place,
        l.earliest AS bench_earliest, l.latest AS bench_latest
      FROM tenure.\(table.name) AS t
      JOIN \(Self.schema).life AS l
        ON l.number = substring(concat_ws(' ', \(ids)) FROM '60000[0-9]{5}')
      ORDER BY \(order.map { "t.\($0), " } ?? "")l.place;

      """
    // Generated UUIDs are replaced by ones with the customer's number.
    for column in texts where column.hasSuffix("_id") || column == "subject" {
      script += """
        UPDATE \(name) AS t SET \(column) = n.marked::text::\(Self.type(of: column, in: table))
        FROM \(Self.schema).name AS n WHERE t.\(column)::text = n.made::text;

        """
    }
    try await run(script)
    if let compressed {
      try await decompress(compressed, of: name)
      texts.append(compressed)
    }
    let found = texts.map { "bool_or(position(bench_number IN \($0)::text) > 0)" }
    let numbered = try await database.query(
      """
      SELECT name FROM (
        SELECT unnest(\(texts)) AS name,
          unnest(ARRAY[\(unescaped: found.joined(separator: ", "))]) AS is_numbered
        FROM \(unescaped: name)) AS found
      WHERE is_numbered
      """
    ).decode(String.self)
    guard !numbered.isEmpty else { return nil }
    return Part(table: table, numbered: Set(numbered))
  }

  private func decompress(_ column: String, of table: String) async throws {
    let rows = try await database.query(
      "SELECT ctid::text, \(unescaped: column) FROM \(unescaped: table)"
    ).decode(String.self, CompressedText.self).map { (place: $0, text: $1.text) }
    try await run("ALTER TABLE \(table) ADD COLUMN plain text")
    _ = try await database.query(
      """
      UPDATE \(unescaped: table) AS t SET plain = r.text
      FROM unnest(\(rows.map(\.place)), \(rows.map(\.text))) AS r (place, text)
      WHERE t.ctid = r.place::tid
      """, deadline: Self.deadline)
    try await run(
      "ALTER TABLE \(table) DROP COLUMN \(column); ALTER TABLE \(table) RENAME plain TO \(column)")
  }

  private static func type(of column: String, in table: CopiedRows.Table) -> String {
    table.columns.first { $0.name == column }?.type ?? "text"
  }

  /// Ages the histories: finished jobs and old events are removed, and unpaid orders expire.
  private func adjust() async throws {
    try await run(
      """
      DELETE FROM \(Self.schema).job WHERE kind NOT IN ('poll_status', 'verify_submission');
      UPDATE \(Self.schema).job SET run_at = greatest(run_at, now() + interval '12 hours');
      DELETE FROM \(Self.schema).event
        WHERE occurred_at < now() - interval '\(Self.eventDays) days';
      UPDATE \(Self.schema).event SET stored_at = occurred_at;
      UPDATE \(Self.schema).ledger_entry SET stored_at = recorded_at;
      UPDATE \(Self.schema).movement SET opened_by = NULL, closed_by = NULL;
      UPDATE \(Self.schema).purchase_order SET status = 'expired' WHERE status = 'open';
      """)
  }

  // MARK: Copies

  /// The foreign keys from or to some tables, as statements that drop and create them.
  private func references(to tables: [String]) async throws -> [(drop: String, create: String)] {
    try await database.query(
      """
      SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname),
        format('ALTER TABLE %s ADD CONSTRAINT %I %s', conrelid::regclass, conname,
          pg_get_constraintdef(c.oid))
      FROM pg_constraint AS c
      JOIN pg_class AS t ON t.oid = c.conrelid
      JOIN pg_class AS f ON f.oid = c.confrelid
      WHERE c.contype = 'f' AND c.connamespace = 'tenure'::regnamespace
        AND (t.relname = ANY (\(tables)) OR f.relname = ANY (\(tables)))
      """
    ).decode(String.self, String.self).map { (drop: $0, create: $1) }
  }

  /// A table's indexes and unique constraints, as statements that drop and create them.
  private func indexes(of table: String) async throws -> [(drop: String, create: String)] {
    try await database.query(
      """
      SELECT
        CASE WHEN c.oid IS NULL THEN format('DROP INDEX %s', i.indexrelid::regclass)
          ELSE format('ALTER TABLE %s DROP CONSTRAINT %I', i.indrelid::regclass, c.conname) END,
        CASE WHEN c.oid IS NULL THEN pg_get_indexdef(i.indexrelid)
          ELSE format('ALTER TABLE %s ADD CONSTRAINT %I %s', i.indrelid::regclass, c.conname,
            pg_get_constraintdef(c.oid)) END
      FROM pg_index AS i
      LEFT JOIN pg_constraint AS c ON c.conindid = i.indexrelid AND c.contype IN ('p', 'u')
      WHERE i.indrelid = ('tenure.' || \(table))::regclass
      ORDER BY i.indisprimary DESC, i.indexrelid
      """
    ).decode(String.self, String.self).map { (drop: $0, create: $1) }
  }

  /// Writes a table, bypassing the log because the same transaction truncates it.
  private func write(_ part: Part) async throws {
    let indexes = try await indexes(of: part.name)
    let columns = part.table.columns.map(\.name).joined(separator: ", ")
    let values = part.table.columns.map { value(of: $0, in: part) }.joined(separator: ", ")
    let step = Self.sampled.contains(part.name) ? Self.sampling : 1
    try await run(
      (indexes.map(\.drop) + ["TRUNCATE tenure.\(part.name)"]
        + [
          """
          INSERT INTO tenure.\(part.name) (\(columns))
          SELECT \(values)
          FROM \(Self.schema).\(part.name) AS t
          CROSS JOIN LATERAL (
            SELECT
              (\(SampleCustomer(0).number) + t.bench_place + k * \(lives.count))::text AS number,
              make_interval(secs => round(
                (t.bench_earliest + (t.bench_latest - t.bench_earliest)
                  * (k * 0.618033988749895::float8 - floor(k * 0.618033988749895::float8)))
                * least(k, 1))) AS shift
            FROM generate_series(
              0::bigint, (\(subscriptions - 1) - t.bench_place) / \(lives.count), \(step)) AS k
            OFFSET 0
          ) AS c
          """
        ] + indexes.map(\.create)).joined(separator: ";\n"))
  }

  private func value(of column: (name: String, type: String), in part: Part) -> String {
    let own = "t.\(column.name)"
    if (part.name, column.name) == ("event", "position") {
      return "nextval('\(Self.schema).place')"
    }
    if part.numbered.contains(column.name) {
      let text = column.type == "text" ? own : "\(own)::text"
      let replaced = "replace(\(text), t.bench_number, c.number)"
      switch column.type {
      case "text": return replaced
      case "bytea": return "convert_to(\(replaced), 'UTF8')"
      default: return "\(replaced)::\(column.type)"
      }
    }
    if column.type == "timestamp with time zone", !Self.fixedDates.contains(column.name) {
      return "\(own) + c.shift"
    }
    return own
  }
}

/// Rows written by the product, as templates for other customers, whose numbers replace the
/// sample's number.
///
/// Benchmarks fill databases with them, and replay the bare writes of a piece of work.
struct CopiedRows: Sendable {
  /// A text in the rows that is replaced by a number.
  struct Mark: Sendable {
    var text: String
    /// Inserted in front of the number.
    var prefix = ""
  }

  /// The moment from which rows are copied.
  struct Moment: Sendable {
    fileprivate let transaction: Int64

    static func now(in database: ConnectionPool) async throws -> Moment {
      Moment(
        transaction: try await database.query("SELECT pg_current_xact_id()::text::bigint")
          .decodeOnly(Int64.self))
    }
  }

  struct Table: Sendable {
    var name: String
    /// Columns with their types, without generated ones.
    var columns: [(name: String, type: String)]
    /// The columns of the first unique key.
    var key: [String]
  }

  private struct Row: Sendable {
    var table: Table
    /// Values as text by column; missing ones are null.
    var values: [String: String]
  }

  private let rows: [Row]
  private let marks: [Mark]

  /// Reads the rows inserted or updated since a moment; needs exclusive use of the database.
  ///
  /// Of two marks that begin at the same place the first one applies.
  init(
    since moment: Moment, marks: [Mark], without tables: Set<String> = [],
    in database: ConnectionPool
  ) async throws {
    self.marks = marks
    var rows: [Row] = []
    for table in try await Self.tables(of: database) where !tables.contains(table.name) {
      let names = table.columns.map(\.name)
      let texts = names.map { "t.\($0)::text" }.joined(separator: ", ")
      let fields = try await database.query(
        """
        SELECT number, field.key, field.value
        FROM (
          SELECT row_number() OVER () AS number,
            jsonb_object(\(names), ARRAY[\(unescaped: texts)]) AS fields
          FROM tenure.\(unescaped: table.name) AS t
          WHERE xmin::text::bigint >= \(moment.transaction)
        ) AS written
        CROSS JOIN LATERAL jsonb_each_text(fields) AS field
        ORDER BY number
        """
      ).decode(Int64.self, String.self, String?.self)
      for (_, fields) in Dictionary(grouping: fields, by: \.0).sorted(by: { $0.key < $1.key }) {
        let values = fields.compactMap { field in field.2.map { (field.1, $0) } }
        rows.append(
          Row(table: table, values: Dictionary(values, uniquingKeysWith: { first, _ in first })))
      }
    }
    self.rows = rows
  }

  func count(in table: String) -> Int { rows.count(where: { $0.table.name == table }) }

  /// The schema's tables; those with foreign keys come last.
  static func tables(of database: ConnectionPool) async throws -> [Table] {
    let columns = try await database.query(
      """
      SELECT t.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod),
        a.attnum = ANY (coalesce((
          SELECT i.indkey::int2[] FROM pg_index AS i
          WHERE i.indrelid = t.oid AND i.indisunique AND i.indpred IS NULL
            AND NOT EXISTS (
              SELECT FROM pg_attribute AS k
              WHERE k.attrelid = t.oid AND k.attnum = ANY (i.indkey::int2[])
                AND k.attidentity <> '')
          ORDER BY i.indisprimary DESC, i.indexrelid LIMIT 1), '{}'))
      FROM pg_class AS t JOIN pg_attribute AS a ON a.attrelid = t.oid
      WHERE t.relnamespace = 'tenure'::regnamespace AND t.relkind = 'r' AND a.attnum > 0
        -- Triggers write the others.
        AND t.relpersistence = 'p' AND NOT a.attisdropped AND a.attidentity = '' AND a.attgenerated = ''
      ORDER BY EXISTS (SELECT FROM pg_constraint WHERE conrelid = t.oid AND contype = 'f'),
        t.relname, a.attnum
      """
    ).decode(String.self, String.self, String.self, Bool.self)
    var tables: [Table] = []
    for (name, column, type, isKey) in columns {
      if tables.last?.name != name { tables.append(Table(name: name, columns: [], key: [])) }
      tables[tables.count - 1].columns.append((column, type))
      if isKey { tables[tables.count - 1].key.append(column) }
    }
    return tables
  }

  // MARK: Writing

  /// Statements that insert the rows for a range of new numbers.
  func insert(_ numbers: ClosedRange<Int>) -> [SQL] {
    rows.map { row in
      """
      \(unescaped: insertion(of: row))
      FROM generate_series(\(numbers.lowerBound), \(numbers.upperBound)) AS sample (number)
      """
    }
  }

  /// Statements that insert or update the rows for a number.
  func upsert(_ number: Int) -> [SQL] {
    rows.map { row in
      """
      \(unescaped: insertion(of: row)) FROM (SELECT \(number)) AS sample (number)
      \(unescaped: replacement(in: row.table))
      """
    }
  }

  private func insertion(of row: Row) -> String {
    let values = row.table.columns.map { column in
      row.values[column.name].map { "CAST(\(expression($0)) AS \(column.type))" } ?? "NULL"
    }
    let names = row.table.columns.map(\.name)
    return """
      INSERT INTO tenure.\(row.table.name) (\(names.joined(separator: ", ")))
      SELECT \(values.joined(separator: ", "))
      """
  }

  private func replacement(in table: Table) -> String {
    guard !table.key.isEmpty else { return "" }
    let others = table.columns.map(\.name).filter { !table.key.contains($0) }
    let key = table.key.joined(separator: ", ")
    guard !others.isEmpty else { return "ON CONFLICT (\(key)) DO NOTHING" }
    let changes = others.map { "\($0) = excluded.\($0)" }
    return "ON CONFLICT (\(key)) DO UPDATE SET \(changes.joined(separator: ", "))"
  }

  /// A value as an SQL expression with its marks replaced by the number.
  private func expression(_ value: String) -> String {
    var parts: [String] = []
    var rest = Substring(value)
    while true {
      let found = marks.compactMap { mark in rest.firstRange(of: mark.text).map { (mark, $0) } }
        .min { $0.1.lowerBound < $1.1.lowerBound }
      guard let (mark, range) = found else { break }
      parts.append(Self.quoted(rest[..<range.lowerBound] + mark.prefix))
      parts.append("sample.number")
      rest = rest[range.upperBound...]
    }
    if parts.isEmpty || !rest.isEmpty { parts.append(Self.quoted(rest)) }
    return parts.joined(separator: " || ")
  }

  private static func quoted(_ text: Substring) -> String {
    "'" + text.replacing("'", with: "''") + "'"
  }
}
