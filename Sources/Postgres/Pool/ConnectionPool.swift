package import CoreMetrics
package import Logging
import Tracing

/// A few connections to PostgreSQL, shared by everybody.
///
/// Statements outside of transactions share connections: many are under way on each at once, in
/// libpq's pipeline mode, and an error of one leaves the others alone. A transaction has its
/// connection to itself. Connections are made when they are needed and made again when they are
/// lost; no thread waits for the server.
package final class ConnectionPool: StatementRunner {
  package let configuration: Configuration
  let driver: PoolDriver

  /// Makes a pool; it connects when the first statement needs it.
  ///
  /// - Parameters:
  ///   - configuration: How to reach the server, and the limits.
  ///   - logger: Told of connections made and lost.
  ///   - metrics: Where round trips are counted.
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

  deinit {
    PostgresLoop.submit { [driver] in driver.closeNow() }
  }

  /// Sends statements together, as one implicit transaction.
  ///
  /// It has the database's default isolation level. Where that is stricter than read committed, the
  /// server can refuse the statements because of concurrent ones; they are then sent again.
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

  /// Sends statements together, for those who have no task that could wait.
  ///
  /// - Parameters:
  ///   - statements: at least one; none of them COPY.
  ///   - deadline: how long the server may take, nil for the pool's setting.
  ///   - completion: called once, on the thread that serves all connections, so that it must not
  ///     take long; with the rows of each statement, in order, or with what ``batch(_:deadline:)``
  ///     throws.
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

  /// Runs a body with a connection of its own, for what needs one: session locks, settings,
  /// scripts.
  ///
  /// The connection goes back to the others afterwards: leave it as it was. A transaction left open
  /// closes it.
  @discardableResult
  package func withConnection<Value>(
    _ body: (Connection) async throws -> Value
  ) async throws -> Value {
    let session = Session()
    defer { PostgresLoop.submit { [driver] in driver.end(session) } }
    return try await body(Connection(pool: self, session: session))
  }

  /// Runs a script of several statements without parameters, such as a schema, as one implicit
  /// transaction.
  ///
  /// - Parameters:
  ///   - text: the statements; COPY is not possible in it.
  ///   - deadline: how long the server may be silent, nil for the pool's setting.
  /// - Throws: ``PostgresError``.
  package func runScript(_ text: String, deadline: Duration? = nil) async throws {
    try await withConnection { try await $0.runScript(text, deadline: deadline) }
  }

  /// Closes the pool: takes nothing more, waits for what is under way, then closes all connections.
  ///
  /// - Parameter limit: how long to wait; what is not done by then fails.
  package func close(within limit: Duration = .seconds(10)) async {
    await driver.close(within: limit)
  }

  /// From here on a round trip is worth a line in the log: waits for a connection or a lock
  /// included.
  private static let slowAfter: Duration = .seconds(1)

  func timeout(_ deadline: Duration?) -> Duration { deadline ?? configuration.statementDeadline }

  /// Hands a request to the loop and waits for its answer; cancelling the task cancels it on the
  /// server.
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

  /// Logs a round trip, in the task that asked, so that the log says on whose behalf: what took
  /// long as a notice.
  private func log(_ request: Request, after time: Duration) {
    let isSlow = time >= Self.slowAfter
    let level: Logger.Level = isSlow ? .notice : .trace
    guard driver.logger.logLevel <= level else { return }
    let text = request.statements.last?.text ?? ""
    driver.logger.log(
      level: level,
      isSlow ? "A round trip to PostgreSQL was slow" : "A round trip to PostgreSQL",
      metadata: [
        "postgres.milliseconds": "\(Int(time / .milliseconds(1)))",
        "postgres.statements": "\(request.statements.count)",
        "postgres.last_statement":
          "\(text.split(whereSeparator: \.isWhitespace).joined(separator: " "))",
      ])
  }

  /// The same, but goes on when the task is cancelled: what cleans up must.
  func runShielded(_ request: Request) async throws -> [Rows] {
    if let error = Self.fault(of: request) { throw error }
    return try await unsafe withUnsafeThrowingContinuation { continuation in
      PostgresLoop.submit { [driver] in
        unsafe driver.accept(request, .resume(continuation))
      }
    }
  }

  /// Why a request can't be sent at all.
  private static func fault(of request: Request) -> PostgresError? {
    request.statements.first { $0.parameters.count > SQL.parametersMax }.map {
      PostgresError(
        .invalidRequest, "more than \(SQL.parametersMax) parameters", statement: $0.text)
    }
  }
}

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

/// How a pool stands at one moment.
package struct PoolReading: Hashable, Sendable {
  /// Connections that have nothing to do.
  package var idle = 0
  /// Connections with shared requests under way.
  package var busy = 0
  /// Connections that a transaction has to itself.
  package var leased = 0
  package var connecting = 0
  /// Round trips under way.
  package var inFlight = 0
  /// Round trips that wait for a connection.
  package var waiting = 0
}

extension PoolState {
  var reading: PoolReading {
    var reading = PoolReading()
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
    reading.waiting = waiting.count
    return reading
  }
}

extension ConnectionPool {
  /// How it stands now; asks no server.
  package func reading() async -> PoolReading { await driver.reading }
}
