import Postgres
import Subscriptions
import Synchronization

/// When this process last changed what accounts may use: remembered for a while, if anybody asks.
package final class RecentChanges: Sendable {
  private struct State {
    /// Nil: nobody asks.
    var memory: Duration?
    var latest: [AccountID: ContinuousClock.Instant] = [:]
    var forgetsAt: ContinuousClock.Instant?
  }

  private let state = Mutex(State())

  init() {}

  /// Remembers changes from now on, each for so long.
  func remember(for memory: Duration) {
    state.withLock { $0.memory = memory }
  }

  /// Notes accounts as changed, as of the commit.
  func note(_ accountIDs: [String], in transaction: Transaction) {
    guard state.withLock({ $0.memory != nil }) else { return }
    transaction.afterCommit { self.note(accountIDs, at: .now) }
  }

  func note(_ accountIDs: [String], at moment: ContinuousClock.Instant) {
    state.withLock { state in
      guard let memory = state.memory else { return }
      for id in accountIDs { state.latest[AccountID(id)] = moment }
      guard moment >= state.forgetsAt ?? moment else { return }
      state.forgetsAt = moment + memory
      state.latest = state.latest.filter { moment - $0.value <= memory }
    }
  }

  /// When each of some accounts was changed; nil: not lately.
  func latest(of accountIDs: [String]) -> [ContinuousClock.Instant?] {
    state.withLock { state in
      if state.latest.isEmpty { return accountIDs.map { _ in nil } }
      return accountIDs.map { state.latest[AccountID($0)] }
    }
  }
}
