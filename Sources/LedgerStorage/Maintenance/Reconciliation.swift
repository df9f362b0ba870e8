import Foundation
import Postgres
package import Subscriptions

// Reconciliation corrects what no recording notices: a changed catalogue or sandbox setting.

/// Retention, roll-up, reconciliation and gauges.
package struct Maintenance: LedgerStore {
  package let core: LedgerCore

  /// Accounts read per query and published per transaction.
  private static let accountPage = 200
  /// Original transactions scheduled per transaction, which holds their locks.
  private static let pageSize = 50
  /// Pages per run, some seconds, so that the lease never expires and a stopping worker ends.
  private static let pagesAtOnce = 50
  /// The delay after which no process records with the earlier catalogue.
  private static let secondLook = CatalogueCache.refreshInterval * 2

  /// Continues through all accounts and original transactions, adding missing rows; idempotent.
  ///
  /// Afterwards every account's entitlements are published, jobs exist for changes by time and
  /// polls, and movements and holdings match the catalogue. The position is stored with the job.
  ///
  /// - Parameter terms: With a catalogue read for this run, not a cached one.
  package func reconcile(_ job: Job, terms: AccessTerms, at now: Timestamp) async throws {
    var place = try await reconciliationPlace(of: job)
    for page in 0..<Self.pagesAtOnce {
      guard let here = place, page == 0 || !here.isSecondLook else { break }
      place = try await reconcilePage(here, of: job, terms: terms, at: now)
    }
    guard let place else { return try await jobs.complete(job) }
    _ = try await database.batch(
      job.repetition(at: place.isSecondLook ? now + Self.secondLook : now, now: now))
  }

  /// The stored position; the beginning if something changed since it was stored.
  private func reconciliationPlace(of job: Job) async throws -> ReconciliationPlace? {
    let kept = try await database.query(
      "SELECT place FROM tenure.job WHERE job_id = \(job.id) AND locked_by = \(job.worker)"
    ).decodeFirst(String?.self)
    return kept.map {
      ReconciliationPlace($0, generation: job.generation) ?? ReconciliationPlace(.accounts)
    }
  }

  /// Processes a page, and returns the next one's position; nil: the end, or not our job.
  private func reconcilePage(
    _ place: ReconciliationPlace, of job: Job, terms: AccessTerms, at now: Timestamp
  ) async throws -> ReconciliationPlace? {
    let last: String?
    switch place.stage {
    case .accounts, .accountsAgain:
      last = try await reconcileAccounts(after: place.last, terms: terms, at: now)
    case .lines: last = try await reconcileOriginalTransactions(after: place.line, at: now)
    case .journal:
      let page = try await ownership.lines(after: place.line, limit: Self.pageSize)
      try await updateRows(of: page, by: terms.catalogue, at: now)
      last = page.last?.subject
    }
    guard let next = last.map({ ReconciliationPlace(place.stage, after: $0) }) ?? place.nextStage
    else { return nil }
    let kept = try await database.execute(
      """
      UPDATE tenure.job SET place = \(next.text(generation: job.generation))
      WHERE job_id = \(job.id) AND locked_by = \(job.worker) AND generation = \(job.generation)
      """)
    // If something changed concurrently, another run starts from the beginning.
    return kept == 0 ? nil : next
  }

  /// Publishes a page of accounts where they changed; only those are locked.
  private func reconcileAccounts(after last: String?, terms: AccessTerms, at now: Timestamp)
    async throws -> String?
  {
    let page = try await database.query(
      """
      SELECT account_id, account_key FROM tenure.account WHERE account_id > \(last ?? "")
      ORDER BY account_id LIMIT \(Self.accountPage)
      """
    ).decode(String.self, AccountKey.self)
    guard let end = page.last?.0 else { return nil }
    let names = Dictionary(page.map { ($0.1, $0.0) }) { first, _ in first }
    let subjects = names.keys.map { Job.Key.publishEntitlements($0).subject }
    let (published, jobs) = try await database.read(
      PublishedEntitlements.query(names),
      Query(
        """
        SELECT subject, run_at FROM tenure.job
        WHERE kind = \(Job.Kind.publishEntitlements) AND subject = ANY(\(subjects))
          AND discarded_at IS NULL
        """
      ) {
        Dictionary(
          uniqueKeysWithValues: try $0.decode(String.self, Timestamp.self).map { ($0, $1) })
      })
    let behind = published.map { AccountEvents($0, terms: terms, at: now) }.filter { newEvents in
      let scheduled = jobs[Job.Key.publishEntitlements(newEvents.key).subject]
      return newEvents.changesPublished
        || newEvents.nextChange.map { next in scheduled.map { next < $0 } ?? true } ?? false
    }
    if !behind.isEmpty {
      try await database.withTransaction { transaction in
        // An account locked by another transaction is published by that one.
        let published = try await recorder.lockPublished(
          Set(behind.map(\.key)), waits: false, in: transaction
        ).published.map { AccountEvents($0, terms: terms, at: now) }
        let consequences = Outbox(published, rescheduling: published, at: now)
        announce(consequences.channels, after: transaction)
        try await transaction.commit(with: consequences.statements)
      }
    }
    return end
  }

  /// Schedules missing polls of a page of original transactions, and returns its end.
  private func reconcileOriginalTransactions(
    after last: OriginalTransactionKey?, at now: Timestamp
  ) async throws -> String? {
    let page = try await ownership.lines(after: last, limit: Self.pageSize)
    guard let end = page.last else { return nil }
    let subjects = page.map(\.subject)
    let planned: [String] = try await database.query(
      """
      SELECT subject FROM tenure.job
      WHERE kind = \(Job.Kind.pollStatus) AND subject = ANY(\(subjects))
      """
    ).decode(String.self)
    let unplanned = page.filter { !planned.contains($0.subject) }
    if !unplanned.isEmpty {
      try await database.withTransaction { transaction in
        let originals = try await transaction.originals(unplanned, locking: true).map {
          RecordedOriginalTransaction($0, line: $0.line, rule: $0.rule, names: [:])
        }
        let appointments = originals.flatMap { polls.missingAppointments(of: $0, at: now) }
        if appointments.isEmpty {
          await transaction.rollBack()
        } else {
          try await transaction.commit(with: appointments)
        }
      }
    }
    return end.subject
  }
}

struct ReconciliationPlace: Hashable, Sendable {
  /// In their order.
  enum Stage: String, CaseIterable, Sendable {
    case accounts
    case lines
    /// Corrects records made with the earlier catalogue during the first pass.
    case accountsAgain = "accounts_again"
    /// After the wait before the second pass, when the earlier catalogue is no longer used.
    case journal
  }

  var stage: Stage
  /// The last processed account or original transaction of the stage.
  var last: String?

  init(_ stage: Stage, after last: String? = nil) {
    self.stage = stage
    self.last = last
  }

  /// Parses a stored position; nil if it belongs to another generation of the job.
  init?(_ text: String?, generation: Int) {
    let parts = text?.split(separator: " ", maxSplits: 2, omittingEmptySubsequences: false) ?? []
    guard parts.count >= 2, parts[0] == String(generation),
      let stage = Stage(rawValue: String(parts[1]))
    else { return nil }
    self.stage = stage
    last = parts.count == 3 ? String(parts[2]) : nil
  }

  func text(generation: Int) -> String {
    "\(generation) \(stage.rawValue)" + (last.map { " \($0)" } ?? "")
  }

  var nextStage: ReconciliationPlace? {
    Stage.allCases.drop { $0 != stage }.dropFirst().first.map { ReconciliationPlace($0) }
  }

  /// Whether the second pass over the accounts is about to start.
  var isSecondLook: Bool { self == ReconciliationPlace(.accountsAgain) }

  var line: OriginalTransactionKey? { last.flatMap(OriginalTransactionKey.init(subject:)) }
}
