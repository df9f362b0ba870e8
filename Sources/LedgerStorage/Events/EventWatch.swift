import Postgres
import Synchronization

/// Tells those of a process who wait for events that there are some: one listener for all of them.
///
/// While somebody waits, the feed is also looked at without having been rung for, in case that a
/// ring was lost, or cannot be heard behind a pooler of connections.
package final class EventWatch: Sendable {
  /// How often the feed is looked at while somebody waits.
  private static let lookInterval: Duration = .seconds(1)

  private struct State {
    /// How often there was news.
    var count = 0
    /// The last place in the feed that is known.
    var end: Int64 = 0
    var waiting: [Int: CheckedContinuation<Void, Never>] = [:]
    var nextID = 0

    /// Counts news, and lets go of all that wait.
    mutating func tell() -> [CheckedContinuation<Void, Never>] {
      count += 1
      defer { waiting = [:] }
      return Array(waiting.values)
    }
  }

  private let ledger: Ledger
  private let state = Mutex(State())
  private let (awaited, waits) = AsyncStream.makeStream(
    of: Void.self, bufferingPolicy: .bufferingNewest(1))

  /// Listens only when it is run, and somebody waits.
  package init(ledger: Ledger) {
    self.ledger = ledger
  }

  /// How often there was news; ask before looking at the feed.
  package var newsCount: Int { state.withLock { $0.count } }

  /// How many wait now.
  package var waitingCount: Int { state.withLock { $0.waiting.count } }

  /// Waits until there is news, or the time is over, or the task is cancelled.
  ///
  /// - Parameters:
  ///   - count: How often there had been news when the caller last looked.
  ///   - limit: How long to wait.
  package func waitForNews(beyond count: Int, within limit: Duration) async {
    waits.yield()
    await withTaskGroup(of: Void.self) { group in
      group.addTask { await self.waitForNews(beyond: count) }
      group.addTask { try? await Task.sleep(for: limit) }
      await group.next()
      group.cancelAll()
    }
  }

  private func waitForNews(beyond count: Int) async {
    let id = state.withLock { state in
      state.nextID += 1
      return state.nextID
    }
    await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let mustWait = state.withLock { state in
          guard state.count == count, !Task.isCancelled else { return false }
          state.waiting[id] = continuation
          return true
        }
        if !mustWait { continuation.resume() }
      }
    } onCancel: {
      state.withLock { $0.waiting.removeValue(forKey: id) }?.resume()
    }
  }

  /// Watches the feed until it is cancelled.
  package func run() async {
    // Who never waits costs no connection.
    for await _ in awaited { break }
    await withTaskGroup(of: Void.self) { group in
      group.addTask {
        for await _ in self.ledger.database.listen(to: [Bell.Channel.events.rawValue]) {
          await self.look(isRungFor: true)
        }
      }
      group.addTask {
        while !Task.isCancelled {
          try? await Task.sleep(for: Self.lookInterval)
          await self.look(isRungFor: false)
        }
      }
    }
  }

  /// Gives new events their places, once for all that wait, and tells them.
  private func look(isRungFor: Bool) async {
    let isAwaited = state.withLock { state in
      if state.waiting.isEmpty, isRungFor { state.count += 1 }
      return !state.waiting.isEmpty
    }
    // Of a fault those hear who wait, when they look by themselves.
    guard isAwaited, let end = try? await ledger.placeEvents() else { return }
    let told = state.withLock { state in
      guard state.end < end else { return [CheckedContinuation<Void, Never>]() }
      state.end = end
      return state.tell()
    }
    for continuation in told { continuation.resume() }
  }
}
