import Postgres
import Subscriptions
import Synchronization

/// Accounts whose holdings this process changed recently, recorded once a replica asks for it.
package final class RecentWrites: Sendable {
  private struct State {
    /// Nil until ``remember(for:)`` is called.
    var memory: Duration?
    var latest: [AccountID: ContinuousClock.Instant] = [:]
    var forgetsAt: ContinuousClock.Instant?
  }

  private let state = Mutex(State())

  init() {}

  /// Starts recording changes, each kept for `memory`.
  func remember(for memory: Duration) {
    state.withLock { $0.memory = memory }
  }

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

  /// When each account was last changed; nil if not recently.
  func latest(of accountIDs: [String]) -> [ContinuousClock.Instant?] {
    state.withLock { state in
      if state.latest.isEmpty { return accountIDs.map { _ in nil } }
      return accountIDs.map { state.latest[AccountID($0)] }
    }
  }
}
