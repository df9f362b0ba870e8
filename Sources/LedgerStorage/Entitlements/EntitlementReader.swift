package import JSONText
package import Subscriptions

/// Computes the entitlements of accounts.
///
/// ```swift
/// let reader = EntitlementReader(ledger: ledger, catalogue: catalogue, sandboxAccess: .none)
/// let current = try await reader.entitlements(of: "klara", now: now)
/// let hasPro = current.contains { $0.name == "pro" && $0.isActive }
/// // As of May, as known in June:
/// let past = try await reader.entitlements(of: ["klara"], at: may, knownAt: june)[0]
/// ```
package struct EntitlementReader: Sendable {
  private let ledger: Ledger
  private let catalogue: CatalogueCache
  private let sandboxAccess: SandboxAccess
  /// A standby that may answer instead of the primary.
  package let replica: ReadReplica?
  fileprivate let cache: EntitlementCache?
  /// Reads accounts that are not in the cache.
  private let cachedBatcher: HoldingBatcher?

  /// - Parameter cache: Used by ``read(_:at:anew:completion:)``; nil: none.
  package init(
    ledger: Ledger, catalogue: CatalogueCache, sandboxAccess: SandboxAccess,
    replica: ReadReplica? = nil, cache: EntitlementCache? = nil
  ) {
    self.replica = replica
    self.cache = cache
    cachedBatcher = cache?.batcher
    (self.ledger, self.catalogue, self.sandboxAccess) = (ledger, catalogue, sandboxAccess)
  }

  /// The catalogue and sandbox setting used to compute entitlements.
  package var terms: AccessTerms { catalogue.terms(sandboxAccess) }

  /// - Parameter mayLag: Whether the replica may answer.
  package func entitlements(of accountID: String, now: Timestamp, mayLag: Bool = false)
    async throws -> [Entitlement]
  {
    try await entitlements(of: [accountID], now: now, mayLag: mayLag)[0]
  }

  /// Reads the entitlements of some accounts, with a callback instead of a waiting task.
  ///
  /// - Parameters:
  ///   - replica: Asked first, if ``ReadReplica/mayAnswer(for:)`` allows it for these accounts.
  ///   - anew: Whether to read all accounts, also those in the cache.
  ///   - completion: Called once, on the thread that serves PostgreSQL: it must not block.
  package func read(
    _ accountIDs: [String], at replica: ReadReplica? = nil, anew: Bool = false,
    completion: @escaping @Sendable (Result<ReadEntitlements, any Error>) -> Void
  ) {
    guard let replica else {
      let batcher = anew ? nil : cachedBatcher
      return (batcher ?? ledger.core.holdingBatcher).read(accountIDs) { [self] result in
        completion(result.map { ReadEntitlements(rows: $0, reader: self) })
      }
    }
    replica.read(accountIDs) { [self] rows in
      guard let rows else { return read(accountIDs, completion: completion) }
      completion(.success(ReadEntitlements(rows: rows, reader: self)))
    }
  }

  /// Accounts per statement at most; larger statements are not faster.
  package static let maximumBatch = HoldingBatcher.maximumBatch

  /// Reads the entitlements of several accounts in the order asked, inactive ones included.
  ///
  /// - Parameter mayLag: Whether the replica may answer, for all accounts or none.
  package func entitlements(of accountIDs: [String], now: Timestamp, mayLag: Bool = false)
    async throws -> [[Entitlement]]
  {
    let current = mayLag ? await replica?.rows(of: accountIDs) : nil
    let rows =
      if let current { current } else { try await ledger.core.holdingBatcher.read(accountIDs) }
    return try accountIDs.map { entitlements(of: $0, holding: try rows.holdings(of: $0), at: now) }
  }

  /// Histories read concurrently; each takes a connection, and other requests need some too.
  private static let concurrentHistories = 4

  /// Reads the entitlements of several accounts at any time, in the order asked.
  ///
  /// - Parameter knownAt: Ignores later records; nil: ignores nothing.
  package func entitlements(of accountIDs: [String], at moment: Timestamp, knownAt: Timestamp?)
    async throws -> [[Entitlement]]
  {
    var current = terms
    if let knownAt { current.catalogue = current.catalogue.known(at: knownAt) }
    let terms = current
    return try await accountIDs.mapConcurrently(atOnce: Self.concurrentHistories) { id in
      let held = try await ledger.holdings.allHoldings(of: id, knownAt: knownAt)
      return terms.entitlements(of: id, holding: held.holdings, granted: held.grants, at: moment)
    }
  }

  package func entitlements(
    of accountID: String, holding held: AccountHoldings, at moment: Timestamp
  ) -> [Entitlement] {
    terms.entitlements(of: accountID, holding: held.holdings, granted: held.grants, at: moment)
  }
}

/// The rows read for several accounts, decoded per account by the caller.
package struct ReadEntitlements: Sendable {
  fileprivate let rows: HoldingRows
  fileprivate let reader: EntitlementReader

  /// Writes the entitlements of an account that was read, as an array.
  ///
  /// - Returns: False, after writing nothing, if it changed in the cache and has to be read again.
  /// - Throws: Decoding errors of this account's rows; those of others don't matter.
  package func write(_ accountID: String, at moment: Timestamp, to json: inout JSONWriter) throws
    -> Bool
  {
    let ticket = rows.ticket
    if let ticket, reader.cache?.write(accountID, at: moment, ticket, to: &json) == true {
      return true
    }
    guard rows.asked?.contains(AccountID(accountID)) ?? true else { return false }
    let held = try rows.holdings(of: accountID)
    let terms = reader.terms
    let start = json.bytes.count
    terms.entitlements(of: accountID, holding: held.holdings, granted: held.grants, at: moment)
      .write(to: &json)
    if let ticket {
      reader.cache?.keep(
        json.bytes[start...], of: accountID,
        validFor: terms.constancy(holding: held.holdings, granted: held.grants, around: moment),
        ticket)
    }
    return true
  }
}

package struct HoldingStore: LedgerStore {
  package let core: LedgerCore

  /// Reads an account's holdings from projections, in shared statements, waiting for no writer.
  package func holdings(of accountID: String) async throws -> AccountHoldings {
    try await core.holdingBatcher.read([accountID]).holdings(of: accountID)
  }

  /// Reads all holdings of an account, however old.
  ///
  /// - Parameter knownAt: Ignores later records; nil: ignores nothing.
  package func allHoldings(of accountID: String, knownAt: Timestamp?) async throws
    -> AccountHoldings
  {
    var result = AccountHoldings()
    result.grants = try await grants.grants(of: accountID, knownAt: knownAt)
    guard let account = try await accounts.account(accountID) else { return result }
    for try await (_, original) in try await ownership.originals(of: account.key, knownAt: knownAt)
    {
      let (line, rule) = (original.line, original.rule)
      result.holdings += (line.allHoldings(rule) + line.lostHoldings(rule))
        .filter { $0.account == account.key }.map(\.holding)
    }
    return result
  }
}
