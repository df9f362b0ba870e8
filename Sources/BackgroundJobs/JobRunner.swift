package import Intake
package import LedgerStorage
import Logging
package import Subscriptions
import Tracing

/// Runs claimed jobs, and completes, retries or discards them by their outcome.
struct JobRunner: Sendable {
  let tools: JobTools
  let logger: Logger
  let now: @Sendable () -> Timestamp

  var ledger: Ledger { tools.ledger }

  /// Runs jobs of one queue, those of a kind together if they can; failed ones return to the queue.
  func run(_ jobs: [Job]) async {
    var alone = jobs
    if jobs.count > 1 {
      alone = []
      for jobs in Dictionary(grouping: jobs, by: \.kind).values {
        alone += await runTogether(jobs)
      }
    }
    for job in alone {
      let logContext = LogContext.job(id: job.id, kind: job.kind.rawValue)
      await LogContext.$current.withValue(logContext) {
        await withSpan("job \(job.kind.rawValue)", ofKind: .consumer) { span in
          if span.isRecording { span.attributes["job.id"] = job.id }
          _ = await run(job) { job in
            do {
              return try await job.kind.definition.run(job, self)
            } catch {
              span.recordError(error)
              throw error
            }
          }
        }
      }
    }
  }

  /// Runs jobs of one kind in one commit, and returns those that must run alone: all after an error.
  private func runTogether(_ jobs: [Job]) async -> [Job] {
    guard jobs.count > 1, let runTogether = jobs[0].kind.definition.runTogether else { return jobs }
    do {
      let left = try await runTogether(jobs, self)
      tools.metrics.count(jobs[0].kind, .done, by: jobs.count - left.count)
      return left
    } catch {
      logger.notice("Jobs failed together and are run one by one", metadata: ["error": "\(error)"])
      return jobs
    }
  }

  /// Runs a job, and returns whether it was discarded.
  func run(_ job: Job, _ perform: (Job) async throws -> JobOutcome) async -> Bool {
    let isLast = job.kind.definition.retries.isOver(for: job.createdAt, at: now())
    let start = ContinuousClock.now
    defer { tools.metrics.took(job.kind, ContinuousClock.now - start) }
    do {
      return try await finish(job, as: try await perform(job), isLast: isLast)
    } catch {
      logger.error("Job failed", metadata: metadata(of: job, "error", "\(error)"))
      tools.metrics.count(job.kind, .failed)
      // If this fails too, the lease expires.
      return (try? await retry(job, because: "\(error)", isLast: isLast)) ?? false
    }
  }

  private func finish(_ job: Job, as outcome: JobOutcome, isLast: Bool) async throws -> Bool {
    switch outcome {
    case .settled: tools.metrics.count(job.kind, .done)
    case .nothingLeft:
      try await ledger.jobs.complete(job)
      tools.metrics.count(job.kind, .done)
    case .postponed(let reason):
      tools.metrics.count(job.kind, .postponed)
      if isLast { return try await discard(job, because: reason) }
    case .retry(let reason, let notBefore):
      tools.metrics.count(job.kind, .postponed)
      logger.notice("Job will be retried", metadata: metadata(of: job, "reason", reason))
      return try await retry(job, because: reason, notBefore: notBefore, isLast: isLast)
    }
    return false
  }

  private func retry(
    _ job: Job, because reason: String, notBefore: Timestamp? = nil, isLast: Bool
  ) async throws -> Bool {
    guard !isLast else { return try await discard(job, because: reason) }
    let retryAt = job.kind.definition.retries.next(
      afterAttempts: job.attempts, at: now(), notBefore: notBefore)
    try await ledger.jobs.release(job, until: retryAt, because: reason)
    return false
  }

  private func discard(_ job: Job, because reason: String) async throws -> Bool {
    guard try await ledger.jobs.discard(job, because: reason, at: now()) else { return false }
    tools.metrics.count(job.kind, .discarded)
    logger.error(
      "Job given up; to retry it, run tenure jobs retry \(job.id)",
      metadata: metadata(of: job, "reason", reason))
    return true
  }

  private func metadata(of job: Job, _ key: String, _ value: String) -> Logger.Metadata {
    ["job.id": "\(job.id)", "job.kind": "\(job.kind.rawValue)", key: "\(value)"]
  }
}

package struct JobTools: Sendable {
  /// The default retention of events; readers of the feed may be away for weeks.
  package static let eventRetention: Duration = .days(30)

  package let ledger: Ledger
  let logger: Logger
  let now: @Sendable () -> Timestamp
  package let submissions: SubmissionIntake
  package let notifications: NotificationIntake
  package let poll: StatusPoller
  package let appStoreWriteBack: AppStoreWriteBack
  /// Nil: events are delivered by other workers.
  package let webhook: WebhookSender?
  /// The apps and environments whose notification history is compared.
  package let histories: [Heartbeat.Subject]
  package let eventRetention: Duration
  package let rawRetention: RawRetention
  package let checkpoints: CheckpointKeeper
  /// The catalogue and sandbox setting used to compute entitlements.
  package let terms: @Sendable () -> AccessTerms
  let metrics = JobMetrics()
  let webhookMetrics = WebhookMetrics()

  package init(
    _ services: IntakeServices, submissions: SubmissionIntake, notifications: NotificationIntake,
    webhook: WebhookSender?, histories: [Heartbeat.Subject], eventRetention: Duration,
    rawRetention: RawRetention, checkpoints: CheckpointKeeper = .none
  ) {
    (ledger, logger, now) = (services.ledger, services.logger, services.now)
    self.submissions = submissions
    self.notifications = notifications
    poll = StatusPoller(services)
    appStoreWriteBack = AppStoreWriteBack(services)
    self.webhook = webhook
    self.histories = histories
    self.eventRetention = eventRetention
    self.rawRetention = rawRetention
    self.checkpoints = checkpoints
    terms = { services.catalogue.terms(services.sandboxAccess) }
  }

  package var recurringJobs: [Job.Key] {
    Job.Kind.allCases.flatMap { $0.definition.recurring(self) }
  }
}
