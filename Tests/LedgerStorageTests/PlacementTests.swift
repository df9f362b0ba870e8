import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Placements in the ledger")
struct PlacementTests {
  @Test("what is recorded after one goes on from the recorded decisions, whoever ordered what")
  func ordersBesidePlacements() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      _ = try await ledger.describe(
        Product(
          id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      try await ledger.submit(
        [charge("1", on: 0), status(false, on: 10)], claiming: [key("1")], by: "anna", on: 10)
      // It is ben who switches auto-renew on again, by his order.
      _ = try await ledger.openOrder(accountID: "ben", productID: "monthly", at: day(15))
      try await ledger.submit(
        [status(true, on: 15.01), charge("2", on: 30)], claiming: [key("2")], by: "ben", on: 30.1)
      #expect(try await ledger.owner(of: "2") == "ben")

      try await ledger.place(key("1"), with: "anna", on: 31)
      #expect(try await ledger.owner(of: "2") == "ben")
      try await ledger.submit(
        [charge("3", on: 60)], claiming: [key("3")], by: "cora", on: 60.1)
      #expect(try await ledger.owner(of: "2") == "ben")
      #expect(try await ledger.owner(of: "3") == "ben")
      #expect(try await ledger.audit().differences == [])
    }
  }
}

extension Ledger {
  /// Places a charge, as an administrator does.
  fileprivate func place(_ charge: TransactionKey, with account: String, on date: Double)
    async throws
  {
    let account = try await findOrCreateAccount(account, at: start)
    try await database.withTransaction { transaction in
      var reader = FamilyReader(isLocking: true)
      try await reader.read([charge.line], in: transaction)
      let family = try #require(reader.families.first)
      let context = try await context(
        of: family, claimant: account.key, evidence: [], in: transaction)
      var line = family.line
      line.updateContext(context.apply)
      let placement = Placement(
        account: account.key, transaction: charge, effectiveFrom: day(date))
      let entries = line.record([], acts: [.placement(placement)], at: day(date))
      let source = EntrySource(.administrator, id: "test")
      try await transaction.commit(
        with: FamilyWrites(
          stored: family, line: line, rule: OwnershipRule(recordedOn: line),
          entries: entries.map { SourcedEntry(entry: $0, source: source) },
          names: context.names, catalogue: try await catalogue()
        ).statements())
    }
  }
}
