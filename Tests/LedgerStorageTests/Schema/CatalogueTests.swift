import Logging
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("The catalogue")
struct CatalogueTests {
  private let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })

  @Test("descriptions of one product at once all succeed, one version each")
  func concurrent() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      try await withThrowingTaskGroup { group in
        for price in 1...20 {
          group.addTask {
            _ = try await ledger.products.describe(product(price: Int64(price % 10 + 1)))
          }
        }
        try await group.waitForAll()
      }
      let versions = try await database.query(
        "SELECT count(DISTINCT valid_from), count(DISTINCT price_milliunits) FROM tenure.product"
      ).decodeOnly(Int.self, Int.self)
      #expect(versions.0 >= 10)
      #expect(versions.1 == 10)
    }
  }

  @Test("a reading that began before a change does not undo it")
  func overtaken() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      let cache = try await CatalogueCache(ledger: ledger, logger: quiet)
      let slow = cache.beginReading()
      let old = try await ledger.products.catalogue()
      _ = try await cache.describe(product(price: 1), by: .commandLine)
      cache.finishReading(slow, with: old)
      #expect(cache.catalogue["monthly"]?.priceMilliunits == 1)

      // A product described by another process appears with the next reading.
      _ = try await ledger.products.describe(product(price: 2))
      try await cache.refresh()
      #expect(cache.catalogue["monthly"]?.priceMilliunits == 2)
    }
  }

  private func product(price: Int64) -> Product {
    Product(
      id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"],
      priceMilliunits: price, currency: "EUR")
  }
}
