import Intake
import LedgerStorage
import Logging
import ServiceLifecycle
import Subscriptions

struct JobDefinition: Sendable {
  /// When a failed run is repeated, and when the job is discarded.
  var retries = RetrySchedule.forever
  /// The jobs of this kind that a worker enqueues when it starts.
  var recurring: @Sendable (JobTools) -> [Job.Key] = { _ in [] }
  var run: @Sendable (Job, JobRunner) async throws -> JobOutcome
  /// Runs several jobs in one commit and returns those that must run alone.
  var runTogether: (@Sendable ([Job], JobRunner) async throws -> [Job])?
}

extension Job.Kind {
  /// Every job: to add one, add its kind and key (`Job.swift`), its work in a store, and a case.
  var definition: JobDefinition {
    switch self {
    case .verifySubmission:
      JobDefinition(
        retries: .apple,
        run: { job, runner in
          // The job ends, or is scheduled again, in the commit of the decision.
          switch try await runner.tools.submissions.resume(job.subjectID, worker: job.worker) {
          case .pending(_, _, let problem, _):
            .postponed(because: problem?.detail ?? "Apple did not say.")
          case .verified:
            .postponed(because: "The submitted transaction is not in Apple's response.")
          case .rejected: .settled
          case nil: .nothingLeft
          }
        })

    case .processNotification:
      JobDefinition(
        retries: .apple,
        run: { job, runner in
          // Like a submission's.
          let notifications = runner.tools.notifications
          return try await notifications.process(job.subject, worker: job.worker)
            .map { JobOutcome.postponed(because: $0) } ?? .nothingLeft
        })

    case .pollStatus:
      JobDefinition(
        retries: .apple, run: { job, runner in JobOutcome(try await runner.tools.poll.poll(job)) })

    case .compareNotifications:
      .recurring(every: .hours(24)) { tools in
        tools.histories.map { .compareNotifications(bundleID: $0.bundleID, $0.environment) }
      } run: { job, runner, interval in
        let (environment, bundleID) = try job.scope
        switch try await runner.tools.notifications.compare(
          job, bundleID: bundleID, environment: environment, every: interval)
        {
        case .recorded: return .settled
        case .nothing(let reason):
          runner.logger.info(
            "Notification history not compared",
            metadata: [
              "bundle_id": "\(bundleID)", "environment": "\(environment.rawValue)",
              "reason": "\(reason)",
            ])
          return .settled
        case .failed(let reason, let notBefore):
          return .retry(because: reason, notBefore: notBefore)
        case .notPossible: return .nothingLeft
        }
      }

    case .publishEntitlements:
      .together { jobs, runner in
        try await runner.ledger.accounts.publish(
          jobs, terms: runner.tools.terms(), at: runner.now())
      }

    case .expireOrder:
      .together { jobs, runner in try await runner.ledger.orders.expire(jobs, at: runner.now()) }

    case .mergeAccount:
      JobDefinition(run: { job, runner in
        let (ledger, account) = (runner.ledger, AccountKey(rawValue: try job.subjectID))
        while try await !ledger.accounts.continueMerge(
          of: account, terms: runner.tools.terms(), at: runner.now())
        {
          try Task.checkCancellation()
        }
        return .nothingLeft
      })

    case .deliverEvents:
      // Deliveries are given up one by one.
      JobDefinition(run: { job, runner in
        guard let webhook = runner.tools.webhook else {
          return .retry(because: "This worker has no webhook.")
        }
        try await EventDelivery(
          ledger: runner.ledger, sender: webhook, metrics: runner.tools.webhookMetrics,
          logger: runner.logger, now: runner.now
        ).perform(job)
        return .settled
      })

    case .setAppAccountToken:
      JobDefinition(
        retries: .apple,
        run: { job, runner in
          JobOutcome(
            try await runner.tools.appStoreWriteBack.sendOwnership(
              of: job.originalTransaction, doing: job))
        })

    case .sendConsumption:
      // Ends when Apple no longer waits for it.
      JobDefinition(run: { job, runner in
        JobOutcome(
          try await runner.tools.appStoreWriteBack.sendConsumption(
            askedBy: job.scope.name, doing: job))
      })

    case .reconcile:
      JobDefinition(run: { job, runner in
        var terms = runner.tools.terms()
        // Another process may have changed the catalogue a moment ago.
        terms.catalogue = try await runner.ledger.products.catalogue()
        try await runner.ledger.maintenance.reconcile(job, terms: terms, at: runner.now())
        return .settled
      })

    case .rollUpMovements:
      .recurring(every: .seconds(10), { _ in [.rollUpMovements] }) { job, runner, interval in
        let errors = try await runner.ledger.maintenance.rollUpMovements(
          job, every: interval, at: runner.now())
        if let error = errors.first {
          runner.logger.error(
            "Movements can't be rolled up",
            metadata: ["changes": "\(errors.count)", "reason": "\(error)"])
        }
        return .settled
      }

    case .trimAccountChanges:
      .recurring(every: .minutes(1), { _ in [.trimAccountChanges] }) { job, runner, interval in
        try await runner.ledger.maintenance.trimAccountChanges(
          job, every: interval, at: runner.now())
        return .settled
      }

    case .makeCheckpoint:
      .recurring(every: .days(1), { _ in [.makeCheckpoint] }) { job, runner, interval in
        let auditor = runner.ledger.auditor
        let (checkpoint, audit) = try await auditor.checkpoint()
        guard audit.isClean else {
          for difference in audit.differences.prefix(10) {
            runner.logger.error("The ledger was changed", metadata: ["difference": "\(difference)"])
          }
          return .retry(because: "The audit found \(audit.differences.count) differences.")
        }
        if let checkpoint {
          runner.logger.notice("Checkpoint", metadata: ["checkpoint": "\(checkpoint.text)"])
        }
        if let failure = try await runner.tools.checkpoints.keep(from: auditor, at: runner.now()) {
          return .retry(because: failure)
        }
        // Until there is something to cover, and while it is too young.
        let isFirst = try await auditor.checkpoints(limit: 1).isEmpty
        try await auditor.repeatCheckpoint(
          job, in: isFirst ? .minutes(30) : interval, at: runner.now())
        return .settled
      }

    case .pruneEvents:
      .recurring(every: .hours(1), { _ in [.pruneEvents] }) { job, runner, interval in
        try await runner.ledger.maintenance.pruneEvents(
          job, olderThan: runner.tools.eventRetention, every: interval, at: runner.now())
        return .settled
      }

    case .prunePayloads:
      .recurring(
        every: .days(1), { $0.rawRetention.isEndless ? [] : [.prunePayloads] }
      ) { job, runner, interval in
        let pruned = try await runner.ledger.maintenance.prunePayloads(
          job, keeping: runner.tools.rawRetention, every: interval, at: runner.now(),
          isStopping: { Task.isShuttingDownGracefully })
        if pruned > 0 {
          runner.logger.info("Bodies pruned", metadata: ["bodies": "\(pruned)"])
        }
        return .settled
      }
    }
  }
}

extension JobDefinition {
  fileprivate static func together(
    _ run: @escaping @Sendable ([Job], JobRunner) async throws -> [Job]
  ) -> JobDefinition {
    JobDefinition(
      run: { job, runner in
        _ = try await run([job], runner)
        return .settled
      }, runTogether: run)
  }

  fileprivate static func recurring(
    every interval: Duration, _ keys: @escaping @Sendable (JobTools) -> [Job.Key],
    run: @escaping @Sendable (Job, JobRunner, Duration) async throws -> JobOutcome
  ) -> JobDefinition {
    JobDefinition(recurring: keys, run: { job, runner in try await run(job, runner, interval) })
  }
}

enum JobOutcome: Sendable {
  /// The job was deleted or scheduled again in the commit of its work.
  case settled
  /// There is nothing left to do; the job can be deleted.
  case nothingLeft
  /// The job was returned to its queue; it is discarded when its retry window is over.
  case postponed(because: String)
  /// The job is retried on its schedule, but not before the time that the other side asked for.
  case retry(because: String, notBefore: Timestamp? = nil)

  init(_ outcome: StatusPoller.Outcome) {
    self =
      switch outcome {
      case .polled, .passedOver: .settled
      case .over: .nothingLeft
      case .postponed(let reason, let notBefore): .retry(because: reason, notBefore: notBefore)
      case .failed(let reason, let notBefore): .retry(because: reason, notBefore: notBefore)
      }
  }

  init(_ outcome: AppStoreWriteBack.Outcome) {
    self =
      switch outcome {
      case .finished: .settled
      case .nothingToSend: .nothingLeft
      case .postponed(let reason, let notBefore): .retry(because: reason, notBefore: notBefore)
      }
  }
}
