import Postgres
package import Subscriptions

/// How often Apple may be asked in an hour, by all programs together.
///
/// A minute's worth may go at once, and what an hour has beyond that flows back evenly: so sixty
/// minutes, wherever they begin, never see more than the limit.
package struct AppleBudget: Hashable, Sendable {
  /// What part of the hour's requests may go at once.
  private static let burstPerHour = 60.0
  /// The smallest limit that makes sense: less would never let anything through.
  package static let leastPerHour = 2

  package var name: String
  package var perHour: Int

  /// - Parameters:
  ///   - name: The same for everybody who shares it.
  ///   - perHour: How many requests there may be in an hour.
  package init(_ name: String, perHour: Int) {
    self.name = name
    self.perHour = max(perHour, Self.leastPerHour)
  }

  var capacity: Double { max(1, (Double(perHour) / Self.burstPerHour).rounded(.down)) }
  private var perMillisecond: Double { (Double(perHour) - capacity) / 3_600_000 }

  /// What is there after a time, of so much.
  func refilled(_ tokens: Double, after time: Duration) -> Double {
    min(capacity, tokens + Double(max(time.inMilliseconds, 0)) * perMillisecond)
  }
}

extension Ledger {
  /// Takes from what may still be asked of Apple.
  ///
  /// - Parameters:
  ///   - budget: The limit; who takes from it under one name has to name the same.
  ///   - count: How many requests are wished for.
  ///   - now: The clock, by which it fills up again.
  /// - Returns: How many may be made; whatever is not used can be given back.
  /// - Throws: What the database says.
  package func takeBudget(_ budget: AppleBudget, upTo count: Int, at now: Timestamp) async throws
    -> Int
  {
    guard count > 0 else { return 0 }
    return try await changeBudget(budget, at: now) { tokens in
      let granted = min(count, Int(max(0, tokens)))
      return (granted, tokens - Double(granted))
    }
  }

  /// Gives back what was taken and not used.
  package func returnBudget(_ budget: AppleBudget, _ count: Int, at now: Timestamp) async throws {
    guard count > 0 else { return }
    _ = try await changeBudget(budget, at: now) { (0, min(budget.capacity, $0 + Double(count))) }
  }

  /// A moment so far ahead is no other clock's, but a mistake of one: it is not waited for.
  private static let skewLimit: Duration = .minutes(10)

  private func changeBudget(
    _ budget: AppleBudget, at now: Timestamp,
    _ change: @Sendable (Double) -> (granted: Int, tokens: Double)
  ) async throws -> Int {
    try await database.withTransaction { transaction in
      let results = try await transaction.batch([
        """
        INSERT INTO tenure.apple_budget (name, tokens, refreshed_at)
        VALUES (\(budget.name), \(budget.capacity), \(now)) ON CONFLICT (name) DO NOTHING
        """,
        """
        SELECT tokens, refreshed_at FROM tenure.apple_budget WHERE name = \(budget.name) FOR UPDATE
        """,
      ])
      let (tokens, noted) = try results[1].decodeOnly(Double.self, Timestamp.self)
      let refreshedAt = noted - now > Self.skewLimit ? now : noted
      let (granted, left) = change(budget.refilled(tokens, after: now - refreshedAt))
      try await transaction.commit(with: [
        """
        UPDATE tenure.apple_budget SET tokens = \(left), refreshed_at = \(max(now, refreshedAt))
        WHERE name = \(budget.name)
        """
      ])
      return granted
    }
  }
}
