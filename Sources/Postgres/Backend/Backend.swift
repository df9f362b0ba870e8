internal import CLibpq
internal import DequeModule

/// One connection to a server, as the loop drives it: requests go out in a pipeline, answers come
/// in their order.
///
/// A plain class on the loop's actor rather than an actor of its own: everything happens on one
/// thread anyway, and so a request costs one hand-over and one resumption, with no further hops.
@PostgresLoop
final class Backend: EventSource {
  /// What the server will answer next, in order.
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
  let server: ServerName
  /// Whether the connection was asked for because its server takes writes.
  let followsPrimary: Bool
  weak var owner: (any BackendOwner)?
  var steps = Deque<Step>()
  var statements: StatementCache
  var isClosed = false
  /// Since when the server has been at the request at the head of the pipeline.
  var headSince = ContinuousClock.now
  var isCancelling = false
  var lastCancellation: ContinuousClock.Instant?
  /// Who drives the connection outside of the pipeline: a script or COPY.
  var exclusive: ExclusiveUse?
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

  /// Since when the server has said nothing though it was asked; nil while it owes no answer.
  var silentSince: ContinuousClock.Instant? { steps.isEmpty ? nil : headSince }

  func start(owner: any BackendOwner) {
    self.owner = owner
    Reactor.shared.watch(self, descriptor: descriptor)
  }

  /// Closes the connection; everything that waits for an answer fails.
  func close(_ reason: PostgresError) {
    guard !isClosed else { return }
    isClosed = true
    Reactor.shared.unwatch(self, descriptor: descriptor)
    // Before anybody is answered, lest what comes of it be sent here.
    owner?.backendClosed(self, reason)
    exclusive?.wake()
    while let step = steps.popFirst() {
      if case .sync(let request) = step { request.connectionClosed(reason) }
    }
  }

  /// Closes the connection because libpq says that it has failed.
  func closeAsLost() {
    close(PostgresError(.connectionLost, handle.errorMessage))
  }

  func ready(_ readiness: Readiness) {
    if readiness.contains(.writing) { flush() }
    guard !isClosed else { return }
    if let exclusive {
      exclusive.ready()
    } else if readiness.contains(.reading) {
      read()
    }
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
      // What the server has said before it went is a better reason than that it went.
      read()
      closeAsLost()
    }
  }

  /// Whether to be told when the socket takes more.
  func watchWriting(_ wants: Bool) {
    guard wants != wantsWriting else { return }
    wantsWriting = wants
    Reactor.shared.wantsWriting(wants, descriptor: descriptor)
  }
}

/// Who hears what becomes of a connection: a pool or a listener.
@PostgresLoop
protocol BackendOwner: AnyObject {
  /// A request has been answered to its end.
  func backend(_ backend: Backend, finished request: Request)
  /// A shared request has failed without its own fault and has changed nothing: it is to be sent
  /// once more, where there is room for it now.
  func backend(_ backend: Backend, wantsRepeat request: Request)
  func backend(_ backend: Backend, received notification: Notification)
  /// The connection takes nothing more; the requests that it had are answered after this.
  func backendClosed(_ backend: Backend, _ reason: PostgresError)
}
