import Foundation
import Intake
import LedgerStorage

extension JobRunner {
  /// Takes up a submission that is still open.
  ///
  /// A decision takes the job out of the queue together with what it decides; a retry moves it.
  func verifySubmission(_ id: UUID, _ job: Job) async throws -> JobOutcome {
    switch try await tools.submissions.resume(id, worker: job.worker) {
    case .pending(_, _, let problem, _):
      .postponed(because: problem?.detail ?? "Apple did not say.")
    case .verified: .postponed(because: "What was submitted is not in Apple's answer.")
    case .rejected: .settled
    case nil: .nothingLeft
    }
  }
}
