import Foundation
import Logging
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Orders in the ledger")
struct OrderTests {
  @Test("the oldest open order of the product is fulfilled, once")
  func oldest() async throws {
    try await withLedger { ledger in
      let first = try await ledger.openOrder(accountID: "anna", productID: "monthly", at: day(0))
      let second = try await ledger.openOrder(accountID: "anna", productID: "monthly", at: day(1))
      let result = try await ledger.submit(
        [charge("1", on: 2)], claiming: [key("1")], by: "anna", on: 2.1)
      #expect(result?.fulfilledOrder == first.order.id)
      let again = try await ledger.submit(
        [charge("1", on: 2)], claiming: [key("1")], by: "anna", on: 2.2)
      #expect(again?.fulfilledOrder == first.order.id)
      #expect(try await ledger.order(second.order.id)?.order.status == .open)
    }
  }

  @Test("an automatic renewal fulfils none")
  func renewal() async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0), status(true, on: 0.1)], claiming: [key("1")], by: "anna", on: 0.1)
      let order = try await ledger.openOrder(accountID: "anna", productID: "monthly", at: day(5))
      let result = try await ledger.submit(
        [charge("2", on: 30, asOf: 30)], claiming: [key("2")], by: "anna", on: 30.1)
      #expect(result?.fulfilledOrder == nil)
      #expect(try await ledger.order(order.order.id)?.order.status == .open)
    }
  }

  @Test("a refund marks the order refunded, its reversal fulfilled again")
  func refund() async throws {
    try await withLedger { ledger in
      let order = try await ledger.openOrder(accountID: "anna", productID: "monthly", at: day(0))
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      #expect(try await ledger.order(order.order.id)?.order.status == .fulfilled)
      try await ledger.submit(
        [charge("1", on: 0, asOf: 5, revokedOn: 4)], claiming: [], by: "anna", on: 5)
      #expect(try await ledger.order(order.order.id)?.order.status == .refunded)
      try await ledger.submit([charge("1", on: 0, asOf: 6)], claiming: [], by: "anna", on: 6)
      #expect(try await ledger.order(order.order.id)?.order.status == .fulfilled)
      #expect(try await ledger.audit().differences == [])
    }
  }

  @Test("an order of another account stays open, and the charge is recorded all the same")
  func mismatch() async throws {
    try await withLedger { ledger in
      let order = try await ledger.openOrder(accountID: "ben", productID: "monthly", at: day(0))
      let result = try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, order: order.order.id)
      guard case .matched(.accountMismatch) = result?.namedOrder else {
        Issue.record("expected a mismatch")
        return
      }
      #expect(try await ledger.order(order.order.id)?.order.status == .open)
      #expect(try await ledger.owner(of: "1") == "anna")
    }
  }

  @Test("an unknown order is reported, and the oldest open one is fulfilled as if none was named")
  func unknown() async throws {
    try await withLedger { ledger in
      let order = try await ledger.openOrder(accountID: "anna", productID: "monthly", at: day(0))
      let result = try await ledger.submit(
        [charge("1", on: 0.1)], claiming: [key("1")], by: "anna", on: 0.2, order: UUID())
      guard case .unknown = result?.namedOrder else {
        Issue.record("expected an unknown order")
        return
      }
      #expect(result?.fulfilledOrder == order.order.id)
      #expect(try await ledger.order(order.order.id)?.order.status == .fulfilled)
    }
  }

  @Test("a refund marks the order of whoever opened it, though the charge was corrected since")
  func refundAfterCorrection() async throws {
    try await withLedger { ledger in
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.submit([status(false, on: 10)], claiming: [], by: "anna", on: 10)
      let order = try await ledger.openOrder(accountID: "ben", productID: "monthly", at: day(29.9))
      try await ledger.submit(
        [charge("2", on: 30)], claiming: [key("2")], by: "ben", on: 30.1, order: order.order.id)
      #expect(try await ledger.owner(of: "2") == "ben")
      // Late evidence: auto-renew was on again, and it was anna's renewal.
      try await ledger.submit([status(true, on: 20)], claiming: [], by: "anna", on: 31)
      #expect(try await ledger.owner(of: "2") == "anna")
      try await ledger.submit(
        [charge("2", on: 30, asOf: 33, revokedOn: 32)], claiming: [], by: "anna", on: 33)
      #expect(try await ledger.order(order.order.id)?.order.status == .refunded)
      #expect(try await ledger.audit().differences == [])
    }
  }

  @Test("an order is found by its account alone, where that is known")
  func ofAccount() async throws {
    try await withLedger { ledger in
      let order = try await ledger.openOrder(accountID: "anna", productID: "monthly", at: day(0))
      let ben = try await ledger.findOrCreateAccount("ben", at: day(0))
      #expect(try await ledger.order(order.order.id) == order)
      #expect(try await ledger.order(order.order.id, of: order.order.account) == order)
      #expect(try await ledger.order(order.order.id, of: ben.key) == nil)
    }
  }

  @Test("orders for other products are neither matched nor locked")
  func otherProducts() async throws {
    try await withLedger { ledger in
      _ = try await ledger.describe(
        Product(id: "coins", validFrom: start, type: .consumable, entitlements: []))
      let coins = try await ledger.openOrder(accountID: "anna", productID: "coins", at: day(0))
      let monthly = try await ledger.openOrder(accountID: "anna", productID: "monthly", at: day(0))
      try await ledger.database.withTransaction { transaction in
        _ = try await transaction.query(
          "SELECT 1 FROM tenure.purchase_order WHERE order_id = \(coins.order.id) FOR UPDATE")
        let result = try await ledger.submit(
          [charge("1", on: 1)], claiming: [key("1")], by: "anna", on: 1.1)
        #expect(result?.fulfilledOrder == monthly.order.id)
      }
      let context = try await ledger.database.withTransaction { transaction in
        var reader = FamilyReader(isLocking: false)
        try await reader.read([lineID], in: transaction)
        return try await ledger.context(
          of: try #require(reader.families.first), claimant: nil, evidence: [status(false, on: 2)],
          in: transaction)
      }
      #expect(context.orders.map(\.productID) == ["monthly"])
    }
  }

  @Test("an order that nobody paid for is answered as expired, and a late charge still fulfils it")
  func expired() async throws {
    try await withLedger { ledger in
      let order = try await ledger.openOrder(accountID: "anna", productID: "monthly", at: day(0))
      #expect(order.answered(at: day(6.9)).order.status == .open)
      #expect(order.answered(at: day(7)).order.status == .expired)
      let result = try await ledger.submit(
        [charge("1", on: 9)], claiming: [key("1")], by: "anna", on: 9.1)
      #expect(result?.fulfilledOrder == order.order.id)
      let stored = try await ledger.order(order.order.id)
      #expect(stored?.answered(at: day(10)).order.status == .fulfilled)
    }
  }

  /// A ledger that knows the product that is ordered.
  @Test("an order that is just being paid for does not expire")
  func paidMeanwhile() async throws {
    try await withLedger { ledger in
      let order = try await ledger.openOrder(
        accountID: "anna", productID: "monthly", at: day(0)
      ).order
      let jobs = try await ledger.claimJobs(
        limits: [.clock: 9], worker: "worker", at: day(8), lease: .seconds(60))
      try await ledger.database.withTransaction { payment in
        _ = try await payment.query(Ledger.lock(order: order.id, of: order.account))
        async let left = ledger.expire(jobs, at: day(8))
        try await ledger.waitForALock()
        _ = try await payment.commit(with: [
          """
          UPDATE tenure.purchase_order SET status = 'fulfilled', fulfilled_at = now(),
            environment = 'production', original_transaction_id = '1', transaction_id = '1'
          WHERE order_id = \(order.id)
          """
        ])
        #expect(try await left.isEmpty)
      }
      #expect(try await ledger.order(order.id)?.order.status == .fulfilled)
      #expect(try await ledger.told().isEmpty)
    }
  }

  @Test("orders expire together, but for one that somebody has locked, which is done alone after")
  func expireTogether() async throws {
    try await withLedger { ledger in
      var orders: [StoredOrder] = []
      for account in ["anna", "ben", "cleo", "dan"] {
        orders.append(
          try await ledger.openOrder(accountID: account, productID: "monthly", at: day(0)))
      }
      // Paid in time.
      try await ledger.submit([charge("1", on: 1)], claiming: [key("1")], by: "dan", on: 1)
      let jobs = try await ledger.claimJobs(
        limits: [.clock: 10], worker: "worker", at: day(8), lease: .seconds(60)
      ).filter { if case .expireOrder = $0.task { true } else { false } }
      #expect(jobs.count == 3)
      let left = try await ledger.database.withTransaction { other in
        _ = try await other.query(
          Ledger.lock(order: orders[1].order.id, of: orders[1].order.account))
        return try await ledger.expire(jobs, at: day(8))
      }
      #expect(left.map(\.task) == [.expireOrder(orders[1].order.id)])
      func statuses() async throws -> [PurchaseOrder.Status] {
        var found: [PurchaseOrder.Status] = []
        for order in orders {
          found.append(try #require(try await ledger.order(order.order.id)).order.status)
        }
        return found
      }
      #expect(try await statuses() == [.expired, .open, .expired, .fulfilled])
      #expect(try await ledger.expire(left, at: day(8)).isEmpty)
      #expect(try await statuses() == [.expired, .expired, .expired, .fulfilled])
      #expect(
        try await ledger.told().filter { $0.kind == .orderExpired }.map(\.at)
          == [day(7), day(7), day(7)])
      let rest = try await ledger.database.query(
        "SELECT count(*) FROM tenure.job WHERE kind = 'expire_order'")
      #expect(try rest.decodeOnly(Int.self) == 0)
    }
  }

  @Test func `a renewal that Apple names no kind of is not paid without an order`() async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0), status(true, on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.learn([charge("2", on: 30)], on: 30.1)
      #expect(try await ledger.owner(of: "2") == "anna")
      // By the sums, which are kept by days of UTC, and one by one.
      func paidWithoutOrder() async throws -> [Int] {
        var found: [Int] = []
        for zone in ["UTC", "Etc/UTC"] {
          found.append(
            try await ledger.database.query(
              """
              SELECT sum(paid_without_order)::bigint FROM tenure.report_orders(
                '2026-01-01', '2026-02-28', time_zone => \(zone), as_of => \(day(70)))
              """
            ).decodeOnly(Int.self))
        }
        return found
      }
      #expect(try await paidWithoutOrder() == [1, 1])
      #expect(try await ledger.audit().differences == [])

      // As version 5 counted it, and as the step from there leaves it.
      try await ledger.database.runScript(
        """
        UPDATE tenure.charge_change SET kind = 'unknown';
        UPDATE tenure.schema_version SET version = 5, serves_since = 5
        """)
      #expect(try await paidWithoutOrder() == [2, 1])
      // Later versions have given these more parameters or columns than step 6 does.
      try await ledger.database.runScript(
        """
        ALTER FUNCTION tenure.charge_then RENAME TO charge_then_of_version_7;
        ALTER FUNCTION tenure.report_ownership_item RENAME TO report_ownership_item_of_version_8;
        """)
      let migrator = SchemaMigrator(
        database: ledger.database,
        logger: Logger(label: "quiet", factory: { _ in SwiftLogNoOpLogHandler() }),
        steps: SchemaMigrator.steps.filter { $0.version == 6 })
      #expect(try await migrator.migrate() == 5)
      #expect(try await paidWithoutOrder() == [1, 1])
      #expect(try await ledger.audit().differences == [])
    }
  }

  private func withLedger(_ body: @Sendable (Ledger) async throws -> Void) async throws {
    try await LedgerStorageTests.withLedger { ledger in
      _ = try await ledger.describe(
        Product(
          id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      try await body(ledger)
    }
  }
}
