package import Foundation
import JSONText
import Postgres
package import Subscriptions

/// An entitlement that an account was given and did not buy, as it is kept.
package struct StoredGrant: Hashable, Sendable {
  package let grant: Grant
  package let accountID: String
  package let recordedAt: Timestamp
  package let reason: String
}

/// Entitlements that administrators give and take back.
extension Ledger {
  /// Gives an account an entitlement, and tells it: once for each id.
  ///
  /// - Parameters:
  ///   - id: The grant's; who asks again with the same id, not knowing whether the first answer was
  ///     lost or the first request, is given nothing more.
  ///   - entitlement: Its name.
  ///   - accountID: To whom.
  ///   - endsAt: When it ends by itself; nil: never.
  ///   - administrator: Who gives it, and why.
  ///   - terms: By what it is judged what accounts may use.
  ///   - now: From when on.
  /// - Returns: The grant as it is now, and whether it was made by this.
  /// - Throws: ``LedgerError/unknownAccount(_:)``, ``LedgerError/erasedAccount(_:)``,
  ///   ``LedgerError/mergedAccount(_:into:)``, ``LedgerError/differentGrant(_:member:)``.
  package func grant(
    as id: UUID = UUID(), _ entitlement: String, to accountID: String, until endsAt: Timestamp?,
    by administrator: Administrator, terms: AccessTerms, at now: Timestamp
  ) async throws -> (grant: StoredGrant, isNew: Bool) {
    let grant = Grant(id: id, entitlement: entitlement, startsAt: now, endsAt: endsAt)
    let reason = administrator.reason ?? "None was given."
    let (known, channels) = try await database.withTransaction {
      transaction -> (StoredGrant?, Set<Bell.Channel>) in
      let account = try await lockAccount(accountID, in: transaction)
      if let known = try await self.grant(
        id, of: account, giving: entitlement, until: endsAt, in: transaction)
      {
        await transaction.rollBack()
        return (known, [])
      }
      let consequences = try await news(of: account, terms: terms, at: now, in: transaction) {
        $0.append(grant)
      }
      let act = NewAct(
        action: .grant, subject: grant.id.uuidString.lowercased(), administrator: administrator,
        account: account.key, names: [account.key: account.id],
        data: NewAct.data { json in
          json.member("entitlement", entitlement)
          json.member("expires_at", endsAt)
        })
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
        ] + consequences.statements + [act.insert(at: now)])
      return (nil, consequences.channels)
    }
    bell.ring(channels)
    if let known { return (known, false) }
    let stored = StoredGrant(grant: grant, accountID: accountID, recordedAt: now, reason: reason)
    return (stored, true)
  }

  /// The grant that an id stands for already; nil: there is none.
  ///
  /// - Throws: ``LedgerError/differentGrant(_:member:)`` if it is another one than is asked for.
  private func grant(
    _ id: UUID, of account: Account, giving entitlement: String, until endsAt: Timestamp?,
    in transaction: Transaction
  ) async throws -> StoredGrant? {
    let holder = try await transaction.query(
      "SELECT account_key FROM tenure.account_grant_account WHERE grant_id = \(id)"
    ).decodeFirst(AccountKey.self)
    guard let holder else { return nil }
    let rows = try await transaction.query(
      StoredGrant.select(of: account.id, where: "grant_id = \(id)"))
    guard holder == account.key,
      let known = try StoredGrant.grants(from: rows, of: account.id).first
    else { throw LedgerError.differentGrant(id, member: "account_id") }
    guard ExactText(known.grant.entitlement) == ExactText(entitlement) else {
      throw LedgerError.differentGrant(id, member: "entitlement")
    }
    guard known.grant.endsAt == endsAt else {
      throw LedgerError.differentGrant(id, member: "expires_at")
    }
    return known
  }

  /// Takes a grant back, and tells the account; one that is over stays as it is.
  ///
  /// - Parameters:
  ///   - id: The grant.
  ///   - administrator: Who takes it back, and why.
  ///   - terms: By what it is judged what accounts may use.
  ///   - now: From when on.
  /// - Returns: The grant as it is now.
  /// - Throws: ``LedgerError/unknownGrant(_:)``, ``LedgerError/erasedAccount(_:)``.
  package func revokeGrant(
    _ id: UUID, by administrator: Administrator, terms: AccessTerms, at now: Timestamp
  ) async throws -> StoredGrant {
    let (grant, channels) = try await database.withTransaction {
      transaction -> (StoredGrant, Set<Bell.Channel>) in
      let holder = try await transaction.query(
        "SELECT account_key FROM tenure.account_grant_account WHERE grant_id = \(id)"
      ).decodeFirst(AccountKey.self)
      guard let holder, let name = try await names(of: [holder], in: transaction)[holder] else {
        throw LedgerError.unknownGrant(id)
      }
      let account = try await lockAccount(name, in: transaction)
      let stored = try await transaction.query(
        StoredGrant.select(of: account.id, where: "grant_id = \(id)"))
      guard var grant = try StoredGrant.grants(from: stored, of: account.id).first else {
        throw LedgerError.unknownGrant(id)
      }
      // Clocks differ: it never ends before it began.
      let end = max(now, grant.grant.startsAt, grant.recordedAt)
      guard grant.grant.accessEnd.map({ end < $0 }) ?? true else {
        await transaction.rollBack()
        return (grant, [])
      }
      grant = grant.revoked(at: end)
      let consequences = try await news(of: account, terms: terms, at: end, in: transaction) {
        for index in $0.indices where $0[index].id == id { $0[index].revokedAt = end }
      }
      let act = NewAct(
        action: .revokeGrant, subject: id.uuidString.lowercased(), administrator: administrator,
        account: account.key, names: [account.key: account.id],
        data: NewAct.data { $0.member("entitlement", grant.grant.entitlement) })
      try await transaction.commit(
        with: [
          """
          UPDATE tenure.account_grant SET revoked_at = \(end)
          WHERE account_id = \(account.id) AND grant_id = \(id)
          """
        ] + consequences.statements + [act.insert(at: now)])
      return (grant, consequences.channels)
    }
    bell.ring(channels)
    return grant
  }

  /// Works out what changes for a locked account by what it is granted otherwise.
  private func news(
    of account: Account, terms: AccessTerms, at now: Timestamp, in transaction: Transaction,
    changing change: (inout [Grant]) -> Void
  ) async throws -> Consequences {
    var told = try await transaction.read(ToldAccount.query([account.key: account.id]))[0]
    change(&told.held.grants)
    changes.note([account.id], in: transaction)
    let news = AccountNews(told, terms: terms, at: now)
    return Consequences([news], rescheduling: [news], at: now)
  }

  // MARK: Reading

  /// All that an account was ever granted, the first one first.
  package func storedGrants(of accountID: String) async throws -> [StoredGrant] {
    try StoredGrant.grants(
      from: await database.query(StoredGrant.select(of: accountID, where: "true")), of: accountID)
  }

  /// What an account was granted, as far as it was known.
  ///
  /// - Parameters:
  ///   - accountID: The app's name for the account.
  ///   - knownAt: Only what was recorded by then counts; nil: everything. What was granted
  ///     provisionally, until Apple could be asked, is known as long as it lasts and no longer.
  /// - Returns: The grants.
  /// - Throws: What the database says.
  func grants(of accountID: String, knownAt: Timestamp?) async throws -> [Grant] {
    guard let knownAt else { return try await holdings(of: accountID).grants }
    return try await database.query(
      HoldingReader.selectGrants(
        revokedAt: "CASE WHEN revoked_at <= \(knownAt) THEN revoked_at END",
        where: "account_id = \(accountID) AND recorded_at <= \(knownAt)")
    ).decodeGrants()
  }
}

extension StoredGrant {
  /// Reads grants of an account; ``grants(from:of:)`` understands them.
  fileprivate static func select(of accountID: String, where condition: SQL) -> SQL {
    """
    SELECT grant_id, entitlement, source, starts_at, ends_at, revoked_at, environment,
      original_transaction_id, recorded_at, reason
    FROM tenure.account_grant
    WHERE account_id = \(accountID) AND \(condition)
    ORDER BY recorded_at, grant_id
    """
  }

  fileprivate static func grants(from rows: Rows, of accountID: String) throws -> [StoredGrant] {
    try rows.decode(
      UUID.self, String.self, Entitlement.Source.self, Timestamp.self, Timestamp?.self,
      Timestamp?.self, Environment?.self, OriginalTransactionID?.self, Timestamp.self, String.self
    ).map {
      id, entitlement, source, startsAt, endsAt, revokedAt, environment, original, recordedAt,
      reason in
      var grant = Grant(
        id: id, entitlement: entitlement, startsAt: startsAt, endsAt: endsAt, revokedAt: revokedAt,
        source: source)
      if let environment, let original { grant.line = LineID(environment, original) }
      return StoredGrant(
        grant: grant, accountID: accountID, recordedAt: recordedAt, reason: reason)
    }
  }

  fileprivate func revoked(at moment: Timestamp) -> StoredGrant {
    var grant = grant
    grant.revokedAt = moment
    return StoredGrant(
      grant: grant, accountID: accountID, recordedAt: recordedAt, reason: reason)
  }
}
