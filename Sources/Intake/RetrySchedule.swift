package import Subscriptions

/// A retry schedule with exponential backoff.
package struct RetrySchedule: Hashable, Sendable {
  package let first: Duration
  package let longest: Duration
  /// The retry window; nil: endless.
  package let patience: Duration?

  package init(
    first: Duration = .milliseconds(1500), longest: Duration = .hours(1), patience: Duration?
  ) {
    (self.first, self.longest, self.patience) = (first, longest, patience)
  }

  /// The schedule of requests to Apple.
  package static let apple = RetrySchedule(patience: patienceWithApple)
  /// For recurring work that no operator would start again.
  package static let forever = RetrySchedule(patience: nil)

  package static let patienceWithApple: Duration = .days(30)
  /// The longest pause that Apple may ask for.
  package static let longestWish: Duration = .hours(24)

  /// The time for which a submitted transaction that Apple does not list is looked for.
  package static let lookingForTransaction: Duration = .hours(24)

  /// The pause after some attempts, with 50% jitter so that what failed together is spread.
  ///
  /// - Parameter random: From 0 to 1.
  package func delay(afterAttempts attempts: Int, random: Double) -> Duration {
    let doublings = min(max(attempts - 1, 0), 16)
    let limit = min(first * (1 << doublings), longest)
    return limit / 2 + limit / 2 * min(max(random, 0), 1)
  }

  /// The time of the next attempt; `notBefore` is the other side's wish, up to ``longestWish``.
  package func next(
    afterAttempts attempts: Int, at now: Timestamp, notBefore: Timestamp? = nil
  ) -> Timestamp {
    let next = now + delay(afterAttempts: attempts, random: .random(in: 0...1))
    guard let notBefore else { return next }
    return max(next, min(notBefore, now + Self.longestWish))
  }

  package func isOver(for since: Timestamp, at now: Timestamp) -> Bool {
    patience.map { now >= since + $0 } ?? false
  }
}
