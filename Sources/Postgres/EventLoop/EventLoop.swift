import Dispatch
import Synchronization

/// A thread that waits for sockets, timers and submitted work: the executor of ``PostgresLoop``.
///
/// Each turn takes all submitted items, reads available input (waiting if there are no items),
/// runs the items and writes the output. A submitter wakes the thread only when it sleeps, so
/// wake-ups are rare under load.
final class EventLoop: SerialExecutor {
  private enum Item {
    case work(@Sendable @PostgresLoop () -> Void)
    case job(UnownedJob)
  }

  private struct Inbox {
    var items: [Item] = []
    var isAsleep = false
  }

  private let inbox = Mutex(Inbox())
  let wakeUp = WakeUp()
  /// Runs one item, which never ends.
  private let queue = DispatchQueue(label: "postgres-loop")

  init() { queue.async { [self] in run() } }

  func enqueue(_ work: @escaping @Sendable @PostgresLoop () -> Void) { append(.work(work)) }

  func enqueue(_ job: consuming ExecutorJob) { append(.job(UnownedJob(job))) }

  func asUnownedSerialExecutor() -> UnownedSerialExecutor {
    unsafe UnownedSerialExecutor(ordinary: self)
  }

  func checkIsolated() { dispatchPrecondition(condition: .onQueue(queue)) }

  private func append(_ item: Item) {
    let mustWake = inbox.withLock { inbox in
      inbox.items.append(item)
      defer { inbox.isAsleep = false }
      return inbox.isAsleep
    }
    if mustWake { wakeUp.send() }
  }

  private func run() -> Never {
    var items: [Item] = []
    while true {
      inbox.withLock { inbox in
        swap(&inbox.items, &items)
        inbox.isAsleep = items.isEmpty
      }
      handleEvents(mayWait: items.isEmpty)
      perform(items)
      items.removeAll(keepingCapacity: true)
    }
  }

  /// Handles socket events after the submitted items are taken and before they run, so that no item
  /// meets a connection whose loss its submitter could already know of.
  private func handleEvents(mayWait: Bool) {
    PostgresLoop.assumeIsolated {
      let ready = Reactor.shared.wait(mayWait: mayWait)
      if mayWait { inbox.withLock { $0.isAsleep = false } }
      Reactor.shared.handle(ready)
    }
  }

  private func perform(_ items: [Item]) {
    for item in items {
      switch item {
      case .work(let work): PostgresLoop.assumeIsolated { work() }
      case .job(let job): unsafe job.runSynchronously(on: asUnownedSerialExecutor())
      }
    }
    PostgresLoop.assumeIsolated { Reactor.shared.endTurn() }
  }
}
