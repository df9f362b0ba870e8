import LedgerStorage
import Synchronization

/// What a worker has claimed, lane by lane, and how much more of each it may claim.
///
/// Each lane has slots of its own, in which jobs run at once. Where jobs are quick, some more are
/// claimed beforehand, so that no slot waits for the queue; never more than are done in a moment,
/// for another worker may be idle.
final class Desk: Sendable {
  /// What is claimed beforehand is done within this time.
  private static let foresight: Duration = .milliseconds(50)
  /// The most that is claimed beforehand, for each slot.
  private static let reserveLimit = 8

  private struct LaneState {
    let slots: Int
    var running = 0
    /// Claimed and not begun.
    var reserve: [Job] = []
    /// How long a job takes, the last ones counting most; nil: none has ended.
    var usualTime: Duration?

    /// How many it is worth to claim beforehand.
    var wantedReserve: Int {
      guard let usualTime, usualTime < Desk.foresight else { return 0 }
      let most = slots * Desk.reserveLimit
      guard usualTime > .zero else { return most }
      return min(most, Int(Double(slots) * (Desk.foresight / usualTime)))
    }

    /// How many may be claimed; none until half of the reserve is used up, so that it is worth it.
    var room: Int {
      let wanted = wantedReserve
      return reserve.count * 2 > wanted ? 0 : max(0, slots + wanted - running - reserve.count)
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
    state = Mutex(State(lanes: slots.mapValues { LaneState(slots: $0) }))
  }

  /// How many jobs may be claimed, of each lane where it is any.
  var room: [Job.Lane: Int] {
    state.withLock { $0.isClosed ? [:] : $0.lanes.mapValues(\.room).filter { $0.value > 0 } }
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
  /// - Returns: What is to be begun now; ``end(_:after:)`` gives the others.
  func take(_ claimed: [Job]) -> [Job] {
    state.withLock { state in
      claimed.filter { job in
        guard var lane = state.lanes[job.task.lane] else { return false }
        guard state.held.updateValue(job, forKey: job.id) == nil else {
          state.again[job.id] = job
          return false
        }
        let begins = lane.running < lane.slots
        if begins { lane.running += 1 } else { lane.reserve.append(job) }
        state.lanes[job.task.lane] = lane
        return begins
      }
    }
  }

  /// Ends a job.
  ///
  /// - Parameters:
  ///   - job: Begun.
  ///   - time: How long it took.
  /// - Returns: What is to be begun in its slot; nil: the slot is free.
  func end(_ job: Job, after time: Duration) -> Job? {
    state.withLock { state in
      let again = state.again.removeValue(forKey: job.id)
      state.held[job.id] = again
      guard var lane = state.lanes[job.task.lane] else { return nil }
      lane.usualTime = lane.usualTime.map { ($0 * 7 + time) / 8 } ?? time
      if let again { lane.reserve.insert(again, at: 0) }
      let next = lane.reserve.isEmpty ? nil : lane.reserve.removeFirst()
      if next == nil { lane.running -= 1 }
      state.lanes[job.task.lane] = lane
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
