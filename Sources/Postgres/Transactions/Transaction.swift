import Synchronization

/// A transaction under way, for the length of
/// ``ConnectionPool/withTransaction(isolation:readOnly:maxAttempts:_:)``.
package final class Transaction: StatementRunner {
  /// A rollback is quick, or the connection isn't worth waiting for.
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

  /// Sends the last statements and COMMIT together: when it returns, the transaction is durable.
  ///
  /// - Throws: ``PostgresError``. With code `connectionLost` or `timedOut` it may be committed all
  ///   the same.
  @discardableResult
  package func commit(
    with statements: [SQL] = [], deadline: Duration? = nil
  ) async throws -> [Rows] {
    if statements.isEmpty, state.withLock({ $0.isOpen && !$0.wasSent }) {
      state.withLock { $0.finish(committed: true) }
      return []
    }
    var results = try await send(statements + ["COMMIT"], committing: true, deadline: deadline)
    // COMMIT of a transaction in which something has failed answers "ROLLBACK", and is no error to
    // the server.
    guard results.removeLast().result.commandTag == "COMMIT" else {
      state.withLock { $0.finish(committed: false) }
      var error = PostgresError(.server, "rolled back, for a statement before had failed")
      error.sqlState = .inFailedTransaction
      throw error
    }
    state.withLock { $0.finish(committed: true) }
    for followUp in followUps.withLock({ $0 }) { followUp() }
    return results
  }

  /// Has something done as soon as the transaction is known to be committed, before its caller
  /// hears of it; not at all if it never is.
  package func afterCommit(_ followUp: @escaping @Sendable () -> Void) {
    followUps.withLock { $0.append(followUp) }
  }

  /// Runs a body whose statements are undone when it throws, while the transaction goes on.
  ///
  /// Costs no round trip: SAVEPOINT, RELEASE and ROLLBACK TO go in front of the statements that
  /// follow.
  package func savepoint<Value>(_ body: () async throws -> Value) async throws -> Value {
    let savepoint = state.withLock { $0.beginSavepoint() }
    do {
      let value = try await body()
      state.withLock { $0.endSavepoint(savepoint, rollingBack: false) }
      return value
    } catch {
      state.withLock { $0.endSavepoint(savepoint, rollingBack: true) }
      throw error
    }
  }

  /// Sends what is pending, so that the connection is taken and the transaction begun.
  func sendPending() async throws {
    _ = try await send([], committing: false, deadline: nil)
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

  /// Rolls back unless the transaction has ended or never begun; goes on when the task is
  /// cancelled.
  package func rollBack() async {
    guard state.withLock({ $0.mustRollBack() }) else { return }
    let request = Request(
      ["ROLLBACK"], session: session, endsSession: true, isRollback: true,
      timeout: Self.rollbackDeadline)
    // If it fails, the connection does not go back to the others, and the server rolls back when it
    // closes.
    _ = try? await pool.runShielded(request)
    PostgresLoop.submit { [pool, session] in pool.driver.end(session) }
  }

  func shouldRunAgain(after error: any Error) -> Bool {
    state.withLock { $0.shouldRunAgain(after: error) }
  }
}

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

/// How much of other transactions a transaction can see.
package enum IsolationLevel: String, Sendable {
  case readCommitted = "READ COMMITTED"
  case repeatableRead = "REPEATABLE READ"
  case serializable = "SERIALIZABLE"
}
