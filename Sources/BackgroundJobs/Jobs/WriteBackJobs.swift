import Intake
import LedgerStorage
import Subscriptions

extension JobRunner {
  /// Tells Apple to whom a line belongs.
  func writeOwnership(of line: LineID, _ job: Job) async throws -> JobOutcome {
    JobOutcome(try await tools.teller.tellOwnership(of: line, doing: job))
  }

  /// Tells Apple what became of a purchase, as a notification asks.
  func answerConsumption(askedBy notificationID: String, _ job: Job) async throws -> JobOutcome {
    JobOutcome(try await tools.teller.tellConsumption(askedBy: notificationID, doing: job))
  }
}

extension JobOutcome {
  /// What becomes of the job that told Apple something.
  fileprivate init(_ outcome: AppleTeller.Outcome) {
    self =
      switch outcome {
      case .told: .settled
      case .nothingToTell: .nothingLeft
      case .postponed(let reason, let notBefore): .retry(because: reason, notBefore: notBefore)
      }
  }
}
