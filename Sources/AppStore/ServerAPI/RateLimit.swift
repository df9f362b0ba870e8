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

/// Spreads requests so that no hour has more of them than are allowed.
///
/// A minute's worth may go at once; what an hour has beyond that flows back evenly. So sixty
/// minutes, wherever they begin, never see more than the limit.
struct TokenBucket {
  /// When a request may be sent.
  enum Turn: Hashable {
    case now
    case wait(until: Timestamp)
    /// Later than the caller would wait; nothing is reserved.
    case refused(notBefore: Timestamp)
  }

  /// What part of the hour's requests may go at once.
  private static let burstPerHour = 60

  private let capacity: Double
  private let perMillisecond: Double
  /// Below zero where requests wait for their turn.
  private var level: Double
  private var updatedAt: Timestamp
  private var closedUntil: Timestamp?

  init(requestsPerHour: Int, now: Timestamp) {
    capacity = max(1, Double(requestsPerHour / Self.burstPerHour))
    perMillisecond = (Double(requestsPerHour) - capacity) / 3_600_000
    level = capacity
    updatedAt = now
  }

  /// Reserves the next free moment, if it comes in time.
  ///
  /// - Parameters:
  ///   - now: The clock.
  ///   - deadline: The last moment for which a turn is wanted.
  /// - Returns: The turn.
  mutating func take(now: Timestamp, deadline: Timestamp) -> Turn {
    refill(now: now)
    let missing = max(0, 1 - level)
    let free = now + .milliseconds(Int64((missing / perMillisecond).rounded(.up)))
    let moment = max(free, closedUntil ?? free)
    guard moment <= max(deadline, now) else { return .refused(notBefore: moment) }
    level -= 1
    return moment > now ? .wait(until: moment) : .now
  }

  /// Holds back everything until that moment: Apple has said so.
  mutating func close(until moment: Timestamp) {
    closedUntil = max(moment, closedUntil ?? moment)
  }

  /// The moment until which nothing is to be sent; nil where something can be.
  func closure(now: Timestamp) -> Timestamp? {
    guard let closedUntil, closedUntil > now else { return nil }
    return closedUntil
  }

  private mutating func refill(now: Timestamp) {
    let elapsed = max(0, now.milliseconds - updatedAt.milliseconds)
    level = min(capacity, level + Double(elapsed) * perMillisecond)
    updatedAt = now
  }
}
