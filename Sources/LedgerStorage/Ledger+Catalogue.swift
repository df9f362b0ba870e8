import Postgres
package import Subscriptions

extension Ledger {
  /// Reads the whole catalogue, all versions.
  package func catalogue() async throws -> Catalogue {
    let results = try await database.batch([
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
  /// - Returns: The version that describes the product now.
  package func describe(_ product: Product) async throws -> Product {
    var product = product
    if let current = try await catalogue()[product.id] {
      var same = product
      same.validFrom = current.validFrom
      if same == current { return current }
      // Two versions never begin together, even if a clock went back.
      product.validFrom = max(product.validFrom, current.validFrom + .milliseconds(1))
    }
    _ = try await database.batch(
      [
        """
        INSERT INTO tenure.product (product_id, valid_from, type, subscription_group, level, period,
          price_milliunits, currency, display_name)
        VALUES (\(product.id), \(product.validFrom), \(product.type),
          \(product.subscriptionGroup), \(product.level), \(product.period?.description),
          \(product.priceMilliunits), \(product.currency), \(product.displayName))
        """
      ]
        + product.entitlements.map { name in
          """
          INSERT INTO tenure.product_entitlement (product_id, valid_from, entitlement)
          VALUES (\(product.id), \(product.validFrom), \(name))
          """
        } + ["NOTIFY tenure_catalogue"])
    return product
  }
}
