import Subscriptions
import Synchronization

/// Apple's request limits per endpoint, environment and app; a process counts only its own
/// requests, and Apple's 429 closes the endpoint for the time that it names.
final class ServerAPIRateLimits: Sendable {
  struct Key: Hashable {
    var endpoint: ServerAPIEndpoint
    var environment: Environment
    var bundleID: String
  }

  /// How long an endpoint is closed after a 429 without `Retry-After`.
  static let closureWithoutWord = Duration.minutes(1)

  private let buckets = Mutex<[Key: TokenBucket]>([:])
  private let now: @Sendable () -> Timestamp
  private let sleep: @Sendable (Duration) async throws -> Void

  init(
    now: @escaping @Sendable () -> Timestamp,
    sleep: @escaping @Sendable (Duration) async throws -> Void
  ) {
    (self.now, self.sleep) = (now, sleep)
  }

  /// Waits for a turn and returns nil, or the earliest possible time if it is after the deadline.
  func turn(_ key: Key, deadline: Timestamp) async throws -> Timestamp? {
    let now = now()
    let turn = withBucket(key, now: now) { $0.take(now: now, deadline: deadline) }
    switch turn {
    case .now: return nil
    case .refused(let moment): return moment
    case .wait(let moment):
      try await sleep(moment - now)
      // Another request may have received a 429 in the meantime.
      let later = self.now()
      return withBucket(key, now: later) { $0.closure(now: later) }
    }
  }

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

/// Spreads requests so that no sixty minutes, whenever they begin, exceed the limit: a minute's
/// share may be sent at once, and the rest of the hour's refill evenly.
struct TokenBucket {
  enum Turn: Hashable {
    case now
    case wait(until: Timestamp)
    /// Beyond the deadline; nothing is reserved.
    case refused(notBefore: Timestamp)
  }

  /// The share of the hour's requests that may be sent at once, as its divisor.
  private static let burstPerHour = 60

  private let capacity: Double
  private let perMillisecond: Double
  /// Negative while requests wait for their turn.
  private var level: Double
  private var updatedAt: Timestamp
  private var closedUntil: Timestamp?

  init(requestsPerHour: Int, now: Timestamp) {
    capacity = max(1, Double(requestsPerHour / Self.burstPerHour))
    perMillisecond = (Double(requestsPerHour) - capacity) / 3_600_000
    level = capacity
    updatedAt = now
  }

  /// Reserves the next free time, unless it is after the deadline.
  mutating func take(now: Timestamp, deadline: Timestamp) -> Turn {
    refill(now: now)
    let missing = max(0, 1 - level)
    let free = now + .milliseconds(Int64((missing / perMillisecond).rounded(.up)))
    let moment = max(free, closedUntil ?? free)
    guard moment <= max(deadline, now) else { return .refused(notBefore: moment) }
    level -= 1
    return moment > now ? .wait(until: moment) : .now
  }

  mutating func close(until moment: Timestamp) { closedUntil = max(moment, closedUntil ?? moment) }

  /// The end of Apple's closure; nil if requests are accepted.
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
