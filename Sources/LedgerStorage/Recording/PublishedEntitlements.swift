import Foundation
import Postgres
package import Subscriptions

/// An account with what it holds and what events have told it; as its row is locked, nobody else
/// tells it anything until the transaction ends.
struct ToldAccount: Sendable {
  var key: AccountKey
  /// The app's name for it.
  var id: String
  /// The end of access of each entitlement that events have said to be active; nil: never.
  var told: [ExactText: Timestamp?]
  /// The moment by which that was told last; nil: nothing was told yet.
  var toldAt: Timestamp?
  var held: AccountHoldings
  /// Whether what it is granted changes in this transaction.
  var hasChangedGrants = false
}

extension ToldAccount {
  /// The statements that lock accounts, in an order that all programs keep to.
  ///
  /// One for each, for Citus locks rows by their account alone. Lines and orders are locked before.
  ///
  /// - Parameters:
  ///   - ids: The accounts.
  ///   - waits: Whether to wait while somebody else has locked one; else that one has no row.
  /// - Returns: The statements; each gives the account's id.
  static func lock(_ ids: some Sequence<String>, waits: Bool = true) -> [SQL] {
    ids.map(AccountID.init(_:)).sorted().map(\.rawValue).map { id in
      """
      SELECT account_id FROM tenure.account WHERE account_id = \(id)
      FOR NO KEY UPDATE\(waits ? "" : " SKIP LOCKED" as SQL)
      """
    }
  }

  /// How many statements ``select(_:withoutGrantsOf:)`` makes.
  static let statementCount = 2

  /// The statements that read accounts; ``accounts(_:from:)`` reads their results.
  ///
  /// - Parameters:
  ///   - ids: The accounts.
  ///   - submission: Whose provisional grants don't count, for they end here; nil: all count.
  /// - Returns: The statements, in the order in which their results are read.
  static func select(_ ids: [String], withoutGrantsOf submission: UUID? = nil) -> [SQL] {
    [
      """
      SELECT a.account_id, a.told_at, t.entitlement, t.access_ends_at
      FROM tenure.account AS a LEFT JOIN tenure.told_entitlement AS t USING (account_id)
      WHERE a.account_id = ANY(\(ids))
      """
    ] + [HoldingReader.statement(ids, withoutGrantsOf: submission)]
  }

  /// Reads accounts from the results of their statements.
  ///
  /// - Parameters:
  ///   - names: The app's names for the accounts.
  ///   - results: One for each statement.
  /// - Returns: The accounts by their keys.
  /// - Throws: `PostgresError` for what no version of ours wrote.
  static func accounts(
    _ names: [AccountKey: String], from results: some Collection<Rows>
  ) throws -> [ToldAccount] {
    precondition(results.count == statementCount, "One result for each statement.")
    let results = Array(results)
    var told: [AccountID: [ExactText: Timestamp?]] = [:]
    var toldAt: [AccountID: Timestamp] = [:]
    for (id, at, name, end) in try results[0].decode(
      String.self, Timestamp?.self, String?.self, Timestamp?.self)
    {
      toldAt[AccountID(id)] = at
      if let name { told[AccountID(id), default: [:]].updateValue(end, forKey: ExactText(name)) }
    }
    let rows = try HoldingRows(results[1])
    return try names.sorted { $0.key < $1.key }.map { key, id in
      ToldAccount(
        key: key, id: id, told: told[AccountID(id)] ?? [:], toldAt: toldAt[AccountID(id)],
        held: try rows.holdings(of: id))
    }
  }

  /// Puts what the account holds after a recording in the place of what it held before.
  mutating func apply(_ recording: Recording) {
    for family in recording.distinctFamilies {
      guard !family.entries.isEmpty else { continue }
      held.holdings.removeAll { family.line.heads[$0.charge.line] != nil }
      held.holdings += family.holdings.after.filter { $0.account == key }.sorted().map(\.holding)
    }
  }
}

extension Recording {
  /// Each family once, in the order of their lines.
  var distinctFamilies: [RecordedFamily] {
    families.filter { $0.key == $0.value.line.heads.keys.min() }.sorted { $0.key < $1.key }
      .map(\.value)
  }
}

/// What is new to an account of what it has.
struct AccountNews: Sendable {
  let key: AccountKey
  let id: String
  /// All that it has now, inactive ones included.
  let entitlements: [Entitlement]
  let events: [LedgerEvent]
  /// When time changes something next; nil: never.
  let nextChange: Timestamp?
  /// The moment by which it is told.
  private let toldAt: Timestamp
  /// What was told before, and is told now.
  private let before: [ExactText: Timestamp?]
  private let after: [ExactText: Timestamp?]

  /// - Parameters:
  ///   - account: Locked, as it is now.
  ///   - terms: By what it is judged what it may use.
  ///   - now: The moment; where the account was told something by a later one, that one counts.
  ///     Clocks differ, and who waited for the account's lock looked at his before: what has ended
  ///     must not seem to begin again.
  init(_ account: ToldAccount, terms: AccessTerms, at now: Timestamp) {
    let now = max(now, account.toldAt ?? now)
    toldAt = now
    (key, id) = (account.key, account.id)
    let (holdings, grants) = (account.held.holdings, account.held.grants)
    entitlements = terms.entitlements(of: id, holding: holdings, granted: grants, at: now)
    nextChange = terms.nextChange(of: id, holding: holdings, granted: grants, after: now)
    before = account.told
    (events, after) = EntitlementNews.events(
      for: key, told: before, now: entitlements, at: now)
  }

  /// Whether there is anything to write down of what is told.
  var changesWhatIsTold: Bool { before != after }

  /// The statements that write down what is told.
  static func write(_ news: [AccountNews]) -> [SQL] {
    struct Row {
      var id: String
      var name: String
      var end: Timestamp?
    }
    var (told, withdrawn): ([Row], [Row]) = ([], [])
    for account in news {
      for (name, end) in account.after.sorted(by: { $0.key < $1.key })
      where account.before[name] != .some(end) {
        told.append(Row(id: account.id, name: name.rawValue, end: end))
      }
      for name in account.before.keys.sorted() where account.after[name] == nil {
        withdrawn.append(Row(id: account.id, name: name.rawValue))
      }
    }
    var statements: [SQL] = []
    let changed = news.filter(\.changesWhatIsTold)
    statements += changed.map {
      "UPDATE tenure.account SET told_at = \($0.toldAt) WHERE account_id = \($0.id)"
    }
    statements += told.map { "(\($0.id), \($0.name), \($0.end))" }.rowLists.map { rows in
      """
      INSERT INTO tenure.told_entitlement (account_id, entitlement, access_ends_at)
      VALUES \(rows)
      ON CONFLICT (account_id, entitlement)
      DO UPDATE SET access_ends_at = excluded.access_ends_at
      """
    }
    statements += withdrawn.map {
      """
      DELETE FROM tenure.told_entitlement
      WHERE account_id = \($0.id) AND entitlement = \($0.name)
      """
    }
    return statements
  }

  /// The statement that has the account looked at when time changes something; none if it never
  /// does.
  func schedule(at now: Timestamp) -> [SQL] {
    nextChange.map { [Job.schedule(.publishEntitlements(key), runAt: $0, at: now)] } ?? []
  }
}

extension Ledger {
  /// Tells accounts what time has changed: access that ended or began.
  ///
  /// What is told and the ends of the jobs are one commit, so that it is told exactly once; a job
  /// comes again when time changes something next.
  ///
  /// - Parameters:
  ///   - jobs: Claimed by one worker, of kind `publish_entitlements`.
  ///   - terms: By what it is judged what accounts may use.
  ///   - now: The moment.
  /// - Returns: The jobs that are still to be done, one by one: of several accounts none is waited
  ///   for, since whoever has locked it may wait for another of them.
  /// - Throws: What the database says.
  package func tell(
    _ jobs: [Job], terms: AccessTerms, at now: Timestamp
  ) async throws -> [Job] {
    let keys = try jobs.map { AccountKey(rawValue: try $0.subjectID) }
    let (left, channels) = try await database.withTransaction { transaction in
      let (told, busy) = try await lockTold(
        Set(keys), waits: jobs.count == 1, in: transaction)
      let news = told.map { AccountNews($0, terms: terms, at: now) }
      let nextChanges = Dictionary(
        uniqueKeysWithValues: news.compactMap { news in news.nextChange.map { (news.key, $0) } })
      let consequences = Consequences(news, rescheduling: [], at: now)
      var (statements, ended, left) = (consequences.statements, [Job](), [Job]())
      for (job, key) in zip(jobs, keys) {
        if busy.contains(key) {
          left.append(job)
        } else if let next = nextChanges[key] {
          statements += job.repetition(at: next, now: now)
        } else {
          ended.append(job)
        }
      }
      try await transaction.commit(with: statements + ended.completion)
      return (left, consequences.channels)
    }
    bell.ring(channels)
    return left
  }
}
