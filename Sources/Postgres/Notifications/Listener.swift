import Logging

/// Keeps a connection for LISTEN, and reconnects when it is lost.
@PostgresLoop
final class Listener {
  /// Interval at which deadlines are checked while connected.
  private static let sweepInterval = Duration.seconds(1)

  private let channels: [String]
  private let configuration: ConnectionPool.Configuration
  private let logger: Logger
  private let continuation: AsyncStream<ListenEvent>.Continuation
  private var backend: Backend?
  private var failures = 0
  private var hasListened = false
  private(set) var isStopped = false

  nonisolated init(
    channels: [String], configuration: ConnectionPool.Configuration, logger: Logger,
    _ continuation: AsyncStream<ListenEvent>.Continuation
  ) {
    self.channels = channels
    self.configuration = configuration
    self.logger = logger
    self.continuation = continuation
  }

  func connect() {
    guard !isStopped else { return }
    let uri = configuration.listenURI ?? configuration.uri
    Connecting.start(configuration, uri: uri) { outcome in
      switch outcome {
      case .success(let backend): self.connected(backend)
      case .failure(let error):
        self.logger.warning(
          "Could not connect to PostgreSQL for LISTEN", metadata: ["error": "\(error)"])
        self.reconnectLater()
      }
    }
  }

  func stop() {
    guard !isStopped else { return }
    isStopped = true
    continuation.finish()
    backend?.close(PoolDriver.closedError)
  }

  /// Closes a connection to a server other than this one.
  func leave(otherThan server: [String], _ reason: PostgresError) {
    if let backend, backend.server != server { backend.close(reason) }
  }

  private func connected(_ backend: Backend) {
    guard !isStopped else { return }
    self.backend = backend
    backend.start(owner: self)
    let statements = channels.map { SQL(unescaped: "LISTEN \(Self.quoted($0))") }
    send(statements) { outcome in
      switch outcome {
      case .success:
        self.failures = 0
        self.yield(self.hasListened ? .reconnected : .listening)
        self.hasListened = true
      case .failure(let error):
        backend.close(error as? PostgresError ?? PostgresError(.connectionLost, "\(error)"))
      }
    }
    checkLater(backend)
    sweepLater(backend)
  }

  private func yield(_ event: ListenEvent) {
    if case .dropped = continuation.yield(event) { continuation.yield(.reconnected) }
  }

  private func reconnectLater() {
    guard !isStopped else { return }
    let delay = Backoff.reconnecting.delay(attempt: failures, jitter: .random(in: 0...1))
    failures += 1
    Reactor.shared.schedule(after: delay) { self.connect() }
  }

  /// Checks the connection periodically: one that only listens does not notice a lost server.
  private func checkLater(_ checked: Backend) {
    Reactor.shared.schedule(after: configuration.idleHealthCheckInterval) { [weak checked] in
      guard let checked, checked === self.backend, !checked.isClosed else { return }
      self.send(["SELECT 1"]) { _ in }
      self.checkLater(checked)
    }
  }

  private func sweepLater(_ swept: Backend) {
    Reactor.shared.schedule(after: Self.sweepInterval) { [weak swept] in
      guard let swept, !swept.isClosed else { return }
      swept.enforceDeadlines(now: Reactor.shared.now)
      self.sweepLater(swept)
    }
  }

  private func send(_ statements: [SQL], then: @escaping @PostgresLoop (Request.Outcome) -> Void) {
    let request = Request(statements, timeout: configuration.connectTimeout)
    _ = request.accept(.call(then), now: Reactor.shared.now)
    backend?.send(request)
  }

  private static func quoted(_ channel: String) -> String {
    "\"\(channel.replacing("\"", with: "\"\""))\""
  }
}

extension Listener: BackendOwner {
  func backend(_ backend: Backend, finished request: Request) {}

  func backend(_ backend: Backend, wantsRepeat request: Request) { backend.send(request) }

  func backend(_ backend: Backend, received notification: Notification) {
    yield(.notification(notification))
  }

  func backendClosed(_ backend: Backend, _ reason: PostgresError) {
    self.backend = nil
    if reason.code != .closed {
      logger.info("Lost the PostgreSQL connection for LISTEN", metadata: ["error": "\(reason)"])
    }
    reconnectLater()
  }
}

package enum ListenEvent: Hashable, Sendable {
  /// LISTEN is active for the first time.
  case listening
  /// LISTEN was interrupted, or the reader too slow: notifications may have been missed.
  case reconnected
  case notification(Notification)
}

package struct Notification: Hashable, Sendable {
  package let channel: String
  package let payload: String
  package let processID: Int32
}

extension ConnectionPool {
  /// Listens to channels on a separate connection, until the sequence or the pool is closed.
  ///
  /// ```swift
  /// for await event in pool.listen(to: ["job"]) {
  ///   switch event {
  ///   case .listening, .reconnected: await checkAllJobs()
  ///   case .notification(let notification): await checkJob(notification.payload)
  ///   }
  /// }
  /// ```
  /// A lost connection is reopened. After all but notifications, look for missed changes.
  package func listen(to channels: [String]) -> AsyncStream<ListenEvent> {
    // A reader this far behind receives `reconnected`, and reads the tables instead.
    let (stream, continuation) = AsyncStream.makeStream(
      of: ListenEvent.self, bufferingPolicy: .bufferingNewest(4096))
    let listener = Listener(
      channels: channels, configuration: configuration, logger: driver.logger, continuation)
    continuation.onTermination = { _ in PostgresLoop.submit { listener.stop() } }
    PostgresLoop.submit { [driver] in driver.add(listener) }
    return stream
  }
}
