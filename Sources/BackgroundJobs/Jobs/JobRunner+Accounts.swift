import LedgerStorage
import Subscriptions

extension JobRunner {
  /// Tells an account what time has changed.
  func tellAccount(_ job: Job) async throws -> JobOutcome {
    try await ledger.tell(job, terms: tools.terms(), at: now())
    return .settled
  }

  /// Lets an order expire that nobody has paid for.
  func expireOrder(_ job: Job) async throws -> JobOutcome {
    try await ledger.expire(job, at: now())
    return .settled
  }

  /// Goes on through all accounts and lines after something changed for all of them.
  func survey(_ job: Job) async throws -> JobOutcome {
    var terms = tools.terms()
    // Another process may have changed the catalogue a moment ago: that is why this runs.
    terms.catalogue = try await ledger.catalogue()
    try await ledger.survey(job, terms: terms, at: now())
    return .settled
  }
}
