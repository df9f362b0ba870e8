import Subscriptions
import Synchronization

/// Slows those down who try keys.
///
/// In memory, and each process by itself: keys are long, and this keeps guesses and logs few.
final class LoginThrottle: Sendable {
  /// Whoever mistypes a few times is not kept waiting.
  static let freeFailures = 5
  /// Behind a proxy all have one address; and what it says of theirs, others can say as well.
  static let freeFailuresOfAddress = 50
  /// Failures are forgotten after this time, and nobody waits longer.
  static let memory: Duration = .minutes(15)
  /// More clients than this are not remembered: a few hundred kilobytes.
  static let mostClients = 10_000

  private struct Failures {
    var count: Int
    var last: Timestamp
  }

  private let failures = Mutex<[String: Failures]>([:])

  /// What came of a try.
  enum Outcome<Success> {
    case success(Success)
    case failure
    /// Nothing was compared.
    case tooSoon(wait: Duration)
  }

  /// Tries unless it is too soon after what failed before.
  ///
  /// - Parameters:
  ///   - client: The names of a client, the narrower first, each with how often it may fail.
  ///   - now: When.
  ///   - body: Compares; nil: it failed.
  /// - Returns: What came of it.
  func attempt<Success>(
    by client: [(name: String, free: Int)], at now: Timestamp, _ body: () -> Success?
  ) -> Outcome<Success> {
    failures.withLock { failures in
      let waits = client.compactMap { name, free in
        failures[name].flatMap { Self.wait(after: $0, free: free, at: now) }
      }
      if let wait = waits.max() { return .tooSoon(wait: wait) }
      if let success = body() {
        if let name = client.first?.name { failures[name] = nil }
        return .success(success)
      }
      if failures.count + client.count > Self.mostClients {
        failures = failures.filter { now < $0.value.last + Self.memory }
        if failures.count + client.count > Self.mostClients { failures = [:] }
      }
      for (name, _) in client {
        let known = failures[name].flatMap { now < $0.last + Self.memory ? $0.count : nil } ?? 0
        failures[name] = Failures(count: known + 1, last: now)
      }
      return .failure
    }
  }

  /// One second after the last free one, and twice as long after each that follows.
  private static func wait(after failures: Failures, free: Int, at now: Timestamp) -> Duration? {
    guard failures.count >= free else { return nil }
    let seconds = 1 << min(failures.count - free, 16)
    let until = failures.last + min(.seconds(seconds), memory)
    return now < until ? until - now : nil
  }
}
