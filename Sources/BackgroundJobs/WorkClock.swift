import LedgerStorage
package import Subscriptions

/// The time by which jobs are due.
package struct WorkClock: Sendable {
  package let now: @Sendable () -> Timestamp
  /// How long a worker sleeps, by the real clock, before it looks at the time again.
  ///
  /// A clock that is not the real one can jump at any moment.
  package let longestSleep: Duration

  /// A clock that runs as the real one does, unless told otherwise.
  package init(
    longestSleep: Duration = Bell.longestSilence, now: @escaping @Sendable () -> Timestamp
  ) {
    self.longestSleep = longestSleep
    self.now = now
  }

  /// A clock that can jump at any moment.
  package static func jumping(_ now: @escaping @Sendable () -> Timestamp) -> WorkClock {
    WorkClock(longestSleep: .milliseconds(20), now: now)
  }
}
