import Foundation
package import JSONText
import Postgres
package import Subscriptions

/// What erasing a person came to.
package struct Erasure: Hashable, Sendable {
  /// The account's name from now on.
  package let pseudonym: String
  /// From when on the account counts as erased: no later charge goes to it for being renewed.
  package let erasedAt: Timestamp
  /// How much was removed, or bears the pseudonym now.
  package fileprivate(set) var removed = Removed()

  /// Numbers of what was erased.
  package struct Removed: Hashable, Sendable {
    /// Rows that bear the pseudonym now, for the books are kept.
    package var holdings = 0
    package var grants = 0
    /// Submissions without what was submitted and what Apple answered.
    package var submissions = 0
    package var payloads = 0
    package var exchanges = 0
    /// What the account was told to have.
    package var toldEntitlements = 0
    /// What was still to be done: to verify its submissions, and to tell it of changes by time.
    package var jobs = 0
    /// Events that were still to be pushed to the webhook.
    package var deliveries = 0
  }
}

/// Persons who are erased.
extension Ledger {
  /// Erases a person and keeps the books: a pseudonym takes the place of the account's name
  /// wherever it stands, and what was submitted is deleted.
  ///
  /// Entries, events and the record of acts name accounts by their keys alone, so that no chain
  /// changes: only the map from keys to names does. What an audit proves, it proves after as
  /// before. That it was erased is the last that is told of the account, under the pseudonym; and
  /// the app's name for it is free: who uses it next is a new account.
  ///
  /// What other people submitted stays, and so do Apple's notifications: they tell of lines, and
  /// name nobody. To erase an account once more, by its pseudonym, removes what was on its way at
  /// the first time. Accounts that were merged into this one are the same person's, and erased with
  /// it, each as an act of its own.
  ///
  /// - Parameters:
  ///   - accountID: The app's name for the account, or its pseudonym.
  ///   - administrator: Who asks for it, and why.
  ///   - now: The moment.
  /// - Returns: What was removed.
  /// - Throws: ``LedgerError/unknownAccount(_:)``.
  package func erase(
    _ accountID: String, by administrator: Administrator, at now: Timestamp
  ) async throws -> Erasure {
    guard let known = try await self.account(accountID) else {
      throw LedgerError.unknownAccount(accountID)
    }
    // First: should anything fail, the name is still there to go on with.
    try await eraseAccounts(mergedInto: known.key, by: administrator, at: now)
    let (key, erasure) = try await database.withTransaction {
      transaction -> (AccountKey, Erasure) in
      guard
        let account = try await account(
          from: transaction.query(Self.select(account: accountID)), id: accountID)
      else { throw LedgerError.unknownAccount(accountID) }
      guard !account.isErased else {
        return (
          account.key,
          try await eraseRest(of: account, by: administrator, at: now, in: transaction)
        )
      }
      let lastCharge = try await lock(account, in: transaction)
      // The rule leaves charges alone that are dated before: nothing that was decided changes, not
      // even of a renewal that Apple has reported a day early.
      let erasure = Erasure(
        pseudonym: Account.pseudonym(of: account.key),
        erasedAt: max(now, lastCharge.map { $0 + .milliseconds(1) } ?? now))
      let submissions = try await submissions(of: account.key, in: transaction)
      let results = try await transaction.batch(
        Self.rename(account, erasure)
          + [
            LineSource.forget(
              submissions, on: try await lines(of: account.key, in: transaction))
          ] + Self.eraseSubmissions(of: account.key, at: now)
          + Self.endJobs(of: account.key, submissions))
      return (
        account.key,
        try await finish(
          erasure, of: account, results, by: administrator, at: now, in: transaction)
      )
    }
    if !known.isErased { bell.ring(.events) }
    // What was merged into it while it was erased.
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
        // Somebody else has just erased it.
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

  /// Locks every line on which an account ever had to do with anything, then the account: nobody
  /// writes anything under its name meanwhile.
  ///
  /// - Returns: The date of the latest charge of these lines; nil: there is none.
  private func lock(_ account: Account, in transaction: Transaction) async throws -> Timestamp? {
    var reader = FamilyReader(isLocking: true)
    var locked: Set<LineID> = []
    var isAccountLocked = false
    while true {
      let lines = try await transaction.query(
        """
        SELECT environment, original_transaction_id FROM tenure.account_line
        WHERE account_key = \(account.key)
        """
      ).decode(Environment.self, OriginalTransactionID.self).map { LineID($0, $1) }
      let new = Set(lines).subtracting(locked)
      if !new.isEmpty {
        try await reader.read(new, in: transaction)
        locked.formUnion(new)
      } else if isAccountLocked {
        return reader.families.flatMap(\.rule.charges).map(\.date).max()
      }
      // Whoever recorded on another line until the account was locked has ended: look once more.
      let row = try await transaction.query(
        """
        SELECT account_key FROM tenure.account WHERE account_id = \(account.id) FOR UPDATE
        """
      ).decodeFirst(AccountKey.self)
      guard row == account.key else { throw LedgerError.unknownAccount(account.id) }
      isAccountLocked = true
    }
  }

  /// Erases what was stored of an erased account's submissions at the moment of its erasure.
  private func eraseRest(
    of account: Account, by administrator: Administrator, at now: Timestamp,
    in transaction: Transaction
  ) async throws -> Erasure {
    let known = try await KnownAccount.accounts(
      from: transaction.query(KnownAccount.select([account.key])))[account.key]
    guard let erasedAt = known?.erasedAt else {
      preconditionFailure("An account that bears a pseudonym is erased.")
    }
    let erasure = Erasure(pseudonym: account.id, erasedAt: erasedAt)
    let submissions = try await submissions(of: account.key, in: transaction)
    let results = try await transaction.batch(
      Self.eraseSubmissions(of: account.key, at: now) + Self.endJobs(of: account.key, submissions))
    return try await finish(
      erasure, of: account, results, by: administrator, at: now, in: transaction)
  }

  /// Counts what was removed, and records the act unless there was nothing left to remove.
  private func finish(
    _ erasure: Erasure, of account: Account, _ results: [Rows], by administrator: Administrator,
    at now: Timestamp, in transaction: Transaction
  ) async throws -> Erasure {
    var erasure = erasure
    let ending = Array(results.suffix(4))
    let (submissions, payloads, exchanges) = try ending[0].decodeOnly(
      Int.self, Int.self, Int.self)
    erasure.removed.submissions = submissions
    erasure.removed.payloads = payloads
    erasure.removed.exchanges = exchanges
    erasure.removed.jobs = ending[1].affectedRows + ending[2].affectedRows
    erasure.removed.deliveries = ending[3].affectedRows
    let renaming = results.dropLast(4)
    if !renaming.isEmpty {
      erasure.removed.toldEntitlements = renaming[0].affectedRows
      // What was granted provisionally goes with the submissions.
      erasure.removed.grants = renaming[1].affectedRows + renaming[2].affectedRows
      erasure.removed.holdings = renaming[4].affectedRows
    }
    guard !account.isErased || erasure.removed != Erasure.Removed() else {
      await transaction.rollBack()
      return erasure
    }
    changes.note([account.id], in: transaction)
    let act = NewAct(
      action: .eraseAccount, subject: account.key.rawValue.uuidString.lowercased(),
      administrator: administrator, account: account.key, names: [account.key: account.id],
      data: NewAct.data(erasure.removed))
    try await transaction.commit(
      with: [act.insert(at: now)]
        + EventRow.insert(account.isErased ? [] : [account.erasure(at: now)]))
    return erasure
  }

  // MARK: Statements

  /// Gives a pseudonym to an account, and to what it holds and was granted.
  ///
  /// Rows are inserted anew and deleted, for they are distributed by the name; `finish` counts
  /// them by these places.
  private static func rename(_ account: Account, _ erasure: Erasure) -> [SQL] {
    let (name, pseudonym) = (account.id, erasure.pseudonym)
    return [
      "DELETE FROM tenure.told_entitlement WHERE account_id = \(name)",
      "DELETE FROM tenure.account_grant WHERE account_id = \(name) AND source = 'provisional'",
      // Its reason is in an administrator's own words, which may tell who it was.
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
        product_id, family_id, product_type, period_type, starts_at, ends_at, revoked_at,
        superseded_at, auto_renews, phase, grace_ends_at)
      SELECT \(pseudonym), environment, original_transaction_id, transaction_id, product_id,
        family_id, product_type, period_type, starts_at, ends_at, revoked_at, superseded_at,
        auto_renews, phase, grace_ends_at
      FROM tenure.holding WHERE account_id = \(name)
      """,
      "DELETE FROM tenure.holding WHERE account_id = \(name)",
      """
      INSERT INTO tenure.account (account_id, account_key, app_account_token, created_at, told_at,
        merged_into_key)
      SELECT \(pseudonym), account_key, app_account_token, created_at, told_at, merged_into_key
      FROM tenure.account WHERE account_id = \(name)
      """,
      "DELETE FROM tenure.account WHERE account_id = \(name)",
      """
      UPDATE tenure.account_by_key SET account_id = \(pseudonym), erased_at = \(erasure.erasedAt)
      WHERE account_key = \(account.key)
      """,
      "DELETE FROM tenure.imported_source WHERE account_key = \(account.key)",
      "DELETE FROM tenure.consumption_consent WHERE account_key = \(account.key)",
    ]
  }

  /// Erases the bodies of what an erased account submitted: by the owner's function, for the
  /// programs may delete nothing of what arrived.
  static func eraseSubmissions(of account: AccountKey, at now: Timestamp) -> [SQL] {
    [
      """
      SELECT submissions, payloads, exchanges FROM tenure.erase_submissions(\(account), \(now))
      """
    ]
  }

  private func submissions(
    of account: AccountKey, in transaction: Transaction
  ) async throws -> [UUID] {
    try await transaction.query(
      "SELECT submission_id FROM tenure.submission WHERE account_key = \(account)"
    ).decode(UUID.self)
  }

  /// Ends whatever would still be done for an account.
  private static func endJobs(of account: AccountKey, _ submissions: [UUID]) -> [SQL] {
    let subjects = submissions.map { $0.uuidString.lowercased() }
    return [
      Job.delete(.publishEntitlements(account)),
      """
      DELETE FROM tenure.job
      WHERE kind = 'verify_submission' AND subject = ANY(\(subjects))
      """,
      """
      DELETE FROM tenure.webhook_delivery
      WHERE stream = \(account.rawValue.uuidString.lowercased())
      """,
    ]
  }
}

extension Account {
  /// What is told of its erasure: the app's name is not in it, which would be kept with the event.
  fileprivate func erasure(at moment: Timestamp) -> LedgerEvent {
    var data = EventData()
    data.appAccountToken = appAccountToken.uuidString.lowercased()
    return LedgerEvent(.accountErased, at: moment, account: key, data: data)
  }
}

extension Erasure.Removed: JSONWritable {
  package func write(to json: inout JSONWriter) {
    json.object { json in
      json.member("holdings", holdings)
      json.member("grants", grants)
      json.member("submissions", submissions)
      json.member("payloads", payloads)
      json.member("exchanges", exchanges)
      json.member("told_entitlements", toldEntitlements)
      json.member("jobs", jobs)
      json.member("deliveries", deliveries)
    }
  }
}
