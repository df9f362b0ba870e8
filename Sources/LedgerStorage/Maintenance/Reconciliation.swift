import Foundation
import Postgres
package import Subscriptions

// A survey makes up for whatever nobody was there to notice: a catalogue or a setting that changed,
// or what a version before this one did not write.

extension Ledger {
  /// How many accounts are looked at in one read, and told something in one transaction at most.
  private static let accountPage = 200
  /// How many lines are planned in one transaction: others wait for their locks.
  private static let linePage = 50
  /// How many pages one run goes through before the job is given back: seconds, so that its lease
  /// is never over and a worker that stops need not be waited for.
  private static let pagesAtOnce = 50
  /// When a survey goes through the accounts once more: by then no program records by a catalogue
  /// from before.
  private static let secondLook = CatalogueCache.refreshInterval * 2

  /// Goes on through all accounts and lines, and adds what follows from the ledger and is missing.
  ///
  /// After it accounts were told what they have, there are jobs for what time changes and for
  /// asking Apple, and the journal is what the catalogue makes of it.
  ///
  /// The place is kept with the job, so that a survey goes on where a worker died. It can be
  /// repeated at will: what is there is left as it is.
  ///
  /// - Parameters:
  ///   - job: A claimed job of kind `reconcile`.
  ///   - terms: By what it is judged what accounts may use: as they are now, not as remembered.
  ///   - now: The moment.
  /// - Throws: What the database says.
  package func survey(_ job: Job, terms: AccessTerms, at now: Timestamp) async throws {
    var place = try await surveyPlace(of: job)
    for page in 0..<Self.pagesAtOnce {
      guard let here = place, page == 0 || !here.isSecondLook else { break }
      place = try await surveyPage(here, of: job, terms: terms, at: now)
    }
    guard let place else { return try await complete(job) }
    _ = try await database.batch(
      job.repetition(at: place.isSecondLook ? now + Self.secondLook : now, now: now))
  }

  /// Where a survey goes on: at its beginning if something changed since that place was kept.
  private func surveyPlace(of job: Job) async throws -> SurveyPlace? {
    let kept = try await database.query(
      "SELECT place FROM tenure.job WHERE job_id = \(job.id) AND locked_by = \(job.worker)"
    ).decodeFirst(String?.self)
    return kept.map { SurveyPlace($0, generation: job.generation) ?? SurveyPlace(.accounts) }
  }

  /// Goes through one page.
  ///
  /// - Returns: Where the next one begins; nil: there is none, or the job is another worker's.
  private func surveyPage(
    _ place: SurveyPlace, of job: Job, terms: AccessTerms, at now: Timestamp
  ) async throws -> SurveyPlace? {
    let last: String?
    switch place.stage {
    case .accounts, .accountsAgain:
      last = try await surveyAccounts(after: place.last, terms: terms, at: now)
    case .lines:
      last = try await surveyLines(after: place.line, at: now)
    case .journal:
      last = try await surveyJournal(after: place.line, by: terms.catalogue, at: now)
    }
    guard let next = last.map({ SurveyPlace(place.stage, after: $0) }) ?? place.nextStage else {
      return nil
    }
    let kept = try await database.execute(
      """
      UPDATE tenure.job SET place = \(next.text(generation: job.generation))
      WHERE job_id = \(job.id) AND locked_by = \(job.worker) AND generation = \(job.generation)
      """)
    // If something changed meanwhile, another run begins at the beginning.
    return kept == 0 ? nil : next
  }

  /// Tells a page of accounts what they were not told.
  ///
  /// Most need nothing: they are read without any lock, and only the others are locked.
  ///
  /// - Returns: The last account of the page; nil if there was none.
  private func surveyAccounts(after last: String?, terms: AccessTerms, at now: Timestamp)
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
    let results = try await database.batch(
      ToldAccount.select(Array(names.values)) + [
        """
        SELECT subject, run_at FROM tenure.job
        WHERE kind = \(Job.Kind.publishEntitlements) AND subject = ANY(\(subjects))
          AND discarded_at IS NULL
        """
      ])
    let jobs = Dictionary(
      uniqueKeysWithValues: try results[ToldAccount.statementCount]
        .decode(String.self, Timestamp.self).map { ($0, $1) })
    let behind = try ToldAccount.accounts(
      names, from: results.prefix(ToldAccount.statementCount)
    ).map { AccountNews($0, terms: terms, at: now) }.filter { news in
      let scheduled = jobs[Job.Key.publishEntitlements(news.key).subject]
      return news.changesWhatIsTold
        || news.nextChange.map { next in scheduled.map { next < $0 } ?? true } ?? false
    }
    if !behind.isEmpty {
      let channels = try await database.withTransaction { transaction in
        // Whoever has locked one tells it himself.
        let told = try await lockTold(
          Set(behind.map(\.key)), waits: false, in: transaction
        ).told.map { AccountNews($0, terms: terms, at: now) }
        let consequences = Consequences(told, rescheduling: told, at: now)
        try await transaction.commit(with: consequences.statements)
        return consequences.channels
      }
      bell.ring(channels)
    }
    return end
  }

  /// Plans when Apple is asked about the lines of a page about which nobody plans to ask.
  ///
  /// - Returns: The last line of the page; nil if there was none.
  private func surveyLines(after last: LineID?, at now: Timestamp) async throws -> String? {
    let page = try await surveyedLines(after: last)
    guard let end = page.last else { return nil }
    let subjects = page.map(\.subject)
    let planned: [String] = try await database.query(
      """
      SELECT subject FROM tenure.job
      WHERE kind = \(Job.Kind.pollLine) AND subject = ANY(\(subjects))
      """
    ).decode(String.self)
    let unplanned = Set(page.filter { !planned.contains($0.subject) })
    if !unplanned.isEmpty {
      try await database.withTransaction { transaction in
        var reader = FamilyReader(isLocking: true)
        try await reader.read(unplanned, in: transaction)
        let families = reader.families.map { family in
          RecordedFamily(family, line: family.line, rule: family.rule, names: [:])
        }
        let appointments = families.flatMap { missingAppointments(of: $0, at: now) }
        if appointments.isEmpty {
          await transaction.rollBack()
        } else {
          try await transaction.commit(with: appointments)
        }
      }
    }
    return end.subject
  }

  /// Brings the journal of a page of lines up to date.
  ///
  /// - Returns: The last line of the page; nil if there was none.
  private func surveyJournal(after last: LineID?, by catalogue: Catalogue, at now: Timestamp)
    async throws -> String?
  {
    let page = try await surveyedLines(after: last)
    guard let end = page.last else { return nil }
    try await catchUpJournal(of: page, by: catalogue, at: now)
    return end.subject
  }

  private func surveyedLines(after last: LineID?) async throws -> [LineID] {
    try await database.query(
      """
      SELECT environment, original_transaction_id FROM tenure.original_transaction
      WHERE (environment, original_transaction_id)
        > (\(last?.environment.rawValue ?? ""), \(last?.originalTransactionID.rawValue ?? ""))
      ORDER BY environment, original_transaction_id LIMIT \(Self.linePage)
      """
    ).decode(Environment.self, OriginalTransactionID.self).map { LineID($0, $1) }
  }
}

/// How far a survey has come.
struct SurveyPlace: Hashable, Sendable {
  enum Stage: String, CaseIterable, Sendable {
    case accounts
    case lines
    /// For what was recorded by an old catalogue while the accounts were gone through.
    case accountsAgain = "accounts_again"
    /// After the wait for the accounts: nobody records by an old catalogue any more.
    case journal
  }

  var stage: Stage
  /// The last account or line that was looked at; nil: none of the stage.
  var last: String?

  init(_ stage: Stage, after last: String? = nil) {
    self.stage = stage
    self.last = last
  }

  /// Reads a place as it is kept; nil for one of another generation of the job.
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

  var nextStage: SurveyPlace? {
    switch stage {
    case .accounts: SurveyPlace(.lines)
    case .lines: SurveyPlace(.accountsAgain)
    case .accountsAgain: SurveyPlace(.journal)
    case .journal: nil
    }
  }

  /// Whether the accounts are about to be gone through once more.
  var isSecondLook: Bool { self == SurveyPlace(.accountsAgain) }

  /// The line that was looked at last.
  var line: LineID? { last.flatMap(LineID.init(subject:)) }
}
