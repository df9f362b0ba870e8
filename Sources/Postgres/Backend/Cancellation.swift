internal import CLibpq

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
