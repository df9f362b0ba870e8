/// Statements sent together, in one pipeline with one sync point: all of them happen or none does.
///
/// Made by the caller's task, then known to the loop only.
@PostgresLoop
final class Request {
  typealias Outcome = Result<[Rows], any Error>

  @safe
  enum Completion {
    /// The caller's task. An unsafe continuation, for this is the hot path and ``complete(_:)`` is
    /// the only place that resumes it, once.
    case resume(UnsafeContinuation<[Rows], any Error>)
    case call(@PostgresLoop (Outcome) -> Void)
  }

  let statements: [SQL]
  /// The transaction or connection in use that this belongs to; nil for what may run on any
  /// connection.
  let session: Session?
  /// Whether the session ends when this has succeeded: the request commits.
  let endsSession: Bool
  /// Whether it does nothing but roll back, and so has nothing to do where nothing was begun.
  let isRollback: Bool
  /// Whether the connection sends it for its own sake: nobody else hears of it.
  let isHousekeeping: Bool
  /// How long from acceptance until the caller is told that there is no answer; what waits behind
  /// the first request of its session is told with that one.
  let timeout: Duration

  private var completion: Completion?
  /// Where it is counted when it is answered; nil: what the pool sends for its own sake.
  private var roundTrips: PoolMetrics.RoundTrips?
  private var acceptedAt = ContinuousClock.now
  private var results: [Rows] = []
  private(set) var failure: PostgresError?
  private(set) var deadline = ContinuousClock.now
  /// Since when the caller has not wanted the answer; nil while it does.
  private(set) var cancelledAt: ContinuousClock.Instant?
  /// Whether it has been sent a second time; there is no third.
  private(set) var isRepeated = false

  nonisolated init(
    _ statements: [SQL], session: Session? = nil, endsSession: Bool = false,
    isRollback: Bool = false, isHousekeeping: Bool = false, timeout: Duration
  ) {
    self.statements = statements
    self.session = session
    self.endsSession = endsSession
    self.isRollback = isRollback
    self.isHousekeeping = isHousekeeping
    self.timeout = timeout
  }

  /// Whether the caller has its answer already, and the server's will be dropped.
  var isAnswered: Bool { completion == nil }

  /// Takes over the caller's continuation; the time runs from here.
  ///
  /// - Returns: false when the task was cancelled before it came this far; it is answered then.
  func accept(
    _ completion: Completion, now: ContinuousClock.Instant,
    countedIn roundTrips: PoolMetrics.RoundTrips? = nil
  ) -> Bool {
    self.completion = completion
    self.roundTrips = roundTrips
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

  /// Marks the failure as the work of a cancellation that was meant for another request.
  func blameCancellation() {
    failure?.wasCancelledByMistake = true
  }

  /// Forgets what has come in, for the request is sent once more.
  func prepareToRepeat() {
    isRepeated = true
    results.removeAll()
    failure = nil
  }

  /// The server has answered to the end: the caller gets its results or the first failure.
  func finish() {
    guard let failure else { return complete(.success(results)) }
    let wasCancelled = cancelledAt != nil && failure.sqlState == .queryCanceled
    complete(.failure(wasCancelled ? CancellationError() : failure))
  }

  /// The connection was closed before the server had answered to the end.
  ///
  /// A COMMIT that it has confirmed stands all the same.
  func connectionClosed(_ reason: PostgresError) {
    let isCommitted =
      results.count == statements.count && results.last?.result.commandTag == "COMMIT"
    if failure == nil, isCommitted { return finish() }
    complete(.failure(failure ?? reason.during(statements.first?.text)))
  }

  /// Answers the caller now; anything that comes later is dropped.
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

/// The exclusive use of one connection, from the first request that needs it until it is given
/// back.
///
/// It is taken with the first request and not before: a transaction whose body computes first holds
/// nothing while it does, and asking for a connection is no hop of its own.
@PostgresLoop
final class Session {
  enum State {
    case unused
    /// Waiting for a connection; what it asks for meanwhile is kept in order.
    case waiting([Request])
    case leased(Backend)
    /// Given back, or its connection was lost.
    case ended(PostgresError)
  }

  var state = State.unused

  nonisolated init() {}

  /// The server process behind it, as its connection was told; nil while it has none.
  var processID: Int32? {
    if case .leased(let backend) = state { backend.handle.processID } else { nil }
  }

  nonisolated static let endedNormally = PostgresError(
    .closed, "the transaction or connection was used after its end")
}
