/// The thread that serves all connections to PostgreSQL, as a global actor.
///
/// Connections, pools and listeners are isolated to it, so the compiler proves that libpq's
/// handles, which no two threads may use at once, are only used here. Requests are no actor calls,
/// which would cost two more hops each, but handed over with ``submit(_:)``. One thread is enough:
/// a statement takes a few microseconds here, tenfold in PostgreSQL.
@globalActor
package actor PostgresLoop {
  package static let shared = PostgresLoop()

  nonisolated let loop = EventLoop()

  package nonisolated var unownedExecutor: UnownedSerialExecutor {
    unsafe loop.asUnownedSerialExecutor()
  }

  /// Runs work on the loop's thread, after the work submitted before it.
  static nonisolated func submit(_ work: @escaping @Sendable @PostgresLoop () -> Void) {
    shared.loop.enqueue(work)
  }

  /// Runs isolated work immediately on the loop's thread, and traps on any other, like
  /// `MainActor.assumeIsolated`, which the library lacks for other global actors.
  static nonisolated func assumeIsolated(_ work: @PostgresLoop () -> Void) {
    shared.loop.checkIsolated()
    withoutActuallyEscaping(work) { escaping in
      // The types differ only in isolation, which has no representation and was checked above.
      let plain = unsafe unsafeBitCast(escaping, to: (() -> Void).self)
      plain()
    }
  }
}
