import Postgres
package import Subscriptions

/// An hourly limit on requests to Apple, shared by all processes.
///
/// A token bucket: a burst of a minute's worth, and the rest refilled evenly, so that no period of
/// 60 minutes exceeds the limit.
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
  private var perMillisecond: Double { (Double(perHour) - capacity) / 3_600_000 }

  /// The tokens after `time`, starting from `tokens`.
  func refilled(_ tokens: Double, after time: Duration) -> Double {
    min(capacity, tokens + Double(max(time.inMilliseconds, 0)) * perMillisecond)
  }
}

extension PollStore {
  /// Takes requests from a budget, and returns the number granted, at most `count`; unused requests
  /// can be returned.
  package func takeBudget(_ budget: AppleBudget, upTo count: Int, at now: Timestamp) async throws
    -> Int
  {
    guard count > 0 else { return 0 }
    return try await changeBudget(budget, at: now) { tokens in
      let granted = min(count, Int(max(0, tokens)))
      return (granted, tokens - Double(granted))
    }
  }

  /// Returns unused requests to a budget.
  package func returnBudget(_ budget: AppleBudget, _ count: Int, at now: Timestamp) async throws {
    guard count > 0 else { return }
    _ = try await changeBudget(budget, at: now) { (0, min(budget.capacity, $0 + Double(count))) }
  }

  /// A stored time further ahead is a clock error and is ignored.
  private static let skewLimit: Duration = .minutes(10)

  private func changeBudget(
    _ budget: AppleBudget, at now: Timestamp,
    _ change: @Sendable (Double) -> (granted: Int, tokens: Double)
  ) async throws -> Int {
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
      let refreshedAt = noted - now > Self.skewLimit ? now : noted
      let (granted, left) = change(budget.refilled(tokens, after: now - refreshedAt))
      try await transaction.commit(with: [
        """
        UPDATE tenure.rate_budget SET tokens = \(left), refreshed_at = \(max(now, refreshedAt))
        WHERE name = \(budget.name)
        """
      ])
      return granted
    }
  }
}
