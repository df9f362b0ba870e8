import Postgres

/// Rows that the programs have written, to write more of their kind for other customers, whose
/// numbers stand wherever the sample's number stood.
///
/// So a benchmark fills a database with what the programs would have written, and knows the bare
/// writes of a piece of work, whichever tables it writes to.
struct CopiedRows: Sendable {
  /// A text in the rows, in whose place a number stands.
  struct Mark: Sendable {
    /// What the sample has.
    var text: String
    /// What stands in front of the number in others.
    var prefix = ""
  }

  /// The moment from which on rows are copied.
  struct Moment: Sendable {
    fileprivate let transaction: Int64

    /// - Throws: `PostgresError`.
    static func now(in database: ConnectionPool) async throws -> Moment {
      Moment(
        transaction: try await database.query("SELECT pg_current_xact_id()::text::bigint")
          .decodeOnly(Int64.self))
    }
  }

  /// A table of the schema.
  struct Table: Sendable {
    var name: String
    /// With their types; those that the database fills in are left out.
    var columns: [(name: String, type: String)]
    /// The columns by which a row that is there already is found.
    var key: [String]
  }

  private struct Row: Sendable {
    var table: Table
    /// As text, by column; what is missing is null.
    var values: [String: String]
  }

  private let rows: [Row]
  private let marks: [Mark]

  /// Reads what was written since a moment, or changed.
  ///
  /// - Parameters:
  ///   - moment: The rows of earlier commits are left out, unless later ones have changed them.
  ///   - marks: Where the numbers stand; of two that begin at one place the first is taken.
  ///   - tables: Which are left out.
  ///   - database: Nobody else writes to it.
  /// - Throws: `PostgresError`.
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

  /// How many rows there are in a table.
  func count(in table: String) -> Int { rows.count(where: { $0.table.name == table }) }

  /// The tables of the schema; those that others refer to come first.
  ///
  /// - Throws: `PostgresError`.
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
        AND NOT a.attisdropped AND a.attidentity = '' AND a.attgenerated = ''
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

  /// The statements that write the rows for a range of numbers, of which none has them yet.
  func insert(_ numbers: ClosedRange<Int>) -> [SQL] {
    rows.map { row in
      """
      \(unescaped: insertion(of: row))
      FROM generate_series(\(numbers.lowerBound), \(numbers.upperBound)) AS sample (number)
      """
    }
  }

  /// The statements that write the rows for one number, or change those that it has.
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

  /// A value with the number in the place of the marks.
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
