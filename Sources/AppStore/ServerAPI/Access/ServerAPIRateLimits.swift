import Subscriptions
import Synchronization

/// Apple's limits of requests, per call, environment and app.
///
/// Each process counts its own requests only. What several send together is found out by Apple's
/// 429, which closes the call until the moment that it names.
final class ServerAPIRateLimits: Sendable {
  /// What is counted together.
  struct Key: Hashable {
    var endpoint: ServerAPIEndpoint
    var environment: Environment
    var bundleID: String
  }

  /// How long a call is closed where a 429 names no moment.
  static let closureWithoutWord = Duration.minutes(1)

  private let buckets = Mutex<[Key: TokenBucket]>([:])
  private let now: @Sendable () -> Timestamp
  private let sleep: @Sendable (Duration) async throws -> Void

  init(
    now: @escaping @Sendable () -> Timestamp,
    sleep: @escaping @Sendable (Duration) async throws -> Void
  ) {
    self.now = now
    self.sleep = sleep
  }

  /// Waits for a turn: nil when it has come, or the moment before which there is none.
  ///
  /// - Parameters:
  ///   - key: What is to be asked.
  ///   - deadline: Until when to wait at most.
  /// - Returns: Nil, or a moment after the deadline.
  /// - Throws: `CancellationError` when the task is cancelled.
  func turn(_ key: Key, deadline: Timestamp) async throws -> Timestamp? {
    let now = now()
    let turn = withBucket(key, now: now) { $0.take(now: now, deadline: deadline) }
    switch turn {
    case .now: return nil
    case .refused(let moment): return moment
    case .wait(let moment):
      try await sleep(moment - now)
      // Another request may have been told meanwhile that there is to be silence.
      let later = self.now()
      return withBucket(key, now: later) { $0.closure(now: later) }
    }
  }

  /// Holds that call back until Apple takes it again.
  func close(_ key: Key, until moment: Timestamp) {
    withBucket(key, now: now()) { $0.close(until: moment) }
  }

  private func withBucket<Value: Sendable>(
    _ key: Key, now: Timestamp, _ body: (inout TokenBucket) -> Value
  ) -> Value {
    buckets.withLock { buckets in
      let limit = key.endpoint.requestsPerHour(in: key.environment)
      return body(&buckets[key, default: TokenBucket(requestsPerHour: limit, now: now)])
    }
  }
}
