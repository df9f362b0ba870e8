import Intake
import LedgerStorage
package import Logging
package import Subscriptions

/// Polls what is due, once: for cron, where no worker runs all the time.
///
/// Small batches are claimed and done, one after the other, so that it does not matter how much is
/// due, nor how many others are at it. What becomes due meanwhile is for the next pass.
package struct PollPass: Sendable {
  /// How many polls wait for Apple at once.
  private static let concurrency = 8
  /// How many are claimed at once: enough that nobody waits for the database.
  private static let batch = 16
  /// How long what a dead pass had claimed stays where it is.
  private static let lease: Duration = .minutes(10)
  /// How long to wait for the budget to fill up, each time.
  private static let budgetWait: Duration = .milliseconds(250)
  private static let lanes: [Job.Lane] = [.polls, .sandboxPolls]

  /// What a pass came to.
  package struct Summary: Hashable, Sendable {
    /// How many polls were due when it began.
    package var due = 0
    /// How many Apple has answered.
    package var polled = 0
    /// How many of those answers said anything new.
    package var news = 0
    /// How many came to nothing: Apple knows no such line, or there was nothing to ask with.
    package var passedOver = 0
    /// How many wait for Apple, and come again by themselves.
    package var postponed = 0
    /// How many fail until somebody mends something, or were given up.
    package var failed = 0
    /// How many were left for lack of budget.
    package var left = 0

    package init() {}

    /// How many of those that were due are done with.
    package var done: Int { polled + passedOver + postponed + failed }
  }

  private let tools: JobTools
  private let budget: JobBudget
  private let name: String
  private let patience: Duration
  private let runner: JobRunner
  private let now: @Sendable () -> Timestamp

  /// - Parameters:
  ///   - tools: What polls are done with.
  ///   - budget: How many there may be.
  ///   - name: Who this is, in the queue; unique among those that run.
  ///   - patience: How long the pass may wait for the budget in all.
  ///   - logger: For what goes wrong.
  ///   - now: The clock by which polls are due.
  package init(
    tools: JobTools, budget: JobBudget, name: String, patience: Duration, logger: Logger,
    now: @escaping @Sendable () -> Timestamp
  ) {
    self.tools = tools
    self.budget = budget
    self.name = name
    self.patience = patience
    self.now = now
    runner = JobRunner(tools: tools, logger: logger, now: now)
  }

  /// Polls what is due.
  ///
  /// - Parameter show: Told of the state of things after each poll.
  /// - Returns: What it came to.
  /// - Throws: What the database says.
  package func run(showing show: (Summary) -> Void) async throws -> Summary {
    let start = now()
    let ledger = tools.ledger
    var summary = Summary()
    let due = try await ledger.dueJobs(in: Self.lanes, at: start)
    summary.due = due.values.reduce(0, +)
    show(summary)
    try await withThrowingTaskGroup(of: (outcome: LinePoll.Outcome?, isGivenUp: Bool).self) {
      group in
      var (claimed, busy): ([Job], Int) = ([], 0)
      // Where nothing is due, there is no budget to wait for.
      var open = Set(Self.lanes.filter { due[$0, default: 0] > 0 })
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
    summary.left = try await ledger.dueJobs(in: Self.lanes, at: start).values.reduce(0, +)
    return summary
  }

  /// Claims a batch of what was due at the beginning, the most urgent last.
  ///
  /// - Parameters:
  ///   - open: The lanes in which there is something left to claim.
  ///   - start: When the pass began.
  ///   - deadline: Until when it waits for the budget.
  /// - Returns: Jobs; none where all lanes are closed.
  /// - Throws: What the database says.
  private func claim(
    from open: inout Set<Job.Lane>, asOf start: Timestamp,
    waitsUntil deadline: ContinuousClock.Instant
  ) async throws -> [Job] {
    while !open.isEmpty {
      var isWaiting = false
      for lane in Self.lanes where open.contains(lane) {
        let granted = try await budget.grant(lane, Self.batch)
        guard granted > 0 else {
          isWaiting = true
          continue
        }
        let jobs = try await tools.ledger.claimJobs(
          limits: [lane: granted], worker: name, at: start, lease: Self.lease + (now() - start))
        try await budget.giveBack(lane, granted - jobs.count)
        if !jobs.isEmpty { return jobs.reversed() }
        open.remove(lane)
      }
      guard isWaiting else { continue }
      guard ContinuousClock.now < deadline else { return [] }
      try await Task.sleep(for: Self.budgetWait)
    }
    return []
  }

  private func poll(_ job: Job) async -> (outcome: LinePoll.Outcome?, isGivenUp: Bool) {
    var outcome: LinePoll.Outcome?
    let isGivenUp = await runner.run(job) { job in
      let polled = try await tools.poll.poll(job)
      outcome = polled
      return JobOutcome(polled)
    }
    return (outcome, isGivenUp)
  }
}

extension PollPass.Summary {
  /// Counts a poll; one without an outcome has failed through our own fault.
  fileprivate mutating func count(_ outcome: LinePoll.Outcome?, isGivenUp: Bool) {
    switch outcome {
    case _ where isGivenUp: failed += 1
    case .polled(let isNews):
      polled += 1
      if isNews { news += 1 }
    case .passedOver, .over: passedOver += 1
    case .postponed: postponed += 1
    case .failed, nil: failed += 1
    }
  }
}
