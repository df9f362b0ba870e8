package import Subscriptions

/// Exponential backoff: delays double up to a longest one, for a limited time.
package struct RetrySchedule: Hashable, Sendable {
  /// The longest first delay.
  package let first: Duration
  /// The longest delay.
  package let longest: Duration
  /// The time after which retries stop until an operator starts them again; nil for no limit.
  package let patience: Duration?

  package init(
    first: Duration = .milliseconds(1500), longest: Duration = .hours(1), patience: Duration?
  ) {
    self.first = first
    self.longest = longest
    self.patience = patience
  }

  /// For work that waits for Apple; the first retry comes within two seconds.
  package static let apple = RetrySchedule(patience: patienceWithApple)
  /// For recurring work that no operator would start again.
  package static let forEver = RetrySchedule(patience: nil)

  package static let patienceWithApple: Duration = .days(30)
  /// The longest delay that Apple may ask for.
  package static let longestWish: Duration = .hours(24)

  /// The time for which a submission waits for a transaction that Apple does not list yet, or that
  /// is unreadable.
  package static let lookingForTransaction: Duration = .hours(24)

  /// The delay after a number of attempts, with 50% jitter so that work that failed together is not
  /// retried together.
  ///
  /// `random` is from 0 to 1.
  package func delay(afterAttempts attempts: Int, random: Double) -> Duration {
    let doublings = min(max(attempts - 1, 0), 16)
    let limit = min(first * (1 << doublings), longest)
    return limit / 2 + limit / 2 * min(max(random, 0), 1)
  }

  /// The time of the next attempt, not before the time that the other side asked for.
  package func next(
    afterAttempts attempts: Int, at now: Timestamp, notBefore: Timestamp? = nil
  ) -> Timestamp {
    let next = now + delay(afterAttempts: attempts, random: .random(in: 0...1))
    guard let notBefore else { return next }
    return max(next, min(notBefore, now + Self.longestWish))
  }

  /// Whether retries since a time have reached their limit.
  package func isOver(for since: Timestamp, at now: Timestamp) -> Bool {
    patience.map { now >= since + $0 } ?? false
  }
}
