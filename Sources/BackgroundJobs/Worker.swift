package import LedgerStorage
package import Logging
import ServiceLifecycle
package import Subscriptions

/// Runs the jobs in the queue until it is shut down.
///
/// Any number may run: each claims jobs under a lease, which frees those of a crashed worker, and
/// sleeps until it is notified or the next is due. On a graceful shutdown it finishes running jobs
/// and returns the rest.
package struct Worker: Service {
  /// The jobs of each queue that one worker runs at once; most wait for Apple or a webhook.
  package static let concurrency: [Job.Queue: Int] = [
    .submissions: 4, .notifications: 2, .clock: 4, .polls: 4, .sandboxPolls: 2, .webhooks: 8,
    .maintenance: 2, .writeBack: 2, .sandboxWriteBack: 1,
  ]
  /// The time after which a crashed worker's jobs are free; a live worker extends its leases.
  package static let lease: Duration = .seconds(20)
  /// The poll interval when notifications don't arrive.
  package static let sleepWithoutNotify: Duration = .seconds(1)
  private static let faultWait: Duration = .seconds(1)
  /// The pause of a queue whose budget is used up.
  private static let budgetWait: Duration = .seconds(1)
  /// The pause when other workers claimed the due jobs.
  private static let contentionWait: Duration = .milliseconds(20)

  private let tools: JobTools
  private let concurrency: [Job.Queue: Int]
  private let budget: JobBudget
  private let recurring: [Job.Key]
  private let lease: Duration
  private let sleepWithoutNotify: Duration
  private let name: String
  private let logger: Logger
  private let clock: WorkerClock

  private var ledger: Ledger { tools.ledger }

  /// - Parameters:
  ///   - pollsPerHour: 0: no polls; nil: no limits on requests to Apple at all.
  ///   - recurring: Jobs to enqueue at the start, unless they exist.
  package init(
    tools: JobTools, name: String, concurrency: [Job.Queue: Int] = Self.concurrency,
    pollsPerHour: Int? = nil, recurring: [Job.Key] = [], lease: Duration = Self.lease,
    sleepWithoutNotify: Duration = Self.sleepWithoutNotify, logger: Logger, clock: WorkerClock
  ) {
    self.tools = tools
    self.name = name
    self.concurrency = concurrency.filter { $0.key != .webhooks || tools.webhook != nil }
    budget = JobBudget(ledger: tools.ledger, pollsPerHour: pollsPerHour, now: clock.now)
    self.recurring = recurring
    self.lease = lease
    self.sleepWithoutNotify = sleepWithoutNotify
    self.logger = logger
    self.clock = clock
  }

  fileprivate struct Shift {
    var isSeeded = false
    /// Queues whose budget is used up, with the end of their pause.
    var resting: [Job.Queue: ContinuousClock.Instant] = [:]
    /// The end of the current sleep.
    var wakesAt: ContinuousClock.Instant?
  }

  package func run() async throws {
    let slots = JobSlots(concurrency: concurrency)
    let runner = JobRunner(tools: tools, logger: logger, now: clock.now)
    // Signals that a job ended or came, that time passed, and the shutdown.
    let (wakeUps, notifier) = AsyncStream.makeStream(
      of: Void.self, bufferingPolicy: .bufferingNewest(1))
    await withGracefulShutdownHandler {
      await withDiscardingTaskGroup { group in
        group.addTask { await listen(slots, notifier) }
        group.addTask { await keepLeases(of: slots) }
        var shift = Shift()
        var wakeUp = wakeUps.makeAsyncIterator()
        while !Task.isShuttingDownGracefully, !Task.isCancelled {
          let (jobs, sleep) = await claim(slots, &shift)
          for jobs in jobs {
            group.addTask { await work(jobs, slots, runner, notifier) }
          }
          guard jobs.isEmpty else { continue }
          if let end = shift.newSleep(for: sleep) {
            group.addTask {
              try? await cancelWhenGracefulShutdown { try await Task.sleep(until: end) }
              notifier.yield()
            }
          }
          guard await wakeUp.next() != nil else { break }
        }
        await giveBack(slots.close())
        while !slots.held.isEmpty, await wakeUp.next() != nil {}
        group.cancelAll()
      }
    } onGracefulShutdown: {
      notifier.yield()
    }
  }

  // MARK: Claiming

  /// Claims due jobs for the free slots.
  ///
  /// - Returns: The jobs to start, grouped by slot, and if there are none, how long to sleep.
  private func claim(
    _ slots: JobSlots, _ shift: inout Shift
  ) async -> (start: [[Job]], sleep: Duration) {
    let longest =
      slots.isListening ? clock.longestSleep : min(clock.longestSleep, sleepWithoutNotify)
    do {
      if !shift.isSeeded {
        try await ledger.jobs.seed(recurring, at: clock.now())
        shift.isSeeded = true
      }
      let instant = ContinuousClock.now
      shift.resting = shift.resting.filter { $0.value > instant }
      let room = slots.room.filter { shift.resting[$0.key] == nil }
      guard !room.isEmpty else { return ([], longest) }
      let next = try await ledger.jobs.nextJobs().filter { room[$0.key] != nil }
      let now = clock.now()
      let due = next.filter { $0.value <= now }
      guard !due.isEmpty else {
        let resting = shift.resting.isEmpty ? longest : min(longest, Self.budgetWait)
        return ([], min(resting, next.values.min().map { $0 - now } ?? longest))
      }
      let granted = try await grants(of: room.filter { due[$0.key] != nil }, &shift)
      let jobs = try await claim(granted, at: now)
      return (slots.take(jobs), min(longest, Self.contentionWait))
    } catch is CancellationError {
      return ([], longest)
    } catch {
      logger.error("Can't read the job queue", metadata: ["error": "\(error)"])
      return ([], Self.faultWait)
    }
  }

  private func grants(
    of wanted: [Job.Queue: Int], _ shift: inout Shift
  ) async throws -> [Job.Queue: Int] {
    var granted: [Job.Queue: Int] = [:]
    for (queue, count) in wanted {
      let grant = try await budget.grant(queue, count)
      tools.metrics.budget(of: queue, granted: grant, of: grant > 0 ? grant : count)
      if grant > 0 {
        granted[queue] = grant
      } else {
        shift.resting[queue] = .now + min(clock.longestSleep, Self.budgetWait)
      }
    }
    return granted
  }

  private func claim(_ granted: [Job.Queue: Int], at now: Timestamp) async throws -> [Job] {
    let jobs: [Job]
    do {
      jobs = try await ledger.jobs.claimJobs(limits: granted, worker: name, at: now, lease: lease)
    } catch {
      for (queue, count) in granted { budget.giveBack(queue, count) }
      throw error
    }
    var unused = granted
    for job in jobs { unused[job.queue, default: 0] -= 1 }
    for (queue, count) in unused { budget.giveBack(queue, count) }
    return jobs
  }

  private func giveBack(_ jobs: [Job]) async {
    guard !jobs.isEmpty else { return }
    do {
      try await ledger.jobs.giveBack(jobs)
    } catch {
      logger.warning(
        "Can't return jobs that were not started; their leases expire",
        metadata: ["error": "\(error)"])
    }
  }

  // MARK: Running

  private func work(
    _ jobs: [Job], _ slots: JobSlots, _ runner: JobRunner,
    _ notifier: AsyncStream<Void>.Continuation
  ) async {
    var next = jobs
    while !next.isEmpty {
      let start = ContinuousClock.now
      await runner.run(next)
      let queue = next[0].queue
      next = slots.end(next, after: .now - start)
      if slots.isWorthALook(for: queue) { notifier.yield() }
    }
  }

  private func keepLeases(of slots: JobSlots) async {
    var renewedAt = clock.now()
    while (try? await Task.sleep(for: min(clock.longestSleep, lease / 4))) != nil {
      let now = clock.now()
      guard now - renewedAt >= lease / 8 else { continue }
      renewedAt = now
      do {
        // Most jobs end long before their lease, and those are not written.
        try await ledger.jobs.extendLeases(
          of: slots.held, until: now + lease, ifEndingBefore: now + lease * 3 / 4)
      } catch {
        logger.warning("Can't extend leases", metadata: ["error": "\(error)"])
      }
    }
  }

  private func listen(_ slots: JobSlots, _ notifier: AsyncStream<Void>.Continuation) async {
    await cancelWhenGracefulShutdown {
      await ledger.notifier.listen(to: .jobs) { isListening in
        slots.isListening = isListening
        notifier.yield()
      }
    }
  }
}

extension Worker.Shift {
  /// Starts a sleep and returns its end; nil if the current one ends early enough.
  mutating func newSleep(for duration: Duration) -> ContinuousClock.Instant? {
    let now = ContinuousClock.now
    let end = now + max(duration, .milliseconds(1))
    if let wakesAt, wakesAt > now, wakesAt <= end { return nil }
    wakesAt = end
    return end
  }
}

package struct WorkerClock: Sendable {
  package let now: @Sendable () -> Timestamp
  /// The longest time a worker sleeps, by the real clock, before it reads this clock again.
  package let longestSleep: Duration

  package init(
    longestSleep: Duration = ChangeNotifier.pollInterval, now: @escaping @Sendable () -> Timestamp
  ) {
    self.longestSleep = longestSleep
    self.now = now
  }

  /// A simulated clock, which can jump at any moment.
  package static func jumping(_ now: @escaping @Sendable () -> Timestamp) -> WorkerClock {
    WorkerClock(longestSleep: .milliseconds(20), now: now)
  }
}

/// Apple's hourly limits on the jobs that all workers start, separate for polls and write-backs.
struct JobBudget: Sendable {
  /// Four fifths of Apple's limit for Set App Account Token; the other write-back has a larger one.
  private static let writeBacksPerHour = 57_600
  /// The share of production's limits that Apple's sandbox has: a tenth.
  private static let sandboxShare = 10

  private let portions: BudgetPortions
  /// 0: no polls; nil: no limits at all.
  private let pollsPerHour: Int?
  private let now: @Sendable () -> Timestamp

  init(ledger: Ledger, pollsPerHour: Int?, now: @escaping @Sendable () -> Timestamp) {
    portions = BudgetPortions(ledger.polls)
    self.pollsPerHour = pollsPerHour
    self.now = now
  }

  /// Takes up to the wanted jobs; 0: the budget is used up, fewer: there may be more.
  func grant(_ queue: Job.Queue, _ wanted: Int) async throws -> Int {
    guard !isClosed(queue) else { return 0 }
    guard let budget = budget(of: queue) else { return wanted }
    return try await portions.spend(upTo: wanted, of: budget, at: now())
  }

  func giveBack(_ queue: Job.Queue, _ unused: Int) {
    if let budget = budget(of: queue) { portions.giveBack(unused, of: budget) }
  }

  private func isClosed(_ queue: Job.Queue) -> Bool {
    pollsPerHour == 0 && (queue == .polls || queue == .sandboxPolls)
  }

  private func budget(of queue: Job.Queue) -> AppleBudget? {
    guard let pollsPerHour, let name = queue.rateBudget else { return nil }
    switch queue {
    case .polls: return AppleBudget(name, perHour: pollsPerHour)
    case .sandboxPolls: return AppleBudget(name, perHour: pollsPerHour / Self.sandboxShare)
    case .writeBack: return AppleBudget(name, perHour: Self.writeBacksPerHour)
    case .sandboxWriteBack:
      return AppleBudget(name, perHour: Self.writeBacksPerHour / Self.sandboxShare)
    case .submissions, .notifications, .clock, .webhooks, .maintenance: return nil
    }
  }
}
