import Foundation
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

/// Used-up purchases don't slow an account's reads.
struct ConsumableTests {
  private static func line(_ number: Int) -> OriginalTransactionKey {
    OriginalTransactionKey(.production, OriginalTransactionID("\(10_000 + number)"))
  }

  private static func coins(_ number: Int) -> TransactionKey {
    key(TransactionID("\(10_000 + number)"), line: line(number), product: "coins")
  }

  /// - Parameter type: Nil as in a receipt.
  private static func bought(_ numbers: Range<Int>, type: ProductType?) -> [Evidence] {
    numbers.map { number in
      .transaction(
        TransactionRecord(
          key: coins(number), asOf: day(1), kind: .purchase, purchaseDate: day(1),
          productType: type))
    }
  }

  private static func describe(_ type: ProductType, on date: Double, in ledger: Ledger)
    async throws -> AccessTerms
  {
    _ = try await ledger.products.describe(
      Product(id: "coins", validFrom: day(date), type: type, entitlements: ["gold"]))
    return AccessTerms(catalogue: try await ledger.products.catalogue())
  }

  private static func held(_ account: String, _ ledger: Ledger) async throws -> [Holding] {
    try await ledger.holdings.holdings(of: account).holdings
  }

  @Test func `an account with hundreds of them is read like one without`() async throws {
    try await withLedger { ledger in
      _ = try await ledger.products.describe(
        Product(id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      let terms = try await Self.describe(.consumable, on: 0.5, in: ledger)
      for (account, id) in [("anna", "1" as TransactionID), ("ben", "2")] {
        let line = OriginalTransactionKey(.production, OriginalTransactionID(id.rawValue))
        try await ledger.submit(
          [charge(id, on: 0, line: line)], claiming: [key(id, line: line)], by: account, on: 1,
          terms: terms)
      }
      // Half of them from receipts, half signed.
      for (numbers, type) in [(0..<150, nil), (150..<300, ProductType.consumable)] {
        try await ledger.submit(
          Self.bought(numbers, type: type), claiming: numbers.map(Self.coins), by: "anna", on: 2,
          terms: terms)
      }
      #expect(
        try await ledger.acknowledgeDelivery(of: Self.coins(0), by: "anna", on: 2)?.isFirst == true)
      let owned = try await ledger.database.query(
        "SELECT count(*) FROM tenure.store_transaction WHERE owner_account_key IS NOT NULL")
      #expect(try owned.decodeOnly(Int.self) == 302)
      var bytes: [Int] = []
      for account in ["anna", "ben"] {
        let rows = try await ledger.database.query(HoldingBatcher.statement([account]))
        #expect(rows.count == 1)
        let read = try await ledger.database.query(
          """
          SELECT sum(length(h.*::text) - length(account_id))::bigint
          FROM tenure.holding AS h WHERE account_id = \(account)
          """)
        bytes.append(try read.decodeOnly(Int.self))
        #expect(try await ledger.usable(by: account, on: 3, terms: terms) == ["premium": day(30)])
      }
      #expect(bytes[0] == bytes[1])
      #expect(try await ledger.holdings.allHoldings(of: "anna", knownAt: nil).holdings.count == 151)
    }
  }

  @Test func `what only the catalogue knows as consumable follows the catalogue`() async throws {
    try await withLedger { ledger in
      func check(_ held: Int, after terms: AccessTerms, on date: Double) async throws {
        try await ledger.work(until: date, terms: terms)
        // The second pass of the reconciliation.
        try await ledger.work(until: date + 0.01, terms: terms)
        #expect(try await Self.held("anna", ledger).count == held)
        let audit = try await ledger.auditor.audit()
        #expect(!audit.isJournalPending)
        #expect(audit.differences == [])
        #expect(try await ledger.auditor.rebuild().rewritten == 0)
      }
      try await ledger.submit(
        Self.bought(0..<3, type: nil) + Self.bought(3..<4, type: .consumable),
        claiming: (0..<4).map(Self.coins), by: "anna", on: 2)
      // Without a description the product may turn out to be anything.
      #expect(try await Self.held("anna", ledger).count == 3)
      let coins = try await Self.describe(.consumable, on: 3, in: ledger)
      try await check(0, after: coins, on: 4)
      try await ledger.submit(
        Self.bought(4..<5, type: nil), claiming: [Self.coins(4)], by: "anna", on: 5, terms: coins)
      try await check(0, after: coins, on: 6)

      // A row that should not be there is found, and removed.
      let extra = HoldingRow(
        account: try await ledger.accounts.findOrCreateAccount("anna", at: start).key,
        holding: Holding(
          charge: Self.coins(0), productID: "coins", startsAt: day(1), endsAt: nil))
      try await ledger.database.batch(HoldingRow.upsert([(extra, "anna")]))
      #expect(try await ledger.auditor.audit().differences.count == 1)
      #expect(try await ledger.auditor.rebuild().rewritten == 1)
      try await check(0, after: coins, on: 7)

      // The description was wrong.
      let medal = try await Self.describe(.nonConsumable, on: 8, in: ledger)
      try await check(4, after: medal, on: 9)
      #expect(try await ledger.usable(by: "anna", on: 9, terms: medal) == ["gold": nil])
      #expect(try await ledger.publishedEvents("anna").last?.kind == .entitlementGranted)
      try await check(0, after: try await Self.describe(.consumable, on: 10, in: ledger), on: 11)
    }
  }
}
