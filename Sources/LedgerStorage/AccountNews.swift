import Postgres
import Subscriptions

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
    nextChange.map { [Job.schedule(.tellAccount(key), runAt: $0, at: now)] } ?? []
  }
}
