import Intake
import LedgerStorage
import Logging
import Subscriptions

/// Does one claimed job, and sees to it that it ends well or comes back.
struct JobRunner: Sendable {
  let ledger: Ledger
  let intake: ReceiptIntake
  let logger: Logger
  let now: @Sendable () -> Timestamp

  /// Never throws: a failure of ours gives the job back, later each time.
  func run(_ job: Job) async {
    do {
      try await perform(job)
    } catch {
      let retryAt = RetrySchedule.next(afterAttempts: job.attempts, at: now())
      logger.error(
        "A job failed and is given back",
        metadata: ["job.id": "\(job.id)", "retry_at": "\(retryAt)", "error": "\(error)"])
      // Should this fail too, the lease ends by itself.
      try? await ledger.release(job, until: retryAt, because: "\(error)")
    }
  }

  private func perform(_ job: Job) async throws {
    switch job.task {
    case .verifySubmission(let id):
      // A decision takes the job out of the queue together with what it decides; a retry moves it.
      if try await intake.resume(id) == nil { try await ledger.complete(job) }
    }
  }
}
