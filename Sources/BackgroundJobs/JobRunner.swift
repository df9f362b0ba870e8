package import CoreMetrics
package import Intake
package import LedgerStorage
import Logging
package import Subscriptions
import Tracing

/// Does one claimed job, and sees to it that it ends well, comes back, or is given up in the end.
struct JobRunner: Sendable {
  let tools: JobTools
  let logger: Logger
  let now: @Sendable () -> Timestamp

  var ledger: Ledger { tools.ledger }

  /// Does jobs of one lane, together where that is cheaper.
  ///
  /// Never throws: a failure of ours gives a job back, later each time.
  func run(_ jobs: [Job]) async {
    let alone = jobs.count > 1 ? await together(jobs) : jobs
    if alone.count < jobs.count {
      let left = Set(alone.map(\.id))
      for job in jobs where !left.contains(job.id) { tools.metrics.count(job.task.kind, .done) }
    }
    for job in alone {
      let occasion = Occasion.job(id: job.id, kind: job.task.kind.rawValue)
      await Occasion.$current.withValue(occasion) {
        await withSpan("job \(job.task.kind.rawValue)", ofKind: .consumer) { span in
          if span.isRecording { span.attributes["job.id"] = job.id }
          _ = await run(job) { job in
            do {
              return try await perform(job)
            } catch {
              span.recordError(error)
              throw error
            }
          }
        }
      }
    }
  }

  /// The same for whoever wants to know what came of it.
  ///
  /// - Parameters:
  ///   - job: Claimed.
  ///   - perform: Does it once.
  /// - Returns: Whether it was given up.
  func run(_ job: Job, _ perform: (Job) async throws -> JobOutcome) async -> Bool {
    let isLast = job.task.retries.isOver(for: job.createdAt, at: now())
    let start = ContinuousClock.now
    defer { tools.metrics.took(job.task.kind, ContinuousClock.now - start) }
    do {
      return try await finish(job, as: try await perform(job), isLast: isLast)
    } catch {
      logger.error(
        "A job failed",
        metadata: [
          "job.id": "\(job.id)", "job.kind": "\(job.task.kind.rawValue)", "error": "\(error)",
        ])
      tools.metrics.count(job.task.kind, .failed)
      // Should this fail too, the lease ends by itself.
      return (try? await retry(job, because: "\(error)", isLast: isLast)) ?? false
    }
  }

  /// Does it once.
  private func perform(_ job: Job) async throws -> JobOutcome {
    switch job.task {
    case .verifySubmission(let id): return try await verifySubmission(id, job)
    case .processNotification(let id): return try await processNotification(id, job)
    case .tellAccount:
      _ = try await tell([job])
      return .settled
    case .expireOrder:
      _ = try await ledger.expire([job], at: now())
      return .settled
    case .pollLine: return try await pollLine(job)
    case .compareNotifications(let bundleID, let environment):
      return try await compareNotifications(of: bundleID, in: environment, as: job)
    case .survey: return try await survey(job)
    case .deliverEvents: return try await deliverEvents(job)
    case .trimEvents: return try await trimEvents(job)
    case .foldMovements: return try await foldMovements(job)
    case .ageOut: return try await ageOut(job)
    case .mergeAccount(let account): return try await merge(account, for: job)
    case .writeOwnership(let line): return try await writeOwnership(of: line, job)
    case .answerConsumption(_, let id): return try await answerConsumption(askedBy: id, job)
    }
  }

  /// Leaves a job as its outcome says; true if it was given up.
  private func finish(_ job: Job, as outcome: JobOutcome, isLast: Bool) async throws -> Bool {
    switch outcome {
    case .settled: tools.metrics.count(job.task.kind, .done)
    case .nothingLeft:
      try await ledger.complete(job)
      tools.metrics.count(job.task.kind, .done)
    case .postponed(let reason):
      tools.metrics.count(job.task.kind, .postponed)
      if isLast { return try await park(job, because: reason) }
    case .retry(let reason, let notBefore):
      tools.metrics.count(job.task.kind, .postponed)
      logger.notice(
        "A job is tried again later",
        metadata: [
          "job.id": "\(job.id)", "job.kind": "\(job.task.kind.rawValue)", "reason": "\(reason)",
        ])
      return try await retry(job, because: reason, notBefore: notBefore, isLast: isLast)
    }
    return false
  }

  private func retry(
    _ job: Job, because reason: String, notBefore: Timestamp? = nil, isLast: Bool
  ) async throws -> Bool {
    guard !isLast else { return try await park(job, because: reason) }
    let retryAt = job.task.retries.next(
      afterAttempts: job.attempts, at: now(), notBefore: notBefore)
    try await ledger.release(job, until: retryAt, because: reason)
    return false
  }

  private func park(_ job: Job, because reason: String) async throws -> Bool {
    guard try await ledger.park(job, because: reason, at: now()) else { return false }
    tools.metrics.count(job.task.kind, .parked)
    logger.error(
      "A job is given up until somebody starts it again: tenure jobs retry \(job.id)",
      metadata: [
        "job.id": "\(job.id)", "job.kind": "\(job.task.kind.rawValue)", "reason": "\(reason)",
      ])
    return true
  }
}

/// What came of doing a job once.
package enum JobOutcome: Sendable {
  /// What was done is committed, and together with it that the job is out of the queue or comes
  /// again.
  case settled
  /// There was nothing to do, or all of it is committed before: the job can go.
  case nothingLeft
  /// It is back in the queue with its next time, and is given up when the patience with it is over.
  case postponed(because: String)
  /// It can't be done now: it is given back by its kind's schedule, and not before what the other
  /// side wished for.
  case retry(because: String, notBefore: Timestamp? = nil)
}

/// What jobs are done with.
package struct JobTools: Sendable {
  /// How long events are kept where no setting says otherwise: longer than whoever follows the feed
  /// is away for.
  package static let eventRetention: Duration = .days(30)

  package var ledger: Ledger
  /// What finishes submissions.
  package var submissions: SubmissionIntake
  /// What processes notifications.
  package var notifications: NotificationIntake
  /// What asks Apple about lines.
  package var poll: LinePoll
  /// What tells Apple of owners and of what became of purchases.
  package var teller: AppleTeller
  /// What pushes events; nil: whoever has one pushes them.
  package var webhook: WebhookSender?
  /// How long events are kept.
  package var eventRetention: Duration
  /// How long raw bodies are kept.
  package var rawRetention: RawRetention
  /// By what it is judged now what accounts may use.
  package var terms: @Sendable () -> AccessTerms
  let metrics: JobMetrics
  let webhookMetrics: WebhookMetrics

  package init(
    ledger: Ledger, submissions: SubmissionIntake, notifications: NotificationIntake,
    poll: LinePoll, teller: AppleTeller, webhook: WebhookSender? = nil,
    eventRetention: Duration = Self.eventRetention, rawRetention: RawRetention = RawRetention(),
    metrics: any MetricsFactory = MetricsSystem.factory,
    terms: @escaping @Sendable () -> AccessTerms
  ) {
    self.metrics = JobMetrics(metrics)
    webhookMetrics = WebhookMetrics(metrics)
    self.ledger = ledger
    self.submissions = submissions
    self.notifications = notifications
    self.poll = poll
    self.teller = teller
    self.webhook = webhook
    self.eventRetention = eventRetention
    self.rawRetention = rawRetention
    self.terms = terms
  }
}
