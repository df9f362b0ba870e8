/// Rows in the binary format of COPY.
///
/// https://www.postgresql.org/docs/current/sql-copy.html: a signature, flags and the length of an
/// extension; then per row the number of columns and each value behind its length; -1 at the end.
package struct CopyEncoder: Sendable {
  private static let header: [UInt8] =
    [
      0x50, 0x47, 0x43, 0x4F, 0x50, 0x59, 0x0A, 0xFF, 0x0D, 0x0A, 0x00,  // "PGCOPY\n\377\r\n\0"
    ] + [UInt8](repeating: 0, count: 8)

  private var buffer = PostgresBuffer()

  init() {
    buffer.append(Self.header)
  }

  /// The number of bytes not yet taken.
  var count: Int { buffer.count }

  /// Appends a row.
  ///
  /// Each value must be of its column's exact type, for COPY converts nothing.
  package mutating func append<each Value: PostgresEncodable>(_ values: repeat each Value) {
    var columns: Int16 = 0
    for _ in repeat each values { columns += 1 }
    buffer.append(columns)
    repeat buffer.appendWithLength(each values)
  }

  mutating func end() {
    buffer.append(Int16(-1))
  }

  /// Takes what has gathered, to send it.
  mutating func take() -> [UInt8] {
    defer { buffer.removeAll() }
    return buffer.bytes
  }
}
