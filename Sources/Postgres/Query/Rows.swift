internal import CLibpq

/// The rows of a statement, in order and, until they are decoded, in the server's format.
package struct Rows: Sendable {
  package let result: ResultHandle
  let statement: String

  /// The number of rows affected by INSERT, UPDATE, DELETE, MERGE or SELECT; 0 for others.
  package var affectedRows: Int { result.affectedRows }

  package var columnNames: [String] { (0..<result.columnCount).map(result.columnName) }

  /// Decodes every row, its columns in order.
  ///
  /// ```swift
  /// for (id, name) in try rows.decode(Int64.self, String?.self) { … }
  /// ```
  /// - Throws: ``PostgresError`` naming the column if the number or types of columns differ.
  package func decode<each Column: RowDecodable>(
    _ columns: repeat (each Column).Type
  ) throws -> [(repeat each Column)] {
    try check(repeat each columns)
    let count = count
    var decoded: [(repeat each Column)] = []
    decoded.reserveCapacity(count)
    for row in 0..<count {
      var cursor = RowCursor(rows: self, row: row)
      decoded.append((repeat try cursor.decode((each Column).self)))
    }
    return decoded
  }

  /// Decodes every row with a function of its columns, such as an initializer.
  package func decode<each Column: RowDecodable, Value>(
    into make: (repeat each Column) throws -> Value
  ) throws -> [Value] {
    try check(repeat (each Column).self)
    return try indices.map { row in
      var cursor = RowCursor(rows: self, row: row)
      return try make(repeat try cursor.decode((each Column).self))
    }
  }

  package func decodeFirst<each Column: RowDecodable>(
    _ columns: repeat (each Column).Type
  ) throws -> (repeat each Column)? {
    try check(repeat each columns)
    return try first?.decode(repeat each columns)
  }

  /// Decodes the only row; fails if there is none or more than one.
  package func decodeOnly<each Column: RowDecodable>(
    _ columns: repeat (each Column).Type
  ) throws -> (repeat each Column) {
    try check(repeat each columns)
    guard count == 1 else {
      throw PostgresError(.decoding, "expected one row, found \(count)", statement: statement)
    }
    return try self[0].decode(repeat each columns)
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

package struct Row: Sendable {
  package let rows: Rows
  package let number: Int

  package func decode<each Column: RowDecodable>(
    _ columns: repeat (each Column).Type
  ) throws -> (repeat each Column) {
    try rows.check(repeat each columns)
    var cursor = RowCursor(rows: rows, row: number)
    return (repeat try cursor.decode((each Column).self))
  }

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

/// The owner of one libpq result.
///
/// Safe to share, as nothing here writes: "PGresult objects are normally read-only after creation,
/// and so can be passed around freely between threads" (libpq manual, "Behavior in Threaded
/// Programs").
@safe
package final class ResultHandle: @unchecked Sendable {
  private let pointer: OpaquePointer

  init(adopting pointer: OpaquePointer) { unsafe self.pointer = unsafe pointer }

  deinit { unsafe PQclear(pointer) }

  var status: ExecStatusType { unsafe PQresultStatus(pointer) }
  var rowCount: Int { Int(unsafe PQntuples(pointer)) }
  var columnCount: Int { Int(unsafe PQnfields(pointer)) }

  /// The server's command tag, such as `UPDATE 3`.
  var commandTag: String { unsafe String(cString: PQcmdStatus(pointer)) }

  var affectedRows: Int { Int(unsafe String(cString: PQcmdTuples(pointer))) ?? 0 }

  func columnName(_ column: Int) -> String {
    guard let name = unsafe PQfname(pointer, Int32(column)) else { return "\(column + 1)" }
    return unsafe String(cString: name)
  }

  func columnType(_ column: Int) -> PostgresType {
    unsafe PostgresType(rawValue: PQftype(pointer, Int32(column)))
  }

  /// The bytes of a value, valid as long as the result lives.
  package func cell(row: Int, column: Int) -> Cell {
    let (row, column) = (Int32(truncatingIfNeeded: row), Int32(truncatingIfNeeded: column))
    let type = columnType(Int(column))
    guard unsafe PQgetisnull(pointer, row, column) == 0 else {
      return unsafe Cell(bytes: nil, type: type)
    }
    let length = Int(unsafe PQgetlength(pointer, row, column))
    let bytes = unsafe UnsafeRawBufferPointer(
      start: PQgetvalue(pointer, row, column), count: length)
    return unsafe Cell(bytes: bytes, type: type)
  }

  /// A field of the error; libpq's codes are C characters in macros (PG_DIAG in postgres_ext.h).
  func field(_ code: Unicode.Scalar) -> String? {
    guard let text = unsafe PQresultErrorField(pointer, Int32(code.value)) else { return nil }
    return unsafe String(cString: text)
  }

  /// The reported error; nil if it comes from libpq and not from the server.
  var serverError: PostgresError? {
    guard let state = field("C").map(SQLState.init) else { return nil }
    let message = field("M") ?? "no message"
    var error = PostgresError(.server, Self.withoutValues(message, state))
    error.sqlState = state
    error.severity = field("V")
    error.table = field("t")
    error.column = field("c")
    error.constraint = field("n")
    return error
  }

  /// Cuts a message of class 22 before its first quotation, which is a value.
  private static func withoutValues(_ message: String, _ state: SQLState) -> String {
    guard state.errorClass == "22" else { return message }
    let quotes: Set<Character> = ["\"", "'", "«", "»", "“", "„", "‘", "「"]
    guard let quote = message.firstIndex(where: quotes.contains) else { return message }
    return message[..<quote] + "…"
  }
}
