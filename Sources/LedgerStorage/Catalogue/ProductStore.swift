package import Logging
import Postgres
package import Subscriptions
import Synchronization

extension Ledger {
  /// Whoever describes products does so one after the other: "catalog" in ASCII.
  private static let catalogueLock: Int64 = 0x63_6174_616C_6F67

  /// Reads the whole catalogue, all versions.
  package func catalogue() async throws -> Catalogue {
    try await catalogue(from: database)
  }

  private func catalogue(from runner: some StatementRunner) async throws -> Catalogue {
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

  /// Adds a version of a product, valid from its `validFrom`, unless it says what the last one
  /// does.
  ///
  /// What accounts have, and what the journal says of prices, may be something else then: a survey
  /// sees to both.
  ///
  /// - Returns: The version that describes the product now.
  package func describe(_ product: Product) async throws -> Product {
    let (described, isNews) = try await database.withTransaction {
      transaction -> (Product, Bool) in
      // Of two that describe one product at once, each would see the version before alone.
      _ = try await transaction.query("SELECT pg_advisory_xact_lock(\(Self.catalogueLock))")
      var product = product
      if let current = try await catalogue(from: transaction)[product.id] {
        var same = product
        same.validFrom = current.validFrom
        if same == current { return (current, false) }
        // Two versions never begin together, even if a clock went back.
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
          + [Job.schedule(.reconcile, runAt: product.validFrom, at: product.validFrom)])
      return (product, true)
    }
    if isNews { bell.ring(.jobs) }
    return described
  }
}

/// The catalogue in memory, so that no read asks the database for it.
///
/// A change made through this process counts at once; another process's, at the latest after
/// ``refreshInterval``.
package final class CatalogueCache: Sendable {
  /// How long another process's change may stay unnoticed.
  package static let refreshInterval: Duration = .seconds(5)

  private let ledger: Ledger
  private let logger: Logger
  private let state: Mutex<State>

  private struct State {
    var catalogue: Catalogue
    /// The number of the reading that brought it; readings are numbered as they begin.
    var reading = 0
    var begun = 0
  }

  /// Reads the catalogue.
  package init(ledger: Ledger, logger: Logger) async throws {
    self.ledger = ledger
    self.logger = logger
    state = Mutex(State(catalogue: try await ledger.catalogue()))
  }

  package var catalogue: Catalogue { state.withLock { $0.catalogue } }

  /// By what it is judged now what accounts may use.
  package func terms(_ sandboxAccess: SandboxAccess) -> AccessTerms {
    AccessTerms(catalogue: catalogue, sandboxAccess: sandboxAccess)
  }

  /// Adds a version of a product.
  ///
  /// - Returns: The version that describes the product now.
  package func describe(_ product: Product) async throws -> Product {
    let described = try await ledger.describe(product)
    try await refresh()
    return described
  }

  /// Reads the catalogue again.
  package func refresh() async throws {
    let reading = beginReading()
    finishReading(reading, with: try await ledger.catalogue())
  }

  func beginReading() -> Int {
    state.withLock {
      $0.begun += 1
      return $0.begun
    }
  }

  /// Takes what was read, unless a reading that began later was faster: it knows more.
  func finishReading(_ reading: Int, with catalogue: Catalogue) {
    state.withLock {
      guard reading > $0.reading else { return }
      $0.reading = reading
      $0.catalogue = catalogue
    }
  }

  /// Follows changes until it is cancelled.
  package func run() async {
    while !Task.isCancelled {
      do {
        try await refresh()
      } catch {
        logger.warning("The catalogue can't be refreshed", metadata: ["error": "\(error)"])
      }
      try? await Task.sleep(for: Self.refreshInterval)
    }
  }
}

/// A table of the schema: where its comment wants it, and where Citus has it.
struct CatalogueTable: Hashable, Sendable {
  let name: String
  /// Nil: its comment says nothing.
  let wanted: TableDistribution?
  /// Nil: Citus does not know it.
  let placed: TableDistribution?
  /// The tables that its foreign keys point to.
  let parents: Set<String>

  /// Puts tables into the order in which Citus can take them: reference tables first, then those in
  /// shards, then local ones, and of each what foreign keys point to before what has them.
  static func inOrder(_ tables: [CatalogueTable]) -> [CatalogueTable] {
    var ordered: [CatalogueTable] = []
    var rest = tables.sorted {
      ($0.wanted?.rank ?? .max, $0.name) < ($1.wanted?.rank ?? .max, $1.name)
    }
    while !rest.isEmpty {
      let waiting = Set(rest.map(\.name))
      let rank = rest[0].wanted?.rank
      // Foreign keys in a circle: any of them may be first.
      let next =
        rest.firstIndex {
          $0.wanted?.rank == rank && $0.parents.subtracting([$0.name]).isDisjoint(with: waiting)
        } ?? 0
      ordered.append(rest.remove(at: next))
    }
    return ordered
  }
}
