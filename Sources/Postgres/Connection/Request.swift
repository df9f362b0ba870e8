/// Statements sent together, in one pipeline with one sync point: either all take effect or none;
/// created by the caller's task, then used on the loop only.
@PostgresLoop
final class Request {
  typealias Outcome = Result<[Rows], any Error>

  @safe
  enum Completion {
    /// The caller's task; unsafe, because this is the hot path. ``complete(_:)`` resumes it once.
    case resume(UnsafeContinuation<[Rows], any Error>)
    case call(@PostgresLoop (Outcome) -> Void)
  }

  let statements: [SQL]
  /// The transaction or connection that the request belongs to; nil for any connection.
  let session: Session?
  /// Whether the session ends when this request succeeds, because it commits.
  let endsSession: Bool
  /// Whether the request only rolls back, and so does nothing if no transaction was begun.
  let isRollback: Bool
  /// Whether the connection sends it for itself, without a caller.
  let isHousekeeping: Bool
  /// Whether its statements are sent once, and so are not worth preparing.
  let isScript: Bool
  /// Time from acceptance until the caller gets an error; requests waiting behind the first one of
  /// their session fail with that one.
  let timeout: Duration

  private var completion: Completion?
  /// The counter for this request; nil for the pool's own requests.
  private var roundTrips: PoolMetrics.RoundTrips?
  private var acceptedAt = ContinuousClock.now
  private var results: [Rows] = []
  private(set) var failure: PostgresError?
  private(set) var deadline = ContinuousClock.now
  private(set) var cancelledAt: ContinuousClock.Instant?
  /// Whether it was sent a second time; there is no third.
  private(set) var isRepeated = false

  nonisolated init(
    _ statements: [SQL], session: Session? = nil, endsSession: Bool = false,
    isRollback: Bool = false, isHousekeeping: Bool = false, isScript: Bool = false,
    timeout: Duration
  ) {
    self.statements = statements
    self.session = session
    self.endsSession = endsSession
    self.isRollback = isRollback
    self.isHousekeeping = isHousekeeping
    self.isScript = isScript
    self.timeout = timeout
  }

  /// Whether the caller has a result already; the server's is then dropped.
  var isAnswered: Bool { completion == nil }

  /// Takes the caller's continuation and starts the timeout.
  ///
  /// - Returns: False if the task was cancelled before; the request is completed then.
  func accept(
    _ completion: Completion, now: ContinuousClock.Instant,
    countedIn roundTrips: PoolMetrics.RoundTrips? = nil
  ) -> Bool {
    (self.completion, self.roundTrips) = (completion, roundTrips)
    acceptedAt = now
    deadline = now + timeout
    guard cancelledAt == nil else {
      complete(.failure(CancellationError()))
      return false
    }
    return true
  }

  func cancel(now: ContinuousClock.Instant) {
    if cancelledAt == nil { cancelledAt = now }
  }

  func add(_ result: ResultHandle, of index: Int) {
    results.append(Rows(result: result, statement: statements[index].text))
  }

  func fail(_ error: PostgresError, at index: Int) {
    guard failure == nil else { return }
    failure = error.during(statements.indices.contains(index) ? statements[index].text : nil)
  }

  func blameCancellation() { failure?.wasCancelledByMistake = true }

  func prepareToRepeat() {
    isRepeated = true
    results.removeAll()
    failure = nil
  }

  /// Completes with the results or the first failure, after the server's last result.
  func finish() {
    guard let failure else { return complete(.success(results)) }
    let wasCancelled = cancelledAt != nil && failure.sqlState == .queryCanceled
    complete(.failure(wasCancelled ? CancellationError() : failure))
  }

  /// Completes after an early close; a COMMIT that the server confirmed still counts as success.
  func connectionClosed(_ reason: PostgresError) {
    let isCommitted =
      results.count == statements.count && results.last?.result.commandTag == "COMMIT"
    if failure == nil, isCommitted { return finish() }
    complete(.failure(failure ?? reason.during(statements.first?.text)))
  }

  /// Completes the request; later outcomes are dropped.
  func complete(_ outcome: Outcome) {
    guard let completion else { return }
    self.completion = nil
    roundTrips?.count(outcome, after: Reactor.shared.now - acceptedAt)
    switch completion {
    case .resume(let continuation): unsafe continuation.resume(with: outcome)
    case .call(let body): body(outcome)
    }
  }
}

/// The exclusive use of one connection, from the first request, so that a transaction that computes
/// first holds nothing until then, until the connection is returned.
@PostgresLoop
final class Session {
  enum State {
    case unused
    /// Waiting for a connection; further requests are kept in order.
    case waiting([Request])
    case leased(Backend)
    case ended(PostgresError)
  }

  var state = State.unused

  nonisolated init() {}

  /// The process ID announced for the connection; nil while there is none.
  var processID: Int32? {
    if case .leased(let backend) = state { backend.handle.processID } else { nil }
  }

  nonisolated static let endedNormally = PostgresError(
    .closed, "the transaction or connection was used after its end")
}
