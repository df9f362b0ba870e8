internal import CLibpq
internal import DequeModule

/// The use of an idle connection outside of the pipeline, for scripts; each wait ends when the
/// socket is ready, the connection closes or the deadline passes.
@PostgresLoop
final class ExclusiveUse {
  private let backend: Backend
  private let timeout: Duration
  /// The end of the server's permitted silence, extended by all activity.
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
    (self.backend, self.timeout) = (backend, timeout)
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

  /// Waits for the next result; nil after the last one.
  func nextResult() async throws -> ResultHandle? {
    try await flush()
    while !backend.isClosed, backend.handle.isBusy { try await arrival() }
    guard !backend.isClosed else { throw failure }
    let result = backend.handle.nextResult()
    if let result, result.status == PGRES_FATAL_ERROR { throw await error(of: result) }
    if result == nil, backend.handle.takeUnreplicatedCommit() {
      throw PostgresError.unreplicatedCommit
    }
    return result
  }

  /// Writes all buffered data.
  ///
  /// Also reads, because otherwise both sides could wait to write. Flushing and watching the socket
  /// happen in one turn, or the server could take the rest in between, and both sides would wait.
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

  /// Runs a script on a session's connection; results with rows are dropped.
  static func run(_ script: String, in session: Session, timeout: Duration) async throws {
    let use = try await begin(session, timeout: timeout)
    do {
      try await withTaskCancellationHandler {
        try await use.run(script)
      } onCancel: {
        PostgresLoop.submit { use.cancel() }
      }
      await use.end()
    } catch {
      await use.end()
      throw (error as? PostgresError)?.during(script) ?? error
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

  func run(_ script: String) async throws {
    guard !backend.isClosed, backend.handle.executeScript(script) else { throw failure }
    backend.flushSoon()
    while try await nextResult() != nil {}
  }
}
