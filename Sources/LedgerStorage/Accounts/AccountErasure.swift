import Foundation
package import JSONText
import Postgres
package import Subscriptions

package struct Erasure: Hashable, Sendable {
  package let pseudonym: String
  /// The rule gives the account no renewals dated later.
  package let erasedAt: Timestamp
  package fileprivate(set) var removed = Removed()

  /// Rows deleted or moved to the pseudonym.
  package struct Removed: Hashable, Sendable {
    /// Rows kept under the pseudonym; the financial records stay.
    package var holdings = 0
    package var grants = 0
    /// Submissions whose payload and Apple responses were deleted.
    package var submissions = 0
    package var payloads = 0
    package var exchanges = 0
    package var publishedEntitlements = 0
    /// Jobs that were to verify its submissions or publish its entitlements.
    package var jobs = 0
    package var deliveries = 0
  }
}

extension AccountStore {
  /// Erases an account and keeps the financial records: a pseudonym replaces the account ID
  /// everywhere, and submissions are deleted.
  ///
  /// Entries, events and actions name accounts by key, so the hash chains stay valid. The last
  /// event, `account.erased`, carries the pseudonym; the app's ID becomes free. Other accounts'
  /// submissions and Apple's notifications, which contain no account ID, are kept.
  ///
  /// Erasing the pseudonym removes what was in flight. Accounts merged into this one are erased,
  /// too, each as a separate action.
  package func erase(
    _ accountID: String, by administrator: Administrator, at now: Timestamp
  ) async throws -> Erasure {
    guard let known = try await self.account(accountID) else {
      throw LedgerError.unknownAccount(accountID)
    }
    // Merged accounts first: if one fails, this account can still be found for the next attempt.
    try await eraseAccounts(mergedInto: known.key, by: administrator, at: now)
    let (key, erasure) = try await database.withTransaction {
      transaction -> (AccountKey, Erasure) in
      let found = try await transaction.query(Self.select(account: accountID))
      guard let account = try found.decode(into: Account.init).first else {
        throw LedgerError.unknownAccount(accountID)
      }
      // Of an erased one only data that was in flight at its erasure is left.
      let lastCharge = account.isErased ? nil : try await lock(account, in: transaction)
      let known = try await transaction.read(KnownAccount.query([account.key]))[account.key]
      let submissions = try await self.submissions(of: account.key, in: transaction)
      let lines = try await ownership.lines(of: account.key, in: transaction)
      // The rule ignores it for earlier charges, so no decision changes, not even early renewals.
      let erasure = Erasure(
        pseudonym: Account.pseudonym(of: account.key),
        erasedAt: known?.erasedAt ?? max(now, lastCharge.map { $0 + .milliseconds(1) } ?? now))
      let renaming =
        account.isErased
        ? [] : Self.rename(account, erasure) + [PollTarget.forget(submissions, on: lines)]
      let results = try await transaction.batch(
        renaming + [Self.eraseSubmissions(of: account.key, at: now)]
          + Self.endJobs(of: account.key, submissions))
      let finished = try await finish(
        erasure, of: account, results, by: administrator, at: now, in: transaction)
      return (account.key, finished)
    }
    // Accounts merged into it during the erasure.
    try await eraseAccounts(mergedInto: key, by: administrator, at: now)
    return erasure
  }

  private func eraseAccounts(
    mergedInto account: AccountKey, by administrator: Administrator, at now: Timestamp
  ) async throws {
    for merged in try await accounts(mergedInto: account) {
      do {
        _ = try await erase(merged, by: administrator, at: now)
      } catch LedgerError.unknownAccount {
        // Erased concurrently.
        continue
      }
    }
  }

  /// The accounts that were merged into an account and are not erased.
  package func accounts(mergedInto account: AccountKey) async throws -> [String] {
    try await database.query(
      """
      SELECT account_id FROM tenure.account_by_key
      WHERE merged_into_key = \(account) AND erased_at IS NULL
      ORDER BY account_id
      """
    ).decode(String.self)
  }

  /// Locks every original transaction of the account, then the account, so that no concurrent
  /// transaction writes under its ID.
  ///
  /// - Returns: The date of the latest charge on these original transactions, if any.
  private func lock(_ account: Account, in transaction: Transaction) async throws -> Timestamp? {
    var reader = OriginalTransactionReader(isLocking: true)
    var locked: Set<OriginalTransactionKey> = []
    var isAccountLocked = false
    while true {
      let lines = try await ownership.lines(of: account.key, in: transaction)
      let new = Set(lines).subtracting(locked)
      if !new.isEmpty {
        try await reader.read(new, in: transaction)
        locked.formUnion(new)
      } else if isAccountLocked {
        return reader.originals.flatMap(\.rule.charges).map(\.date).max()
      }
      // A concurrent recording may have added an original transaction before the lock: look again.
      let row = try await transaction.query(
        "SELECT account_key FROM tenure.account WHERE account_id = \(account.id) FOR UPDATE"
      ).decodeFirst(AccountKey.self)
      guard row == account.key else { throw LedgerError.unknownAccount(account.id) }
      isAccountLocked = true
    }
  }

  /// Counts what was removed and records the action, unless nothing was left to remove.
  private func finish(
    _ erasure: Erasure, of account: Account, _ results: [Rows], by administrator: Administrator,
    at now: Timestamp, in transaction: Transaction
  ) async throws -> Erasure {
    var erasure = erasure
    let ending = Array(results.suffix(4))
    (erasure.removed.submissions, erasure.removed.payloads, erasure.removed.exchanges) =
      try ending[0].decodeOnly(Int.self, Int.self, Int.self)
    erasure.removed.jobs = ending[1].affectedRows + ending[2].affectedRows
    erasure.removed.deliveries = ending[3].affectedRows
    let renaming = results.dropLast(4)
    if !renaming.isEmpty {
      erasure.removed.publishedEntitlements = renaming[0].affectedRows
      // Provisional grants were deleted with the submissions.
      erasure.removed.grants = renaming[1].affectedRows + renaming[2].affectedRows
      erasure.removed.holdings = renaming[4].affectedRows
    }
    guard !account.isErased || erasure.removed != Erasure.Removed() else {
      await transaction.rollBack()
      return erasure
    }
    changes.note([account.id], in: transaction)
    if !account.isErased { announce([.events], after: transaction) }
    let action = administrator.action(
      .eraseAccount, on: account.key.rawValue.text, of: account, data: erasure.removed.writeMembers)
    try await transaction.commit(
      with: [action.insert(at: now)]
        + EventRow.insert(account.isErased ? [] : [account.erasure(at: now)]))
    return erasure
  }

  // MARK: Statements

  /// Moves an account, its holdings and its grants to a pseudonym.
  ///
  /// Rows are inserted and deleted because the account ID is their distribution column. `finish`
  /// counts them by position.
  private static func rename(_ account: Account, _ erasure: Erasure) -> [SQL] {
    let (name, pseudonym) = (account.id, erasure.pseudonym)
    return [
      "DELETE FROM tenure.published_entitlement WHERE account_id = \(name)",
      "DELETE FROM tenure.account_grant WHERE account_id = \(name) AND source = 'provisional'",
      // An administrator wrote the reason; it may contain personal data.
      """
      INSERT INTO tenure.account_grant (account_id, grant_id, entitlement, source, starts_at,
        ends_at, reason, recorded_at, revoked_at)
      SELECT \(pseudonym), grant_id, entitlement, source, starts_at, ends_at,
        'The account was erased.', recorded_at, revoked_at
      FROM tenure.account_grant WHERE account_id = \(name)
      """,
      "DELETE FROM tenure.account_grant WHERE account_id = \(name)",
      """
      INSERT INTO tenure.holding (account_id, environment, original_transaction_id, transaction_id,
        product_id, linked_to, product_type, period_type, starts_at, ends_at, revoked_at,
        superseded_at, moved_at, auto_renews, phase, grace_ends_at, is_sharing_ended)
      SELECT \(pseudonym), environment, original_transaction_id, transaction_id, product_id,
        linked_to, product_type, period_type, starts_at, ends_at, revoked_at, superseded_at,
        moved_at, auto_renews, phase, grace_ends_at, is_sharing_ended
      FROM tenure.holding WHERE account_id = \(name)
      """,
      "DELETE FROM tenure.holding WHERE account_id = \(name)",
      """
      INSERT INTO tenure.account (account_id, account_key, app_account_token, created_at, published_at,
        merged_into_key)
      SELECT \(pseudonym), account_key, app_account_token, created_at, published_at, merged_into_key
      FROM tenure.account WHERE account_id = \(name)
      """,
      "DELETE FROM tenure.account WHERE account_id = \(name)",
      """
      UPDATE tenure.account_by_key
      SET account_id = \(pseudonym), erased_at = \(erasure.erasedAt), id_salt = NULL
      WHERE account_key = \(account.key)
      """,
      AccountChain.seal(account.key).statement,
      "DELETE FROM tenure.imported_source WHERE account_key = \(account.key)",
      "DELETE FROM tenure.consumption_consent WHERE account_key = \(account.key)",
      // Servers that keep answers in memory drop all of them, instead of this account's by name.
      "INSERT INTO tenure.account_change DEFAULT VALUES",
      "DELETE FROM tenure.account_change WHERE account_id = \(name)",
    ]
  }

  /// Deletes an erased account's payloads by the owner's function: programs have no DELETE.
  static func eraseSubmissions(of account: AccountKey, at now: Timestamp) -> SQL {
    "SELECT submissions, payloads, exchanges FROM tenure.erase_submissions(\(account), \(now))"
  }

  private func submissions(
    of account: AccountKey, in transaction: Transaction
  ) async throws -> [UUID] {
    try await transaction.query(
      "SELECT submission_id FROM tenure.submission WHERE account_key = \(account)"
    ).decode(UUID.self)
  }

  private static func endJobs(of account: AccountKey, _ submissions: [UUID]) -> [SQL] {
    [
      Job.delete(.publishEntitlements(account)),
      """
      DELETE FROM tenure.job
      WHERE kind = 'verify_submission' AND subject = ANY(\(submissions.map { $0.text }))
      """,
      "DELETE FROM tenure.webhook_delivery WHERE stream = \(account.rawValue.text)",
    ]
  }
}

extension Account {
  /// The erasure event, without the app's ID for the account, because events are kept.
  fileprivate func erasure(at moment: Timestamp) -> LedgerEvent {
    var data = EventData()
    data.appAccountToken = appAccountToken.text
    return LedgerEvent(.accountErased, at: moment, account: key, data: data)
  }
}

extension Erasure.Removed: JSONObjectWritable {
  package func writeMembers(to json: inout JSONWriter) {
    json.member("holdings", holdings)
    json.member("grants", grants)
    json.member("submissions", submissions)
    json.member("payloads", payloads)
    json.member("exchanges", exchanges)
    json.member("published_entitlements", publishedEntitlements)
    json.member("jobs", jobs)
    json.member("deliveries", deliveries)
  }
}
