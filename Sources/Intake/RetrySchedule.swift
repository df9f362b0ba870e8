package import Subscriptions

/// When something that failed is tried again, and for how long: doubling, up to a longest pause.
package struct RetrySchedule: Hashable, Sendable {
  /// Retries begin within this time and double from there.
  package let first: Duration
  /// However often it failed, the next time is no later than this.
  package let longest: Duration
  /// After this time it is given up, and waits for somebody to start it again; nil: never.
  package let patience: Duration?

  /// - Parameters:
  ///   - first: Retries begin within this time.
  ///   - longest: The longest time from one to the next.
  ///   - patience: How long it is tried; nil: for ever.
  package init(
    first: Duration = .milliseconds(1500), longest: Duration = .hours(1), patience: Duration?
  ) {
    self.first = first
    self.longest = longest
    self.patience = patience
  }

  /// Of what waits for Apple: within two seconds of the answer at first.
  package static let apple = RetrySchedule(patience: patienceWithApple)
  /// What comes again anyhow, and has nobody who would start it again.
  package static let forEver = RetrySchedule(patience: nil)

  /// How long Apple is asked about what it could not be asked about.
  package static let patienceWithApple: Duration = .days(30)
  /// The longest wait that Apple may ask for.
  package static let longestWish: Duration = .hours(24)

  /// What was submitted, and Apple does not list yet or nobody can read, is looked for this long.
  package static let lookingForTransaction: Duration = .hours(24)

  /// The time from one attempt to the next: doubling, with the second half of it left to chance so
  /// that what failed together does not come back together.
  ///
  /// - Parameters:
  ///   - attempts: How often it was tried, this time included.
  ///   - random: From 0 to 1.
  /// - Returns: The time to wait.
  package func delay(afterAttempts attempts: Int, random: Double) -> Duration {
    let doublings = min(max(attempts - 1, 0), 16)
    let limit = min(first * (1 << doublings), longest)
    return limit / 2 + limit / 2 * min(max(random, 0), 1)
  }

  /// When to try again.
  ///
  /// - Parameters:
  ///   - attempts: How often it was tried, this time included.
  ///   - now: The moment of the failure.
  ///   - notBefore: What the other side wished for, if anything.
  /// - Returns: The moment of the next attempt.
  package func next(
    afterAttempts attempts: Int, at now: Timestamp, notBefore: Timestamp? = nil
  ) -> Timestamp {
    let next = now + delay(afterAttempts: attempts, random: .random(in: 0...1))
    guard let notBefore else { return next }
    return max(next, min(notBefore, now + Self.longestWish))
  }

  /// Whether it has been tried for long enough.
  package func isOver(for since: Timestamp, at now: Timestamp) -> Bool {
    patience.map { now >= since + $0 } ?? false
  }
}
