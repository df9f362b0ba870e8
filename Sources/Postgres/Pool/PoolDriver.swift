internal import CoreMetrics
internal import DequeModule
import Logging

/// Carries out ``PoolState``'s decisions: opens connections, sends requests, handles results.
@PostgresLoop
final class PoolDriver {
  private enum Phase { case open, closing, closed }

  /// Interval at which deadlines are checked while requests are in flight.
  private static let sweepInterval = Duration.milliseconds(50)

  private let configuration: ConnectionPool.Configuration
  let logger: Logger
  private let metrics: PoolMetrics
  private var state: PoolState<Request>
  private var backends: [Backend?]
  private var sessions: [Session?]
  private var phase = Phase.open
  private var closers: [CheckedContinuation<Void, Never>] = []
  private var isSweepScheduled = false
  private var lastConnectFailure: PostgresError?
  private var listeners: [Listener] = []
  private var isLookingForPrimary = false
  private var looksForPrimaryAt = ContinuousClock.now

  nonisolated init(
    configuration: ConnectionPool.Configuration, logger: Logger, metrics: PoolMetrics
  ) {
    (self.configuration, self.logger, self.metrics) = (configuration, logger, metrics)
    let state = PoolState<Request>(limit: configuration.connectionLimit, now: .now)
    self.state = state
    backends = Array(repeating: nil, count: state.slots.count)
    sessions = Array(repeating: nil, count: state.slots.count)
  }

  var requestsSent: Int { state.requestsSent }

  var reading: PoolReading { state.reading }

  // MARK: Requests

  func accept(_ request: Request, _ completion: Request.Completion) {
    let now = Reactor.shared.now
    let trips = request.session == nil ? metrics.statements : metrics.transactions
    guard request.accept(completion, now: now, countedIn: trips) else { return }
    scheduleSweep()
    if let session = request.session {
      accept(request, of: session, now)
    } else if phase == .open {
      assign(request, .shared, now)
    } else {
      request.complete(.failure(Self.closedError))
    }
  }

  private func accept(_ request: Request, of session: Session, _ now: ContinuousClock.Instant) {
    switch session.state {
    case .leased(let backend):
      guard let slot = slot(of: backend) else {
        return request.complete(.failure(Session.endedNormally))
      }
      state.sent(on: slot, now: now)
      backend.send(request)
    case .waiting(let requests): session.state = .waiting(requests + [request])
    case .unused where request.isRollback:
      // The server does not know the transaction.
      request.complete(.success([]))
    case .unused where phase == .open:
      session.state = .waiting([])
      assign(request, .lease, now)
    case .unused: request.complete(.failure(Self.closedError))
    case .ended(var reason):
      reason.wasNotSent = true
      request.complete(.failure(reason))
    }
  }

  private func assign(
    _ request: Request, _ need: PoolState<Request>.Need, _ now: ContinuousClock.Instant
  ) {
    if let slot = state.place(need, now: now) {
      start(request, on: slot, now)
    } else {
      state.wait(
        request, need, since: now, until: min(now + configuration.acquireTimeout, request.deadline))
    }
    openConnections(now)
  }

  private func start(_ request: Request, on slot: Int, _ now: ContinuousClock.Instant) {
    guard let backend = backends[slot] else {
      // Lost while it was assigned to several requests; this one has not been sent.
      return assign(request, request.session == nil ? .shared : .lease, now)
    }
    if let session = request.session {
      guard case .waiting(let others) = session.state else {
        request.complete(.failure(Session.endedNormally))
        state.released(slot)
        return advance()
      }
      session.state = .leased(backend)
      sessions[slot] = session
      for request in [request] + others {
        state.sent(on: slot, now: now)
        backend.send(request)
      }
    } else {
      backend.send(request)
    }
  }

  func cancel(_ request: Request) {
    let now = Reactor.shared.now
    request.cancel(now: now)
    if state.remove(request) {
      fail(request, CancellationError())
    } else {
      for backend in backends { backend?.cancelHeadIfUnwanted() }
    }
  }

  /// Completes a request that was never sent; its session returns to unused.
  private func fail(_ request: Request, _ error: any Error) {
    if let session = request.session, case .waiting(let others) = session.state {
      session.state = .unused
      for other in others { other.complete(.failure(error)) }
    }
    request.complete(.failure(error))
  }

  // MARK: Sessions

  /// Returns a session's connection to the pool, or closes it if it is in the middle of something.
  func end(_ session: Session) {
    let before = session.state
    session.state = .ended(Session.endedNormally)
    if case .waiting(let requests) = before {
      for request in requests { request.complete(.failure(Session.endedNormally)) }
    }
    guard case .leased(let backend) = before, let slot = slot(of: backend) else { return }
    sessions[slot] = nil
    guard backend.steps.isEmpty, backend.handle.isIdle else {
      return backend.close(
        PostgresError(.closed, "the connection was given back in the middle of a transaction"))
    }
    backend.deallocateEvicted()
    state.released(slot)
    advance()
  }

  // MARK: Connections

  private func openConnections(_ now: ContinuousClock.Instant) {
    for slot in state.slotsToConnect(now: now) {
      Connecting.start(configuration, uri: configuration.uri) { [weak self] outcome in
        self?.connected(outcome, slot)
      }
    }
  }

  private func connected(_ outcome: Result<Backend, PostgresError>, _ slot: Int) {
    let now = Reactor.shared.now
    switch outcome {
    case .success(let backend):
      guard phase != .closed else { return }
      take(backend, slot, now)
      lastConnectFailure = nil
      metrics.connectsSucceeded.increment()
      logger.debug(
        "Connected to PostgreSQL",
        metadata: ["postgres.process": "\(backend.handle.processID)", "postgres.slot": "\(slot)"])
    case .failure(let error):
      state.connectFailed(slot, now: now, jitter: .random(in: 0...1))
      lastConnectFailure = error
      metrics.connectsFailed.increment()
      logger.warning("Could not connect to PostgreSQL", metadata: ["error": "\(error)"])
      // Before the first connection, wrong settings are likelier than an outage: fail at once.
      if !state.hasEverConnected {
        for request in state.removeAll() { fail(request, error) }
      }
      if let retryAt = state.retryAt {
        Reactor.shared.schedule(after: retryAt - now) { [weak self] in self?.advance() }
      }
    }
    advance()
  }

  private func take(_ backend: Backend, _ slot: Int, _ now: ContinuousClock.Instant) {
    backends[slot] = backend
    backend.start(owner: self)
    state.connected(slot, now: now)
    if backend.followsPrimary { leaveOthers(than: backend.server) }
  }

  private func slot(of backend: Backend) -> Int? { backends.firstIndex { $0 === backend } }

  /// Serves waiting requests, opens missing connections and finishes closing when the pool is idle.
  private func advance() {
    let now = Reactor.shared.now
    for placement in state.placeWaiting(now: now) {
      start(placement.waiter, on: placement.slot, now)
    }
    if phase == .open { openConnections(now) }
    if phase == .closing, state.isIdle { closeNow() }
  }

  // MARK: The primary

  /// Closes connections to servers other than the new primary: their requests would wait in vain
  /// or, worse, succeed on a demoted server.
  private func leaveOthers(than server: [String]) {
    let reason = PostgresError(.connectionLost, "another server is the primary now")
    for case let backend? in backends where backend.server != server { backend.close(reason) }
    guard configuration.listenURI == nil else { return }
    for listener in listeners { listener.leave(otherThan: server, reason) }
  }

  /// Reconnects to find the current primary when one has been silent for too long.
  private func suspectSilence(_ now: ContinuousClock.Instant) {
    guard phase == .open, !isLookingForPrimary, now >= looksForPrimaryAt else { return }
    let isSuspect = backends.contains { backend in
      guard let backend, backend.followsPrimary, let since = backend.silentSince else {
        return false
      }
      return now - since >= configuration.suspicionAfter
    }
    guard isSuspect else { return }
    isLookingForPrimary = true
    Connecting.start(configuration, uri: configuration.uri) { [weak self] outcome in
      self?.looked(outcome)
    }
  }

  /// Keeps the connection made while looking for the primary, if a slot is empty.
  private func looked(_ outcome: Result<Backend, PostgresError>) {
    let now = Reactor.shared.now
    isLookingForPrimary = false
    looksForPrimaryAt = now + configuration.suspicionAfter
    guard phase == .open, case .success(let backend) = outcome else { return }
    leaveOthers(than: backend.server)
    guard let slot = state.slots.firstIndex(where: { $0.status == .empty }) else { return }
    take(backend, slot, now)
    advance()
  }

  // MARK: Deadlines and health

  private func scheduleSweep() {
    guard !isSweepScheduled else { return }
    isSweepScheduled = true
    Reactor.shared.schedule(after: Self.sweepInterval) { [weak self] in self?.sweep() }
  }

  private func sweep() {
    isSweepScheduled = false
    let now = Reactor.shared.now
    for request in state.removeExpired(now: now) {
      let reason = lastConnectFailure.map { ": \($0.message)" } ?? ""
      fail(
        request,
        PostgresError(
          .poolTimeout, "no connection within \(configuration.acquireTimeout)\(reason)",
          statement: request.statements.first?.text))
    }
    for request in state.removeRefused(now: now, patience: configuration.outageTimeout) {
      let error =
        lastConnectFailure ?? PostgresError(.connectionFailed, "the server does not respond")
      fail(request, error.during(request.statements.first?.text))
    }
    for backend in backends { backend?.enforceDeadlines(now: now) }
    suspectSilence(now)
    advance()
    if phase != .closed, !state.isIdle { scheduleSweep() }
  }

  func startHealthChecks() {
    let interval = configuration.idleHealthCheckInterval
    Reactor.shared.schedule(after: interval) { [weak self] in
      guard let self, self.phase == .open else { return }
      self.checkIdleConnections(idleFor: interval)
      self.startHealthChecks()
    }
  }

  /// Sends `SELECT 1` on idle connections; one that does not respond in time is closed.
  private func checkIdleConnections(idleFor interval: Duration) {
    let now = Reactor.shared.now
    for (index, slot) in state.slots.enumerated() {
      guard let backend = backends[index], slot.inFlight == 0, !slot.isLeased,
        now - slot.lastProgress >= interval
      else { continue }
      let request = Request(["SELECT 1"], timeout: configuration.connectTimeout)
      _ = request.accept(.call { _ in }, now: now)
      state.sent(on: index, now: now)
      backend.send(request)
      scheduleSweep()
    }
  }

  // MARK: Listeners

  func add(_ listener: Listener) {
    guard phase == .open else { return listener.stop() }
    listeners.removeAll(where: \.isStopped)
    listeners.append(listener)
    listener.connect()
  }

  // MARK: Closing

  static let closedError = PostgresError(.closed, "the connection pool is closed")

  func close(within limit: Duration) async {
    guard phase != .closed else { return }
    phase = .closing
    Reactor.shared.schedule(after: limit) { [weak self] in self?.closeNow() }
    await withCheckedContinuation { continuation in
      closers.append(continuation)
      advance()
    }
  }

  func closeNow() {
    guard phase != .closed else { return }
    phase = .closed
    for request in state.removeAll() { fail(request, Self.closedError) }
    for backend in backends { backend?.close(Self.closedError) }
    for listener in listeners { listener.stop() }
    for closer in closers { closer.resume() }
    closers.removeAll()
  }
}

extension PoolDriver: BackendOwner {
  func backend(_ backend: Backend, finished request: Request) {
    guard let slot = slot(of: backend) else { return }
    state.finished(on: slot, now: Reactor.shared.now)
    if request.endsSession, request.failure == nil, let session = request.session, !backend.isClosed
    {
      end(session)
    } else if !state.waiting.isEmpty || phase == .closing {
      advance()
    }
  }

  func backend(_ backend: Backend, wantsRepeat request: Request) {
    let now = Reactor.shared.now
    if let slot = slot(of: backend) { state.finished(on: slot, now: now) }
    assign(request, .shared, now)
    advance()
  }

  func backend(_ backend: Backend, received notification: Notification) {}

  func backendClosed(_ backend: Backend, _ reason: PostgresError) {
    guard let slot = slot(of: backend) else { return }
    backends[slot] = nil
    sessions[slot]?.state = .ended(reason)
    sessions[slot] = nil
    state.closed(slot, now: Reactor.shared.now)
    if reason.code != .closed {
      metrics.connectionsLost.increment()
      logger.info("Lost a connection to PostgreSQL", metadata: ["error": "\(reason)"])
    }
    advance()
  }
}
