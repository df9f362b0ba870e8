package import Subscriptions

/// Answers what accounts may use.
package struct EntitlementReader: Sendable {
  private let ledger: Ledger
  private let catalogue: CatalogueCache
  private let sandboxAccess: SandboxAccess
  /// What may answer in the primary's stead; nil: nothing does.
  package let replica: ReadReplica?

  package init(
    ledger: Ledger, catalogue: CatalogueCache, sandboxAccess: SandboxAccess,
    replica: ReadReplica? = nil
  ) {
    self.replica = replica
    self.ledger = ledger
    self.catalogue = catalogue
    self.sandboxAccess = sandboxAccess
  }

  /// By what it is judged now what accounts may use.
  package var terms: AccessTerms { catalogue.terms(sandboxAccess) }

  /// What an account may use now.
  ///
  /// - Parameters:
  ///   - accountID: The account.
  ///   - now: The moment.
  ///   - mayLag: Whether the replica may be asked.
  /// - Returns: Everything, inactive ones included.
  /// - Throws: What the database says.
  package func entitlements(of accountID: String, now: Timestamp, mayLag: Bool = false)
    async throws -> [Entitlement]
  {
    let rows = mayLag ? await replica?.rows(of: [accountID]) : nil
    let held =
      if let rows { try rows.holdings(of: accountID) } else {
        try await ledger.holdings(of: accountID)
      }
    return entitlements(of: accountID, holding: held, at: now)
  }

  /// Reads what some accounts may use, for those who have no task that could wait.
  ///
  /// - Parameters:
  ///   - accountIDs: At most ``maximumBatch``.
  ///   - replica: What to ask first, having said that it may be; nil: the primary at once.
  ///   - completion: Called once, on the thread that serves PostgreSQL: it must hand over what
  ///     takes time.
  package func read(
    _ accountIDs: [String], at replica: ReadReplica? = nil,
    completion: @escaping @Sendable (Result<ReadEntitlements, any Error>) -> Void
  ) {
    guard let replica else {
      return ledger.holdings.read(accountIDs) { [self] result in
        completion(result.map { ReadEntitlements(rows: $0, reader: self) })
      }
    }
    replica.read(accountIDs) { [self] rows in
      guard let rows else { return read(accountIDs, completion: completion) }
      completion(.success(ReadEntitlements(rows: rows, reader: self)))
    }
  }

  /// As many as PostgreSQL answers for in one statement better than in two.
  package static let maximumBatch = HoldingReader.maximumBatch

  /// What several accounts may use now, in the order asked.
  ///
  /// - Parameters:
  ///   - accountIDs: The accounts.
  ///   - now: The moment.
  ///   - mayLag: Whether the replica may be asked: of all of them or of none.
  /// - Returns: Of each, everything, inactive ones included.
  /// - Throws: What the database says.
  package func entitlements(of accountIDs: [String], now: Timestamp, mayLag: Bool = false)
    async throws -> [[Entitlement]]
  {
    let rows = mayLag ? await replica?.rows(of: accountIDs) : nil
    let held =
      if let rows { try accountIDs.map(rows.holdings) } else {
        try await ledger.holdings(of: accountIDs)
      }
    return zip(accountIDs, held).map {
      entitlements(of: $0, holding: $1, at: now)
    }
  }

  /// What an account may use at any time, as known now or as it was known at `knownAt`.
  package func entitlements(of accountID: String, at moment: Timestamp, knownAt: Timestamp?)
    async throws -> [Entitlement]
  {
    try await entitlements(of: accountID, at: moment, knownAt: knownAt, by: terms(knownAt: knownAt))
  }

  private func entitlements(
    of accountID: String, at moment: Timestamp, knownAt: Timestamp?, by terms: AccessTerms
  ) async throws -> [Entitlement] {
    let held = try await ledger.allHoldings(of: accountID, knownAt: knownAt)
    return terms.entitlements(
      of: accountID, holding: held.holdings, granted: held.grants, at: moment)
  }

  /// What products grant, as they were described at `knownAt`; nil: as they are now.
  private func terms(knownAt: Timestamp?) -> AccessTerms {
    var terms = terms
    if let knownAt { terms.catalogue = terms.catalogue.known(at: knownAt) }
    return terms
  }

  /// So many histories are read at once: they take connections of their own, of which others need
  /// some.
  private static let concurrentHistories = 4

  /// What several accounts may use at any time, in the order asked.
  ///
  /// Each is read by itself, with its history.
  ///
  /// - Parameters:
  ///   - accountIDs: The accounts.
  ///   - moment: The time that is asked about.
  ///   - knownAt: Only what was recorded by then counts; nil: everything.
  /// - Returns: Of each, everything, inactive ones included.
  /// - Throws: What the database says.
  package func entitlements(of accountIDs: [String], at moment: Timestamp, knownAt: Timestamp?)
    async throws -> [[Entitlement]]
  {
    let terms = terms(knownAt: knownAt)
    return try await withThrowingTaskGroup(of: (Int, [Entitlement]).self) { group in
      var found = Array(repeating: [Entitlement](), count: accountIDs.count)
      var next = accountIDs.indices.makeIterator()
      func readNext() {
        guard let index = next.next() else { return }
        group.addTask {
          let accountID = accountIDs[index]
          return (
            index,
            try await entitlements(of: accountID, at: moment, knownAt: knownAt, by: terms)
          )
        }
      }
      for _ in 0..<Self.concurrentHistories { readNext() }
      while let (index, entitlements) = try await group.next() {
        found[index] = entitlements
        readNext()
      }
      return found
    }
  }

  /// What an account may use that holds what was read.
  package func entitlements(
    of accountID: String, holding held: AccountHoldings, at moment: Timestamp
  ) -> [Entitlement] {
    terms.entitlements(
      of: accountID, holding: held.holdings, granted: held.grants, at: moment)
  }
}

/// What was read for several accounts; each one's share is decoded by whoever wants it.
package struct ReadEntitlements: Sendable {
  fileprivate let rows: HoldingRows
  fileprivate let reader: EntitlementReader

  /// What an account may use, which must be one of those that were asked for.
  ///
  /// - Throws: What keeps its rows from being read; the other accounts' don't matter.
  package func entitlements(of accountID: String, at moment: Timestamp) throws -> [Entitlement] {
    reader.entitlements(of: accountID, holding: try rows.holdings(of: accountID), at: moment)
  }
}

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
