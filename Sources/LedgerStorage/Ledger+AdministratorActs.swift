import Foundation
import Postgres
package import Subscriptions

/// The record of what administrators did.
extension Ledger {
  /// Reads acts, the last one first.
  ///
  /// - Parameters:
  ///   - account: Only those that concern this account; nil: all.
  ///   - namesOthers: Whether accounts beside it are named; else each is `another_account`.
  ///   - last: Only those before this one; nil: from the last one on.
  ///   - limit: How many at the most.
  /// - Returns: The acts.
  /// - Throws: What the database says.
  package func administratorActs(
    on account: AccountKey? = nil, namingOthers namesOthers: Bool = true,
    before last: Int64? = nil, limit: Int
  ) async throws -> [AdministratorAct] {
    let condition =
      account.map { "(account_key = \($0) OR previous_account_key = \($0))" as SQL } ?? "true"
    let end = last ?? .max
    let rows = try await database.query(
      """
      SELECT action_id, acted_at, administrator, action, subject, reason, account_key,
        previous_account_key, data
      FROM tenure.administrator_action
      WHERE \(condition) AND action_id < \(end)
      ORDER BY action_id DESC LIMIT \(limit)
      """
    ).decode(
      Int64.self, Timestamp.self, String.self, String.self, String.self, String?.self,
      AccountKey?.self, AccountKey?.self, String.self)
    var names = try await accountIDs(of: Set(rows.flatMap { [$0.6, $0.7].compactMap(\.self) }))
    if !namesOthers {
      let other = EventData.Counterpart.anotherAccount.rawValue
      for key in names.keys where key != account { names[key] = other }
    }
    return rows.map {
      id, actedAt, administrator, action, subject, reason, account, previous, data in
      AdministratorAct(
        id: id, actedAt: actedAt, administrator: administrator, action: action, subject: subject,
        reason: reason.map { KeyedText.withNames($0, of: names) },
        accountID: account.map { names[$0] ?? "erased" },
        previousAccountID: previous.map { names[$0] ?? "erased" }, data: data)
    }
  }

  /// Records that all that is known of an account was given out.
  ///
  /// - Parameters:
  ///   - account: The account.
  ///   - administrator: To whom.
  ///   - now: When.
  /// - Throws: What the database says.
  package func recordExport(
    of account: Account, by administrator: Administrator, at now: Timestamp
  ) async throws {
    let act = NewAct(
      action: .exportAccount, subject: account.key.rawValue.uuidString.lowercased(),
      administrator: administrator, account: account.key, names: [account.key: account.id])
    _ = try await database.execute(act.insert(at: now))
  }
}
