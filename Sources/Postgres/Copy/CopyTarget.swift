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
