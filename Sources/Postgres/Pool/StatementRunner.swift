/// What statements can be sent through: a pool, a transaction, or a connection of one's own.
package protocol StatementRunner: Sendable {
  /// Sends statements together: one round trip, and all of them happen or none does.
  ///
  /// - Parameters:
  ///   - statements: at least one; none of them COPY.
  ///   - deadline: how long the server may take, nil for the pool's setting.
  /// - Returns: the rows of each statement, in order.
  /// - Throws: ``PostgresError`` of the first that failed, or `CancellationError` when the server
  ///   was stopped at it.
  func batch(_ statements: [SQL], deadline: Duration?) async throws -> [Rows]
}

extension StatementRunner {
  /// Sends statements together: one round trip, and all of them happen or none does.
  @discardableResult
  package func batch(_ statements: [SQL]) async throws -> [Rows] {
    try await batch(statements, deadline: nil)
  }

  /// Runs a statement and returns its rows.
  package func query(_ sql: SQL, deadline: Duration? = nil) async throws -> Rows {
    try await batch([sql], deadline: deadline)[0]
  }

  /// Runs a statement and returns the number of rows that it touched.
  @discardableResult
  package func execute(_ sql: SQL, deadline: Duration? = nil) async throws -> Int {
    try await batch([sql], deadline: deadline)[0].affectedRows
  }
}
