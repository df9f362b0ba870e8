package import Subscriptions

/// Answers what accounts may use.
package struct EntitlementReader: Sendable {
  private let ledger: Ledger
  private let catalogue: CatalogueCache
  private let sandboxAccess: SandboxAccess

  package init(ledger: Ledger, catalogue: CatalogueCache, sandboxAccess: SandboxAccess) {
    self.ledger = ledger
    self.catalogue = catalogue
    self.sandboxAccess = sandboxAccess
  }

  /// What an account may use now.
  package func entitlements(of accountID: String, now: Timestamp) async throws -> [Entitlement] {
    entitlements(of: accountID, holding: try await ledger.holdings(of: accountID), at: now)
  }

  /// What several accounts may use now, in the order asked.
  package func entitlements(of accountIDs: [String], now: Timestamp) async throws
    -> [[Entitlement]]
  {
    zip(accountIDs, try await ledger.holdings(of: accountIDs)).map {
      entitlements(of: $0, holding: $1, at: now)
    }
  }

  /// What an account may use at any time, as known now or as it was known at `knownAt`.
  package func entitlements(of accountID: String, at moment: Timestamp, knownAt: Timestamp?)
    async throws -> [Entitlement]
  {
    let holdings = try await ledger.allHoldings(of: accountID, knownAt: knownAt)
    return entitlements(of: accountID, holding: holdings, at: moment)
  }

  /// What an account may use that holds what was read.
  package func entitlements(
    of accountID: String, holding held: AccountHoldings, at moment: Timestamp
  ) -> [Entitlement] {
    var holdings = held.holdings
    if !sandboxAccess.grants(.sandbox, to: accountID) {
      holdings.removeAll { $0.charge.line.environment == .sandbox }
    }
    return Entitlement.entitlements(
      holdings: holdings, grants: held.grants, catalogue: catalogue.catalogue, at: moment)
  }
}
