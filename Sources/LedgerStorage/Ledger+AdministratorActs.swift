package import Foundation
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
    return try await acts(
      "\(condition) AND action_id < \(last ?? .max)", limit: limit,
      as: namesOthers ? nil : account)
  }

  /// Reads acts on an account that changed no charge's owner, the last one first: those that did
  /// are entries of the ledger, too.
  ///
  /// - Parameters:
  ///   - account: The account.
  ///   - last: Only those before this one; nil: from the last one on.
  ///   - limit: How many at the most.
  /// - Returns: The acts.
  /// - Throws: What the database says.
  package func actsBesidesPlacing(on account: AccountKey, before last: Int64?, limit: Int)
    async throws -> [AdministratorAct]
  {
    let placing = [AdministratorAct.Action.transfer, .release].map(\.rawValue)
    return try await acts(
      """
      (account_key = \(account) OR previous_account_key = \(account))
        AND action <> ALL (\(placing)) AND action_id < \(last ?? .max)
      """, limit: limit)
  }

  /// Reads the acts by which administrators may have placed charges, the last one first;
  /// ``AdministratorAct/brought(_:from:)`` says which it was.
  ///
  /// - Parameters:
  ///   - charges: The charges.
  ///   - accounts: Whoever was given them or had them.
  /// - Returns: The acts.
  /// - Throws: What the database says.
  package func placingActs(of charges: Set<TransactionKey>, concerning accounts: Set<AccountKey>)
    async throws -> [AdministratorAct]
  {
    guard !charges.isEmpty, !accounts.isEmpty else { return [] }
    let (keys, subjects) = (accounts.sorted(), charges.map(AdministratorAct.subject).sorted())
    let merging = AdministratorAct.Action.mergeAccount
    return try await acts(
      """
      (account_key = ANY (\(keys)) OR previous_account_key = ANY (\(keys)))
        AND (subject = ANY (\(subjects)) OR action = \(merging))
      """, limit: Self.mostPlacingActs)
  }

  /// Reads the acts by which administrators gave an account grants and took them back, the last
  /// one first.
  ///
  /// - Parameters:
  ///   - account: Whose they are now; some may have been of an account that was merged into it.
  ///   - grants: Their ids.
  /// - Returns: The acts.
  /// - Throws: What the database says.
  package func grantActs(on account: AccountKey, _ grants: [UUID]) async throws
    -> [AdministratorAct]
  {
    guard !grants.isEmpty else { return [] }
    var (holders, newest): (Set<AccountKey>, [AccountKey]) = ([account], [account])
    // Nothing is ever merged in a circle.
    while !newest.isEmpty {
      newest = try await database.query(
        """
        SELECT account_key FROM tenure.account_by_key
        WHERE merged_into_key = ANY (\(newest)) ORDER BY account_key
        """
      ).decode(AccountKey.self).filter { holders.insert($0).inserted }
    }
    return try await acts(
      """
      account_key = ANY (\(holders.sorted()))
        AND subject = ANY (\(grants.map { $0.uuidString.lowercased() }))
      """, limit: 2 * grants.count)
  }

  /// Who placed so few charges so often is no person: the last acts say enough.
  private static let mostPlacingActs = 1000

  /// Reads acts, the last one first.
  ///
  /// - Parameters:
  ///   - condition: Which.
  ///   - limit: How many at the most.
  ///   - account: To whom they are told: others are not named; nil: to an administrator.
  /// - Returns: The acts.
  /// - Throws: What the database says.
  private func acts(_ condition: SQL, limit: Int, as account: AccountKey? = nil) async throws
    -> [AdministratorAct]
  {
    let rows = try await database.query(
      """
      SELECT action_id, acted_at, administrator, action, subject, reason, account_key,
        previous_account_key, data
      FROM tenure.administrator_action
      WHERE \(condition)
      ORDER BY action_id DESC LIMIT \(limit)
      """
    ).decode(
      Int64.self, Timestamp.self, String.self, String.self, String.self, String?.self,
      AccountKey?.self, AccountKey?.self, String.self)
    var names = try await accountIDs(of: Set(rows.flatMap { [$0.6, $0.7].compactMap(\.self) }))
    if let account {
      let other = EventData.Counterpart.anotherAccount.rawValue
      for key in names.keys where key != account { names[key] = other }
    }
    return rows.map {
      id, actedAt, administrator, action, subject, reason, account, previous, data in
      AdministratorAct(
        id: id, actedAt: actedAt, administrator: administrator, action: action, subject: subject,
        reason: reason.map { KeyedText.withNames($0, of: names) }, account: account,
        accountID: account.map { names[$0] ?? "erased" }, previousAccount: previous,
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
