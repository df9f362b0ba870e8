package import struct Foundation.UUID

/// Reads one row's columns from left to right, out of the memory where libpq left them.
///
/// `Rows.decode` is shorter to write. This is for what is read by the thousand: the compiler does
/// not specialize generic code of another module unless it is `public`, and finding a dozen types
/// out at run time takes several microseconds a row. Hence the methods of ``RowCursor`` for one
/// type each; other modules add their own types' on top of them.
package struct RowCursor {
  package let rows: Rows
  package let row: Int
  package var column: Int

  package init(rows: Rows, row: Int, column: Int = 0) {
    self.rows = rows
    self.row = row
    self.column = column
  }

  /// Reads the next column.
  ///
  /// - Throws: ``PostgresError`` naming the column, or the error that the type's own conformance
  ///   threw.
  package mutating func next<Value: PostgresDecodable>(_: Value.Type) throws -> Value {
    defer { column += 1 }
    do {
      return try read(Value.self) ?? Value.decodeNull()
    } catch {
      throw rows.decodingError(error, column: column, expected: Value.expectedPostgresType)
    }
  }

  /// Reads the next column, in which NULL is nil.
  ///
  /// - Throws: As the other.
  package mutating func next<Value: PostgresDecodable>(_: Value?.Type) throws -> Value? {
    defer { column += 1 }
    do {
      return try read(Value.self)
    } catch {
      throw rows.decodingError(error, column: column, expected: Value.expectedPostgresType)
    }
  }

  /// The value of the current column; nil for NULL.
  private func read<Value: PostgresDecodable>(_: Value.Type) throws -> Value? {
    let cell = unsafe rows.result.cell(row: row, column: column)
    // The result, and with it the cell's bytes, lives at least until the value has been read.
    defer { withExtendedLifetime(rows) {} }
    guard let bytes = unsafe cell.bytes else { return nil }
    return try unsafe Value(postgresBytes: RawSpan(_unsafeBytes: bytes), type: cell.type)
  }
}

extension RowCursor {
  /// Reads the next column.
  package mutating func next(_: String.Type) throws -> String { try value() }
  /// Reads the next column.
  package mutating func next(_: String?.Type) throws -> String? { try optional() }
  /// Reads the next column.
  package mutating func next(_: Bool.Type) throws -> Bool { try value() }
  /// Reads the next column.
  package mutating func next(_: Bool?.Type) throws -> Bool? { try optional() }
  /// Reads the next column.
  package mutating func next(_: Int.Type) throws -> Int { try value() }
  /// Reads the next column.
  package mutating func next(_: Int?.Type) throws -> Int? { try optional() }
  /// Reads the next column.
  package mutating func next(_: Int64?.Type) throws -> Int64? { try optional() }
  /// Reads the next column.
  package mutating func next(_: UUID.Type) throws -> UUID { try value() }
  /// Reads the next column.
  package mutating func next(_: UUID?.Type) throws -> UUID? { try optional() }
  /// Reads the next column.
  package mutating func next(_: PostgresTimestamp.Type) throws -> PostgresTimestamp {
    try value()
  }
  /// Reads the next column.
  package mutating func next(_: PostgresTimestamp?.Type) throws -> PostgresTimestamp? {
    try optional()
  }

  private mutating func value<Value: PostgresDecodable>() throws -> Value {
    try next(Value.self)
  }

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
