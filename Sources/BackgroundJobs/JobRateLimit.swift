package import LedgerStorage
package import Subscriptions

/// How many jobs of a lane may be begun now, where that depends on more than on this worker: on
/// what Apple answers in an hour to all of them.
package struct JobBudget: Sendable {
  /// Takes up to so many jobs of a lane out of the budget, and returns how many it grants.
  package var grant: @Sendable (_ lane: Job.Lane, _ wanted: Int) async throws -> Int
  /// Puts back what was granted and is not used.
  package var giveBack: @Sendable (_ lane: Job.Lane, _ unused: Int) async throws -> Void

  package init(
    grant: @escaping @Sendable (_ lane: Job.Lane, _ wanted: Int) async throws -> Int,
    giveBack: @escaping @Sendable (_ lane: Job.Lane, _ unused: Int) async throws -> Void
  ) {
    self.grant = grant
    self.giveBack = giveBack
  }

  /// A budget that grants everything.
  package static let unlimited = JobBudget(grant: { _, wanted in wanted }, giveBack: { _, _ in })
}

extension JobBudget {
  /// How many tellings an hour may have: four fifths of what Apple takes of Set App Account Token,
  /// the smaller of its two limits.
  private static let tellingsPerHour = 57_600
  /// What part of production's limits Apple's sandbox has.
  private static let sandboxShare = 10

  /// What Apple answers in an hour to all workers together; in the sandbox a tenth of it.
  ///
  /// What Apple is told has a limit of its own, and takes nothing from what it is asked.
  ///
  /// - Parameters:
  ///   - pollsPerHour: How many polls an hour may have; 0: nobody polls.
  ///   - ledger: Where it is counted.
  ///   - now: The clock by which it fills up again.
  /// - Returns: A budget that grants everything to other jobs.
  package static func apple(
    pollsPerHour: Int, in ledger: Ledger, now: @escaping @Sendable () -> Timestamp
  ) -> JobBudget {
    /// Nil where there is no limit.
    @Sendable func budget(of lane: Job.Lane) -> AppleBudget? {
      switch lane {
      case .polls: AppleBudget("polls/production", perHour: pollsPerHour)
      case .sandboxPolls: AppleBudget("polls/sandbox", perHour: pollsPerHour / sandboxShare)
      case .tellings: AppleBudget("tellings/production", perHour: tellingsPerHour)
      case .sandboxTellings:
        AppleBudget("tellings/sandbox", perHour: tellingsPerHour / sandboxShare)
      case .submissions, .notifications, .clock, .webhooks, .upkeep: nil
      }
    }
    @Sendable func isClosed(_ lane: Job.Lane) -> Bool {
      (lane == .polls || lane == .sandboxPolls) && pollsPerHour == 0
    }
    return JobBudget(
      grant: { lane, wanted in
        guard !isClosed(lane) else { return 0 }
        guard let budget = budget(of: lane) else { return wanted }
        return try await ledger.takeBudget(budget, upTo: wanted, at: now())
      },
      giveBack: { lane, unused in
        guard !isClosed(lane), let budget = budget(of: lane) else { return }
        try await ledger.returnBudget(budget, unused, at: now())
      })
  }
}
