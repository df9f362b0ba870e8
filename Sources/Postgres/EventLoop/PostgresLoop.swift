/// The thread that serves all connections to PostgreSQL, as a global actor.
///
/// Connections, pools and listeners are classes isolated to this actor: the compiler proves that
/// libpq's handles, which no two threads may use at once, are only touched here. Requests do not
/// travel as actor calls, which would cost two more hops each; they are handed over with
/// ``submit(_:)`` and answered by resuming their caller's continuation.
///
/// One thread is enough: a statement costs it a few microseconds, PostgreSQL ten times that.
@globalActor
package actor PostgresLoop {
  package static let shared = PostgresLoop()

  nonisolated let loop = EventLoop()

  package nonisolated var unownedExecutor: UnownedSerialExecutor {
    unsafe loop.asUnownedSerialExecutor()
  }

  /// Runs a piece of work on the loop's thread, after what was submitted before it.
  static nonisolated func submit(_ work: @escaping @Sendable @PostgresLoop () -> Void) {
    shared.loop.enqueue(work)
  }

  /// Runs isolated work at once, on the loop's thread; traps on any other.
  ///
  /// The same that `MainActor.assumeIsolated` does; other global actors don't get one from the
  /// library.
  static nonisolated func assumeIsolated(_ work: @PostgresLoop () -> Void) {
    shared.loop.checkIsolated()
    withoutActuallyEscaping(work) { escaping in
      // The two types differ only in isolation, which has no representation and was just checked.
      let plain = unsafe unsafeBitCast(escaping, to: (() -> Void).self)
      plain()
    }
  }
}
