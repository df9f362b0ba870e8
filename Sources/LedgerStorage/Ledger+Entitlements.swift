package import Subscriptions

extension Ledger {
  /// What an account holds, for an answer about now: the hot path.
  ///
  /// One statement serves many callers; no line is read and nothing waits for a writer.
  package func holdings(of accountID: String) async throws -> AccountHoldings {
    try await holdings.holdings(of: accountID)
  }

  /// What several accounts hold, in the order asked.
  package func holdings(of accountIDs: [String]) async throws -> [AccountHoldings] {
    let rows = try await holdings.read(accountIDs)
    return try accountIDs.map(rows.holdings)
  }

  /// What an account held or will hold, with everything that is known of any time.
  ///
  /// - Parameters:
  ///   - accountID: The app's name for the account.
  ///   - knownAt: Only what was recorded by then counts; nil: everything.
  /// - Returns: Every holding, however long ago.
  /// - Throws: What the database says.
  package func allHoldings(of accountID: String, knownAt: Timestamp?) async throws
    -> AccountHoldings
  {
    var result = AccountHoldings()
    result.grants = try await grants(of: accountID, knownAt: knownAt)
    guard let account = try await account(accountID) else { return result }
    var seen: Set<LineID> = []
    for id in try await lines(of: account.key) where !seen.contains(id) {
      guard let family = try await family(of: id, knownAt: knownAt) else { continue }
      seen.formUnion(family.line.heads.keys)
      result.holdings += family.line.allHoldings(family.rule)
        .filter { $0.account == account.key }.map(\.holding)
    }
    return result
  }
}
