extension ConnectionPool {
  /// How often a transaction is tried that collides with others: five collisions in a row mean more
  /// than bad luck.
  package static let transactionAttempts = 5

  /// Runs a body in a transaction; commits when it returns, unless it has done so itself, and rolls
  /// back when it throws.
  ///
  /// The body is run again from its beginning when the transaction was a victim of others
  /// (serialization failure, deadlock), or when its connection was lost before COMMIT was sent, so
  /// that nothing can have happened: it should do nothing that cannot be repeated.
  ///
  /// The connection is taken and BEGIN sent with the first statements. With
  /// ``Transaction/commit(with:)`` a transaction that reads and then writes costs two round trips.
  @discardableResult
  package func withTransaction<Value>(
    isolation: IsolationLevel? = nil, readOnly: Bool = false,
    maxAttempts: Int = ConnectionPool.transactionAttempts,
    _ body: (Transaction) async throws -> Value
  ) async throws -> Value {
    var attempt = 1
    while true {
      let transaction = Transaction(pool: self, isolation: isolation, readOnly: readOnly)
      do {
        let value = try await body(transaction)
        try await transaction.commitIfOpen()
        return value
      } catch {
        await transaction.rollBack()
        guard attempt < maxAttempts, transaction.shouldRunAgain(after: error) else { throw error }
      }
      let delay = Backoff.retrying.delay(attempt: attempt - 1, jitter: .random(in: 0...1))
      try await Task.sleep(for: delay)
      attempt += 1
    }
  }
}
