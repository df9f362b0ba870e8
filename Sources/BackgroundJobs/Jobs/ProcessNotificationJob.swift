import Intake
import LedgerStorage

extension JobRunner {
  /// Processes a notification that was stored.
  ///
  /// Processing takes the job out of the queue together with what it records; a retry moves it.
  func processNotification(_ id: String, _ job: Job) async throws -> JobOutcome {
    if let openReason = try await tools.notifications.process(id, worker: job.worker) {
      return .postponed(because: openReason)
    }
    return .nothingLeft
  }
}
