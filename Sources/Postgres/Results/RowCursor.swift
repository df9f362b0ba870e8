/// Reads one row's columns from left to right, out of the memory where libpq left them.
///
/// Inlinable, with what it needs, so that `decode` is compiled for its caller's column types:
/// decoding generically at run time would cost more than the query's way through this module.
package struct RowCursor {
  package let rows: Rows
  package let row: Int
  package var column: Int

  @inlinable
  package init(rows: Rows, row: Int, column: Int = 0) {
    self.rows = rows
    self.row = row
    self.column = column
  }

  /// Reads the next column.
  ///
  /// - Throws: ``PostgresError`` naming the column, or the error that the type's own conformance
  ///   threw.
  @inlinable
  package mutating func next<Value: PostgresDecodable>(_: Value.Type) throws -> Value {
    defer { column += 1 }
    do {
      let cell = unsafe rows.result.cell(row: row, column: column)
      // The result, and with it the cell's bytes, lives at least until the value has been read.
      defer { withExtendedLifetime(rows) {} }
      guard let bytes = unsafe cell.bytes else { return try Value.decodeNull() }
      return try unsafe Value(postgresBytes: RawSpan(_unsafeBytes: bytes), type: cell.type)
    } catch {
      throw rows.decodingError(error, column: column, expected: Value.expectedPostgresType)
    }
  }
}

/// The bytes of a value in a result's memory; nil for NULL.
@unsafe
package struct Cell {
  package let bytes: UnsafeRawBufferPointer?
  package let type: PostgresType
}

extension Rows {
  /// Checks that the columns are as many as asked for, and each of a type that can be read so.
  ///
  /// - Throws: ``PostgresError`` naming the column.
  package func check<each Column: PostgresDecodable>(_ columns: repeat (each Column).Type) throws {
    var checked = 0
    for column in repeat each columns {
      if checked < result.columnCount { try check(checked, column) }
      checked += 1
    }
    guard checked == result.columnCount else {
      throw PostgresError(
        .decoding, "expected \(checked) columns, found \(result.columnCount)", statement: statement)
    }
  }

  /// Checks that one column is of a type that can be read so.
  func check<Column: PostgresDecodable>(_ column: Int, _: Column.Type) throws {
    let type = result.columnType(column)
    guard Column.canDecode(type) else {
      throw PostgresError(
        .decoding,
        """
        column \(result.columnName(column)) is of type \(type), \
        expected \(Column.expectedPostgresType) for \(Column.self)
        """, statement: statement)
    }
  }

  /// The error for a value that could not be read: the column, the types, the fault, and never the
  /// value.
  package func decodingError(_ error: any Error, column: Int, expected: String) -> any Error {
    guard let fault = error as? DecodingFault else { return error }
    return PostgresError(
      .decoding,
      """
      column \(result.columnName(column)) of type \(result.columnType(column)) \
      cannot be read as \(expected): \(fault)
      """, statement: statement)
  }
}
