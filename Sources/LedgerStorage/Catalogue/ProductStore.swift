package import Logging
import Postgres
package import Subscriptions
import Synchronization

/// The catalogue.
package struct ProductStore: LedgerStore {
  package let core: LedgerCore

  /// Advisory lock that serializes catalogue changes: "catalog" in ASCII.
  private static let catalogueLock: Int64 = 0x63_6174_616C_6F67

  /// Reads all versions of all products.
  package func catalogue() async throws -> Catalogue {
    try await catalogue(from: database)
  }

  func catalogue(from runner: some StatementRunner) async throws -> Catalogue {
    let results = try await runner.batch([
      """
      SELECT product_id, valid_from, type, subscription_group, level, period, price_milliunits,
        currency, display_name
      FROM tenure.product
      """,
      "SELECT product_id, valid_from, entitlement FROM tenure.product_entitlement",
    ])
    var entitlements: [ProductID: [Timestamp: [String]]] = [:]
    for (id, validFrom, name) in try results[1].decode(
      ProductID.self, Timestamp.self, String.self)
    {
      entitlements[id, default: [:]][validFrom, default: []].append(name)
    }
    let products = try results[0].decode(
      ProductID.self, Timestamp.self, ProductType.self, String?.self, Int?.self, String?.self,
      Int64?.self, String?.self, String?.self
    ).map { id, validFrom, type, group, level, period, price, currency, name in
      Product(
        id: id, validFrom: validFrom, type: type, entitlements: entitlements[id]?[validFrom] ?? [],
        subscriptionGroup: group, level: level,
        period: period.flatMap(CalendarPeriod.init(iso8601:)), priceMilliunits: price,
        currency: currency, displayName: name)
    }
    return Catalogue(products)
  }

  /// Adds a version of a product, valid from its `validFrom`, unless it equals the current version.
  ///
  /// Entitlements and prices of recorded charges may change, so this schedules a reconciliation.
  ///
  /// - Returns: The current version.
  package func describe(_ product: Product) async throws -> Product {
    let (described, isChanged) = try await database.withTransaction {
      transaction -> (Product, Bool) in
      // Without the lock, two concurrent calls would both see the version before.
      _ = try await transaction.query("SELECT pg_advisory_xact_lock(\(Self.catalogueLock))")
      var product = product
      if let current = try await catalogue(from: transaction)[product.id] {
        var same = product
        same.validFrom = current.validFrom
        if same == current { return (current, false) }
        // Versions never begin at the same time, even if a clock went back.
        product.validFrom = max(product.validFrom, current.validFrom + .milliseconds(1))
      }
      _ = try await transaction.batch(
        [
          """
          INSERT INTO tenure.product (product_id, valid_from, type, subscription_group, level,
            period, price_milliunits, currency, display_name)
          VALUES (\(product.id), \(product.validFrom), \(product.type),
            \(product.subscriptionGroup), \(product.level), \(product.period?.description),
            \(product.priceMilliunits), \(product.currency), \(product.displayName))
          """
        ]
          + product.entitlements.map { name in
            """
            INSERT INTO tenure.product_entitlement (product_id, valid_from, entitlement)
            VALUES (\(product.id), \(product.validFrom), \(name.rawValue))
            """
          }
          + [
            AccountChain.seal(product.id, validFrom: product.validFrom).statement,
            Job.schedule(.reconcile, runAt: product.validFrom, at: product.validFrom),
          ])
      return (product, true)
    }
    if isChanged { notifier.notify(.jobs) }
    return described
  }

  /// Stores the sandbox setting for the view `current_entitlement`, which can't see settings.
  ///
  /// A change alters entitlements, so it schedules a reconciliation.
  ///
  /// - Returns: Whether the setting changed.
  package func publish(_ access: SandboxAccess, at now: Timestamp) async throws -> Bool {
    let (isEverybody, accountIDs): (Bool, [String]) =
      switch access {
      case .all: (true, [])
      case .none: (false, [])
      case .accounts(let ids): (false, ids.sorted().map(\.rawValue))
      }
    let differs: SQL = "everybody <> \(isEverybody) OR account_ids <> \(accountIDs)"
    // Read first, so that a process starting on a standby writes nothing if nothing changed.
    let stale = try await database.query("SELECT 1 FROM tenure.sandbox_access WHERE \(differs)")
    guard !stale.isEmpty else { return false }
    let hasChanged = try await database.withTransaction { transaction in
      let changed = try await transaction.execute(
        """
        UPDATE tenure.sandbox_access
        SET everybody = \(isEverybody), account_ids = \(accountIDs)
        WHERE \(differs)
        """)
      if changed > 0 {
        try await transaction.commit(with: [Job.schedule(.reconcile, runAt: now, at: now)])
      }
      return changed > 0
    }
    if hasChanged { notifier.notify(.jobs) }
    return hasChanged
  }
}

/// The catalogue in memory, so that reads don't query it.
///
/// A change made through this process counts at once, another process's within ``refreshInterval``.
package final class CatalogueCache: Sendable {
  package static let refreshInterval: Duration = .seconds(5)

  private let ledger: Ledger
  private let logger: Logger
  private let state: Mutex<State>

  private struct State {
    var catalogue: Catalogue
    /// The number of the reading that produced it, in order of start.
    var reading = 0
    var begun = 0
  }

  package init(ledger: Ledger, logger: Logger) async throws {
    self.ledger = ledger
    self.logger = logger
    state = Mutex(State(catalogue: try await ledger.products.catalogue()))
  }

  package var catalogue: Catalogue { state.withLock { $0.catalogue } }

  /// The catalogue and sandbox setting used to compute entitlements.
  package func terms(_ sandboxAccess: SandboxAccess) -> AccessTerms {
    AccessTerms(catalogue: catalogue, sandboxAccess: sandboxAccess)
  }

  /// Adds a version of a product and refreshes; see ``ProductStore/describe(_:)``.
  package func describe(_ product: Product) async throws -> Product {
    let described = try await ledger.products.describe(product)
    try await refresh()
    return described
  }

  package func refresh() async throws {
    let reading = beginReading()
    finishReading(reading, with: try await ledger.products.catalogue())
  }

  func beginReading() -> Int {
    state.withLock {
      $0.begun += 1
      return $0.begun
    }
  }

  /// Stores a result, unless a reading that began later has already finished.
  func finishReading(_ reading: Int, with catalogue: Catalogue) {
    state.withLock {
      guard reading > $0.reading else { return }
      $0.reading = reading
      $0.catalogue = catalogue
    }
  }

  package func run() async {
    while !Task.isCancelled {
      do {
        try await refresh()
      } catch {
        logger.warning("Catalogue refresh failed", metadata: ["error": "\(error)"])
      }
      try? await Task.sleep(for: Self.refreshInterval)
    }
  }
}
