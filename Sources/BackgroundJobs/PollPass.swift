import Intake
import LedgerStorage
package import Logging
package import Subscriptions

/// Runs the polls that are due, once: for cron, without a permanent worker.
///
/// Claims small batches, so that several passes may run; later polls are left to the next.
package struct PollPass: Sendable {
  private static let concurrency = 8
  private static let batch = 16
  /// The time after which a crashed pass's jobs are free.
  private static let lease: Duration = .minutes(10)
  private static let budgetWait: Duration = .milliseconds(250)
  private static let queues: [Job.Queue] = [.polls, .sandboxPolls]

  package struct Summary: Hashable, Sendable {
    /// Polls due at the start of the pass.
    package var due = 0
    /// Polls that Apple answered.
    package var polled = 0
    /// Answers with new information.
    package var changed = 0
    /// Original transactions unknown to Apple, or without a way to ask.
    package var passedOver = 0
    /// Polls to retry because Apple was not available.
    package var postponed = 0
    /// Polls that failed because of the configuration or an error of ours, or were given up.
    package var failed = 0
    /// Due polls that the budget did not allow.
    package var left = 0

    package init() {}

    package var done: Int { polled + passedOver + postponed + failed }
  }

  private let budget: JobBudget
  private let name: String
  private let patience: Duration
  private let runner: JobRunner

  /// - Parameters:
  ///   - name: Unique among running workers and passes.
  ///   - patience: The longest time to wait for the budget.
  package init(
    tools: JobTools, pollsPerHour: Int, name: String, patience: Duration, logger: Logger,
    now: @escaping @Sendable () -> Timestamp
  ) {
    budget = JobBudget(ledger: tools.ledger, pollsPerHour: pollsPerHour, now: now)
    self.name = name
    self.patience = patience
    runner = JobRunner(tools: tools, logger: logger, now: now)
  }

  package func run(showing show: (Summary) -> Void) async throws -> Summary {
    let (start, ledger) = (runner.now(), runner.ledger)
    var summary = Summary()
    let due = try await ledger.polls.dueJobs(in: Self.queues, at: start)
    summary.due = due.values.reduce(0, +)
    show(summary)
    try await withThrowingTaskGroup(of: (outcome: StatusPoller.Outcome?, isGivenUp: Bool).self) {
      group in
      var (claimed, busy): ([Job], Int) = ([], 0)
      // Don't wait for the budget of a queue without due polls.
      var open = Set(Self.queues.filter { due[$0, default: 0] > 0 })
      let deadline = ContinuousClock.now + patience
      while true {
        if claimed.isEmpty, !open.isEmpty {
          claimed = try await claim(from: &open, asOf: start, waitsUntil: deadline)
        }
        while busy < Self.concurrency, let job = claimed.popLast() {
          busy += 1
          group.addTask { await poll(job) }
        }
        guard busy > 0, let end = try await group.next() else { break }
        busy -= 1
        summary.count(end.outcome, isGivenUp: end.isGivenUp)
        show(summary)
      }
    }
    summary.left = try await ledger.polls.dueJobs(in: Self.queues, at: start).values.reduce(0, +)
    return summary
  }

  /// Claims a batch of polls that were due at the start, the most urgent last.
  private func claim(
    from open: inout Set<Job.Queue>, asOf start: Timestamp,
    waitsUntil deadline: ContinuousClock.Instant
  ) async throws -> [Job] {
    while !open.isEmpty {
      var isWaiting = false
      for queue in Self.queues where open.contains(queue) {
        let granted = try await budget.grant(queue, Self.batch)
        guard granted > 0 else {
          isWaiting = true
          continue
        }
        let jobs = try await runner.ledger.jobs.claimJobs(
          limits: [queue: granted], worker: name, at: start,
          lease: Self.lease + (runner.now() - start))
        budget.giveBack(queue, granted - jobs.count)
        if !jobs.isEmpty { return jobs.reversed() }
        open.remove(queue)
      }
      guard isWaiting else { continue }
      guard ContinuousClock.now < deadline else { return [] }
      try await Task.sleep(for: Self.budgetWait)
    }
    return []
  }

  private func poll(_ job: Job) async -> (outcome: StatusPoller.Outcome?, isGivenUp: Bool) {
    var outcome: StatusPoller.Outcome?
    let isGivenUp = await runner.run(job) { job in
      let polled = try await runner.tools.poll.poll(job)
      outcome = polled
      return JobOutcome(polled)
    }
    return (outcome, isGivenUp)
  }
}

extension PollPass.Summary {
  /// Counts a poll; nil is an error of ours.
  fileprivate mutating func count(_ outcome: StatusPoller.Outcome?, isGivenUp: Bool) {
    switch outcome {
    case _ where isGivenUp: failed += 1
    case .polled(let isChanged):
      polled += 1
      if isChanged { changed += 1 }
    case .passedOver, .over: passedOver += 1
    case .postponed: postponed += 1
    case .failed, nil: failed += 1
    }
  }
}
