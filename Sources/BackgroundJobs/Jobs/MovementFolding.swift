import LedgerStorage
import Logging

extension JobRunner {
  /// Folds what recordings changed of the journal's sums into the sums by the day.
  func foldMovements(_ job: Job) async throws -> JobOutcome {
    let faults = try await tools.ledger.foldMovements(job, at: now())
    if let fault = faults.first {
      logger.error(
        "Changes of sums can't be folded",
        metadata: ["changes": "\(faults.count)", "reason": "\(fault)"])
    }
    return .settled
  }
}
