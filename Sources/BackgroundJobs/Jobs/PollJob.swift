import Intake
import LedgerStorage

extension JobRunner {
  /// Asks Apple how a line stands, and plans when it is asked again.
  func pollLine(_ job: Job) async throws -> JobOutcome {
    JobOutcome(try await tools.poll.poll(job))
  }
}

extension JobOutcome {
  /// What becomes of the job of a poll.
  init(_ outcome: LinePoll.Outcome) {
    self =
      switch outcome {
      case .polled, .passedOver: .settled
      case .over: .nothingLeft
      case .postponed(let reason, let notBefore): .retry(because: reason, notBefore: notBefore)
      case .failed(let reason, let notBefore): .retry(because: reason, notBefore: notBefore)
      }
  }
}
