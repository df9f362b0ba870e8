/// Encodes rows in the binary format of COPY.
///
/// https://www.postgresql.org/docs/current/sql-copy.html: a signature, flags and an extension
/// length; for each row the number of columns and each value after its length; -1 at the end.
package struct CopyEncoder: Sendable {
  private static let header: [UInt8] =
    [
      0x50, 0x47, 0x43, 0x4F, 0x50, 0x59, 0x0A, 0xFF, 0x0D, 0x0A, 0x00,  // "PGCOPY\n\377\r\n\0"
    ] + [UInt8](repeating: 0, count: 8)

  fileprivate var buffer = PostgresBuffer()

  fileprivate init() {
    buffer.append(Self.header)
  }

  /// Appends a row; each value must have its column's exact type, because COPY does not convert.
  package mutating func append<each Value: PostgresEncodable>(_ values: repeat each Value) {
    var columns: Int16 = 0
    for _ in repeat each values { columns += 1 }
    buffer.append(columns)
    repeat buffer.appendWithLength(each values)
  }

  fileprivate mutating func end() {
    buffer.append(Int16(-1))
  }

  fileprivate mutating func take() -> [UInt8] {
    defer { buffer.removeAll() }
    return buffer.bytes
  }
}

extension Transaction {
  /// Size in bytes at which buffered rows are sent: large enough that the hand-over to the loop
  /// costs nothing, small enough for many concurrent COPYs.
  private static let pieceBytes = 64 * 1024

  /// Copies rows from a sequence, in binary format.
  ///
  /// ```swift
  /// try await transaction.copyIn("COPY reading (sensor, value) FROM STDIN", rows: readings) {
  ///   $1.append($0.sensor, $0.value)
  /// }
  /// ```
  /// - Parameters:
  ///   - sql: `COPY table (columns) FROM STDIN`, without options and parameters.
  ///   - rows: The elements to copy; nothing is copied if the server rejects one.
  ///   - deadline: How long the server may be silent; the pool's setting if nil.
  ///   - encode: Appends an element's row or rows; nothing is copied if it throws.
  /// - Returns: The number of rows copied.
  @discardableResult
  package func copyIn<Rows: Sequence>(
    _ sql: SQL, rows: Rows, deadline: Duration? = nil,
    encode: (Rows.Element, inout CopyEncoder) throws -> Void
  ) async throws -> Int {
    try await sendPending()
    return try await ExclusiveUse.of(
      session, running: sql.text, timeout: pool.timeout(deadline)
    ) { use in
      try await use.beginCopy(sql.text + " (FORMAT binary)")
      do {
        var encoder = CopyEncoder()
        for row in rows {
          try encode(row, &encoder)
          if encoder.buffer.count >= Self.pieceBytes { try await use.write(encoder.take()) }
        }
        encoder.end()
        try await use.write(encoder.take())
      } catch {
        // The server's error matters only if the server caused the failure.
        do { _ = try await use.endCopy(aborting: "aborted by the client") } catch let serverError {
          if error is PostgresError { throw serverError }
        }
        throw error
      }
      return try await use.endCopy()
    }
  }
}
