import Postgres
package import Subscriptions

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
          + [Job.schedule(.survey, runAt: product.validFrom, at: product.validFrom)])
      return (product, true)
    }
    if isNews { bell.ring(.jobs) }
    return described
  }
}
