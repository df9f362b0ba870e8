import Foundation
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

/// Transactions that turn out, by later evidence, to report a charge that was known before.
@Suite("Aliases found late")
struct AliasTests {
  private static let other = OriginalTransactionKey(.production, "2000")

  @Test("what became an alias keeps its order and delivery, and is not delivered again")
  func fulfilledAndDelivered() async throws {
    try await withLedger { ledger in
      _ = try await ledger.products.describe(
        Product(
          id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      try await ledger.submit(
        [charge("1", on: 0, lineItem: "w1")], claiming: [key("1")], by: "anna", on: 0.1)
      let order = try await ledger.orders.openOrder(
        accountID: "anna", productID: "monthly", at: day(0.5)
      ).order.id
      try await ledger.submit([charge("2", on: 1)], claiming: [key("2")], by: "anna", on: 1.1)
      #expect(try await ledger.orders.order(order)?.order.status == .fulfilled)
      let first = try await ledger.acknowledgeDelivery(of: key("2"), by: "anna", on: 2)
      #expect(first?.isFirst == true)

      try await ledger.submit(
        [charge("2", on: 1, asOf: 3, lineItem: "w1")], claiming: [], by: "anna", on: 3)
      let original = try #require(try await ledger.ownership.original(of: originalKey))
      #expect(original.rule.charges.map(\.transactions) == [[key("1"), key("2")]])
      #expect(original.orders == [key("1"): order])
      #expect(original.deliveries == [key("1"): day(2)])
      let charges = try await ledger.exports.page(of: .charges).rows.map { exported($0, .charges) }
      #expect(charges.map { $0["transaction_id"] } == ["1"])
      #expect(charges.map { $0["original_transaction_id"] } == ["1000"])
      #expect(charges.map { $0["order_id"] } == [order.uuidString.lowercased()])
      #expect(charges.map { $0["delivered_at"] } == ["\(day(2))"])
      for transaction in [key("1"), key("2")] {
        let again = try await ledger.acknowledgeDelivery(of: transaction, by: "anna", on: 4)
        #expect(again?.isFirst == false)
        #expect(again?.deliveredAt == day(2))
      }
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("a charge is exported with what was delivered under an alias of another line")
  func exportedWithAlias() async throws {
    try await withLedger { ledger in
      let alias = key("2", line: Self.other)
      try await ledger.submit(
        [charge("1", on: 0, lineItem: "w1")], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.submit(
        [charge("2", on: 0, line: Self.other)], claiming: [alias], by: "anna", on: 0.2)
      _ = try await ledger.acknowledgeDelivery(of: alias, by: "anna", on: 2)
      func charges() async throws -> [[String: String]] {
        try await ledger.exports.page(of: .charges).rows.map { exported($0, .charges) }
      }
      #expect(try await charges().map { $0["delivered_at"] } == [nil, "\(day(2))"])
      try await ledger.submit(
        [charge("2", on: 0, line: Self.other, asOf: 3, lineItem: "w1")], claiming: [], by: "anna",
        on: 3)
      #expect(try await charges().map { $0["transaction_id"] } == ["1"])
      #expect(try await charges().map { $0["delivered_at"] } == ["\(day(2))"])
    }
  }

  @Test(arguments: [0.1, 0.05])
  func `what was refunded under an alias is not to be delivered any more`(date: Double)
    async throws
  {
    try await withLedger { ledger in
      _ = try await ledger.products.describe(
        Product(
          id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      _ = try await ledger.orders.openOrder(accountID: "anna", productID: "monthly", at: day(0))
      try await ledger.submit(
        [charge("1", on: 0.1, lineItem: "w1")], claiming: [key("1")], by: "anna", on: 0.2)
      /// How many are not delivered, by the sums and one by one, at a moment or as known then.
      func notDelivered(asOf date: Double, knownAt: Double? = nil) async throws -> [Int64] {
        let (sum, items) = try await ledger.database.query(
          """
          SELECT (
            SELECT sum(not_delivered)::bigint
            FROM tenure.report_orders('2026-01-01', '2026-01-31', as_of => \(day(date)),
              known_at => \(knownAt.map { day($0) }))
          ), (
            SELECT count(*)
            FROM tenure.report_orders_item('2026-01-01', '2026-01-31', as_of => \(day(date)),
              known_at => \(knownAt.map { day($0) }))
            WHERE measure = 'not_delivered'
          )
          """
        ).decodeOnly(Int64.self, Int64.self)
        return [sum, items]
      }
      #expect(try await notDelivered(asOf: 3) == [1, 1])
      let alias = charge("2", on: date, asOf: 4, lineItem: "w1", revokedOn: 3.9)
      try await ledger.submit([alias], claiming: [], by: "anna", on: 4)
      let original = try #require(try await ledger.ownership.original(of: originalKey))
      #expect(original.rule.charges.map(\.transactions) == [[key("1"), key("2")]])
      for reportsBoth in [false, true] {
        if reportsBoth {
          let first = charge("1", on: 0.1, asOf: 5, lineItem: "w1", revokedOn: 3.9)
          try await ledger.submit([first], claiming: [], by: "anna", on: 5)
        }
        #expect(try await notDelivered(asOf: 5) == [0, 0])
        #expect(try await notDelivered(asOf: 3) == [1, 1])
        #expect(try await notDelivered(asOf: 5, knownAt: 3) == [1, 1])
      }
      await #expect(throws: LedgerError.self) {
        try await ledger.acknowledgeDelivery(of: key("1"), by: "anna", on: 6)
      }
      #expect(try await notDelivered(asOf: 5) == [0, 0])
      #expect(try await notDelivered(asOf: 3) == [1, 1])
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("a delivered charge may lose its owner")
  func deliveredThenUnclaimed() async throws {
    try await withLedger { ledger in
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.submit([charge("2", on: 30)], claiming: [], by: "anna", on: 30.1)
      #expect(try await ledger.acknowledgeDelivery(of: key("2"), by: "anna", on: 31) != nil)
      // Late evidence: auto-renew was off, and the new purchase is unclaimed.
      try await ledger.submit([status(false, on: 10)], claiming: [], by: "anna", on: 32)
      #expect(try await ledger.owner(of: "2") == nil)
      #expect(try await ledger.acknowledgeDelivery(of: key("2"), by: "anna", on: 33) == nil)
      // The next claimant gets it, but not a second time.
      try await ledger.submit([charge("2", on: 30)], claiming: [key("2")], by: "ben", on: 34)
      #expect(try await ledger.owner(of: "2") == "ben")
      let again = try await ledger.acknowledgeDelivery(of: key("2"), by: "ben", on: 35)
      #expect(again?.isFirst == false)
    }
  }

  @Test("an alias on a line that is linked late grants nothing any more")
  func linkedLate() async throws {
    try await withLedger { ledger in
      let (one, nine) = (key("1"), key("9", line: Self.other))
      try await ledger.submit(
        [charge("1", on: 0, lineItem: "w1")], claiming: [one], by: "anna", on: 0.1)
      try await ledger.submit(
        [charge("9", on: 0, line: Self.other)], claiming: [nine], by: "ben", on: 0.2)
      #expect(try await ledger.holdings.holdings(of: "ben").holdings.map(\.charge) == [nine])

      try await ledger.submit(
        [charge("9", on: 0, line: Self.other, asOf: 5, lineItem: "w1")], claiming: [], by: "ben",
        on: 5)
      #expect(try await ledger.owner(of: "9", line: Self.other) == "anna")
      #expect(try await ledger.holdings.holdings(of: "anna").holdings.map(\.charge) == [one])
      #expect(try await ledger.holdings.holdings(of: "ben").holdings.isEmpty)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test(
    "two lines that record one charge at the same moment are linked",
    arguments: [("1", "9", true), ("1", "1", false)])
  func writeSkew(first: String, second: String, withLineItem: Bool) async throws {
    try await withLedger { ledger in
      let lineItem: WebOrderLineItemID? = withLineItem ? "w1" : nil
      let (one, two) = (TransactionID(rawValue: first), TransactionID(rawValue: second))
      let anna = try await ledger.accounts.findOrCreateAccount("anna", at: start)
      let arrival = EvidenceBatch(
        evidence: [charge(one, on: 0, lineItem: lineItem)],
        claim: (account: anna.key, transactions: [key(one)], receivedAt: day(0.1)),
        source: EntrySource(.receipt, id: UUID().uuidString.lowercased()))

      try await withThrowingTaskGroup(of: Void.self) { group in
        try await ledger.database.withTransaction { transaction in
          let recording = try await ledger.recorder.load(arrival, in: transaction)
            .decide(at: day(0.1))
          let plan = try await ledger.recorder.plan(
            recording, terms: .everything, at: day(0.1), in: transaction)
          // All is read and decided, and nothing is committed yet.
          group.addTask {
            try await ledger.submit(
              [charge(two, on: 0, line: Self.other, lineItem: lineItem)],
              claiming: [key(two, line: Self.other)], by: "ben", on: 0.2)
          }
          try await ledger.waitForALock(or: "EXISTS (SELECT 1 FROM tenure.ledger_entry)")
          try await transaction.commit(with: plan.statements)
        }
        try await group.waitForAll()
      }
      #expect(try await ledger.owner(of: one) == "anna")
      #expect(try await ledger.owner(of: two, line: Self.other) == "anna")
      #expect(try await ledger.holdings.holdings(of: "ben").holdings.isEmpty)
      #expect(try await ledger.ownership.lines(of: one) == [originalKey])
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }
}
