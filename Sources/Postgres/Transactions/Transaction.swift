import Synchronization

/// A running transaction.
///
/// ```swift
/// try await pool.withTransaction { transaction in
///   let rows = try await transaction.query(
///     "SELECT balance FROM purse WHERE id = \(id) FOR UPDATE")
///   guard try rows.decodeOnly(Int.self) >= price else { throw InsufficientBalance() }
///   try await transaction.commit(
///     with: ["UPDATE purse SET balance = balance - \(price) WHERE id = \(id)"])
/// }
/// ```
package final class Transaction: StatementRunner {
  /// A connection that takes longer to roll back is not worth keeping.
  private static let rollbackDeadline = Duration.seconds(5)

  let pool: ConnectionPool
  let session = Session()
  private let state: Mutex<TransactionState>
  private let followUps = Mutex<[@Sendable () -> Void]>([])

  init(pool: ConnectionPool, isolation: IsolationLevel, readOnly: Bool) {
    self.pool = pool
    state = Mutex(
      TransactionState(
        isolation: isolation, readOnly: readOnly, settings: pool.configuration.transactionSettings))
  }

  package func batch(_ statements: [SQL], deadline: Duration?) async throws -> [Rows] {
    guard !statements.isEmpty else { return [] }
    return try await send(statements, committing: false, deadline: deadline)
  }

  /// Sends the last statements together with COMMIT; durable when this returns, and perhaps also
  /// after an error with code `connectionLost` or `timedOut`.
  @discardableResult
  package func commit(
    with statements: [SQL] = [], deadline: Duration? = nil
  ) async throws -> [Rows] {
    if statements.isEmpty, state.withLock({ $0.isOpen && !$0.wasSent }) {
      state.withLock { $0.finish(committed: true) }
      return []
    }
    var results = try await send(statements + ["COMMIT"], committing: true, deadline: deadline)
    // The server answers COMMIT of a failed transaction with "ROLLBACK", not with an error.
    guard results.removeLast().result.commandTag == "COMMIT" else {
      state.withLock { $0.finish(committed: false) }
      var error = PostgresError(.server, "rolled back because an earlier statement failed")
      error.sqlState = .inFailedTransaction
      throw error
    }
    state.withLock { $0.finish(committed: true) }
    for followUp in followUps.withLock({ $0 }) { followUp() }
    return results
  }

  /// Runs an action as soon as the commit is confirmed, before ``commit(with:deadline:)`` returns.
  package func afterCommit(_ followUp: @escaping @Sendable () -> Void) {
    followUps.withLock { $0.append(followUp) }
  }

  private func send(
    _ statements: [SQL], committing: Bool, deadline: Duration?
  ) async throws -> [Rows] {
    let pending = try state.withLock { state throws(PostgresError) in
      try state.takePending(committing: committing)
    }
    let request = Request(
      pending + statements, session: session, endsSession: committing,
      timeout: pool.timeout(deadline))
    do {
      return Array(try await pool.run(request).dropFirst(pending.count))
    } catch {
      state.withLock { $0.fail(error) }
      throw error
    }
  }

  func commitIfOpen() async throws {
    guard state.withLock({ $0.isOpen }) else { return }
    try await commit()
  }

  /// Rolls back a transaction that has begun and not ended, even if the task is cancelled.
  package func rollBack() async {
    guard state.withLock({ $0.mustRollBack() }) else { return }
    let request = Request(
      ["ROLLBACK"], session: session, endsSession: true, isRollback: true,
      timeout: Self.rollbackDeadline)
    // If this fails, the connection is closed instead of reused, and the server rolls back.
    _ = try? await pool.runShielded(request)
    PostgresLoop.submit { [pool, session] in pool.driver.end(session) }
  }

  func shouldRunAgain(after error: any Error) -> Bool {
    state.withLock { $0.shouldRunAgain(after: error) }
  }
}

extension ConnectionPool {
  /// Attempts for a transaction that collides with others; five are more than chance.
  package static let transactionAttempts = 5

  /// Runs a body in a transaction, which commits when the body returns, unless it has already
  /// committed, and rolls back when it throws.
  ///
  /// The body runs again after a serialization failure or a deadlock, and after losing the
  /// connection before COMMIT was sent, so it must be repeatable. BEGIN is sent with the first
  /// statements: with ``Transaction/commit(with:deadline:)``, reading and then writing costs two
  /// round trips.
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

  /// Opens a cursor over the rows of a query; the first chunk is fetched.
  ///
  /// - Parameters:
  ///   - settings: `SET LOCAL` statements for the cursor's transaction.
  ///   - rowsAtOnce: The size of a chunk.
  ///   - idleTimeout: The reader's time limit for a chunk, after which the server ends the
  ///     transaction.
  ///   - deadline: The server's time limit for a chunk; the pool's setting if nil.
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

  /// Runs a body with a transaction that the body ends itself; again if it should be retried.
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

package enum IsolationLevel: String, Sendable {
  case readCommitted = "READ COMMITTED"
  case repeatableRead = "REPEATABLE READ"
  case serializable = "SERIALIZABLE"
}
