package import LedgerStorage
package import Subscriptions

extension JobBudget {
  /// What Apple answers in an hour to all workers together; in the sandbox a tenth of it.
  ///
  /// - Parameters:
  ///   - perHour: How many polls an hour may have; 0: nobody polls.
  ///   - ledger: Where it is counted.
  ///   - now: The clock by which it fills up again.
  /// - Returns: A budget that grants everything to other jobs.
  package static func polls(
    perHour: Int, in ledger: Ledger, now: @escaping @Sendable () -> Timestamp
  ) -> JobBudget {
    @Sendable func budget(of lane: Job.Lane) -> AppleBudget? {
      switch lane {
      case .polls: AppleBudget("polls/production", perHour: perHour)
      case .sandboxPolls: AppleBudget("polls/sandbox", perHour: perHour / 10)
      case .submissions, .notifications, .clock, .webhooks, .upkeep: nil
      }
    }
    return JobBudget(
      grant: { lane, wanted in
        guard let budget = budget(of: lane) else { return wanted }
        guard perHour > 0 else { return 0 }
        return try await ledger.takeBudget(budget, upTo: wanted, at: now())
      },
      giveBack: { lane, unused in
        guard perHour > 0, let budget = budget(of: lane) else { return }
        try await ledger.returnBudget(budget, unused, at: now())
      })
  }
}
