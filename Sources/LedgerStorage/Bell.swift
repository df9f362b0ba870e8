import Postgres
import Synchronization

/// Tells other programs after a commit that there is news, so that they need not look all the time.
///
/// A NOTIFY inside of every writing transaction would make all commits wait for each other; so one
/// goes out after the commits, from here, and while it is under way, whoever rings again is content
/// with one more after it. Nothing depends on it: whoever dies between commit and ringing costs the
/// listeners the wait until they look by themselves.
package final class Bell: Sendable {
  /// What there is news of.
  package enum Channel: String, CaseIterable, Sendable {
    /// Jobs are due, or will be earlier than was known.
    case jobs = "tenure_jobs"
    /// Events were written.
    case events = "tenure_events"
  }

  private struct State {
    var ringing: Set<Channel> = []
    var again: Set<Channel> = []
  }

  private let database: ConnectionPool
  private let state = Mutex(State())

  init(database: ConnectionPool) {
    self.database = database
  }

  /// Tells whoever listens, without waiting for it.
  package func ring(_ channel: Channel) {
    let isFree = state.withLock { state in
      if state.ringing.insert(channel).inserted { return true }
      state.again.insert(channel)
      return false
    }
    if isFree { send(channel) }
  }

  private func send(_ channel: Channel) {
    database.batch([SQL(unescaped: "NOTIFY \(channel.rawValue)")], deadline: .seconds(5)) {
      [self] _ in
      let isAskedAgain = state.withLock { state in
        if state.again.remove(channel) != nil { return true }
        state.ringing.remove(channel)
        return false
      }
      if isAskedAgain { send(channel) }
    }
  }
}
