package import Subscriptions

/// When Apple is asked again about a submission that could not be decided.
package struct RetrySchedule: Sendable {
  /// Retries begin within this time and double from there: two seconds after the answer at the
  /// latest, less what a worker needs to notice.
  package static let first: Duration = .milliseconds(1500)
  /// However often Apple was asked, the next time is no later than this.
  package static let longest: Duration = .hours(1)
  /// After this time a job is given up, and waits for somebody to start it again.
  package static let patience: Duration = .days(30)
  /// The longest wait that Apple may ask for.
  package static let longestWish: Duration = .hours(24)

  /// What was submitted, and Apple does not list yet or nobody can read, is looked for this long.
  package static let lookingForTransaction: Duration = .hours(24)

  /// The time from one attempt to the next: doubling, with the second half of it left to chance so
  /// that what failed together does not come back together.
  ///
  /// - Parameters:
  ///   - attempts: How often Apple was asked, this time included.
  ///   - random: From 0 to 1.
  /// - Returns: The time to wait.
  package static func delay(afterAttempts attempts: Int, random: Double) -> Duration {
    let doublings = min(max(attempts - 1, 0), 16)
    let limit = min(first * (1 << doublings), longest)
    return limit / 2 + limit / 2 * min(max(random, 0), 1)
  }

  /// When to ask again.
  ///
  /// - Parameters:
  ///   - attempts: How often Apple was asked, this time included.
  ///   - now: The moment of the failure.
  ///   - notBefore: What Apple wished for, if anything.
  /// - Returns: The moment of the next attempt.
  package static func next(
    afterAttempts attempts: Int, at now: Timestamp, notBefore: Timestamp? = nil
  ) -> Timestamp {
    let next = now + delay(afterAttempts: attempts, random: .random(in: 0...1))
    guard let notBefore else { return next }
    return max(next, min(notBefore, now + longestWish))
  }
}
