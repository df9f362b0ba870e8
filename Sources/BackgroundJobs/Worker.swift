package import LedgerStorage
package import Logging
import ServiceLifecycle
package import Subscriptions

/// Does the jobs in the queue, several at once, until it is told to stop.
///
/// Any number of workers may run: each claims what is due under a lease, and what a dead one had
/// claimed is free again when its lease ends. Each lane has slots of its own, so that none takes
/// the place of another. A worker hears of new jobs when they are committed, and else sleeps until
/// the next one is due. On a graceful shutdown it claims nothing more, finishes what it has begun
/// and gives back the rest.
package struct Worker: Service {
  /// How many jobs of each lane one worker does at once.
  ///
  /// Most of them wait for Apple or for somebody's server; those of the clock wait for the database
  /// alone.
  package static let slots: [Job.Lane: Int] = [
    .submissions: 4, .notifications: 2, .clock: 4, .polls: 4, .sandboxPolls: 2, .webhooks: 8,
    .upkeep: 2, .tellings: 2, .sandboxTellings: 1,
  ]
  /// How long a dead worker's jobs stay where they are; a living one holds on to them as long as it
  /// needs.
  package static let lease: Duration = .seconds(20)
  /// How long a worker sleeps at the most that does not hear of new jobs.
  package static let deafSleep: Duration = .seconds(1)
  /// How long to wait after the database failed.
  private static let faultWait: Duration = .seconds(1)
  /// How long to wait where a budget is used up.
  private static let budgetWait: Duration = .seconds(1)
  /// How long to wait where somebody else was faster.
  private static let contentionWait: Duration = .milliseconds(20)

  private let tools: JobTools
  private let slots: [Job.Lane: Int]
  private let budget: JobBudget
  private let recurring: [Job.Task]
  private let lease: Duration
  private let deafSleep: Duration
  private let name: String
  private let logger: Logger
  private let clock: WorkClock

  private var ledger: Ledger { tools.ledger }

  /// - Parameters:
  ///   - tools: What jobs are done with.
  ///   - name: Who this worker is, in the queue; unique among those that run.
  ///   - slots: How many jobs of each lane it does at once.
  ///   - budget: How many it may begin.
  ///   - recurring: What is put into the queue at the start if it is not there: it comes again.
  ///   - lease: How long others wait for a sign of life.
  ///   - deafSleep: How long it sleeps at the most while it does not hear of new jobs.
  ///   - logger: For what goes wrong.
  ///   - clock: The time by which jobs are due.
  package init(
    tools: JobTools, name: String, slots: [Job.Lane: Int] = Self.slots,
    budget: JobBudget = .unlimited, recurring: [Job.Task] = [], lease: Duration = Self.lease,
    deafSleep: Duration = Self.deafSleep, logger: Logger, clock: WorkClock
  ) {
    self.tools = tools
    self.name = name
    self.slots = slots.filter { $0.key != .webhooks || tools.webhook != nil }
    self.budget = budget
    self.recurring = recurring
    self.lease = lease
    self.deafSleep = deafSleep
    self.logger = logger
    self.clock = clock
  }

  /// What the loop remembers from one look at the queue to the next.
  fileprivate struct Shift {
    var isSeeded = false
    /// Lanes whose budget is used up, and until when they are left alone.
    var resting: [Job.Lane: ContinuousClock.Instant] = [:]
    /// The end of the sleep that is under way.
    var wakesAt: ContinuousClock.Instant?
  }

  package func run() async throws {
    let desk = Desk(slots: slots)
    let runner = JobRunner(tools: tools, logger: logger, now: clock.now)
    // Whatever happens rings: a job that ended, one that came, time that passed, the end.
    let (rings, bell) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
    await withGracefulShutdownHandler {
      await withDiscardingTaskGroup { group in
        group.addTask { await hear(desk, bell) }
        group.addTask { await keepLeases(of: desk) }
        var shift = Shift()
        var ringing = rings.makeAsyncIterator()
        while !Task.isShuttingDownGracefully, !Task.isCancelled {
          let (jobs, sleep) = await claim(desk, &shift)
          for jobs in jobs {
            group.addTask { await work(jobs, desk, runner, bell) }
          }
          guard jobs.isEmpty else { continue }
          if let end = shift.newSleep(for: sleep) {
            group.addTask {
              try? await cancelWhenGracefulShutdown { try await Task.sleep(until: end) }
              bell.yield()
            }
          }
          guard await ringing.next() != nil else { break }
        }
        await giveBack(desk.close())
        while !desk.held.isEmpty, await ringing.next() != nil {}
        group.cancelAll()
      }
    } onGracefulShutdown: {
      bell.yield()
    }
  }

  // MARK: Claiming

  /// Claims what is due, as far as there is room.
  ///
  /// - Returns: What to begin, each slot's jobs together; if that is nothing, for how long nothing
  ///   is to be expected.
  private func claim(
    _ desk: Desk, _ shift: inout Shift
  ) async -> (begin: [[Job]], sleep: Duration) {
    let longest = desk.isHearing ? clock.longestSleep : min(clock.longestSleep, deafSleep)
    do {
      if !shift.isSeeded {
        try await ledger.seed(recurring, at: clock.now())
        shift.isSeeded = true
      }
      let instant = ContinuousClock.now
      shift.resting = shift.resting.filter { $0.value > instant }
      let room = desk.room.filter { shift.resting[$0.key] == nil }
      guard !room.isEmpty else { return ([], longest) }
      let next = try await ledger.nextJobs().filter { room[$0.key] != nil }
      let now = clock.now()
      let due = next.filter { $0.value <= now }
      guard !due.isEmpty else {
        let resting = shift.resting.isEmpty ? longest : min(longest, Self.budgetWait)
        return ([], min(resting, next.values.min().map { $0 - now } ?? longest))
      }
      let granted = try await grants(of: room.filter { due[$0.key] != nil }, &shift)
      let jobs = try await claim(granted, at: now)
      return (desk.take(jobs), min(longest, Self.contentionWait))
    } catch is CancellationError {
      return ([], longest)
    } catch {
      logger.error("The queue can't be read", metadata: ["error": "\(error)"])
      return ([], Self.faultWait)
    }
  }

  /// How many jobs of each lane the budget allows.
  private func grants(
    of wanted: [Job.Lane: Int], _ shift: inout Shift
  ) async throws -> [Job.Lane: Int] {
    var granted: [Job.Lane: Int] = [:]
    for (lane, count) in wanted {
      let grant = try await budget.grant(lane, count)
      tools.metrics.budget(of: lane, granted: grant, of: count)
      if grant > 0 { granted[lane] = grant }
      if grant < count {
        shift.resting[lane] = .now + min(clock.longestSleep, Self.budgetWait)
      }
    }
    return granted
  }

  private func claim(_ granted: [Job.Lane: Int], at now: Timestamp) async throws -> [Job] {
    let jobs: [Job]
    do {
      jobs = try await ledger.claimJobs(limits: granted, worker: name, at: now, lease: lease)
    } catch {
      try? await giveBack(granted)
      throw error
    }
    var unused = granted
    for job in jobs { unused[job.task.lane, default: 0] -= 1 }
    try await giveBack(unused)
    return jobs
  }

  private func giveBack(_ unused: [Job.Lane: Int]) async throws {
    for (lane, count) in unused where count > 0 { try await budget.giveBack(lane, count) }
  }

  /// Gives back what was claimed and not begun.
  private func giveBack(_ jobs: [Job]) async {
    guard !jobs.isEmpty else { return }
    do {
      try await ledger.giveBack(jobs)
      try await giveBack(Dictionary(grouping: jobs, by: \.task.lane).mapValues(\.count))
    } catch {
      logger.warning(
        "Jobs that were not begun wait for the end of their lease", metadata: ["error": "\(error)"])
    }
  }

  // MARK: Doing

  /// Does jobs, and then whatever else there is for their slot.
  private func work(
    _ jobs: [Job], _ desk: Desk, _ runner: JobRunner, _ bell: AsyncStream<Void>.Continuation
  ) async {
    var next = jobs
    while !next.isEmpty {
      let begin = ContinuousClock.now
      await runner.run(next)
      let lane = next[0].task.lane
      next = desk.end(next, after: .now - begin)
      if desk.isWorthALook(for: lane) { bell.yield() }
    }
  }

  /// Holds on to what is claimed, for as long as it takes.
  private func keepLeases(of desk: Desk) async {
    var renewedAt = clock.now()
    while (try? await Task.sleep(for: min(clock.longestSleep, lease / 4))) != nil {
      let now = clock.now()
      guard now - renewedAt >= lease / 8 else { continue }
      renewedAt = now
      do {
        try await ledger.extendLeases(of: desk.held, until: now + lease)
      } catch {
        logger.warning("Leases can't be renewed", metadata: ["error": "\(error)"])
      }
    }
  }

  /// Hears of jobs that are put into the queue, by whomever.
  private func hear(_ desk: Desk, _ bell: AsyncStream<Void>.Continuation) async {
    await cancelWhenGracefulShutdown {
      await ledger.bell.listen(to: [.jobs]) { sound in
        switch sound {
        case .silenceBefore:
          // Behind a PgBouncer that pools transactions LISTEN succeeds, and nothing is ever heard.
          // So this rings itself, and only who has heard something knows that it can.
          desk.isHearing = false
          ledger.bell.ring(.jobs)
        case .rung: desk.isHearing = true
        }
        bell.yield()
      }
    }
  }
}

extension Worker.Shift {
  /// The end of a sleep that begins now; nil if one is under way that ends early enough.
  mutating func newSleep(for duration: Duration) -> ContinuousClock.Instant? {
    let now = ContinuousClock.now
    let end = now + max(duration, .milliseconds(1))
    if let wakesAt, wakesAt > now, wakesAt <= end { return nil }
    wakesAt = end
    return end
  }
}

/// The time by which jobs are due.
package struct WorkClock: Sendable {
  package let now: @Sendable () -> Timestamp
  /// How long a worker sleeps, by the real clock, before it looks at the time again.
  ///
  /// A clock that is not the real one can jump at any moment.
  package let longestSleep: Duration

  /// A clock that runs as the real one does, unless told otherwise.
  package init(
    longestSleep: Duration = Bell.longestSilence, now: @escaping @Sendable () -> Timestamp
  ) {
    self.longestSleep = longestSleep
    self.now = now
  }

  /// A clock that can jump at any moment.
  package static func jumping(_ now: @escaping @Sendable () -> Timestamp) -> WorkClock {
    WorkClock(longestSleep: .milliseconds(20), now: now)
  }
}
