package import LedgerStorage
package import Subscriptions

/// Limits how many jobs of a queue all workers together may start.
package struct JobBudget: Sendable {
  /// Takes up to the wanted number of jobs, and returns how many may start.
  package var grant: @Sendable (_ queue: Job.Queue, _ wanted: Int) async throws -> Int
  /// Returns what was granted but not used.
  package var giveBack: @Sendable (_ queue: Job.Queue, _ unused: Int) async throws -> Void

  package init(
    grant: @escaping @Sendable (_ queue: Job.Queue, _ wanted: Int) async throws -> Int,
    giveBack: @escaping @Sendable (_ queue: Job.Queue, _ unused: Int) async throws -> Void
  ) {
    self.grant = grant
    self.giveBack = giveBack
  }

  package static let unlimited = JobBudget(grant: { _, wanted in wanted }, giveBack: { _, _ in })
}

extension JobBudget {
  /// Four fifths of Apple's limit for Set App Account Token, the smaller one of the two requests
  /// that write back.
  private static let writeBacksPerHour = 57_600
  /// The share of production's limits that Apple's sandbox has: a tenth.
  private static let sandboxShare = 10

  /// Apple's hourly limits; write-backs have their own and take nothing from polls.
  ///
  /// - Parameter pollsPerHour: 0: no polls.
  package static func apple(
    pollsPerHour: Int, in ledger: Ledger, now: @escaping @Sendable () -> Timestamp
  ) -> JobBudget {
    /// Nil: no limit.
    @Sendable func perHour(_ queue: Job.Queue) -> Int? {
      switch queue {
      case .polls: pollsPerHour
      case .sandboxPolls: pollsPerHour / sandboxShare
      case .writeBack: writeBacksPerHour
      case .sandboxWriteBack: writeBacksPerHour / sandboxShare
      case .submissions, .notifications, .clock, .webhooks, .maintenance: nil
      }
    }
    @Sendable func budget(of queue: Job.Queue) -> AppleBudget? {
      guard let name = queue.rateBudget, let perHour = perHour(queue) else { return nil }
      return AppleBudget(name, perHour: perHour)
    }
    @Sendable func isClosed(_ queue: Job.Queue) -> Bool {
      pollsPerHour == 0 && (queue == .polls || queue == .sandboxPolls)
    }
    return JobBudget(
      grant: { queue, wanted in
        guard !isClosed(queue) else { return 0 }
        guard let budget = budget(of: queue) else { return wanted }
        return try await ledger.polls.takeBudget(budget, upTo: wanted, at: now())
      },
      giveBack: { queue, unused in
        guard !isClosed(queue), let budget = budget(of: queue) else { return }
        try await ledger.polls.returnBudget(budget, unused, at: now())
      })
  }
}
