internal import CLibpq
internal import DequeModule

extension Backend {
  /// How long the server may take to give up a statement before its connection is given up instead.
  static let cancellationGrace = Duration.seconds(2)

  /// A cancellation can arrive after its statement has ended and hit the next one, for as long as
  /// it may be on its way.
  private static let cancellationEcho = Duration.seconds(5)

  var wasCancellingRecently: Bool {
    guard let lastCancellation else { return isCancelling }
    return isCancelling || Reactor.shared.now - lastCancellation < Self.cancellationEcho
  }

  /// Cancels what the server is running if nobody wants it any more.
  ///
  /// Only the head of the pipeline is being run. What stands behind it is looked at again when it
  /// gets there; most of it will be answered before one cancellation has made its way.
  func cancelHeadIfUnwanted() {
    if steps.first?.request.cancelledAt != nil { sendCancellation() }
  }

  /// Asks the server to give up what it is running; one cancellation at a time is on its way.
  func sendCancellation() {
    guard !isClosed, !isCancelling, let cancellation = handle.makeCancellation() else { return }
    isCancelling = true
    lastCancellation = Reactor.shared.now
    // Weak, for on a frozen server this is never called, and the connection has to be closed all
    // the same.
    cancellation.send { [weak self] in
      self?.isCancelling = false
      self?.lastCancellation = Reactor.shared.now
      self?.exclusive?.wake()
    }
  }

  /// Whether a failure is the work of a cancellation that was meant for somebody else.
  func isStray(_ failure: PostgresError) -> Bool {
    failure.sqlState == .queryCanceled && wasCancellingRecently && !failure.isStatementTimeout
  }

  /// Answers those whose deadline has passed, and gives up a server that doesn't react.
  func enforceDeadlines(now: ContinuousClock.Instant) {
    for case .sync(let request) in steps where now >= request.deadline && !request.isAnswered {
      request.cancel(now: now)
      request.complete(
        .failure(
          PostgresError(
            .timedOut, "the server did not answer within \(request.timeout)",
            statement: request.statements.first?.text)))
    }
    if let cancelledAt = steps.first?.request.cancelledAt,
      now > max(cancelledAt, headSince) + Self.cancellationGrace
    {
      return close(PostgresError(.connectionLost, "the server did not react to a cancellation"))
    }
    cancelHeadIfUnwanted()
    exclusive?.enforceDeadline(now: now)
    lookBehindTLS()
  }
}

/// A ticket for cancelling what a connection is running, independent of the connection.
///
/// libpq's PQcancel blocks: it makes a connection of its own and waits until the server has closed
/// it, which a frozen server never does. (The non-blocking PQcancelStart came with libpq 17.) So
/// each cancellation gets a thread of its own for its millisecond; there is at most one per
/// connection, and it is rare.
@safe
final class Cancellation: @unchecked Sendable {
  // Written by nobody after init; PQcancel may be called from any thread (libpq manual, Canceling
  // Queries).
  private let pointer: OpaquePointer

  init(adopting pointer: OpaquePointer) {
    unsafe self.pointer = unsafe pointer
  }

  deinit {
    unsafe PQfreeCancel(pointer)
  }

  /// Asks the server to cancel, then calls back on the loop, whether it worked or not.
  func send(then finished: @escaping @Sendable @PostgresLoop () -> Void) {
    let isStarted = Threads.start(named: "postgres-cancel") { [self] in
      unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: 256) { reason in
        // Whether it failed is seen by whether the statement ends; there is nothing else to be done
        // about it.
        _ = unsafe PQcancel(pointer, reason.baseAddress, Int32(reason.count))
      }
      PostgresLoop.submit(finished)
    }
    if !isStarted { PostgresLoop.submit(finished) }
  }
}
