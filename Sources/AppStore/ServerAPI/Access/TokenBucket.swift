import Subscriptions

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
