import Postgres
package import Subscriptions
import Synchronization

/// Sends NOTIFY after commits, so that workers and long polls need not poll constantly.
///
/// Calls during one are coalesced. A lost NOTIFY costs listeners one poll interval.
package final class ChangeNotifier: Sendable {
  package enum Channel: String, CaseIterable, Sendable {
    /// Jobs are due, or due earlier than known.
    case jobs = "tenure_jobs"
    /// Events were written.
    case events = "tenure_events"
  }

  /// The poll interval of listeners; jobs due later need no NOTIFY.
  package static let pollInterval: Duration = .seconds(10)

  /// Minimum interval between two NOTIFY of a channel: each wakes every listener in the database.
  private static let pause: Duration = .milliseconds(5)

  private struct State {
    var sending: Set<Channel> = []
    var again: Set<Channel> = []
  }

  private let database: ConnectionPool
  private let state = Mutex(State())

  init(database: ConnectionPool) {
    self.database = database
  }

  /// Notifies listeners without waiting for the database.
  package func notify(_ channel: Channel) {
    let isFree = state.withLock { state in
      if state.sending.insert(channel).inserted { return true }
      state.again.insert(channel)
      return false
    }
    if isFree { send(channel) }
  }

  /// Notifies workers, unless they poll before the job is due.
  package func notify(forJobAt runAt: Timestamp, now: Timestamp) {
    if runAt - now < Self.pollInterval { notify(.jobs) }
  }

  /// Calls back for each notification with true, and with false when they may not arrive.
  ///
  /// Behind a transaction-pooling PgBouncer none ever arrives; the NOTIFY sent from here proves
  /// otherwise. Ends when the task is cancelled or the database closed.
  package func listen(to channel: Channel, _ receive: (_ isListening: Bool) -> Void) async {
    for await event in database.listen(to: [channel.rawValue]) {
      switch event {
      case .listening, .reconnected:
        notify(channel)
        receive(false)
      case .notification: receive(true)
      }
    }
  }

  private func send(_ channel: Channel) {
    database.batch([SQL(unescaped: "NOTIFY \(channel.rawValue)")], deadline: .seconds(5)) {
      [self] _ in
      let isAskedAgain = state.withLock { state in
        if state.again.remove(channel) != nil { return true }
        state.sending.remove(channel)
        return false
      }
      guard isAskedAgain else { return }
      Task {
        try? await Task.sleep(for: Self.pause)
        send(channel)
      }
    }
  }
}
