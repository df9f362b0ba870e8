import Postgres
package import Subscriptions

/// A customer's consent to sending consumption information to Apple.
package struct ConsumptionConsent: Hashable, Sendable {
  package let accountID: String
  package let isGiven: Bool
  /// Nil: never decided.
  package let decidedAt: Timestamp?
}

extension WriteBackStore {
  /// The consent of an account, or of the one it was merged into; nil for an unknown account.
  package func consumptionConsent(of accountID: String) async throws -> ConsumptionConsent? {
    guard let known = try await accounts.account(accountID) else { return nil }
    return try await consumptionConsent(of: accounts.successor(of: known))
  }

  /// The consent of the account itself, even if it was merged.
  package func consumptionConsent(of account: Account) async throws -> ConsumptionConsent {
    try await database.read(Self.consent(of: account))
  }

  package func hasConsumptionConsent(_ account: AccountKey) async throws -> Bool {
    // A guest's consent is void once it is merged, also for charges not moved yet.
    try await database.query(
      """
      SELECT c.is_given FROM tenure.consumption_consent AS c
      JOIN tenure.account_by_key AS k ON k.account_key = c.account_key
      WHERE c.account_key = \(account) AND k.merged_into_key IS NULL
      """
    ).decodeFirst(Bool.self) ?? false
  }

  private static func consent(of account: Account) -> Query<ConsumptionConsent> {
    Query(
      """
      SELECT is_given, decided_at FROM tenure.consumption_consent
      WHERE account_key = \(account.key)
      """
    ) {
      let decision = try $0.decodeFirst(Bool.self, Timestamp.self)
      return ConsumptionConsent(
        accountID: account.id, isGiven: decision?.0 ?? false, decidedAt: decision?.1)
    }
  }

  /// Records a decision, for the account or the one it was merged into, and creates a new account.
  ///
  /// Repeating a decision keeps its date.
  package func setConsumptionConsent(
    _ isGiven: Bool, of accountID: String, at now: Timestamp
  ) async throws -> ConsumptionConsent {
    let account = try await accounts.successor(of: accounts.findOrCreateAccount(accountID, at: now))
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

  /// Deletes a decision.
  ///
  /// - Throws: ``LedgerError/unknownAccount(_:)``, ``LedgerError/erasedAccount(_:)``.
  package func forgetConsumptionConsent(of accountID: String) async throws -> ConsumptionConsent {
    guard let account = try await accounts.account(accountID) else {
      throw LedgerError.unknownAccount(accountID)
    }
    return try await changeConsent(of: accounts.successor(of: account)) { key in
      "DELETE FROM tenure.consumption_consent WHERE account_key = \(key)"
    }
  }

  private func changeConsent(
    of account: Account, _ change: @Sendable (AccountKey) -> SQL
  ) async throws -> ConsumptionConsent {
    try await database.withTransaction { transaction in
      // Locked against a concurrent erasure, which would miss this row.
      let locked = try await ownership.lockAccount(account.id, in: transaction)
      return try await transaction.commit(
        with: [change(locked.key)], reading: Self.consent(of: locked))
    }
  }
}
