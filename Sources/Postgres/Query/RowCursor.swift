package import struct Foundation.UUID

/// Reads one row's columns from left to right, directly from libpq's memory, for results with many
/// rows.
///
/// It has a method for each type, and other modules add their own: the compiler does not specialize
/// another module's generic code unless it is `public`, and resolving a dozen types at run time
/// takes several microseconds per row.
package struct RowCursor {
  package let rows: Rows
  package let row: Int
  package var column: Int

  package init(rows: Rows, row: Int, column: Int = 0) {
    (self.rows, self.row, self.column) = (rows, row, column)
  }

  /// Reads the next column; a ``PostgresError`` names the column.
  package mutating func next<Value: PostgresDecodable>(_: Value.Type) throws -> Value {
    defer { column += 1 }
    do {
      return try read(Value.self) ?? Value.decodeNull()
    } catch {
      throw rows.decodingError(error, column: column, expected: Value.expectedPostgresType)
    }
  }

  /// Reads the next column, with NULL as nil.
  package mutating func next<Value: PostgresDecodable>(_: Value?.Type) throws -> Value? {
    defer { column += 1 }
    do {
      return try read(Value.self)
    } catch {
      throw rows.decodingError(error, column: column, expected: Value.expectedPostgresType)
    }
  }

  /// Reads the next column, or those of a value of several columns.
  mutating func decode<Value: RowDecodable>(_: Value.Type) throws -> Value {
    try Value(from: &self)
  }

  private func read<Value: PostgresDecodable>(_: Value.Type) throws -> Value? {
    let cell = unsafe rows.result.cell(row: row, column: column)
    // Keeps the result, which owns the cell's bytes, alive until the value is read.
    defer { withExtendedLifetime(rows) {} }
    guard let bytes = unsafe cell.bytes else { return nil }
    if unsafe !Value.canDecode(cell.type) { try rows.check(column, Value.self) }
    return try unsafe Value(postgresBytes: RawSpan(_unsafeBytes: bytes), type: cell.type)
  }

  package mutating func next(_: String.Type) throws -> String { try value() }
  package mutating func next(_: String?.Type) throws -> String? { try optional() }
  package mutating func next(_: Bool.Type) throws -> Bool { try value() }
  package mutating func next(_: Bool?.Type) throws -> Bool? { try optional() }
  package mutating func next(_: Int.Type) throws -> Int { try value() }
  package mutating func next(_: Int?.Type) throws -> Int? { try optional() }
  package mutating func next(_: Int64?.Type) throws -> Int64? { try optional() }
  package mutating func next(_: UUID.Type) throws -> UUID { try value() }
  package mutating func next(_: UUID?.Type) throws -> UUID? { try optional() }
  package mutating func next(_: PostgresTimestamp.Type) throws -> PostgresTimestamp { try value() }
  package mutating func next(_: PostgresTimestamp?.Type) throws -> PostgresTimestamp? {
    try optional()
  }

  private mutating func value<Value: PostgresDecodable>() throws -> Value { try next(Value.self) }

  private mutating func optional<Value: PostgresDecodable>() throws -> Value? {
    try next(Value?.self)
  }
}

/// The bytes of a value in a result's memory; nil for NULL.
@unsafe
package struct Cell {
  package let bytes: UnsafeRawBufferPointer?
  package let type: PostgresType
}

extension Rows {
  /// Checks the number of columns and that each has a decodable type.
  package func check<each Column: RowDecodable>(_ columns: repeat (each Column).Type) throws {
    var checked = 0
    for column in repeat each columns { try column.check(self, &checked) }
    guard checked == result.columnCount else {
      throw PostgresError(
        .decoding, "expected \(checked) columns, found \(result.columnCount)", statement: statement)
    }
  }

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

  /// An error for an undecodable value; names the column and the types, never the value.
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
