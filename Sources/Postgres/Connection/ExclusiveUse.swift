internal import CLibpq
internal import DequeModule

/// The use of an idle connection outside of the pipeline, for scripts and COPY.
///
/// Off the hot path, so it is straight-line async code on the loop. Each wait ends when the socket
/// is ready, the connection closes or the deadline passes.
@PostgresLoop
final class ExclusiveUse {
  private let backend: Backend
  private let timeout: Duration
  /// The end of the server's permitted silence, extended by all activity and while nothing waits
  /// for the server.
  private var deadline: ContinuousClock.Instant
  private var cancelledAt: ContinuousClock.Instant?
  private var isTimedOut = false
  private var waiting: CheckedContinuation<Void, Never>?

  /// Takes the connection out of the pipeline; fails if requests are in flight.
  init(of backend: Backend, timeout: Duration) throws(PostgresError) {
    guard !backend.isClosed else {
      throw PostgresError(.connectionLost, "the connection is closed")
    }
    guard backend.exclusive == nil, backend.steps.isEmpty, backend.handle.exitPipeline() else {
      throw PostgresError(.invalidRequest, "the connection is busy with other statements")
    }
    self.backend = backend
    self.timeout = timeout
    deadline = .now + timeout
    backend.exclusive = self
  }

  /// Returns the connection to the pipeline, or closes it if it is in the middle of something.
  func end() async {
    if isTimedOut { backend.close(failure) }
    await settle()
    backend.exclusive = nil
    if !backend.isClosed, !backend.handle.enterPipeline() { backend.closeAsLost() }
  }

  /// Waits until no cancellation is in flight that could hit the next statement.
  func settle() async {
    while backend.isCancelling, !backend.isClosed { try? await arrival() }
  }

  /// Handles a ready socket; reads even if nothing waits, as the poller would keep reporting it.
  func ready() {
    guard waiting == nil else {
      deadline = .now + timeout
      return wake()
    }
    if !backend.handle.consumeInput() { backend.closeAsLost() }
  }

  func wake() {
    waiting?.resume()
    waiting = nil
  }

  /// Cancels the running statement; has no effect once this use has ended.
  func cancel() {
    guard backend.exclusive === self, cancelledAt == nil else { return }
    cancelledAt = .now
    backend.sendCancellation()
  }

  func enforceDeadline(now: ContinuousClock.Instant) {
    if waiting == nil { deadline = now + timeout }
    if now >= deadline, cancelledAt == nil {
      isTimedOut = true
      cancel()
    }
    if let cancelledAt, now > cancelledAt + Backend.cancellationGrace {
      let grace = Backend.cancellationGrace
      backend.close(
        PostgresError(
          .connectionLost, "the statement did not end within \(grace) of a cancellation"))
    }
  }

  /// Sends a script or COPY in the simple protocol.
  func send(_ text: String) throws(PostgresError) {
    guard !backend.isClosed, backend.handle.executeScript(text) else { throw failure }
    backend.flushSoon()
  }

  /// Waits for the next result; nil after the last one.
  func nextResult() async throws -> ResultHandle? {
    try await flush()
    while !backend.isClosed, backend.handle.isBusy { try await arrival() }
    guard !backend.isClosed else { throw failure }
    let result = backend.handle.nextResult()
    if let result, result.status == PGRES_FATAL_ERROR {
      throw await error(of: result)
    }
    if result == nil, backend.handle.takeUnreplicatedCommit() {
      throw PostgresError.unreplicatedCommit
    }
    return result
  }

  /// Sends a piece of COPY data and waits until the server has taken it, which bounds memory.
  func write(_ bytes: [UInt8]) async throws {
    while true {
      guard !backend.isClosed else { throw failure }
      guard let wasTaken = backend.handle.putCopyData(bytes) else {
        try await flush()
        continue
      }
      guard wasTaken else { throw failure }
      break
    }
    try await flush()
  }

  /// Writes all buffered data.
  ///
  /// Also reads, to avoid a deadlock in which both sides wait to write. Flushing and watching the
  /// socket happen in one turn: otherwise the server could take the rest in between, and both sides
  /// would wait.
  private func flush() async throws {
    while true {
      guard !backend.isClosed else { throw failure }
      let outcome = backend.handle.flush()
      guard outcome != .failed else { throw failure }
      backend.watchWriting(outcome == .partly)
      if outcome == .everything { return }
      try await arrival()
    }
  }

  private func arrival() async throws {
    if !backend.isClosed { await withCheckedContinuation { waiting = $0 } }
    guard !backend.isClosed else { throw failure }
    guard backend.handle.consumeInput() else {
      let reason = failure
      backend.closeAsLost()
      throw reason
    }
  }

  var failure: PostgresError {
    if isTimedOut {
      return PostgresError(.timedOut, "the server did not respond within \(timeout)")
    }
    return PostgresError(
      .connectionLost, backend.isClosed ? "the connection was closed" : backend.handle.errorMessage)
  }

  /// Reads the results that follow an error, so that the connection stays usable.
  private func error(of result: ResultHandle) async -> any Error {
    guard var error = result.serverError else { return failure }
    while (try? await nextResult()) != nil {}
    if isTimedOut { return failure }
    if cancelledAt != nil, error.sqlState == .queryCanceled { return CancellationError() }
    error.wasCancelledByMistake = backend.isUnrequestedCancellation(error)
    return error
  }
}

extension ExclusiveUse {
  /// Runs a body that uses a session's connection outside of the pipeline, and then ends that use.
  ///
  /// Cancelling the task cancels the running statement. Errors name the statement.
  nonisolated static func of<Value>(
    _ session: Session, running statement: String, timeout: Duration,
    _ body: (ExclusiveUse) async throws -> Value
  ) async throws -> Value {
    let use = try await begin(session, timeout: timeout)
    do {
      let value = try await withTaskCancellationHandler {
        try await body(use)
      } onCancel: {
        PostgresLoop.submit { use.cancel() }
      }
      await use.end()
      return value
    } catch {
      await use.end()
      throw (error as? PostgresError)?.during(statement) ?? error
    }
  }

  static func begin(_ session: Session, timeout: Duration) async throws -> ExclusiveUse {
    switch session.state {
    case .leased(let backend):
      let use = try ExclusiveUse(of: backend, timeout: timeout)
      await use.settle()
      return use
    case .ended(let reason): throw reason
    case .unused, .waiting: throw Session.endedNormally
    }
  }

  /// Runs a script; results with rows are dropped.
  func runScript(_ text: String) async throws {
    try send(text)
    while try await nextResult() != nil {}
  }

  func beginCopy(_ text: String) async throws {
    try send(text)
    guard let result = try await nextResult(), result.status == PGRES_COPY_IN else {
      throw PostgresError(
        .invalidRequest, "this statement is not COPY … FROM STDIN", statement: text)
    }
  }

  /// Ends COPY and returns the number of rows; given a reason, the rows are discarded.
  func endCopy(aborting reason: String? = nil) async throws -> Int {
    guard !backend.isClosed, backend.handle.putCopyEnd(aborting: reason) else { throw failure }
    var rows = 0
    while let result = try await nextResult() { rows = result.affectedRows }
    return rows
  }
}
