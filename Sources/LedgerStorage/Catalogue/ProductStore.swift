import Foundation
import JSONText
package import Logging
import Postgres
package import Subscriptions
import Synchronization

package struct ProductStore: LedgerStore {
  package let core: LedgerCore

  /// Advisory lock that serializes catalogue changes: "catalog" in ASCII.
  private static let catalogueLock: Int64 = 0x63_6174_616C_6F67

  package func catalogue() async throws -> Catalogue {
    try await catalogue(from: database)
  }

  func catalogue(from runner: some StatementRunner) async throws -> Catalogue {
    let products = try await runner.query(
      """
      SELECT product_id, valid_from, type, ARRAY(
          SELECT entitlement FROM tenure.product_entitlement AS e
          WHERE e.product_id = p.product_id AND e.valid_from = p.valid_from),
        subscription_group, level, period, price_milliunits, currency, display_name
      FROM tenure.product AS p
      """
    ).decode(
      ProductID.self, Timestamp.self, ProductType.self, [String].self, String?.self, Int?.self,
      String?.self, Int64?.self, String?.self, String?.self
    ).map { id, validFrom, type, entitlements, group, level, period, price, currency, name in
      Product(
        id: id, validFrom: validFrom, type: type, entitlements: entitlements,
        subscriptionGroup: group, level: level,
        period: period.flatMap(CalendarPeriod.init(iso8601:)), priceMilliunits: price,
        currency: currency, displayName: name)
    }
    return Catalogue(products)
  }

  /// Adds a version of a product, unless it equals the current one, and schedules a reconciliation.
  ///
  /// - Parameter administrator: The author of the logged action; nil logs none, for samples.
  package func describe(_ product: Product, by administrator: Administrator? = nil) async throws
    -> Product
  {
    try await database.withTransaction { transaction in
      // Without the lock, two concurrent calls would both see the version before.
      _ = try await transaction.query("SELECT pg_advisory_xact_lock(\(Self.catalogueLock))")
      var product = product
      let current = try await catalogue(from: transaction)[product.id]
      if let current {
        var same = product
        same.validFrom = current.validFrom
        if same == current { return current }
        // Versions never begin at the same time, even if a clock went back.
        product.validFrom = max(product.validFrom, current.validFrom + .milliseconds(1))
      }
      announce([.jobs], after: transaction)
      try await transaction.commit(
        with: [
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
          ]
          + (administrator.map {
            let action = $0.action(.setProduct, on: product.id.rawValue) {
              $0.member("valid_from", product.validFrom)
              if let current { $0.member("changes", product.changes(since: current)) }
            }
            return [action.insert(at: product.validFrom)]
          } ?? []))
      return product
    }
  }

  /// Stores the sandbox setting for `current_entitlement`; a change schedules a reconciliation.
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
    return try await database.withTransaction { transaction in
      let changed = try await transaction.execute(
        """
        UPDATE tenure.sandbox_access
        SET everybody = \(isEverybody), account_ids = \(accountIDs)
        WHERE \(differs)
        """)
      guard changed > 0 else { return false }
      announce([.jobs], after: transaction)
      try await transaction.commit(with: [Job.schedule(.reconcile, runAt: now, at: now)])
      return true
    }
  }
}

/// The catalogue in memory; another process's changes count within ``refreshInterval``.
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

  /// Adds a version of a product and refreshes; see ``ProductStore/describe(_:by:)``.
  package func describe(_ product: Product, by administrator: Administrator) async throws -> Product
  {
    let described = try await ledger.products.describe(product, by: administrator)
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

extension Product {
  /// As in `price 0.99 USD → 1.09 USD; level 1 → 2`.
  fileprivate func changes(since old: Product) -> String {
    func price(_ product: Product) -> String? {
      product.priceMilliunits.map { "\(Decimal($0) / 1000) \(product.currency ?? "")" }
    }
    let values: [(name: String, old: String?, new: String?)] = [
      ("name", old.displayName, displayName), ("price", price(old), price(self)),
      ("period", old.period?.description, period?.description),
      ("type", old.type.rawValue, type.rawValue),
      (
        "entitlements", old.entitlements.map(\.rawValue).joined(separator: ", "),
        entitlements.map(\.rawValue).joined(separator: ", ")
      ),
      ("subscription group", old.subscriptionGroup, subscriptionGroup),
      ("level", old.level.map(String.init), level.map(String.init)),
    ]
    return values.filter { $0.old.map(ExactText.init) != $0.new.map(ExactText.init) }
      .map { "\($0.name) \($0.old ?? "–") → \($0.new ?? "–")" }.joined(separator: "; ")
  }
}
