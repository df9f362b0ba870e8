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
