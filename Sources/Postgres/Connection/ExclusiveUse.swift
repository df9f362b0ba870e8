internal import CLibpq
internal import DequeModule

/// What is done outside of the pipeline, on a connection that has nothing else under way: scripts
/// and COPY.
///
/// Off the hot path, so it is written as straight-line async code on the loop: each wait ends when
/// the socket is ready, the connection is closed, or the deadline has passed.
@PostgresLoop
final class ExclusiveUse {
  private let backend: Backend
  private let timeout: Duration
  /// Until when the server may be silent; put off by everything that it does, and for as long as
  /// nobody waits for it.
  private var deadline: ContinuousClock.Instant
  private var cancelledAt: ContinuousClock.Instant?
  private var isTimedOut = false
  private var waiting: CheckedContinuation<Void, Never>?

  /// - Throws: ``PostgresError`` when the connection cannot leave the pipeline, as with answers
  ///   outstanding.
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

  /// Gives the connection back to the pipeline; closes it when it is left in the middle of
  /// something.
  func end() async {
    if isTimedOut { backend.close(failure) }
    await settle()
    backend.exclusive = nil
    if !backend.isClosed, !backend.handle.enterPipeline() { backend.closeAsLost() }
  }

  /// Waits until no cancellation is on its way, lest it hit what comes next.
  func settle() async {
    while backend.isCancelling, !backend.isClosed { try? await arrival() }
  }

  /// The socket is ready.
  ///
  /// When nobody waits for it, what has arrived is taken all the same: the poller would report it
  /// over and over.
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

  /// Cancels what is under way; does nothing when this has ended and the connection is another's.
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
      backend.close(PostgresError(.connectionLost, "no end within \(grace) of a cancellation"))
    }
  }

  /// Sends a script or COPY in the simple protocol.
  func send(_ text: String) throws(PostgresError) {
    guard !backend.isClosed, backend.handle.executeScript(text) else { throw failure }
    backend.flushSoon()
  }

  /// Waits for the next result; nil when there are no more.
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

  /// Sends a piece of COPY data, and waits until the server has taken it: that is all the memory it
  /// needs.
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

  func putCopyEnd(aborting reason: String?) -> Bool {
    !backend.isClosed && backend.handle.putCopyEnd(aborting: reason)
  }

  /// Writes everything out.
  ///
  /// Reads meanwhile, lest the server wait for us to read and we for it. Written and judged in one:
  /// the server may take the rest at any moment, and whoever waited then for the socket would wait
  /// while the server waits for more.
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

  /// Waits until the socket is ready, and takes what has arrived.
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
      return PostgresError(.timedOut, "the server did not answer within \(timeout)")
    }
    return PostgresError(
      .connectionLost, backend.isClosed ? "the connection was closed" : backend.handle.errorMessage)
  }

  /// Reads to the end of what follows an error, so that the connection can go on.
  private func error(of result: ResultHandle) async -> any Error {
    guard var error = result.serverError else { return failure }
    while (try? await nextResult()) != nil {}
    if isTimedOut { return failure }
    if cancelledAt != nil, error.sqlState == .queryCanceled { return CancellationError() }
    error.wasCancelledByMistake = backend.isStray(error)
    return error
  }
}

extension ExclusiveUse {
  /// Begins on the connection that a session has.
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

  /// Runs a script to its end; results with rows are dropped.
  func runScript(_ text: String) async throws {
    try await withTaskCancellationHandler {
      try send(text)
      while try await nextResult() != nil {}
    } onCancel: {
      PostgresLoop.submit { self.cancel() }
    }
  }

  /// Begins COPY FROM STDIN.
  func beginCopy(_ text: String) async throws {
    try send(text)
    guard let result = try await nextResult(), result.status == PGRES_COPY_IN else {
      throw PostgresError(
        .invalidRequest, "this statement is not COPY … FROM STDIN", statement: text)
    }
  }

  /// Ends COPY, keeping what was sent; with a reason it is discarded.
  ///
  /// - Returns: the number of rows.
  func endCopy(aborting reason: String? = nil) async throws -> Int {
    guard putCopyEnd(aborting: reason) else { throw failure }
    var rows = 0
    while let result = try await nextResult() { rows = result.affectedRows }
    return rows
  }
}
