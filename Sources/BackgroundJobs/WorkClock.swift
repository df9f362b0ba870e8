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
    longestSleep: Duration = .seconds(10), now: @escaping @Sendable () -> Timestamp
  ) {
    self.longestSleep = longestSleep
    self.now = now
  }
}
