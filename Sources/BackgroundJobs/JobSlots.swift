import LedgerStorage
import Synchronization

/// What a worker has claimed, lane by lane, and how much more of each it may claim.
///
/// Each lane has slots of its own, in which jobs run at once. Where jobs are quick, some more are
/// claimed beforehand, so that no slot waits for the queue; never more than are done in a moment,
/// for another worker may be idle. Where they go together, a slot takes several of them at once.
final class Desk: Sendable {
  /// What is claimed beforehand is done within this time.
  private static let foresight: Duration = .milliseconds(50)
  /// The most that is claimed beforehand, for each slot.
  private static let reserveLimit = 8

  private struct LaneState {
    let slots: Int
    /// The most that a slot takes at once.
    let batchLimit: Int
    var running = 0
    /// Claimed and not begun.
    var reserve: [Job] = []
    /// How long a job takes, the last ones counting most; nil: none has ended.
    var usualTime: Duration?

    /// How many it is worth to claim beforehand.
    var wantedReserve: Int {
      guard let usualTime, usualTime < Desk.foresight else { return 0 }
      let most = slots * max(Desk.reserveLimit, batchLimit)
      guard usualTime > .zero else { return most }
      return min(most, Int(Double(slots) * (Desk.foresight / usualTime)))
    }

    /// How many may be claimed; none until half of the reserve is used up, so that it is worth it.
    var room: Int {
      let wanted = wantedReserve
      return reserve.count * 2 > wanted ? 0 : max(0, slots + wanted - running - reserve.count)
    }

    /// What a free slot begins, its share of what there is; nothing leaves the slot free.
    mutating func next() -> [Job] {
      let share = (reserve.count + slots - 1) / slots
      let jobs = reserve.prefix(min(share, batchLimit))
      reserve.removeFirst(jobs.count)
      return Array(jobs)
    }
  }

  private struct State {
    var lanes: [Job.Lane: LaneState]
    var held: [Int64: Job] = [:]
    /// Claimed again before the slot of the last time was free.
    var again: [Int64: Job] = [:]
    var isClosed = false
    var isHearing = false
  }

  private let state: Mutex<State>

  /// - Parameter slots: How many jobs of each lane run at once; none of a lane that is not named.
  init(slots: [Job.Lane: Int]) {
    let lanes = slots.map { lane, slots in
      (lane, LaneState(slots: slots, batchLimit: lane.batchLimit))
    }
    state = Mutex(State(lanes: Dictionary(uniqueKeysWithValues: lanes)))
  }

  /// How many jobs may be claimed, of each lane where it is any.
  var room: [Job.Lane: Int] {
    state.withLock { $0.isClosed ? [:] : $0.lanes.mapValues(\.room).filter { $0.value > 0 } }
  }

  /// Whether to look for more in the queue when something of a lane has ended.
  ///
  /// There is room for it; or nothing more is begun, and all has ended.
  func isWorthALook(for lane: Job.Lane) -> Bool {
    state.withLock { state in
      state.isClosed ? state.held.isEmpty : state.lanes[lane].map { $0.room > 0 } ?? false
    }
  }

  /// All that is claimed, begun or not.
  var held: [Job] { state.withLock { Array($0.held.values) } }

  /// Whether it is heard at once when somebody puts a job into the queue.
  var isHearing: Bool {
    get { state.withLock(\.isHearing) }
    set { state.withLock { $0.isHearing = newValue } }
  }

  /// Takes what was claimed.
  ///
  /// A job that was claimed again while it runs here, or has just given itself back, is not begun
  /// twice at once: it is begun when that has ended.
  ///
  /// - Returns: What is to be begun now, each slot's jobs together; ``end(_:after:)`` gives the
  ///   others.
  func take(_ claimed: [Job]) -> [[Job]] {
    state.withLock { state in
      for job in claimed where state.lanes[job.task.lane] != nil {
        if state.held.updateValue(job, forKey: job.id) == nil {
          state.lanes[job.task.lane]?.reserve.append(job)
        } else {
          state.again[job.id] = job
        }
      }
      var begun: [[Job]] = []
      for (name, var lane) in state.lanes {
        while lane.running < lane.slots, !lane.reserve.isEmpty {
          begun.append(lane.next())
          lane.running += 1
        }
        state.lanes[name] = lane
      }
      return begun
    }
  }

  /// Ends jobs.
  ///
  /// - Parameters:
  ///   - jobs: Begun in one slot, at least one.
  ///   - time: How long they took, all together.
  /// - Returns: What is to be begun in their slot; if that is nothing, the slot is free.
  func end(_ jobs: [Job], after time: Duration) -> [Job] {
    state.withLock { state in
      var again: [Job] = []
      for job in jobs {
        let next = state.again.removeValue(forKey: job.id)
        state.held[job.id] = next
        if let next { again.append(next) }
      }
      guard let name = jobs.first?.task.lane, var lane = state.lanes[name] else { return [] }
      let each = time / jobs.count
      lane.usualTime = lane.usualTime.map { ($0 * 7 + each) / 8 } ?? each
      lane.reserve.insert(contentsOf: again, at: 0)
      let next = lane.next()
      if next.isEmpty { lane.running -= 1 }
      state.lanes[name] = lane
      return next
    }
  }

  /// Begins nothing more.
  ///
  /// - Returns: What was claimed and not begun; it is not held any more.
  func close() -> [Job] {
    state.withLock { state in
      state.isClosed = true
      var unbegun: [Job] = []
      for lane in state.lanes.keys {
        unbegun += state.lanes[lane]?.reserve ?? []
        state.lanes[lane]?.reserve = []
      }
      for job in unbegun { state.held[job.id] = nil }
      // Their leases end by themselves: to give them back would free what runs.
      state.again = [:]
      return unbegun
    }
  }
}

extension Job.Lane {
  /// The most jobs that are done together: what needs no more than the database is cheaper in one
  /// commit.
  fileprivate var batchLimit: Int { self == .clock ? 32 : 1 }
}
