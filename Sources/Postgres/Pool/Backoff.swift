/// How long to wait before trying again: longer each time, up to a limit, and never everybody at
/// once.
struct Backoff {
  let first: Duration
  let longest: Duration

  /// A server that restarts is back within seconds; a failover begins to answer within 100 ms of
  /// promotion.
  static let reconnecting = Backoff(first: .milliseconds(50), longest: .seconds(1))

  /// Transactions that collided are short.
  static let retrying = Backoff(first: .milliseconds(5), longest: .milliseconds(500))

  /// Computes the delay before another attempt.
  ///
  /// - Parameters:
  ///   - attempt: how many have failed before the last one.
  ///   - jitter: from 0 to 1, random; half of the delay depends on it.
  /// - Returns: at least half of the full delay.
  func delay(attempt: Int, jitter: Double) -> Duration {
    let doubled = first * Double(1 << min(attempt, 16))
    return min(doubled, longest) * (0.5 + jitter / 2)
  }

  /// Waits before another attempt, for the delay of `attempt` with a random jitter.
  func wait(attempt: Int) async throws {
    try await Task.sleep(for: delay(attempt: attempt, jitter: .random(in: 0...1)))
  }
}
