import LedgerStorage
import Logging
import Subscriptions

extension JobRunner {
  /// Does jobs of one lane together, in as few commits as they need; none of them twice.
  ///
  /// - Returns: What is still to be done, one by one: all of what failed together, for perhaps it
  ///   was one's fault.
  func together(_ jobs: [Job]) async -> [Job] {
    var (accounts, orders, left): ([Job], [Job], [Job]) = ([], [], [])
    for job in jobs {
      switch job.task {
      case .tellAccount: accounts.append(job)
      case .expireOrder: orders.append(job)
      case .verifySubmission, .processNotification, .pollLine, .compareNotifications,
        .deliverEvents, .survey, .trimEvents, .foldMovements, .mergeAccount, .ageOut,
        .writeOwnership, .answerConsumption:
        left.append(job)
      }
    }
    func attempt(_ jobs: [Job], _ perform: ([Job]) async throws -> [Job]) async -> [Job] {
      guard !jobs.isEmpty else { return [] }
      do {
        return try await perform(jobs)
      } catch {
        logger.notice(
          "Jobs that failed together are done one by one", metadata: ["error": "\(error)"])
        return jobs
      }
    }
    left += await attempt(accounts, tell)
    left += await attempt(orders) { try await ledger.expire($0, at: now()) }
    return left
  }

  /// Tells accounts what time has changed, and gives back the jobs that are to be done alone.
  func tell(_ jobs: [Job]) async throws -> [Job] {
    try await ledger.tell(jobs, terms: tools.terms(), at: now())
  }

  /// Goes on with a merge, a few lines at a time, until every charge is placed.
  func merge(_ account: AccountKey, for job: Job) async throws -> JobOutcome {
    while try await !ledger.continueMerge(of: account, terms: tools.terms(), at: now()) {
      try Task.checkCancellation()
    }
    return .nothingLeft
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
