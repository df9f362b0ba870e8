import LedgerStorage

extension JobRunner {
  /// Deletes events that are older than the retention.
  ///
  /// Where they are pushed to a webhook, those stay which are not pushed yet.
  func trimEvents(_ job: Job) async throws -> JobOutcome {
    try await tools.ledger.trim(
      job, olderThan: tools.eventRetention, keepingUnpushed: tools.webhook != nil, at: now())
    return .settled
  }
}
