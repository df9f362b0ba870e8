/// Encodes rows in the binary format of COPY.
///
/// https://www.postgresql.org/docs/current/sql-copy.html: a signature, flags and an extension
/// length; for each row the number of columns and each value after its length; -1 at the end.
package struct CopyEncoder: Sendable {
  private static let header: [UInt8] =
    [
      0x50, 0x47, 0x43, 0x4F, 0x50, 0x59, 0x0A, 0xFF, 0x0D, 0x0A, 0x00,  // "PGCOPY\n\377\r\n\0"
    ] + [UInt8](repeating: 0, count: 8)

  private var buffer = PostgresBuffer()

  init() {
    buffer.append(Self.header)
  }

  var count: Int { buffer.count }

  /// Appends a row.
  ///
  /// Each value must have its column's exact type, because COPY does not convert.
  package mutating func append<each Value: PostgresEncodable>(_ values: repeat each Value) {
    var columns: Int16 = 0
    for _ in repeat each values { columns += 1 }
    buffer.append(columns)
    repeat buffer.appendWithLength(each values)
  }

  mutating func end() {
    buffer.append(Int16(-1))
  }

  mutating func take() -> [UInt8] {
    defer { buffer.removeAll() }
    return buffer.bytes
  }
}

package struct CopyOperation: Sendable {
  /// Size in bytes at which buffered rows are sent: large enough that the hand-over to the loop
  /// costs nothing, small enough for many concurrent COPYs.
  fileprivate static let pieceBytes = 64 * 1024

  private let use: ExclusiveUse
  var finished: @Sendable () -> Void = {}

  init(_ use: ExclusiveUse) {
    self.use = use
  }

  struct Writer {
    fileprivate var encoder = CopyEncoder()
    fileprivate let use: ExclusiveUse

    mutating func write(_ encode: (inout CopyEncoder) throws -> Void) async throws {
      try encode(&encoder)
      if encoder.count >= CopyOperation.pieceBytes { try await use.write(encoder.take()) }
    }
  }

  /// Runs COPY with the rows that a body writes.
  ///
  /// Nothing is copied if the body throws or the server rejects a row.
  func run(_ sql: SQL, _ body: (inout Writer) async throws -> Void) async throws -> Int {
    do {
      let rows = try await withTaskCancellationHandler {
        try await copy(sql.text + " (FORMAT binary)", body)
      } onCancel: {
        PostgresLoop.submit { [use] in use.cancel() }
      }
      await end()
      return rows
    } catch {
      await end()
      throw (error as? PostgresError)?.during(sql.text) ?? error
    }
  }

  private func copy(_ text: String, _ body: (inout Writer) async throws -> Void) async throws -> Int
  {
    try await use.beginCopy(text)
    do {
      var writer = Writer(use: use)
      try await body(&writer)
      writer.encoder.end()
      try await use.write(writer.encoder.take())
    } catch {
      // The server's error matters only if the server caused the failure.
      do { _ = try await use.endCopy(aborting: "aborted by the client") } catch let serverError {
        if error is PostgresError { throw serverError }
      }
      throw error
    }
    return try await use.endCopy()
  }

  private func end() async {
    await use.end()
    finished()
  }
}

/// An object that rows can be copied through: a pool, a connection or a transaction.
package protocol CopyTarget: Sendable {
  /// Takes the connection out of the pipeline for COPY.
  func beginCopy(deadline: Duration?) async throws -> CopyOperation
}

extension CopyTarget {
  /// Copies rows from an asynchronous sequence, in binary format and with constant memory.
  ///
  /// ```swift
  /// try await pool.copyIn("COPY reading (sensor, value) FROM STDIN", rows: readings) {
  ///   $1.append($0.sensor, $0.value)
  /// }
  /// ```
  /// - Parameters:
  ///   - sql: `COPY table (columns) FROM STDIN`, without options and parameters.
  ///   - rows: The elements to copy; nothing is copied if the sequence throws.
  ///   - deadline: How long the server may be silent; the pool's setting if nil.
  ///   - encode: Appends an element's row or rows.
  /// - Returns: The number of rows copied.
  @discardableResult
  package func copyIn<Rows: AsyncSequence>(
    _ sql: SQL, rows: Rows, deadline: Duration? = nil,
    encode: (Rows.Element, inout CopyEncoder) throws -> Void
  ) async throws -> Int {
    let copy = try await beginCopy(deadline: deadline)
    return try await copy.run(sql) { writer in
      for try await row in rows { try await writer.write { try encode(row, &$0) } }
    }
  }

  /// Copies rows from a sequence, in binary format.
  @discardableResult
  package func copyIn<Rows: Sequence>(
    _ sql: SQL, rows: Rows, deadline: Duration? = nil,
    encode: (Rows.Element, inout CopyEncoder) throws -> Void
  ) async throws -> Int {
    let copy = try await beginCopy(deadline: deadline)
    return try await copy.run(sql) { writer in
      for row in rows { try await writer.write { try encode(row, &$0) } }
    }
  }
}

extension Connection: CopyTarget {
  package func beginCopy(deadline: Duration?) async throws -> CopyOperation {
    _ = try await pool.run(
      Request([], session: session, timeout: pool.configuration.acquireTimeout))
    return try await CopyOperation(ExclusiveUse.begin(session, timeout: pool.timeout(deadline)))
  }
}

extension Transaction: CopyTarget {
  package func beginCopy(deadline: Duration?) async throws -> CopyOperation {
    try await sendPending()
    return try await CopyOperation(ExclusiveUse.begin(session, timeout: pool.timeout(deadline)))
  }
}

extension ConnectionPool: CopyTarget {
  package func beginCopy(deadline: Duration?) async throws -> CopyOperation {
    let session = Session()
    let connection = Connection(pool: self, session: session)
    do {
      var copy = try await connection.beginCopy(deadline: deadline)
      copy.finished = { [driver] in PostgresLoop.submit { driver.end(session) } }
      return copy
    } catch {
      PostgresLoop.submit { [driver] in driver.end(session) }
      throw error
    }
  }
}
