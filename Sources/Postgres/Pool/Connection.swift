/// A connection which nobody else uses, for the length of ``ConnectionPool/withConnection(_:)``.
package final class Connection: StatementRunner {
  let pool: ConnectionPool
  let session: Session

  init(pool: ConnectionPool, session: Session) {
    self.pool = pool
    self.session = session
  }

  /// The server process that this connection was told of; nil before the first statement.
  ///
  /// A PgBouncer makes one up, and ``StatementRunner`` can ask the real one for its own.
  package func announcedProcessID() async -> Int32? { await session.processID }

  package func batch(_ statements: [SQL], deadline: Duration?) async throws -> [Rows] {
    guard !statements.isEmpty else { return [] }
    return try await pool.run(
      Request(statements, session: session, timeout: pool.timeout(deadline)))
  }

  /// Runs a script of several statements without parameters, such as a schema, as one implicit
  /// transaction.
  ///
  /// - Parameters:
  ///   - text: the statements; COPY is not possible in it.
  ///   - deadline: how long the server may be silent, nil for the pool's setting.
  /// - Throws: ``PostgresError``.
  package func runScript(_ text: String, deadline: Duration? = nil) async throws {
    _ = try await pool.run(
      Request([], session: session, timeout: pool.configuration.acquireTimeout))
    let use = try await ExclusiveUse.begin(session, timeout: pool.timeout(deadline))
    do {
      try await use.runScript(text)
    } catch {
      await use.end()
      throw (error as? PostgresError)?.during(text) ?? error
    }
    await use.end()
  }
}
