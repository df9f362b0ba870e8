import Postgres
package import Subscriptions
import Synchronization

/// An hourly limit on requests to Apple, shared by all processes.
///
/// A token bucket with a burst of a minute's worth, so that no 60 minutes exceed the limit.
/// Requests are taken in portions, sent within ``portionLifetime`` or not at all.
package struct AppleBudget: Hashable, Sendable {
  /// A burst is the hourly limit divided by this.
  private static let burstPerHour = 60.0
  package var name: String
  package var perHour: Int

  /// - Parameter name: Shared by all who use the budget, with the same limit.
  package init(_ name: String, perHour: Int) {
    self.name = name
    // Lower limits would never allow a request.
    self.perHour = max(perHour, 2)
  }

  var capacity: Double { max(1, (Double(perHour) / Self.burstPerHour).rounded(.down)) }
  /// Slower than the hourly limit by the lifetime of a portion, because requests follow their grant.
  private var perMillisecond: Double {
    (Double(perHour) - capacity) / Double((.hours(1) + Self.portionLifetime).inMilliseconds)
  }

  /// The requests to take at once: a second's worth, so that the row is written once a second.
  var portion: Int { max(1, perHour / 3600) }

  /// The time within which taken requests must be sent, or lapse.
  static let portionLifetime: Duration = .seconds(10)

  /// The tokens after `time`, starting from `tokens`.
  func refilled(_ tokens: Double, after time: Duration) -> Double {
    min(capacity, tokens + Double(max(time.inMilliseconds, 0)) * perMillisecond)
  }
}

extension PollStore {
  /// Takes requests from a budget, to be sent within ``AppleBudget/portionLifetime``.
  package func takeBudget(_ budget: AppleBudget, upTo count: Int, at now: Timestamp) async throws
    -> Int
  {
    try await database.withTransaction { transaction in
      let results = try await transaction.batch([
        """
        INSERT INTO tenure.rate_budget (name, tokens, refreshed_at)
        VALUES (\(budget.name), \(budget.capacity), \(now)) ON CONFLICT (name) DO NOTHING
        """,
        """
        SELECT tokens, refreshed_at FROM tenure.rate_budget WHERE name = \(budget.name) FOR UPDATE
        """,
      ])
      let (tokens, noted) = try results[1].decodeOnly(Double.self, Timestamp.self)
      let isClockError = noted - now > Self.skewLimit
      let refreshedAt = isClockError ? now : noted
      let available = budget.refilled(tokens, after: now - refreshedAt)
      let granted = max(0, min(count, Int(available)))
      // Without a grant the row says the same as before.
      guard granted > 0 || isClockError else { return 0 }
      try await transaction.commit(with: [
        """
        UPDATE tenure.rate_budget SET tokens = \(available - Double(granted)),
          refreshed_at = \(max(now, refreshedAt))
        WHERE name = \(budget.name)
        """
      ])
      return granted
    }
  }

  /// A stored time further ahead is a clock error and is ignored.
  private static let skewLimit: Duration = .minutes(10)
}

/// Requests taken from budgets in portions; an unused rest lapses with the portion's lifetime.
package final class BudgetPortions: Sendable {
  private struct Portion {
    var left: Int
    let takenAt: Timestamp

    func isValid(at now: Timestamp) -> Bool {
      (.zero...AppleBudget.portionLifetime).contains(now - takenAt)
    }
  }

  private let polls: PollStore
  private let portions = Mutex<[AppleBudget: Portion]>([:])

  package init(_ polls: PollStore) { self.polls = polls }

  /// Spends requests, of a new portion if none are left.
  ///
  /// - Returns: The number, at most `count`; 0: the budget is used up.
  package func spend(upTo count: Int, of budget: AppleBudget, at now: Timestamp) async throws -> Int
  {
    let spent = spendLeft(upTo: count, of: budget, at: now)
    guard spent == 0, count > 0 else { return spent }
    let taken = try await polls.takeBudget(budget, upTo: budget.portion, at: now)
    portions.withLock { $0[budget] = Portion(left: taken, takenAt: now) }
    return spendLeft(upTo: count, of: budget, at: now)
  }

  private func spendLeft(upTo count: Int, of budget: AppleBudget, at now: Timestamp) -> Int {
    portions.withLock { portions in
      guard let portion = portions[budget], portion.isValid(at: now) else { return 0 }
      let spent = min(count, portion.left)
      portions[budget]?.left -= spent
      return spent
    }
  }

  package func giveBack(_ count: Int, of budget: AppleBudget) {
    portions.withLock { $0[budget]?.left += count }
  }
}
