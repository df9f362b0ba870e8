extension ConnectionPool {
  /// How often a transaction is tried that collides with others: five collisions in a row mean more
  /// than bad luck.
  package static let transactionAttempts = 5

  /// Runs a body in a transaction; commits when it returns, unless it has done so itself, and rolls
  /// back when it throws.
  ///
  /// The isolation level is always stated, so the database's default does not matter.
  ///
  /// The body is run again from its beginning when the transaction was a victim of others
  /// (serialization failure, deadlock), or when its connection was lost before COMMIT was sent, so
  /// that nothing can have happened: it should do nothing that cannot be repeated.
  ///
  /// The connection is taken and BEGIN sent with the first statements. With
  /// ``Transaction/commit(with:)`` a transaction that reads and then writes costs two round trips.
  @discardableResult
  package func withTransaction<Value>(
    isolation: IsolationLevel = .readCommitted, readOnly: Bool = false,
    maxAttempts: Int = ConnectionPool.transactionAttempts,
    _ body: (Transaction) async throws -> Value
  ) async throws -> Value {
    try await withAttempts(isolation: isolation, readOnly: readOnly, maxAttempts) { transaction in
      let value = try await body(transaction)
      try await transaction.commitIfOpen()
      return value
    }
  }

  /// Asks for rows that are taken piece by piece, all of them as of one moment.
  ///
  /// Until the last of them has come, the cursor has a connection to itself.
  ///
  /// - Parameters:
  ///   - query: What is asked.
  ///   - settings: What is set for its transaction: `SET LOCAL`.
  ///   - rowsAtOnce: How many rows a piece has.
  ///   - idleTimeout: How long the reader may take for a piece before the server ends the
  ///     transaction.
  ///   - deadline: How long the server may take for a piece; nil: as the pool is configured.
  /// - Returns: The cursor; the first piece has come.
  /// - Throws: ``PostgresError``.
  package func openCursor(
    for query: SQL, settings: [SQL] = [], rowsAtOnce: Int, idleTimeout: Duration,
    deadline: Duration? = nil
  ) async throws -> Cursor {
    try await withAttempts(
      isolation: .repeatableRead, readOnly: true, Self.transactionAttempts
    ) { transaction in
      try await Cursor(
        transaction, query, settings, rowsAtOnce: rowsAtOnce, idleTimeout: idleTimeout,
        deadline: deadline)
    }
  }

  /// Runs a body on a transaction that it ends itself, if need be again.
  private func withAttempts<Value>(
    isolation: IsolationLevel, readOnly: Bool, _ maxAttempts: Int,
    _ body: (Transaction) async throws -> Value
  ) async throws -> Value {
    var attempt = 1
    while true {
      let transaction = Transaction(pool: self, isolation: isolation, readOnly: readOnly)
      do {
        return try await body(transaction)
      } catch {
        await transaction.rollBack()
        guard attempt < maxAttempts, transaction.shouldRunAgain(after: error) else { throw error }
      }
      try await Backoff.retrying.wait(attempt: attempt - 1)
      attempt += 1
    }
  }
}
