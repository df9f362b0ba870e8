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

/// One COPY under way.
package struct CopyOperation: Sendable {
  /// Rows are sent in pieces of this size: large enough that the hand-over to the loop costs
  /// nothing, small enough to keep many COPYs in memory.
  fileprivate static let pieceBytes = 64 * 1024

  private let use: ExclusiveUse
  var finished: @Sendable () -> Void = {}

  init(_ use: ExclusiveUse) {
    self.use = use
  }

  /// Gathers rows and sends them piece by piece.
  struct Writer {
    fileprivate var encoder = CopyEncoder()
    fileprivate let use: ExclusiveUse

    mutating func write(_ encode: (inout CopyEncoder) throws -> Void) async throws {
      try encode(&encoder)
      if encoder.count >= CopyOperation.pieceBytes { try await use.write(encoder.take()) }
    }
  }

  /// Runs COPY with the rows that a body writes; nothing is copied when it throws, or when the
  /// server refuses a row.
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
      // What the server says to it is not why it failed, unless the server was the one that failed.
      do { _ = try await use.endCopy(aborting: "the client gave up") } catch let serverError {
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

/// Where rows can be copied in: a connection of one's own or a transaction.
package protocol CopyTarget: Sendable {
  /// Takes the connection out of the pipeline for COPY.
  func beginCopy(deadline: Duration?) async throws -> CopyOperation
}

extension CopyTarget {
  /// Copies rows in from an asynchronous sequence, in binary format; memory stays small however
  /// many there are.
  ///
  /// ```swift
  /// try await connection.copyIn("COPY reading (sensor, value) FROM STDIN", rows: readings) {
  ///   $1.append($0.sensor, $0.value)
  /// }
  /// ```
  /// - Parameters:
  ///   - sql: `COPY table (columns) FROM STDIN`, without options and parameters.
  ///   - rows: what to copy; when it throws, nothing is copied.
  ///   - deadline: how long the server may be silent, nil for the pool's setting.
  ///   - encode: appends an element's row or rows.
  /// - Returns: the number of rows copied.
  /// - Throws: ``PostgresError``, or what the sequence or `encode` threw.
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

  /// Copies rows in from a sequence, in binary format.
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
  /// A connection for one COPY, which gives it back at its end.
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
