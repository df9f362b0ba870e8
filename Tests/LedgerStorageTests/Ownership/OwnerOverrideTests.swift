import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Owner overrides in the ledger")
struct OwnerOverrideTests {
  @Test("later recordings go on from the recorded decisions, whatever was ordered")
  func ordersWithOverrides() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      _ = try await ledger.products.describe(
        Product(
          id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      try await ledger.submit(
        [charge("1", on: 0), status(false, on: 10)], claiming: [key("1")], by: "anna", on: 10)
      // It is ben who switches auto-renew on again, by his order.
      _ = try await ledger.orders.openOrder(accountID: "ben", productID: "monthly", at: day(15))
      try await ledger.submit(
        [status(true, on: 15.01), charge("2", on: 30)], claiming: [key("2")], by: "ben", on: 30.1)
      #expect(try await ledger.owner(of: "2") == "ben")

      try await ledger.ownership.transfer(
        key("1"), to: "anna", by: support, terms: .everything, at: day(31))
      #expect(try await ledger.owner(of: "2") == "ben")
      try await ledger.submit(
        [charge("3", on: 60)], claiming: [key("3")], by: "cora", on: 60.1)
      #expect(try await ledger.owner(of: "2") == "ben")
      #expect(try await ledger.owner(of: "3") == "ben")
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }
}
