package import Foundation
import JSONText
import Postgres
package import Subscriptions

package struct StoredGrant: Hashable, Sendable {
  package fileprivate(set) var grant: Grant
  package let accountID: String
  package let recordedAt: Timestamp
  package let reason: String
}

package struct GrantStore: LedgerStore {
  package let core: LedgerCore

  /// Grants an entitlement to an account and publishes it, once per `id`.
  ///
  /// ```swift
  /// let (granted, isNew) = try await ledger.grants.grant(
  ///   "pro", to: "klara", until: endOfMay,
  ///   by: Administrator(name: "support", reason: "A lost week"), terms: reader.terms, at: now)
  /// ```
  ///
  /// - Parameters:
  ///   - id: Idempotency key: a repeated request with the same ID returns the grant unchanged.
  ///   - endsAt: The expiry; nil: never expires.
  /// - Throws: ``LedgerError/unknownAccount(_:)``, ``LedgerError/erasedAccount(_:)``,
  ///   ``LedgerError/mergedAccount(_:into:)``, ``LedgerError/differentGrant(_:member:)``.
  package func grant(
    as id: UUID = UUID(), _ entitlement: String, to accountID: String, until endsAt: Timestamp?,
    by administrator: Administrator, terms: AccessTerms, at now: Timestamp
  ) async throws -> (grant: StoredGrant, isNew: Bool) {
    let grant = Grant(id: id, entitlement: entitlement, startsAt: now, endsAt: endsAt)
    let reason = administrator.reason ?? "No reason given."
    return try await database.withTransaction { transaction in
      let account = try await ownership.lockAccount(accountID, in: transaction)
      if let known = try await self.grant(
        id, of: account, giving: entitlement, until: endsAt, in: transaction)
      {
        await transaction.rollBack()
        return (known, false)
      }
      let consequences = try await newEvents(of: account, terms: terms, at: now, in: transaction) {
        $0.append(grant)
      }
      let action = administrator.action(.grant, on: grant.id.text, of: account) { json in
        json.member("entitlement", entitlement)
        json.member("expires_at", endsAt)
      }
      try await transaction.commit(
        with: [
          """
          INSERT INTO tenure.account_grant (account_id, grant_id, entitlement, source, starts_at,
            ends_at, reason, recorded_at)
          VALUES (\(account.id), \(grant.id), \(entitlement), 'grant', \(now), \(endsAt),
            \(reason), \(now))
          """,
          """
          INSERT INTO tenure.account_grant_account (grant_id, account_key)
          VALUES (\(grant.id), \(account.key))
          """,
          AccountChain.seal(account.key, .grant, grant.id).statement,
        ] + consequences.statements + [action.insert(at: now)])
      return (
        StoredGrant(grant: grant, accountID: accountID, recordedAt: now, reason: reason), true
      )
    }
  }

  /// Finds the grant with an ID, if it exists.
  ///
  /// - Throws: ``LedgerError/differentGrant(_:member:)`` if it differs from the request.
  private func grant(
    _ id: UUID, of account: Account, giving entitlement: String, until endsAt: Timestamp?,
    in transaction: Transaction
  ) async throws -> StoredGrant? {
    guard let holder = try await holder(of: id, in: transaction) else { return nil }
    guard holder == account.key,
      let known = try await storedGrants(
        of: account.id, where: "grant_id = \(id)", in: transaction
      ).first
    else { throw LedgerError.differentGrant(id, member: "account_id") }
    guard ExactText(known.grant.entitlement) == ExactText(entitlement) else {
      throw LedgerError.differentGrant(id, member: "entitlement")
    }
    guard known.grant.endsAt == endsAt else {
      throw LedgerError.differentGrant(id, member: "expires_at")
    }
    return known
  }

  /// Revokes a grant and publishes it; an ended grant is left unchanged.
  ///
  /// - Throws: ``LedgerError/unknownGrant(_:)``, ``LedgerError/erasedAccount(_:)``.
  package func revokeGrant(
    _ id: UUID, by administrator: Administrator, terms: AccessTerms, at now: Timestamp
  ) async throws -> StoredGrant {
    try await database.withTransaction { transaction in
      guard let holder = try await holder(of: id, in: transaction),
        let name = try await ownership.names(of: [holder], in: transaction)[holder]
      else { throw LedgerError.unknownGrant(id) }
      let account = try await ownership.lockAccount(name, in: transaction)
      guard
        var grant = try await storedGrants(
          of: account.id, where: "grant_id = \(id)", in: transaction
        ).first
      else { throw LedgerError.unknownGrant(id) }
      // Clocks differ between processes: a grant never ends before it begins.
      let end = max(now, grant.grant.startsAt, grant.recordedAt)
      guard grant.grant.accessEnd.map({ end < $0 }) ?? true else {
        await transaction.rollBack()
        return grant
      }
      grant.grant.revokedAt = end
      let consequences = try await newEvents(of: account, terms: terms, at: end, in: transaction) {
        for index in $0.indices where $0[index].id == id { $0[index].revokedAt = end }
      }
      let action = administrator.action(.revokeGrant, on: id.text, of: account) {
        $0.member("entitlement", grant.grant.entitlement)
      }
      try await transaction.commit(
        with: [
          """
          UPDATE tenure.account_grant SET revoked_at = \(end)
          WHERE account_id = \(account.id) AND grant_id = \(id)
          """, AccountChain.seal(account.key, .grant, id).statement,
        ] + consequences.statements + [action.insert(at: now)])
      return grant
    }
  }

  /// Computes the events and published entitlements of a locked account whose grants change.
  private func newEvents(
    of account: Account, terms: AccessTerms, at now: Timestamp, in transaction: Transaction,
    changing change: (inout [Grant]) -> Void
  ) async throws -> Outbox {
    var published = try await transaction.read(
      PublishedEntitlements.query([account.key: account.id]))[0]
    change(&published.held.grants)
    changes.note([account.id], in: transaction)
    let newEvents = AccountEvents(published, terms: terms, at: now)
    let consequences = Outbox([newEvents], rescheduling: [newEvents], at: now)
    announce(consequences.channels, after: transaction)
    return consequences
  }

  // MARK: Reading

  private func holder(of grant: UUID, in runner: some StatementRunner) async throws -> AccountKey? {
    try await runner.query(
      "SELECT account_key FROM tenure.account_grant_account WHERE grant_id = \(grant)"
    ).decodeFirst(AccountKey.self)
  }

  /// Finds an administrator's grant by ID; nil for provisional grants.
  package func storedGrant(_ id: UUID) async throws -> StoredGrant? {
    guard let holder = try await holder(of: id, in: database),
      let name = try await ownership.accountIDs(of: [holder])[holder]
    else { return nil }
    return try await storedGrants(of: name).first { $0.grant.id == id }
  }

  package func storedGrants(of accountID: String) async throws -> [StoredGrant] {
    try await storedGrants(of: accountID, where: "true", in: database)
  }

  private func storedGrants(
    of accountID: String, where condition: SQL, in runner: some StatementRunner
  ) async throws -> [StoredGrant] {
    try await runner.query(
      """
      SELECT grant_id, entitlement, source, starts_at, ends_at, revoked_at, environment,
        original_transaction_id, recorded_at, reason
      FROM tenure.account_grant
      WHERE account_id = \(accountID) AND \(condition)
      ORDER BY recorded_at, grant_id
      """
    ).decode(
      UUID.self, String.self, Entitlement.Source.self, Timestamp.self, Timestamp?.self,
      Timestamp?.self, Environment?.self, OriginalTransactionID?.self, Timestamp.self, String.self
    ).map {
      var grant = Grant(
        id: $0, entitlement: $1, startsAt: $3, endsAt: $4, revokedAt: $5, source: $2)
      if let environment = $6, let original = $7 {
        grant.line = OriginalTransactionKey(environment, original)
      }
      return StoredGrant(grant: grant, accountID: accountID, recordedAt: $8, reason: $9)
    }
  }

  /// - Parameter knownAt: Ignores later records. Provisional grants are deleted when
  ///   Apple's answer arrives, so a past state does not include them.
  func grants(of accountID: String, knownAt: Timestamp?) async throws -> [Grant] {
    guard let knownAt else { return try await holdings.holdings(of: accountID).grants }
    return try await database.query(
      HoldingBatcher.selectGrants(
        revokedAt: "CASE WHEN revoked_at <= \(knownAt) THEN revoked_at END",
        where: "account_id = \(accountID) AND recorded_at <= \(knownAt)")
    ).decodeGrants()
  }
}
