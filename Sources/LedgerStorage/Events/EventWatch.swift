import Postgres
import Synchronization

/// Wakes the long polls of a process when there are new events, with one listener for all.
///
/// During a long poll the feed is also polled, because notifications can be lost or don't arrive
/// behind a connection pooler.
package final class EventWatch: Sendable {
  /// The poll interval of the feed during long polls.
  private static let lookInterval: Duration = .seconds(1)

  private struct State {
    var count = 0
    var end: Int64 = 0
    var waiting: [Int: AsyncStream<Never>.Continuation] = [:]
    var nextID = 0
  }

  private let ledger: Ledger
  private let state = Mutex(State())
  private let (awaited, waits) = AsyncStream.makeStream(
    of: Void.self, bufferingPolicy: .bufferingNewest(1))

  package init(ledger: Ledger) {
    self.ledger = ledger
  }

  /// The number of times that new events were seen; read it before the feed.
  package var eventCount: Int { state.withLock { $0.count } }

  package var waitingCount: Int { state.withLock { $0.waiting.count } }

  /// Waits until there are new events, the limit is reached or the task is cancelled.
  ///
  /// - Parameter count: ``eventCount`` before the caller read the feed.
  package func waitForEvents(beyond count: Int, within limit: Duration) async {
    waits.yield()
    let (ended, waiter) = AsyncStream.makeStream(of: Never.self)
    let id: Int? = state.withLock { state in
      guard state.count == count else { return nil }
      state.nextID += 1
      state.waiting[state.nextID] = waiter
      return state.nextID
    }
    guard let id else { return }
    let timer = Task {
      try? await Task.sleep(for: limit)
      waiter.finish()
    }
    for await _ in ended {}
    timer.cancel()
    state.withLock { $0.waiting[id] = nil }
  }

  package func run() async {
    // No connection is used before the first long poll.
    for await _ in awaited { break }
    await withTaskGroup(of: Void.self) { group in
      group.addTask {
        for await _ in self.ledger.database.listen(to: [ChangeNotifier.Channel.events.rawValue]) {
          await self.look(isNotified: true)
        }
      }
      group.addTask {
        while !Task.isCancelled {
          try? await Task.sleep(for: Self.lookInterval)
          await self.look(isNotified: false)
        }
      }
    }
  }

  /// Assigns positions to new events, and resumes the long polls.
  private func look(isNotified: Bool) async {
    let isAwaited = state.withLock { state in
      if state.waiting.isEmpty, isNotified { state.count += 1 }
      return !state.waiting.isEmpty
    }
    // Long polls report an error when they read the feed.
    guard isAwaited, let end = try? await ledger.events.placeEvents() else { return }
    let resumed = state.withLock { state -> [AsyncStream<Never>.Continuation] in
      guard state.end < end else { return [] }
      state.end = end
      state.count += 1
      defer { state.waiting = [:] }
      return Array(state.waiting.values)
    }
    for waiter in resumed { waiter.finish() }
  }
}
