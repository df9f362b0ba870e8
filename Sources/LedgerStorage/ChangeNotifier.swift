import Postgres
package import Subscriptions
import Synchronization

/// Sends NOTIFY after commits, so that workers and long polls need not poll constantly.
///
/// NOTIFY inside a transaction serializes commits, so it is sent afterwards. Calls made while one
/// is in flight are coalesced into one more. A lost NOTIFY only costs listeners one poll interval.
package final class ChangeNotifier: Sendable {
  package enum Channel: String, CaseIterable, Sendable {
    /// Jobs are due, or due earlier than known.
    case jobs = "tenure_jobs"
    /// Events were written.
    case events = "tenure_events"
  }

  package enum Signal: Hashable, Sendable {
    /// The listener (re)connected; notifications may have been missed.
    case connected
    case notified(Channel)
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

  /// Listens until the task is cancelled or the database closed; may coalesce notifications.
  package func listen(to channels: [Channel], _ receive: (Signal) -> Void) async {
    for await event in database.listen(to: channels.map(\.rawValue)) {
      switch event {
      case .listening, .reconnected: receive(.connected)
      case .notification(let notification):
        Channel(rawValue: notification.channel).map { receive(.notified($0)) }
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
