import LedgerStorage
import Subscriptions

/// Limits how many jobs of a queue all workers together may start, by Apple's hourly limits.
///
/// Write-backs have a limit of their own and take nothing from polls.
struct JobBudget: Sendable {
  /// Four fifths of Apple's limit for Set App Account Token; the other write-back has a larger one.
  private static let writeBacksPerHour = 57_600
  /// The share of production's limits that Apple's sandbox has: a tenth.
  private static let sandboxShare = 10

  let ledger: Ledger
  /// 0: no polls; nil: no limits at all.
  let pollsPerHour: Int?
  let now: @Sendable () -> Timestamp

  /// Takes up to the wanted number of jobs, and returns how many may start.
  func grant(_ queue: Job.Queue, _ wanted: Int) async throws -> Int {
    guard !isClosed(queue) else { return 0 }
    guard let budget = budget(of: queue) else { return wanted }
    return try await ledger.polls.takeBudget(budget, upTo: wanted, at: now())
  }

  /// Returns what was granted but not used.
  func giveBack(_ queue: Job.Queue, _ unused: Int) async throws {
    guard !isClosed(queue), let budget = budget(of: queue) else { return }
    try await ledger.polls.returnBudget(budget, unused, at: now())
  }

  private func isClosed(_ queue: Job.Queue) -> Bool {
    pollsPerHour == 0 && (queue == .polls || queue == .sandboxPolls)
  }

  private func budget(of queue: Job.Queue) -> AppleBudget? {
    guard let pollsPerHour, let name = queue.rateBudget else { return nil }
    switch queue {
    case .polls: return AppleBudget(name, perHour: pollsPerHour)
    case .sandboxPolls: return AppleBudget(name, perHour: pollsPerHour / Self.sandboxShare)
    case .writeBack: return AppleBudget(name, perHour: Self.writeBacksPerHour)
    case .sandboxWriteBack:
      return AppleBudget(name, perHour: Self.writeBacksPerHour / Self.sandboxShare)
    case .submissions, .notifications, .clock, .webhooks, .maintenance: return nil
    }
  }
}
