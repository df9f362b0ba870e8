import Postgres

/// A column of a table, with the value that a row has in it.
struct Column<Row>: Sendable {
  let name: String
  fileprivate let bind: @Sendable (Row, inout SQL) -> Void
  fileprivate let bindAll: @Sendable ([Row], inout SQL) -> Void
  /// Whether two rows have the same value.
  let isEqual: @Sendable (Row, Row) -> Bool

  init<Value: PostgresEncodable & Equatable>(
    _ name: String, _ value: @escaping @Sendable (Row) -> Value
  ) {
    self.name = name
    isEqual = { value($0) == value($1) }
    bind = { row, statement in statement.bind(value(row)) }
    bindAll = { rows, statement in statement.bind(rows.map(value)) }
  }

  private init(
    _ name: String, bind: @escaping @Sendable (Row, inout SQL) -> Void,
    bindAll: @escaping @Sendable ([Row], inout SQL) -> Void,
    isEqual: @escaping @Sendable (Row, Row) -> Bool
  ) {
    self.name = name
    self.bind = bind
    self.bindAll = bindAll
    self.isEqual = isEqual
  }

  /// The same column of a row that contains this one.
  func within<Outer>(_ row: @escaping @Sendable (Outer) -> Row) -> Column<Outer> {
    Column<Outer>(
      name, bind: { bind(row($0), &$1) }, bindAll: { bindAll($0.map(row), &$1) },
      isEqual: { isEqual(row($0), row($1)) })
  }

  /// An array of the column's values, for `unnest`.
  func array(of rows: [Row]) -> SQL {
    var array = SQL(unescaped: "")
    bindAll(rows, &array)
    return array
  }
}

extension [String] {
  var selectList: String { joined(separator: ", ") }
}

/// Inserts rows; with a key, updates all columns but the key of those that are there.
struct InsertStatement<Row>: Sendable {
  private let columns: [Column<Row>]
  private let beginning: String
  private let end: SQL

  init(into table: String, key: [Column<Row>] = [], columns: [Column<Row>]) {
    self.columns = key + columns
    beginning = "INSERT INTO tenure.\(table) (\(self.columns.map(\.name).selectList)) VALUES "
    let updates = columns.map { "\($0.name) = excluded.\($0.name)" }.joined(separator: ", ")
    end =
      key.isEmpty
      ? ""
      : SQL(unescaped: " ON CONFLICT (\(key.map(\.name).selectList)) DO UPDATE SET \(updates)")
  }

  func callAsFunction(_ rows: [Row]) -> [SQL] {
    rows.map { row -> SQL in
      var values: SQL = "("
      for (index, column) in columns.enumerated() {
        if index > 0 { values.append(", ") }
        column.bind(row, &values)
      }
      values.append(")")
      return values
    }.rowLists.map { "\(unescaped: beginning)\($0)\(end)" }
  }
}
