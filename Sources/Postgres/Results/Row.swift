/// One row of a result.
package struct Row: Sendable {
  package let rows: Rows
  package let number: Int

  /// Decodes the row's columns, in order.
  ///
  /// - Throws: ``PostgresError`` naming the column, when the columns are not as many or not of
  ///   these types.
  package func decode<each Column: PostgresDecodable>(
    _ columns: repeat (each Column).Type
  ) throws -> (repeat each Column) {
    try rows.check(repeat each columns)
    var cursor = RowCursor(rows: rows, row: number)
    return (repeat try cursor.next((each Column).self))
  }

  /// Decodes one column by its name.
  ///
  /// - Throws: ``PostgresError`` when there is no such column or it is not of this type.
  package func decode<Column: PostgresDecodable>(
    _: Column.Type = Column.self, column name: String
  ) throws -> Column {
    guard let index = rows.columnNames.firstIndex(of: name) else {
      throw PostgresError(.decoding, "there is no column \(name)", statement: rows.statement)
    }
    try rows.check(index, Column.self)
    var cursor = RowCursor(rows: rows, row: number, column: index)
    return try cursor.next(Column.self)
  }
}
