import LedgerStorage

extension JobRunner {
  /// Folds what recordings changed of the journal's sums into the sums by the day.
  func foldMovements(_ job: Job) async throws -> JobOutcome {
    try await tools.ledger.foldMovements(job, at: now())
    return .settled
  }
}
