import Postgres
package import Subscriptions
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

  /// What a listener hears.
  package enum Sound: Hashable, Sendable {
    /// Listening begins, or begins again after a break: something may have been missed.
    case silenceBefore
    case rung(Channel)
  }

  /// How long listeners wait before they look by themselves: what comes later needs no ringing.
  package static let longestSilence: Duration = .seconds(10)

  /// The time from one to the next: each wakes everybody who listens to anything in the database.
  private static let pause: Duration = .milliseconds(5)

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

  /// Tells workers of a job, unless they will look by themselves before it is due.
  package func ring(forJobAt runAt: Timestamp, now: Timestamp) {
    if runAt - now < Self.longestSilence { ring(.jobs) }
  }

  /// Listens until the task is cancelled or the database closed.
  ///
  /// - Parameters:
  ///   - channels: What to listen to.
  ///   - hear: Called for each sound; many at once can come as one.
  package func listen(to channels: [Channel], _ hear: (Sound) -> Void) async {
    for await event in database.listen(to: channels.map(\.rawValue)) {
      switch event {
      case .listening, .reconnected: hear(.silenceBefore)
      case .notification(let notification):
        Channel(rawValue: notification.channel).map { hear(.rung($0)) }
      }
    }
  }

  private func send(_ channel: Channel) {
    database.batch([SQL(unescaped: "NOTIFY \(channel.rawValue)")], deadline: .seconds(5)) {
      [self] _ in
      let isAskedAgain = state.withLock { state in
        if state.again.remove(channel) != nil { return true }
        state.ringing.remove(channel)
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
