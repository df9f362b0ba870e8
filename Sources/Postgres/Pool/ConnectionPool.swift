package import CoreMetrics
package import Logging
import Tracing

/// A small set of connections to PostgreSQL, shared by all callers.
///
/// ```swift
/// let pool = ConnectionPool(configuration: .init(uri: uri), logger: logger)
/// let names = try await pool.query("SELECT name FROM sensor WHERE site = \(site)")
///   .decode(String.self)
/// try await pool.execute("DELETE FROM reading WHERE sensor = \(sensor)")
/// await pool.close()
/// ```
///
/// Statements outside of transactions share connections: many are in flight on each at once, in
/// libpq's pipeline mode, and a failing statement does not affect the others. A transaction has a
/// connection to itself. Connections are opened when first needed and reopened when lost; no
/// thread waits for the server.
///
/// Methods throw ``PostgresError``, or `CancellationError` if the task was cancelled and the server
/// has stopped the statement.
package final class ConnectionPool: StatementRunner {
  package let configuration: Configuration
  let driver: PoolDriver

  /// The pool connects when the first statement needs it.
  package init(
    configuration: Configuration, logger: Logger,
    metrics: any MetricsFactory = MetricsSystem.factory
  ) {
    self.configuration = configuration
    let driver = PoolDriver(
      configuration: configuration, logger: logger, metrics: PoolMetrics(metrics))
    self.driver = driver
    PostgresLoop.submit { driver.startHealthChecks() }
  }

  deinit { PostgresLoop.submit { [driver] in driver.closeNow() } }

  /// Sends statements together, as one implicit transaction.
  ///
  /// The transaction has the database's default isolation level. At a level stricter than read
  /// committed, the server can reject statements because of concurrent ones; they are then sent
  /// again.
  package func batch(_ statements: [SQL], deadline: Duration?) async throws -> [Rows] {
    guard !statements.isEmpty else { return [] }
    var attempt = 1
    while true {
      do {
        return try await run(Request(statements, timeout: timeout(deadline)))
      } catch let error as PostgresError
        where error.isRetryableTransaction && attempt < Self.transactionAttempts
      {
        try await Backoff.retrying.wait(attempt: attempt - 1)
        attempt += 1
      }
    }
  }

  /// Sends statements together, for callers without a task that could wait.
  ///
  /// - Parameters:
  ///   - statements: At least one; no COPY.
  ///   - deadline: The server's time limit; the pool's setting if nil.
  ///   - completion: Called once, on the thread that serves all connections, so it must return
  ///     quickly.
  package func batch(
    _ statements: [SQL], deadline: Duration? = nil,
    completion: @escaping @Sendable (Result<[Rows], any Error>) -> Void
  ) {
    let request = Request(statements, timeout: timeout(deadline))
    PostgresLoop.submit { [driver] in
      if let error = Self.fault(of: request) { return completion(.failure(error)) }
      driver.accept(request, .call(completion))
    }
  }

  /// Runs a body with a connection to itself, for session locks, settings and scripts; it returns
  /// to the pool, so leave its settings unchanged, or is closed if a transaction is open.
  @discardableResult
  package func withConnection<Value>(
    _ body: (Connection) async throws -> Value
  ) async throws -> Value {
    let session = Session()
    defer { PostgresLoop.submit { [driver] in driver.end(session) } }
    return try await body(Connection(pool: self, session: session))
  }

  /// Runs a script without COPY, such as a schema: statements without parameters as one implicit
  /// transaction.
  package func runScript(_ text: String, deadline: Duration? = nil) async throws {
    try await withConnection { try await $0.runScript(text, deadline: deadline) }
  }

  /// Stops accepting requests, waits for those in flight and closes all connections.
  ///
  /// - Parameter limit: Requests that have not finished by then fail.
  package func close(within limit: Duration = .seconds(10)) async {
    await driver.close(within: limit)
  }

  /// Round trips of this length, with waits for connections and locks, are logged as slow.
  private static let slowAfter: Duration = .seconds(1)

  func timeout(_ deadline: Duration?) -> Duration { deadline ?? configuration.statementDeadline }

  /// Hands a request to the loop and waits; cancelling the task cancels it on the server.
  func run(_ request: Request) async throws -> [Rows] {
    let start = ContinuousClock.now
    defer { log(request, after: ContinuousClock.now - start) }
    return try await withSpan("PostgreSQL", ofKind: .client) { span in
      if span.isRecording {
        span.attributes["db.system.name"] = "postgresql"
        span.attributes["db.query.text"] = request.statements.last?.text ?? ""
        span.attributes["db.operation.batch.size"] = request.statements.count
      }
      return try await withTaskCancellationHandler {
        try await runShielded(request)
      } onCancel: {
        PostgresLoop.submit { [driver] in driver.cancel(request) }
      }
    }
  }

  /// Logs a round trip with the metadata of the caller's task; at level notice if it was slow.
  private func log(_ request: Request, after time: Duration) {
    let isSlow = time >= Self.slowAfter
    let level: Logger.Level = isSlow ? .notice : .trace
    guard driver.logger.logLevel <= level else { return }
    let text = request.statements.last?.text ?? ""
    driver.logger.log(
      level: level, isSlow ? "Slow PostgreSQL round trip" : "PostgreSQL round trip",
      metadata: [
        "postgres.milliseconds": "\(Int(time / .milliseconds(1)))",
        "postgres.statements": "\(request.statements.count)",
        "postgres.last_statement":
          "\(text.split(whereSeparator: \.isWhitespace).joined(separator: " "))",
      ])
  }

  /// Does the same, but continues when the task is cancelled, as cleanup must.
  func runShielded(_ request: Request) async throws -> [Rows] {
    if let error = Self.fault(of: request) { throw error }
    return try await unsafe withUnsafeThrowingContinuation { continuation in
      PostgresLoop.submit { [driver] in
        unsafe driver.accept(request, .resume(continuation))
      }
    }
  }

  private static func fault(of request: Request) -> PostgresError? {
    request.statements.first { $0.parameters.count > SQL.parametersMax }.map {
      PostgresError(
        .invalidRequest, "more than \(SQL.parametersMax) parameters", statement: $0.text)
    }
  }
}

/// A connection reserved for the body of ``ConnectionPool/withConnection(_:)``.
package final class Connection: StatementRunner {
  let pool: ConnectionPool
  let session: Session

  init(pool: ConnectionPool, session: Session) {
    (self.pool, self.session) = (pool, session)
  }

  /// The server process ID announced for this connection, an invented one by PgBouncer; nil before
  /// the first statement.
  package func announcedProcessID() async -> Int32? { await session.processID }

  package func batch(_ statements: [SQL], deadline: Duration?) async throws -> [Rows] {
    guard !statements.isEmpty else { return [] }
    return try await pool.run(
      Request(statements, session: session, timeout: pool.timeout(deadline)))
  }

  package func runScript(_ text: String, deadline: Duration? = nil) async throws {
    _ = try await pool.run(
      Request(
        SQL.statements(of: text), session: session, isScript: true, timeout: pool.timeout(deadline))
    )
  }
}

/// An object that sends statements: a pool, a transaction or a connection.
package protocol StatementRunner: Sendable {
  /// Sends statements, none of them COPY, in one round trip, and returns the rows of each; either
  /// all take effect or none.
  ///
  /// - Parameter deadline: The server's time limit; the pool's setting if nil.
  func batch(_ statements: [SQL], deadline: Duration?) async throws -> [Rows]
}

extension StatementRunner {
  @discardableResult
  package func batch(_ statements: [SQL]) async throws -> [Rows] {
    try await batch(statements, deadline: nil)
  }

  package func query(_ sql: SQL, deadline: Duration? = nil) async throws -> Rows {
    try await batch([sql], deadline: deadline)[0]
  }

  /// Runs a statement and returns the number of affected rows.
  @discardableResult
  package func execute(_ sql: SQL, deadline: Duration? = nil) async throws -> Int {
    try await batch([sql], deadline: deadline)[0].affectedRows
  }
}

/// A pool's connections by state (busy: shared requests are in flight; leased: reserved for a
/// transaction), its requests in flight, and those that wait for a connection.
package typealias PoolReading = (
  idle: Int, busy: Int, leased: Int, connecting: Int, inFlight: Int, waiting: Int
)

extension PoolState {
  var reading: PoolReading {
    var reading: PoolReading = (0, 0, 0, 0, 0, waiting.count)
    for slot in slots {
      switch slot.status {
      case .empty: break
      case .connecting: reading.connecting += 1
      case .ready where slot.isLeased: reading.leased += 1
      case .ready where slot.inFlight > 0: reading.busy += 1
      case .ready: reading.idle += 1
      }
      reading.inFlight += slot.inFlight
    }
    return reading
  }
}

extension ConnectionPool {
  /// Reads the pool's counters without asking the server.
  package func reading() async -> PoolReading { await driver.reading }
}
