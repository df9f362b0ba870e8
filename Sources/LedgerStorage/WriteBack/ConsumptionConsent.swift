import Postgres
package import Subscriptions

/// Whether a customer lets Apple be told what became of a purchase whose money is asked for.
package struct ConsumptionConsent: Hashable, Sendable {
  /// The app's name for the account.
  package let accountID: String
  package let isGiven: Bool
  /// Since when it is so; nil: nobody has ever said.
  package let decidedAt: Timestamp?
}

extension Ledger {
  /// The consent of an account, or of the one that it was merged into; nil if the account was never
  /// seen.
  package func consumptionConsent(of accountID: String) async throws -> ConsumptionConsent? {
    guard let known = try await account(accountID) else { return nil }
    return try await consumptionConsent(of: successor(of: known))
  }

  /// The consent of an account itself, whatever it was merged into.
  package func consumptionConsent(of account: Account) async throws -> ConsumptionConsent {
    let row = try await database.query(Self.selectConsent(of: account.key))
      .decodeFirst(Bool.self, Timestamp.self)
    return ConsumptionConsent(
      accountID: account.id, isGiven: row?.0 ?? false, decidedAt: row?.1)
  }

  /// Whether an account's customer has agreed to Apple's being told.
  package func hasConsumptionConsent(_ account: AccountKey) async throws -> Bool {
    // What a guest said does not pass on, nor hold for its charges until they have done so.
    try await database.query(
      """
      SELECT c.is_given FROM tenure.consumption_consent AS c
      JOIN tenure.account_by_key AS k ON k.account_key = c.account_key
      WHERE c.account_key = \(account) AND k.merged_into_key IS NULL
      """
    ).decodeFirst(Bool.self) ?? false
  }

  private static func selectConsent(of account: AccountKey) -> SQL {
    """
    SELECT is_given, decided_at FROM tenure.consumption_consent WHERE account_key = \(account)
    """
  }

  /// Records what a customer says, creating the account if it is new.
  ///
  /// To say the same again changes nothing, not even the date. An account that was merged into
  /// another says it for that one.
  ///
  /// - Parameters:
  ///   - isGiven: Whether the customer agrees.
  ///   - accountID: The app's name for the account.
  ///   - now: When.
  /// - Returns: The consent from now on.
  /// - Throws: ``LedgerError/erasedAccount(_:)``.
  package func setConsumptionConsent(
    _ isGiven: Bool, of accountID: String, at now: Timestamp
  ) async throws -> ConsumptionConsent {
    let account = try await successor(of: findOrCreateAccount(accountID, at: now))
    return try await changeConsent(of: account) { key in
      """
      INSERT INTO tenure.consumption_consent AS known (account_key, is_given, decided_at)
      VALUES (\(key), \(isGiven), \(now))
      ON CONFLICT (account_key)
      DO UPDATE SET is_given = excluded.is_given, decided_at = excluded.decided_at
      WHERE known.is_given <> excluded.is_given
      """
    }
  }

  /// Forgets what a customer said: from now on nobody has said anything.
  ///
  /// - Throws: ``LedgerError/unknownAccount(_:)``, ``LedgerError/erasedAccount(_:)``.
  package func forgetConsumptionConsent(of accountID: String) async throws -> ConsumptionConsent {
    guard let account = try await account(accountID) else {
      throw LedgerError.unknownAccount(accountID)
    }
    return try await changeConsent(of: successor(of: account)) { key in
      "DELETE FROM tenure.consumption_consent WHERE account_key = \(key)"
    }
  }

  private func changeConsent(
    of account: Account, _ change: @Sendable (AccountKey) -> SQL
  ) async throws -> ConsumptionConsent {
    try await database.withTransaction { transaction in
      // Locked, so that nobody erases it meanwhile, and leaves what is written now.
      let locked = try await lockAccount(account.id, in: transaction)
      let results = try await transaction.commit(
        with: [change(locked.key), Self.selectConsent(of: locked.key)])
      let row = try results[1].decodeFirst(Bool.self, Timestamp.self)
      return ConsumptionConsent(
        accountID: locked.id, isGiven: row?.0 ?? false, decidedAt: row?.1)
    }
  }
}
