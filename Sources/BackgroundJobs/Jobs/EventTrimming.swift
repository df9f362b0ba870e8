import LedgerStorage

extension JobRunner {
  /// Deletes events that are older than the retention.
  func trimEvents(_ job: Job) async throws -> JobOutcome {
    try await tools.ledger.trim(job, olderThan: tools.eventRetention, at: now())
    return .settled
  }
}
