import Intake
import LedgerStorage
import Logging
import Subscriptions

/// Does one claimed job, and sees to it that it ends well, comes back, or is given up in the end.
struct JobRunner: Sendable {
  let ledger: Ledger
  let intake: SubmissionIntake
  let notifications: NotificationIntake
  let logger: Logger
  let now: @Sendable () -> Timestamp

  /// Never throws: a failure of ours gives the job back, later each time.
  func run(_ job: Job) async {
    let isLast = now() >= job.createdAt + RetrySchedule.patience
    do {
      let openReason = try await perform(job)
      if isLast, let openReason { try await park(job, because: openReason) }
    } catch {
      logger.error(
        "A job failed", metadata: ["job.id": "\(job.id)", "error": "\(error)"])
      // Should this fail too, the lease ends by itself.
      if isLast {
        try? await park(job, because: "\(error)")
      } else {
        let retryAt = RetrySchedule.next(afterAttempts: job.attempts, at: now())
        try? await ledger.release(job, until: retryAt, because: "\(error)")
      }
    }
  }

  /// Does it once.
  ///
  /// - Returns: Why it may still be in the queue; nil: it is not.
  private func perform(_ job: Job) async throws -> String? {
    switch job.task {
    case .verifySubmission(let id):
      // A decision takes the job out of the queue together with what it decides; a retry moves it.
      switch try await intake.resume(id, worker: job.worker) {
      case .pending(_, _, let problem, _): return problem?.detail ?? "Apple did not say."
      case .verified: return "What was submitted is not in Apple's answer."
      case .rejected: return nil
      case nil:
        try await ledger.complete(job)
        return nil
      }
    case .processNotification(let id):
      // Processing takes the job out of the queue together with what it records; a retry moves it.
      if let openReason = try await notifications.process(id, worker: job.worker) {
        return openReason
      }
      try await ledger.complete(job)
      return nil
    case .pollLine, .compareNotifications, .tellAccount, .expireOrder, .deliverEvents, .survey,
      .trimEvents:
      preconditionFailure("Nobody puts these into the queue yet.")
    }
  }

  private func park(_ job: Job, because reason: String) async throws {
    guard try await ledger.park(job, because: reason, at: now()) else { return }
    logger.error(
      "A job is given up until somebody starts it again",
      metadata: ["job.id": "\(job.id)", "reason": "\(reason)"])
  }
}
