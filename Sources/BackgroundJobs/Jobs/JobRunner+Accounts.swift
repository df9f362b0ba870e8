import LedgerStorage
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
        .deliverEvents, .survey, .trimEvents:
        left.append(job)
      }
    }
    if !accounts.isEmpty {
      do { try await tell(accounts) } catch { left += accounts }
    }
    if !orders.isEmpty {
      do { left += try await ledger.expire(orders, at: now()) } catch { left += orders }
    }
    return left
  }

  /// Tells accounts what time has changed.
  func tell(_ jobs: [Job]) async throws {
    try await ledger.tell(jobs, terms: tools.terms(), at: now())
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
