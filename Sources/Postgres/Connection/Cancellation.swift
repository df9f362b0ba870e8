internal import CLibpq
internal import DequeModule
import Dispatch

extension Backend {
  /// How long the server may take to react to a cancellation before the connection is closed.
  static let cancellationGrace = Duration.seconds(2)

  /// How long a cancellation can still arrive after its statement has ended, and hit the next one.
  private static let cancellationEcho = Duration.seconds(5)

  /// Cancels the running statement, which is the head of the pipeline, if its caller was cancelled.
  ///
  /// Later requests are checked when they reach the head. One cancellation is in flight at a time.
  func cancelHeadIfUnwanted() {
    guard steps.first?.request.cancelledAt != nil, !isClosed, !isCancelling,
      let cancellation = handle.makeCancellation()
    else { return }
    isCancelling = true
    lastCancellation = Reactor.shared.now
    // Weak, because a frozen server never triggers this, and the connection must still be released.
    cancellation.send { [weak self] in
      self?.isCancelling = false
      self?.lastCancellation = Reactor.shared.now
    }
  }

  /// Whether a failure was caused by a cancellation meant for another request.
  func isUnrequestedCancellation(_ failure: PostgresError) -> Bool {
    let wasCancelling =
      lastCancellation.map { Reactor.shared.now - $0 < Self.cancellationEcho } ?? false
    return failure.sqlState == .queryCanceled && !failure.isStatementTimeout
      && (isCancelling || wasCancelling)
  }

  /// Fails requests whose deadline has passed, and closes a connection whose server does not react.
  func enforceDeadlines(now: ContinuousClock.Instant) {
    for case .sync(let request) in steps where now >= request.deadline && !request.isAnswered {
      request.cancel(now: now)
      request.complete(
        .failure(
          PostgresError(
            .timedOut, "the server did not respond within \(request.timeout)",
            statement: request.statements.first?.text)))
    }
    if let cancelledAt = steps.first?.request.cancelledAt,
      now > max(cancelledAt, headSince) + Self.cancellationGrace
    {
      return close(PostgresError(.connectionLost, "the server did not react to a cancellation"))
    }
    cancelHeadIfUnwanted()
    lookBehindTLS()
  }
}

/// Cancels a connection's running statement, on a thread of its own.
///
/// libpq's PQcancel blocks: it opens a separate connection and waits for the server to close it,
/// which a frozen server never does. (The non-blocking PQcancelStart requires libpq 17.)
@safe
final class Cancellation: @unchecked Sendable {
  // Not written after init; any thread may call PQcancel (libpq manual, "Canceling Queries").
  private let pointer: OpaquePointer

  init(adopting pointer: OpaquePointer) { unsafe self.pointer = unsafe pointer }

  deinit { unsafe PQfreeCancel(pointer) }

  /// Sends the cancellation, then calls back on the loop whether it worked or not.
  func send(then finished: @escaping @Sendable @PostgresLoop () -> Void) {
    DispatchQueue(label: "postgres-cancel").async { [self] in
      unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: 256) { reason in
        // Success shows in whether the statement ends; there is no other remedy.
        _ = unsafe PQcancel(pointer, reason.baseAddress, Int32(reason.count))
      }
      PostgresLoop.submit(finished)
    }
  }
}
