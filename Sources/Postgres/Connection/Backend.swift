internal import CLibpq
internal import DequeModule
import Dispatch
import Secrets

/// One connection to a server, driven by the loop: requests go out in a pipeline, and results
/// arrive in the same order.
///
/// No actor of its own, so that a request costs one hand-over and one resumption.
@PostgresLoop
final class Backend: EventSource {
  enum Step {
    case prepare(Request, name: String)
    case execute(Request, index: Int, name: String?)
    case sync(Request)

    var request: Request {
      switch self {
      case .prepare(let request, _), .execute(let request, _, _), .sync(let request): request
      }
    }
  }

  let handle: ConnectionHandle
  let descriptor: Int32
  let usesPreparedStatements: Bool
  let server: [String]
  /// Whether the URI selects the server that takes writes.
  let followsPrimary: Bool
  weak var owner: (any BackendOwner)?
  var steps = Deque<Step>()
  var statements: StatementCache
  var isClosed = false
  /// Time at which the server started on the request at the head of the pipeline.
  var headSince = ContinuousClock.now
  var isCancelling = false
  var lastCancellation: ContinuousClock.Instant?
  private var wantsWriting = false
  private var isListedForFlush = false

  nonisolated init(
    _ handle: consuming ConnectionHandle, _ configuration: ConnectionPool.Configuration
  ) {
    descriptor = handle.descriptor
    server = handle.server
    followsPrimary = handle.followsPrimary
    self.handle = handle
    usesPreparedStatements = configuration.usesPreparedStatements
    statements = StatementCache(
      capacity: configuration.preparedStatementLimit, mark: StatementCache.randomMark())
  }

  /// Start of the server's silence; nil if it owes no result.
  var silentSince: ContinuousClock.Instant? { steps.isEmpty ? nil : headSince }

  func start(owner: any BackendOwner) {
    self.owner = owner
    Reactor.shared.watch(self, descriptor: descriptor)
  }

  func close(_ reason: PostgresError) {
    guard !isClosed else { return }
    isClosed = true
    Reactor.shared.unwatch(self, descriptor: descriptor)
    // Before requests are completed, so that their follow-ups are not sent here.
    owner?.backendClosed(self, reason)
    while let step = steps.popFirst() {
      if case .sync(let request) = step { request.connectionClosed(reason) }
    }
  }

  func closeAsLost() { close(PostgresError(.connectionLost, handle.errorMessage)) }

  func ready(toRead: Bool, toWrite: Bool) {
    if toWrite { flush() }
    if toRead, !isClosed { read() }
  }

  func flushSoon() {
    guard !isListedForFlush else { return }
    isListedForFlush = true
    Reactor.shared.flushAtEndOfTurn(self)
  }

  func flush() {
    isListedForFlush = false
    guard !isClosed else { return }
    switch handle.flush() {
    case .everything: watchWriting(false)
    case .partly: watchWriting(true)
    case .failed:
      // The server's last message is a better reason than the lost connection.
      read()
      closeAsLost()
    }
  }

  private func watchWriting(_ wants: Bool) {
    guard wants != wantsWriting else { return }
    wantsWriting = wants
    Reactor.shared.wantsWriting(wants, descriptor: descriptor)
  }
}

/// Receives a connection's events: a pool or a listener.
@PostgresLoop
protocol BackendOwner: AnyObject {
  func backend(_ backend: Backend, finished request: Request)
  /// A shared request failed through no fault of its own, without effect; the owner sends it again.
  func backend(_ backend: Backend, wantsRepeat request: Request)
  func backend(_ backend: Backend, received notification: Notification)
  /// The connection is closed; its requests are completed after this call.
  func backendClosed(_ backend: Backend, _ reason: PostgresError)
}

extension Backend {
  func read() {
    let isConnected = handle.consumeInput()
    processResults()
    // libpq reads one record per call, and OpenSSL may hold more without the socket showing it.
    if isConnected, handle.usesTLS, !isClosed {
      for _ in 0..<2 where handle.consumeInput() { processResults() }
    }
    while !isClosed, let notification = handle.nextNotification() {
      owner?.backend(self, received: notification)
    }
    if !isClosed, !isConnected || !handle.isUsable { closeAsLost() }
  }

  /// Reads data that OpenSSL may have buffered while the socket shows none.
  ///
  /// A call of libpq's reads 8 KB or more and a record has at most 16 KB, so the two extra calls in
  /// ``read()`` nearly always suffice; calling this at each sweep covers the rest.
  func lookBehindTLS() {
    if !isClosed, handle.usesTLS { read() }
  }

  private func processResults() {
    while !isClosed, let step = steps.first, !handle.isBusy {
      let result = handle.nextResult()
      switch step {
      case .sync(let request):
        guard let result else {
          // Follows an error at the sync point itself, and nothing else.
          guard request.failure != nil, handle.isUsable else { return closeAsLost() }
          continue
        }
        guard result.status == PGRES_PIPELINE_SYNC else {
          takeAtSync(result, request)
          continue
        }
        steps.removeFirst()
        headSince = Reactor.shared.now
        finish(request)
      case .prepare, .execute:
        if let result { take(result, step) } else { steps.removeFirst() }
      }
    }
    cancelHeadIfUnwanted()
  }

  private func take(_ result: ResultHandle, _ step: Step) {
    switch (step, result.status) {
    case (.prepare, PGRES_COMMAND_OK): break
    case (.execute(let request, let index, _), PGRES_TUPLES_OK),
      (.execute(let request, let index, _), PGRES_COMMAND_OK),
      (.execute(let request, let index, _), PGRES_EMPTY_QUERY):
      request.add(result, of: index)
    case (.prepare(let request, let name), PGRES_FATAL_ERROR):
      statements.forget(name: name)
      take(error: result, request, index: nil)
    case (.prepare(_, let name), PGRES_PIPELINE_ABORTED): statements.forget(name: name)
    case (.execute(let request, let index, let name), PGRES_FATAL_ERROR):
      take(error: result, request, index: index)
      if let name, request.failure?.isStalePlan == true { statements.forget(name: name) }
    case (.execute(let request, _, let name), PGRES_PIPELINE_ABORTED):
      // After one stale plan the request's other plans are suspect, and it is repeated only once.
      if let name, request.failure?.isStalePlan == true { statements.forget(name: name) }
    default: unexpected(step.request)
    }
  }

  /// Handles an error after all statements have succeeded: the implicit commit failed, for example
  /// on a deferred constraint, or the server is stopping.
  private func takeAtSync(_ result: ResultHandle, _ request: Request) {
    guard let error = result.serverError else { return unexpected(request) }
    guard error.isFatal else { return request.fail(error, at: request.statements.count - 1) }
    var reason = PostgresError(.connectionLost, error.message)
    reason.sqlState = error.sqlState
    reason.severity = error.severity
    close(reason)
  }

  private func take(error result: ResultHandle, _ request: Request, index: Int?) {
    guard var error = result.serverError else { return closeAsLost() }
    // The server's C function that reported the error.
    error.isRefusedPlan = result.field("R") == "RevalidateCachedQuery"
    request.fail(error, at: index ?? nextIndex(of: request))
  }

  /// The index of the statement being prepared, which is executed next.
  private func nextIndex(of request: Request) -> Int {
    for case .execute(let other, let index, _) in steps.prefix(2) where other === request {
      return index
    }
    return 0
  }

  /// Handles a result after which libpq can't continue, as of COPY sent as an ordinary statement.
  private func unexpected(_ request: Request) {
    guard handle.isUsable else { return closeAsLost() }
    request.fail(
      PostgresError(.invalidRequest, "this statement can't be sent in a pipeline"),
      at: nextIndex(of: request))
    close(PostgresError(.connectionLost, "another statement has made the connection unusable"))
  }

  private func finish(_ request: Request) {
    guard !request.isHousekeeping else { return }
    if handle.takeUnreplicatedCommit() {
      request.fail(.unreplicatedCommit, at: request.statements.count - 1)
    }
    if let failure = request.failure, let owner, mayRepeat(request, after: failure) {
      request.prepareToRepeat()
      return owner.backend(self, wantsRepeat: request)
    }
    request.finish()
    if request.failure?.sqlState == .readOnlyTransaction {
      // The server may no longer be the primary; the next connection goes to the current one.
      return close(PostgresError(.connectionLost, "the server is read-only"))
    }
    owner?.backend(self, finished: request)
  }

  /// Whether to send a request once more: it was its own transaction, which was rolled back, and
  /// the cause was an unrequested cancellation or a stale plan.
  private func mayRepeat(_ request: Request, after failure: PostgresError) -> Bool {
    let isVictim = request.cancelledAt == nil && isUnrequestedCancellation(failure)
    if isVictim { request.blameCancellation() }
    guard request.session == nil, !request.isRepeated, !request.isAnswered else { return false }
    return isVictim || failure.isStalePlan
  }

  /// Puts a request into the pipeline; it is sent at the end of the loop's turn.
  func send(_ request: Request) {
    guard !isClosed else {
      return request.connectionClosed(PostgresError(.connectionLost, "the connection is closed"))
    }
    if steps.isEmpty { headSince = Reactor.shared.now }
    for index in request.statements.indices {
      guard send(request, index) else { return closeAfterFailedSend(request) }
    }
    guard handle.sync() else { return closeAfterFailedSend(request) }
    steps.append(.sync(request))
    flushSoon()
    if request.session == nil { deallocateEvicted() }
  }

  private func send(_ request: Request, _ index: Int) -> Bool {
    let sql = request.statements[index]
    guard usesPreparedStatements, !request.isScript else {
      steps.append(.execute(request, index: index, name: nil))
      return handle.executeUnnamed(sql)
    }
    let name: String
    switch statements.lookUp(sql) {
    case .prepared(let known): name = known
    case .mustPrepare(let new):
      name = new
      guard handle.prepare(sql, name: name) else { return false }
      steps.append(.prepare(request, name: name))
    }
    steps.append(.execute(request, index: index, name: name))
    return handle.execute(sql, name: name)
  }

  /// libpq refuses to send only after the connection or memory has failed.
  private func closeAfterFailedSend(_ request: Request) {
    steps.append(.sync(request))
    closeAsLost()
  }

  /// Frees evicted statements' plans, each by its own request, so that nothing depends on it; not
  /// during a transaction, where it could fail with the other statements.
  func deallocateEvicted() {
    for name in statements.takeEvicted() {
      let request = Request(
        [SQL(unescaped: "DEALLOCATE \(name)")], isHousekeeping: true, timeout: .seconds(30))
      guard handle.executeUnnamed(request.statements[0]), handle.sync() else {
        return closeAsLost()
      }
      steps.append(.execute(request, index: 0, name: nil))
      steps.append(.sync(request))
      flushSoon()
    }
  }
}

/// Makes connections, each by libpq's blocking call on a thread of its own.
///
/// PQconnectStart and PQconnectPoll still resolve names synchronously (manual, "Database Connection
/// Control Functions") and leave `connect_timeout` to a caller that can't make libpq try the next
/// host, so a frozen first host would block the others. Attempts are rare.
enum Connecting {
  static func start(
    _ configuration: ConnectionPool.Configuration, uri: Secret<String>,
    then finished: @escaping @Sendable @PostgresLoop (Result<Backend, PostgresError>) -> Void
  ) {
    DispatchQueue(label: "postgres-open").async {
      let outcome: Result<Backend, PostgresError>
      do throws(PostgresError) {
        let handle = try ConnectionHandle.connect(configuration.parameters(uri: uri))
        outcome = .success(Backend(handle, configuration))
      } catch {
        outcome = .failure(error)
      }
      PostgresLoop.submit { finished(outcome) }
    }
  }
}
