import Foundation
package import JSONText
import Postgres
package import Subscriptions

package struct MergeProgress: Hashable, Sendable {
  package let merged: Account
  package let into: Account
  /// Nil while a job is still transferring charges.
  package fileprivate(set) var completedAt: Timestamp?
  package fileprivate(set) var moved = Moved()

  /// Rows moved by this call.
  package struct Moved: Hashable, Sendable {
    package var charges = 0
    package var orders = 0
    package var grants = 0
  }
}

/// The effects of a merge, with the active entitlements of both accounts.
package typealias MergePreview = (
  charges: Int, orders: Int, grants: Int, lost: [Entitlement], held: [Entitlement]
)

extension AccountStore {
  /// Original transactions up to which a merge is one commit, of about a second.
  package static let mergedAtOnce = 100
  /// Original transactions per commit of the background job.
  private static let mergedInOneGo = 25

  /// Merges an account into another: transfers its charges, orders and grants, with their history.
  ///
  /// Up to `limit` original transactions are one commit. Otherwise the first moves orders and
  /// grants and enqueues a job for the charges, which commits and publishes some at a time. From
  /// the first commit on, new submissions and orders go to the target. Repeating a merge returns
  /// its progress.
  ///
  /// - Throws: ``LedgerError/unknownAccount(_:)``, ``LedgerError/erasedAccount(_:)``,
  ///   ``LedgerError/mergedAccount(_:into:)``, ``LedgerError/mergesIntoItself(_:)``.
  package func merge(
    _ accountID: String, into otherID: String, by administrator: Administrator,
    terms: AccessTerms, at now: Timestamp, atOnce limit: Int = AccountStore.mergedAtOnce
  ) async throws -> MergeProgress {
    var merger = try await mergeable(accountID, into: otherID)
    guard merger.merged.mergedInto != nil else {
      return try await proceed(with: merger, upTo: limit, by: administrator, terms: terms, at: now)
    }
    let key = merger.merged.key
    merger.completedAt = try await ownership.knownAccounts([key])[key]?.mergedAt
    return merger
  }

  /// Continues a merge in the background, and returns whether it is complete.
  package func continueMerge(
    of account: AccountKey, terms: AccessTerms, at now: Timestamp
  ) async throws -> Bool {
    guard let known = try await ownership.knownAccounts([account])[account], known.mergedAt == nil,
      let into = known.mergedInto, let name = try await ownership.accountIDs(of: [into])[into],
      let merged = try await self.account(known.id), let other = try await self.account(name)
    else { return true }
    let administrator = try await mergingAdministrator(of: account)
    return try await proceed(
      with: MergeProgress(merged: merged, into: other), upTo: Self.mergedInOneGo,
      by: Administrator(name: administrator ?? "unknown"), terms: terms, at: now
    ).completedAt != nil
  }

  /// Computes the effects of ``merge(_:into:by:terms:at:atOnce:)``, and throws its errors.
  package func previewMerge(
    of accountID: String, into otherID: String, terms: AccessTerms, at now: Timestamp
  ) async throws -> MergePreview {
    let merger = try await mergeable(accountID, into: otherID)
    func entitlements(_ id: String) async throws -> [Entitlement] {
      let held = try await holdings.holdings(of: id)
      return terms.entitlements(
        of: id, holding: held.holdings, granted: held.grants, at: now
      ).filter(\.isActive)
    }
    let key = merger.merged.key
    let counts = try await database.batch([
      "SELECT count(*) FROM tenure.purchase_order WHERE account_key = \(key)",
      "SELECT count(*) FROM tenure.account_grant WHERE account_id = \(merger.merged.id)",
    ]).map { try $0.decodeOnly(Int.self) }
    let charges = try await database.withTransaction(readOnly: true) {
      try await ownedCharges(of: key, in: $0).count
    }
    return (
      charges, counts[0], counts[1], try await entitlements(accountID),
      try await entitlements(otherID)
    )
  }

  // MARK: Parts

  private func proceed(
    with merger: MergeProgress, upTo limit: Int, by administrator: Administrator,
    terms: AccessTerms, at now: Timestamp
  ) async throws -> MergeProgress {
    try await database.withTransaction { transaction in
      try await place(
        lock(merger, upTo: limit, in: transaction), by: administrator, terms: terms, at: now,
        in: transaction)
    }
  }

  /// Finds both accounts and checks that they can be merged, or already are.
  private func mergeable(_ accountID: String, into otherID: String) async throws -> MergeProgress {
    func find(_ id: String) async throws -> Account {
      guard let account = try await self.account(id) else { throw LedgerError.unknownAccount(id) }
      guard !account.isErased else { throw LedgerError.erasedAccount(id) }
      return account
    }
    let (account, other) = (try await find(accountID), try await find(otherID))
    guard account.key != other.key else { throw LedgerError.mergesIntoItself(accountID) }
    for merged in [account, other] where merged.mergedInto != nil {
      if merged.key == account.key, account.mergedInto == other.key { continue }
      throw LedgerError.mergedAccount(merged.id, into: try await successor(of: merged).id)
    }
    return MergeProgress(merged: account, into: other)
  }

  /// The locked rows of one commit of a merge.
  private struct Merging: Sendable {
    var merger: MergeProgress
    var originals: [StoredOriginalTransaction]
    var orders: [UUID]
    var grants: [UUID]
    /// Whether this commit records the action.
    var isFirst: Bool
    /// Whether this commit transfers the last charges.
    var isLast: Bool
    /// The date of the latest charge on the account's original transactions.
    var lastCharge: Timestamp?
    /// Set if the account was erased during the merge.
    var erasedAt: Timestamp?
  }

  /// Locks the owned original transactions, the orders and both accounts against other writers.
  private func lock(_ merger: MergeProgress, upTo limit: Int, in transaction: Transaction)
    async throws -> Merging
  {
    let (account, other) = (merger.merged, merger.into)
    var reader = OriginalTransactionReader(isLocking: true)
    var locked: Set<OriginalTransactionKey> = []
    var (isFirst, isLast): (Bool?, Bool) = (nil, true)
    while true {
      let owned = Set(try await ownedCharges(of: account.key, in: transaction).map(\.line))
      let new = owned.subtracting(locked).sorted()
      isLast = owned.count <= limit
      if isFirst != nil, new.isEmpty || !isLast { break }
      let next = Set(isLast ? new : Array(new.prefix(limit)))
      if !next.isEmpty { try await reader.read(next, in: transaction) }
      locked.formUnion(next)
      _ = try await transaction.query(
        """
        SELECT 1 FROM tenure.purchase_order WHERE account_key = \(account.key)
        ORDER BY order_id
        FOR UPDATE
        """)
      // In the order of every program. A concurrent recording may have added one: look again.
      let (source, target) = (AccountID(account.id), AccountID(other.id))
      let ids = [source, target].sorted()
      let found = try await transaction.batch(
        ids.map { id -> SQL in
          """
          SELECT account_key, merged_into_key FROM tenure.account WHERE account_id = \(id.rawValue)
          FOR UPDATE
          """
        })
      for (id, rows) in zip(ids, found) {
        // Erased or merged concurrently; but a merge in progress outlives one of its target.
        guard let (_, into) = try rows.decodeFirst(AccountKey.self, AccountKey?.self) else {
          throw LedgerError.unknownAccount(id.rawValue)
        }
        if let into, id == target ? account.mergedInto == nil : into != other.key {
          throw LedgerError.mergedAccount(
            id.rawValue,
            into: try await ownership.names(of: [into], in: transaction)[into] ?? "unknown")
        }
        if id == source { isFirst = into == nil }
      }
    }
    let lines = try await ownership.lines(of: account.key, in: transaction)
    let results = try await transaction.batch([
      "SELECT order_id FROM tenure.purchase_order WHERE account_key = \(account.key)",
      "SELECT grant_id FROM tenure.account_grant WHERE account_id = \(account.id)",
      """
      SELECT max(latest_charged_at) FROM tenure.original_transaction WHERE \(lines.condition)
      """,
      "SELECT erased_at FROM tenure.account_by_key WHERE account_key = \(account.key)",
    ])
    return Merging(
      merger: merger, originals: reader.originals, orders: try results[0].decode(UUID.self),
      grants: try results[1].decode(UUID.self), isFirst: isFirst ?? false, isLast: isLast,
      lastCharge: try results[2].decodeOnly(Timestamp?.self),
      erasedAt: try results[3].decodeOnly(Timestamp?.self))
  }

  /// Transfers the charges of the locked original transactions and commits everything else.
  private func place(
    _ merging: Merging, by administrator: Administrator, terms: AccessTerms, at now: Timestamp,
    in transaction: Transaction
  ) async throws -> MergeProgress {
    var merger = merging.merger
    let (account, other) = (merger.merged, merger.into)
    // The rule ignores the merge for charges dated before it, so no other decision changes.
    let mergedAt = max(now, merging.lastCharge.map { $0 + .milliseconds(1) } ?? now)
    let ownerOverrides = merging.originals.flatMap { original in
      original.line.decisions.filter { $0.value.decision.owner == account.key }.keys.sorted().map {
        OwnerOverride(account: other.key, transaction: $0, effectiveFrom: now)
      }
    }
    let arrival = EvidenceBatch(
      ownerOverrides: ownerOverrides,
      source: EntrySource(.administrator, id: administrator.entrySourceID))
    let recording = try await recorder.load(
      arrival, on: merging.originals,
      knowing: merging.isLast
        ? [
          account.key: KnownAccount(
            id: account.id, erasedAt: merging.erasedAt, mergedInto: other.key, mergedAt: mergedAt)
        ] : [:], in: transaction
    ).decide(at: now)

    var published = try await recorder.lockPublished(
      [account.key, other.key], knowing: [account.key: account.id, other.key: other.id],
      in: transaction
    ).published
    let grants = published.first { $0.key == account.key }?.held.grants ?? []
    for index in published.indices {
      published[index].apply(recording)
      published[index].held.grants =
        published[index].key == other.key ? published[index].held.grants + grants : []
      published[index].hasChangedGrants = !grants.isEmpty
    }
    var plan = try await recorder.plan(
      recording, terms: terms, at: now, knowing: published, in: transaction)

    merger.moved = MergeProgress.Moved(
      charges: ownerOverrides.count, orders: merging.orders.count, grants: merging.grants.count)
    merger.completedAt = merging.isLast ? mergedAt : nil
    plan.writes += Self.move(merging.orders, from: account.key, to: other.key)
    plan.writes += Self.move(merging.grants, from: account, to: other)
    for key in [account.key, other.key] {
      plan.seals += [
        AccountChain.seal(key, .order, merging.orders),
        AccountChain.seal(key, .grant, merging.grants),
      ]
    }
    if merging.isFirst {
      plan.writes.append(
        "UPDATE tenure.account SET merged_into_key = \(other.key) WHERE account_id = \(account.id)")
      var action = administrator.action(
        .mergeAccount, on: account.key.rawValue.text, of: other
      ) { json in
        merger.moved.writeMembers(to: &json)
        json.member("complete", merging.isLast)
      }
      action.previousAccount = account.key
      action.names[account.key] = account.id
      plan.seals.append(action.seal(at: now))
    }
    if merging.isFirst || merging.isLast {
      plan.writes.append(
        """
        UPDATE tenure.account_by_key SET merged_into_key = \(other.key),
          merged_at = \(merger.completedAt)
        WHERE account_key = \(account.key)
        """)
      plan.seals.append(AccountChain.seal(account.key))
    }
    if merging.isFirst, !merging.isLast {
      plan.writes.append(Job.insert(.mergeAccount(account.key), runAt: now, at: now))
      plan.channels.insert(.jobs)
    }
    announce(plan.channels, after: transaction)
    try await transaction.commit(with: plan.statements)
    return merger
  }

  private func mergingAdministrator(of account: AccountKey) async throws -> String? {
    try await database.query(
      """
      SELECT administrator FROM tenure.administrator_action
      WHERE previous_account_key = \(account)
        AND action = \(AdministratorAction.Action.mergeAccount.rawValue)
        AND subject = \(account.rawValue.text)
      ORDER BY action_id DESC LIMIT 1
      """
    ).decodeFirst(String.self)
  }

  private func ownedCharges(of account: AccountKey, in transaction: Transaction) async throws
    -> [Charge.ID]
  {
    let lines = try await ownership.lines(of: account, in: transaction)
    guard !lines.isEmpty else { return [] }
    return try await transaction.query(
      """
      SELECT environment, original_transaction_id, transaction_id, product_id
      FROM tenure.store_transaction
      WHERE \(lines.condition) AND owner_account_key = \(account)
      """
    ).decode(TransactionKey.self)
  }

  // MARK: Statements

  /// Moves orders to another account; `opened_by_key` keeps who opened them, for the rule.
  private static func move(
    _ orders: [UUID], from account: AccountKey, to other: AccountKey
  ) -> [SQL] {
    guard !orders.isEmpty else { return [] }
    // Inserted and deleted because the account is the distribution column.
    return [
      """
      INSERT INTO tenure.purchase_order (account_key, order_id, product_id, status, created_at,
        fulfilled_at, is_named, environment, original_transaction_id, transaction_id,
        opened_by_key)
      SELECT \(other), order_id, product_id, status, created_at, fulfilled_at, is_named,
        environment, original_transaction_id, transaction_id, coalesce(opened_by_key, account_key)
      FROM tenure.purchase_order WHERE account_key = \(account)
      """,
      "DELETE FROM tenure.purchase_order WHERE account_key = \(account)",
      """
      UPDATE tenure.purchase_order_account SET account_key = \(other)
      WHERE order_id = ANY(\(orders))
      """,
    ]
  }

  /// Moves grants to another account, with their recording and revocation dates.
  private static func move(_ grants: [UUID], from account: Account, to other: Account) -> [SQL] {
    guard !grants.isEmpty else { return [] }
    return [
      """
      INSERT INTO tenure.account_grant (account_id, grant_id, entitlement, source, starts_at,
        ends_at, reason, submission_id, environment, original_transaction_id, recorded_at,
        revoked_at)
      SELECT \(other.id), grant_id, entitlement, source, starts_at, ends_at, reason, submission_id,
        environment, original_transaction_id, recorded_at, revoked_at
      FROM tenure.account_grant WHERE account_id = \(account.id)
      """,
      "DELETE FROM tenure.account_grant WHERE account_id = \(account.id)",
      """
      UPDATE tenure.account_grant_account SET account_key = \(other.key)
      WHERE grant_id = ANY(\(grants))
      """,
    ]
  }
}

extension Administrator {
  /// The name as the source of ledger entries, which is shorter.
  var entrySourceID: String { String(name.prefix(128)) }
}

extension MergeProgress: JSONObjectWritable {
  package func writeMembers(to json: inout JSONWriter) {
    json.member("account_id", into.id)
    json.member("merged_account_id", merged.id)
    json.member("status", completedAt == nil ? "in_progress" : "complete")
    json.member("merged_at", completedAt)
    json.key("moved")
    json.object(moved.writeMembers)
  }
}

extension MergeProgress.Moved {
  fileprivate func writeMembers(to json: inout JSONWriter) {
    json.member("charges", charges)
    json.member("orders", orders)
    json.member("grants", grants)
  }
}
