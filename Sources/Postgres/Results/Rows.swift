/// The rows that a statement returned, in order; values stay as the server sent them until they are
/// decoded.
package struct Rows: Sendable {
  package let result: ResultHandle
  /// The statement's text, for the errors.
  let statement: String

  /// The number of rows that an INSERT, UPDATE, DELETE, MERGE or SELECT touched; 0 for other
  /// statements.
  package var affectedRows: Int { result.affectedRows }

  /// The columns' names, in order.
  package var columnNames: [String] { (0..<result.columnCount).map(result.columnName) }

  /// Decodes every row, its columns in order.
  ///
  /// ```swift
  /// for (id, name) in try rows.decode(Int64.self, String?.self) { … }
  /// ```
  /// - Throws: ``PostgresError`` naming the column, when the columns are not as many or not of
  ///   these types.
  package func decode<each Column: PostgresDecodable>(
    _ columns: repeat (each Column).Type
  ) throws -> [(repeat each Column)] {
    try check(repeat each columns)
    let count = count
    var decoded: [(repeat each Column)] = []
    decoded.reserveCapacity(count)
    for row in 0..<count {
      var cursor = RowCursor(rows: self, row: row)
      decoded.append((repeat try cursor.next((each Column).self)))
    }
    return decoded
  }

  /// Decodes the first row, if there is one.
  package func decodeFirst<each Column: PostgresDecodable>(
    _ columns: repeat (each Column).Type
  ) throws -> (repeat each Column)? {
    try check(repeat each columns)
    guard !isEmpty else { return nil }
    var cursor = RowCursor(rows: self, row: 0)
    return (repeat try cursor.next((each Column).self))
  }

  /// Decodes the only row.
  ///
  /// - Throws: ``PostgresError`` also when there is no row or more than one.
  package func decodeOnly<each Column: PostgresDecodable>(
    _ columns: repeat (each Column).Type
  ) throws -> (repeat each Column) {
    try check(repeat each columns)
    guard count == 1 else { throw notOneRow }
    var cursor = RowCursor(rows: self, row: 0)
    return (repeat try cursor.next((each Column).self))
  }

  /// The error for a result of another number of rows than one.
  package var notOneRow: any Error {
    PostgresError(.decoding, "expected one row, found \(count)", statement: statement)
  }
}

extension Rows: RandomAccessCollection {
  package var startIndex: Int { 0 }
  package var endIndex: Int { result.rowCount }

  package subscript(position: Int) -> Row {
    precondition(position >= 0 && position < endIndex, "There is no row \(position).")
    return Row(rows: self, number: position)
  }
}
