import LedgerStorage
import Logging
import ServiceLifecycle

extension JobRunner {
  /// Ages out raw bodies that are older than their retention.
  func ageOut(_ job: Job) async throws -> JobOutcome {
    let aged = try await ledger.ageOut(job, keeping: tools.rawRetention, at: now()) {
      Task.isShuttingDownGracefully
    }
    if aged != .none {
      logger.info(
        "Raw bodies are aged out",
        metadata: [
          "submissions": "\(aged.payloads)", "notifications": "\(aged.notifications)",
          "answers": "\(aged.answers)",
        ])
    }
    return .settled
  }
}

extension JobRunner {
  /// Deletes events that are older than the retention.
  func trimEvents(_ job: Job) async throws -> JobOutcome {
    try await tools.ledger.trim(job, olderThan: tools.eventRetention, at: now())
    return .settled
  }
}

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
