import Foundation
import Postgres
import Subscriptions

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
