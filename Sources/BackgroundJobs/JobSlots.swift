import LedgerStorage
import Synchronization

/// The jobs that a worker has claimed, and how many more of each queue it may claim.
///
/// Each queue has a fixed number of slots. Quick jobs are claimed ahead, but no more than run
/// within moments: another worker may be idle. Jobs that share a commit fill a slot together.
final class JobSlots: Sendable {
  /// The time within which jobs claimed ahead are done.
  private static let foresight: Duration = .milliseconds(50)
  /// The most jobs claimed ahead for each slot.
  private static let reserveLimit = 8

  private struct QueueState {
    let concurrency: Int
    let batchLimit: Int
    var running = 0
    /// Claimed but not started.
    var reserve: [Job] = []
    /// The moving average of a job's duration; nil: none has ended.
    var usualTime: Duration?

    var wantedReserve: Int {
      guard let usualTime, usualTime < JobSlots.foresight else { return 0 }
      let most = concurrency * max(JobSlots.reserveLimit, batchLimit)
      guard usualTime > .zero else { return most }
      return min(most, Int(Double(concurrency) * (JobSlots.foresight / usualTime)))
    }

    /// The number of jobs to claim; 0 until half of the reserve is used, to save round trips.
    var room: Int {
      let wanted = wantedReserve
      return reserve.count * 2 > wanted
        ? 0 : max(0, concurrency + wanted - running - reserve.count)
    }

    mutating func next() -> [Job] {
      let share = (reserve.count + concurrency - 1) / concurrency
      let jobs = reserve.prefix(min(share, batchLimit))
      reserve.removeFirst(jobs.count)
      return Array(jobs)
    }
  }

  private struct State {
    var queues: [Job.Queue: QueueState]
    var held: [Int64: Job] = [:]
    /// Claimed again before the slot of the last run was free.
    var again: [Int64: Job] = [:]
    var isClosed = false
    var isListening = false
  }

  private let state: Mutex<State>

  /// - Parameter concurrency: The slots of each queue; a missing queue has none.
  init(concurrency: [Job.Queue: Int]) {
    let queues = concurrency.map { queue, concurrency in
      (queue, QueueState(concurrency: concurrency, batchLimit: queue.batchLimit))
    }
    state = Mutex(State(queues: Dictionary(uniqueKeysWithValues: queues)))
  }

  /// The number of jobs that may be claimed from each queue, where it isn't 0.
  var room: [Job.Queue: Int] {
    state.withLock { $0.isClosed ? [:] : $0.queues.mapValues(\.room).filter { $0.value > 0 } }
  }

  /// Whether to wake the worker after a job: there is room, or after ``close()`` all have ended.
  func isWorthALook(for queue: Job.Queue) -> Bool {
    state.withLock { state in
      state.isClosed ? state.held.isEmpty : state.queues[queue].map { $0.room > 0 } ?? false
    }
  }

  var held: [Job] { state.withLock { Array($0.held.values) } }

  var isListening: Bool {
    get { state.withLock(\.isListening) }
    set { state.withLock { $0.isListening = newValue } }
  }

  /// Adds claimed jobs, and returns those to start now, by slot; one that still runs here waits.
  func take(_ claimed: [Job]) -> [[Job]] {
    state.withLock { state in
      for job in claimed where state.queues[job.queue] != nil {
        if state.held.updateValue(job, forKey: job.id) == nil {
          state.queues[job.queue]?.reserve.append(job)
        } else {
          state.again[job.id] = job
        }
      }
      var started: [[Job]] = []
      for (name, var queue) in state.queues {
        while queue.running < queue.concurrency, !queue.reserve.isEmpty {
          started.append(queue.next())
          queue.running += 1
        }
        state.queues[name] = queue
      }
      return started
    }
  }

  /// Ends the jobs of one slot, and returns those to start in it; without any, the slot is free.
  func end(_ jobs: [Job], after time: Duration) -> [Job] {
    state.withLock { state in
      var again: [Job] = []
      for job in jobs {
        let next = state.again.removeValue(forKey: job.id)
        state.held[job.id] = next
        if let next { again.append(next) }
      }
      guard let name = jobs.first?.queue, var queue = state.queues[name] else { return [] }
      let each = time / jobs.count
      queue.usualTime = queue.usualTime.map { ($0 * 7 + each) / 8 } ?? each
      queue.reserve.insert(contentsOf: again, at: 0)
      let next = queue.next()
      if next.isEmpty { queue.running -= 1 }
      state.queues[name] = queue
      return next
    }
  }

  /// Stops starting jobs, and returns those that were claimed but not started.
  func close() -> [Job] {
    state.withLock { state in
      state.isClosed = true
      var left: [Job] = []
      for queue in state.queues.keys {
        left += state.queues[queue]?.reserve ?? []
        state.queues[queue]?.reserve = []
      }
      for job in left { state.held[job.id] = nil }
      // Their leases expire: returning them would release the runs.
      state.again = [:]
      return left
    }
  }
}

extension Job.Queue {
  /// The most jobs that share a commit; jobs that only need the database are cheaper that way.
  fileprivate var batchLimit: Int { self == .clock ? 32 : 1 }
}
