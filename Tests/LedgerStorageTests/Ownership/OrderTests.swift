import Foundation
import Logging
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Orders in the ledger")
struct OrderTests {
  @Test("scenario 23: of four orders, three of which were cancelled, the fourth is fulfilled, once")
  func latest() async throws {
    try await withLedger { ledger in
      var orders: [UUID] = []
      for date in [0, 0.5, 1, 1.5] {
        orders.append(
          try await ledger.orders.openOrder(accountID: "anna", productID: "monthly", at: day(date))
            .order.id)
      }
      for date in [2.1, 2.2] {
        let result = try await ledger.submit(
          [charge("1", on: 2)], claiming: [key("1")], by: "anna", on: date)
        #expect(result?.outcome.orderID == orders[3])
      }
      #expect(try await ledger.statuses(of: orders) == [.open, .open, .open, .fulfilled])
    }
  }

  @Test("of several charges of one submission each fulfils the order that was opened before it")
  func several() async throws {
    try await withLedger { ledger in
      _ = try await ledger.products.describe(
        Product(id: "coins", validFrom: start, type: .consumable, entitlements: []))
      func coins(_ id: String, on date: Double) -> Evidence {
        .transaction(
          TransactionRecord(
            key: key(
              TransactionID(id),
              line: OriginalTransactionKey(.production, OriginalTransactionID(id)),
              product: "coins"),
            asOf: day(date), purchaseDate: day(date), expiresDate: nil, revocation: .notRevoked))
      }
      let first = try await ledger.orders.openOrder(
        accountID: "anna", productID: "coins", at: day(0))
      let second = try await ledger.orders.openOrder(
        accountID: "anna", productID: "coins", at: day(1))
      let charges = [coins("1", on: 0.1), coins("2", on: 1.1)]
      try await ledger.submit(
        charges, claiming: charges.compactMap(\.transactionKey), by: "anna", on: 1.2)
      #expect(try await ledger.orders.order(first.order.id)?.transactionID == "1")
      #expect(try await ledger.orders.order(second.order.id)?.transactionID == "2")
    }
  }

  @Test("an order that expired long before the purchase is neither matched nor locked")
  func expiredLongBefore() async throws {
    try await withLedger { ledger in
      let old = try await ledger.orders.openOrder(
        accountID: "anna", productID: "monthly", at: day(0))
      _ = try await ledger.database.execute(
        "UPDATE tenure.purchase_order SET status = 'expired'")
      try await ledger.database.withTransaction { transaction in
        _ = try await transaction.query(
          OrderStore.lock(order: old.order.id, of: old.order.account))
        let result = try await ledger.submit(
          [charge("1", on: 90)], claiming: [key("1")], by: "anna", on: 90.1)
        #expect(result?.outcome.orderID == nil)
      }
      let second = try await ledger.orders.openOrder(
        accountID: "anna", productID: "monthly", at: day(119))
      let result = try await ledger.submit(
        [charge("2", on: 150)], claiming: [key("2")], by: "anna", on: 150.1)
      #expect(result?.outcome.orderID == second.order.id)
      #expect(try await ledger.statuses(of: [old.order.id]) == [.expired])
    }
  }

  @Test("an order that was matched yields to the one that is named; two that are named don't")
  func yielding() async throws {
    try await withLedger { ledger in
      var orders: [UUID] = []
      for date in [0.0, 1] {
        orders.append(
          try await ledger.orders.openOrder(accountID: "anna", productID: "monthly", at: day(date))
            .order.id)
      }
      let unnamed = try await ledger.submit(
        [charge("1", on: 2)], claiming: [key("1")], by: "anna", on: 2.1)
      #expect(unnamed?.outcome.orderID == orders[1])
      let named = try await ledger.submit(
        [charge("1", on: 2)], claiming: [key("1")], by: "anna", on: 2.2, order: orders[0])
      #expect(named?.outcome.warnings == [.unknownProduct])
      #expect(named?.outcome.orderID == orders[0])
      #expect(try await ledger.statuses(of: orders) == [.fulfilled, .open])
      #expect(
        try await ledger.publishedEvents("anna").filter { $0.data.order_id != nil }.map {
          "\($0.kind.rawValue) \($0.data.order_id == orders[0].uuidString.lowercased() ? 0 : 1)"
        } == ["order.fulfilled 1", "order.reopened 1", "order.fulfilled 0"])

      let other = try await ledger.submit(
        [charge("1", on: 2)], claiming: [key("1")], by: "anna", on: 2.3, order: orders[1])
      #expect(other?.outcome.warnings.contains(.orderAlreadyFulfilled) == true)
      #expect(other?.outcome.orderID == orders[0])
      #expect(try await ledger.statuses(of: orders) == [.fulfilled, .open])
      #expect(try await ledger.auditor.audit().differences == [])
      // The job that lets it expire is there again.
      let jobs = try await ledger.jobs.claimJobs(
        limits: [.clock: 9], worker: "worker", at: day(9), lease: .seconds(60)
      ).map(\.key)
      #expect(jobs.contains(.expireOrder(orders[1])))
    }
  }

  @Test("a submission that names an order locks an account's orders in the order of all others")
  func namedBesideUnnamed() async throws {
    try await withLedger { ledger in
      var orders: [PurchaseOrder] = []
      for date in [0.0, 1, 2] {
        orders.append(
          try await ledger.orders.openOrder(accountID: "anna", productID: "monthly", at: day(date))
            .order)
      }
      orders.sort { $0.id < $1.id }
      let (first, named) = (orders[0], orders[2])
      // Another submission of the account, which names none, has locked the first order and goes on
      // to the named one.
      try await ledger.database.withTransaction { unnamed in
        _ = try await unnamed.query(OrderStore.lock(order: first.id, of: first.account))
        async let result = ledger.submit(
          [charge("1", on: 3)], claiming: [key("1")], by: "anna", on: 3.1, order: named.id)
        try await ledger.waitForALock()
        let free = try await unnamed.query(
          OrderStore.lock(order: named.id, of: named.account, waits: false))
        #expect(try OrderStore.orders(from: free).map(\.id) == [named.id], "it would be a deadlock")
        await unnamed.rollBack()
        #expect(try await result?.outcome.orderID == named.id)
      }
    }
  }

  @Test("another account's order that is named is not locked")
  func namedOfAnother() async throws {
    try await withLedger { ledger in
      let order = try await ledger.orders.openOrder(
        accountID: "ben", productID: "monthly", at: day(0))
      try await ledger.database.withTransaction { transaction in
        _ = try await transaction.query(
          OrderStore.lock(order: order.order.id, of: order.order.account))
        let result = try await ledger.submit(
          [charge("1", on: 1)], claiming: [key("1")], by: "anna", on: 1.1, order: order.order.id)
        #expect(result?.outcome.warnings.contains(.orderAccountMismatch) == true)
      }
    }
  }

  @Test("an order that is named after it was matched stays the charge's")
  func namedLater() async throws {
    try await withLedger { ledger in
      let first = try await ledger.orders.openOrder(
        accountID: "anna", productID: "monthly", at: day(0))
      let other = try await ledger.orders.openOrder(
        accountID: "anna", productID: "monthly", at: day(3))
      for order in [nil, first.order.id] {
        let result = try await ledger.submit(
          [charge("1", on: 2)], claiming: [key("1")], by: "anna", on: 3.1, order: order)
        #expect(result?.outcome.orderID == first.order.id)
      }
      let result = try await ledger.submit(
        [charge("1", on: 2)], claiming: [key("1")], by: "anna", on: 3.2, order: other.order.id)
      #expect(result?.outcome.warnings.contains(.orderAlreadyFulfilled) == true)
    }
  }

  @Test("an order that is opened while its account is being merged goes to the other account")
  func openedDuringMerge() async throws {
    try await withLedger { ledger in
      let guest = try await ledger.accounts.findOrCreateAccount("guest", at: start)
      let anna = try await ledger.accounts.findOrCreateAccount("anna", at: start)
      try await ledger.database.withTransaction { merge in
        _ = try await merge.query(
          "SELECT 1 FROM tenure.account WHERE account_id = 'guest' FOR UPDATE")
        async let opened = ledger.orders.openOrder(
          accountID: "guest", productID: "monthly", at: day(1))
        try await ledger.waitForALock()
        try await merge.commit(with: [
          "UPDATE tenure.account SET merged_into_key = \(anna.key) WHERE account_id = 'guest'",
          """
          UPDATE tenure.account_by_key SET merged_into_key = \(anna.key), merged_at = \(day(1))
          WHERE account_key = \(guest.key)
          """,
        ])
        let order = try await opened
        #expect(order.accountID == "anna")
        #expect(try await ledger.orders.order(order.order.id)?.order.account == anna.key)
      }
    }
  }

  @Test("an automatic renewal fulfils none")
  func renewal() async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0), status(true, on: 0.1)], claiming: [key("1")], by: "anna", on: 0.1)
      let order = try await ledger.orders.openOrder(
        accountID: "anna", productID: "monthly", at: day(5))
      let result = try await ledger.submit(
        [charge("2", on: 30, asOf: 30)], claiming: [key("2")], by: "anna", on: 30.1)
      #expect(result?.outcome.orderID == nil)
      #expect(try await ledger.orders.order(order.order.id)?.order.status == .open)
    }
  }

  @Test("a refund marks the order refunded, its reversal fulfilled again")
  func refund() async throws {
    try await withLedger { ledger in
      let order = try await ledger.orders.openOrder(
        accountID: "anna", productID: "monthly", at: day(0))
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      #expect(try await ledger.orders.order(order.order.id)?.order.status == .fulfilled)
      try await ledger.submit(
        [charge("1", on: 0, asOf: 5, revokedOn: 4)], claiming: [], by: "anna", on: 5)
      #expect(try await ledger.orders.order(order.order.id)?.order.status == .refunded)
      try await ledger.submit([charge("1", on: 0, asOf: 6)], claiming: [], by: "anna", on: 6)
      #expect(try await ledger.orders.order(order.order.id)?.order.status == .fulfilled)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("an order of another account stays open, and the charge is recorded all the same")
  func mismatch() async throws {
    try await withLedger { ledger in
      let order = try await ledger.orders.openOrder(
        accountID: "ben", productID: "monthly", at: day(0))
      let result = try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, order: order.order.id)
      #expect(result?.outcome.warnings.contains(.orderAccountMismatch) == true)
      #expect(try await ledger.orders.order(order.order.id)?.order.status == .open)
      #expect(try await ledger.owner(of: "1") == "anna")
    }
  }

  @Test("an unknown order is reported, and the latest open one is fulfilled as if none was named")
  func unknown() async throws {
    try await withLedger { ledger in
      let order = try await ledger.orders.openOrder(
        accountID: "anna", productID: "monthly", at: day(0))
      let result = try await ledger.submit(
        [charge("1", on: 0.1)], claiming: [key("1")], by: "anna", on: 0.2, order: UUID())
      #expect(result?.outcome.warnings.contains(.orderUnknown) == true)
      #expect(result?.outcome.orderID == order.order.id)
      #expect(try await ledger.orders.order(order.order.id)?.order.status == .fulfilled)
    }
  }

  @Test("a charge that is corrected to another account opens its order again")
  func correction() async throws {
    try await withLedger { ledger in
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.submit([status(false, on: 10)], claiming: [], by: "anna", on: 10)
      let order = try await ledger.orders.openOrder(
        accountID: "ben", productID: "monthly", at: day(29.9))
      try await ledger.submit(
        [charge("2", on: 30)], claiming: [key("2")], by: "ben", on: 30.1, order: order.order.id)
      #expect(try await ledger.owner(of: "2") == "ben")
      // Late evidence: auto-renew was on again, and it was anna's renewal.
      try await ledger.submit([status(true, on: 20)], claiming: [], by: "anna", on: 31)
      #expect(try await ledger.owner(of: "2") == "anna")
      #expect(try await ledger.orders.order(order.order.id) == order)
      #expect(
        try await ledger.publishedEvents("ben").map(\.kind).filter {
          [.orderFulfilled, .orderReopened].contains($0)
        } == [.orderFulfilled, .orderReopened])
      // A refund of the charge is none of the order's.
      try await ledger.submit(
        [charge("2", on: 30, asOf: 33, revokedOn: 32)], claiming: [], by: "anna", on: 33)
      #expect(try await ledger.orders.order(order.order.id)?.order.status == .open)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("a refund marks the order, though an administrator has placed the charge elsewhere")
  func refundAfterTransfer() async throws {
    try await withLedger { ledger in
      let order = try await ledger.orders.openOrder(
        accountID: "ben", productID: "monthly", at: day(0))
      try await ledger.submit([charge("1", on: 1)], claiming: [key("1")], by: "ben", on: 1.1)
      _ = try await ledger.accounts.findOrCreateAccount("anna", at: start)
      try await ledger.ownership.transfer(
        key("1"), to: "anna", by: support, terms: .everything, at: day(2))
      #expect(try await ledger.orders.order(order.order.id)?.order.status == .fulfilled)
      try await ledger.submit(
        [charge("1", on: 1, asOf: 4, revokedOn: 3)], claiming: [], by: "anna", on: 4)
      #expect(try await ledger.orders.order(order.order.id)?.order.status == .refunded)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("the delivery of a revoked charge is refused, unless it was acknowledged before")
  func deliveryAfterRefund() async throws {
    try await withLedger { ledger in
      for date in [0.0, 10] {
        let id: TransactionID = date == 0 ? "1" : "2"
        try await ledger.submit([charge(id, on: date)], claiming: [key(id)], by: "anna", on: date)
      }
      _ = try await ledger.acknowledgeDelivery(of: key("1"), by: "anna", on: 11)
      try await ledger.submit(
        [
          charge("1", on: 0, asOf: 13, revokedOn: 12), charge("2", on: 10, asOf: 13, revokedOn: 12),
        ],
        claiming: [], by: "anna", on: 13)
      #expect(
        try await ledger.acknowledgeDelivery(of: key("1"), by: "anna", on: 14)?.isFirst == false)
      await #expect(throws: LedgerError.revokedCharge(key("2"))) {
        try await ledger.acknowledgeDelivery(of: key("2"), by: "anna", on: 14)
      }
    }
  }

  @Test("an order is found by its account alone, where that is known")
  func ofAccount() async throws {
    try await withLedger { ledger in
      let order = try await ledger.orders.openOrder(
        accountID: "anna", productID: "monthly", at: day(0))
      let ben = try await ledger.accounts.findOrCreateAccount("ben", at: day(0))
      #expect(try await ledger.orders.order(order.order.id) == order)
      #expect(try await ledger.orders.order(order.order.id, of: order.order.account) == order)
      #expect(try await ledger.orders.order(order.order.id, of: ben.key) == nil)
    }
  }

  @Test("orders for other products are neither matched nor locked")
  func otherProducts() async throws {
    try await withLedger { ledger in
      _ = try await ledger.products.describe(
        Product(id: "coins", validFrom: start, type: .consumable, entitlements: []))
      let coins = try await ledger.orders.openOrder(
        accountID: "anna", productID: "coins", at: day(0))
      let monthly = try await ledger.orders.openOrder(
        accountID: "anna", productID: "monthly", at: day(0))
      try await ledger.database.withTransaction { transaction in
        _ = try await transaction.query(
          """
          SELECT 1 FROM tenure.purchase_order
          WHERE account_key = \(coins.order.account) AND order_id = \(coins.order.id) FOR UPDATE
          """)
        let result = try await ledger.submit(
          [charge("1", on: 1)], claiming: [key("1")], by: "anna", on: 1.1)
        #expect(result?.outcome.orderID == monthly.order.id)
      }
      let context = try await ledger.database.withTransaction { transaction in
        var reader = OriginalTransactionReader(isLocking: false)
        try await reader.read([originalKey], in: transaction)
        return try await ledger.recorder.context(
          of: try #require(reader.originals.first), claimant: nil, evidence: [status(false, on: 2)],
          in: transaction)
      }
      #expect(context.orders.map(\.productID) == ["monthly"])
    }
  }

  @Test("an unpaid order is answered as expired, and a late charge still fulfils it")
  func expired() async throws {
    try await withLedger { ledger in
      let order = try await ledger.orders.openOrder(
        accountID: "anna", productID: "monthly", at: day(0))
      #expect(order.answered(at: day(6.9)).order.status == .open)
      #expect(order.answered(at: day(7)).order.status == .expired)
      let result = try await ledger.submit(
        [charge("1", on: 9)], claiming: [key("1")], by: "anna", on: 9.1)
      #expect(result?.outcome.orderID == order.order.id)
      let stored = try await ledger.orders.order(order.order.id)
      #expect(stored?.answered(at: day(10)).order.status == .fulfilled)
    }
  }

  @Test("an order that is just being paid for does not expire")
  func paidMeanwhile() async throws {
    try await withLedger { ledger in
      let order = try await ledger.orders.openOrder(
        accountID: "anna", productID: "monthly", at: day(0)
      ).order
      let jobs = try await ledger.jobs.claimJobs(
        limits: [.clock: 9], worker: "worker", at: day(8), lease: .seconds(60))
      try await ledger.database.withTransaction { payment in
        _ = try await payment.query(OrderStore.lock(order: order.id, of: order.account))
        async let left = ledger.orders.expire(jobs, at: day(8))
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
      #expect(try await ledger.orders.order(order.id)?.order.status == .fulfilled)
      #expect(try await ledger.publishedEvents().isEmpty)
    }
  }

  @Test("orders expire together, except a locked one, which is done alone afterwards")
  func expireTogether() async throws {
    try await withLedger { ledger in
      var orders: [StoredOrder] = []
      for account in ["anna", "ben", "cleo", "dan"] {
        orders.append(
          try await ledger.orders.openOrder(accountID: account, productID: "monthly", at: day(0)))
      }
      // Paid in time.
      try await ledger.submit([charge("1", on: 1)], claiming: [key("1")], by: "dan", on: 1)
      let jobs = try await ledger.jobs.claimJobs(
        limits: [.clock: 10], worker: "worker", at: day(8), lease: .seconds(60)
      ).filter { $0.kind == .expireOrder }
      #expect(jobs.count == 3)
      let left = try await ledger.database.withTransaction { other in
        _ = try await other.query(
          OrderStore.lock(order: orders[1].order.id, of: orders[1].order.account))
        return try await ledger.orders.expire(jobs, at: day(8))
      }
      #expect(left.map(\.key) == [.expireOrder(orders[1].order.id)])
      func statuses() async throws -> [PurchaseOrder.Status] {
        var found: [PurchaseOrder.Status] = []
        for order in orders {
          found.append(try #require(try await ledger.orders.order(order.order.id)).order.status)
        }
        return found
      }
      #expect(try await statuses() == [.expired, .open, .expired, .fulfilled])
      #expect(try await ledger.orders.expire(left, at: day(8)).isEmpty)
      #expect(try await statuses() == [.expired, .expired, .expired, .fulfilled])
      #expect(
        try await ledger.publishedEvents().filter { $0.kind == .orderExpired }.map(\.at)
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
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  /// A ledger that knows the product that is ordered.
  private func withLedger(_ body: @Sendable (Ledger) async throws -> Void) async throws {
    try await LedgerStorageTests.withLedger { ledger in
      _ = try await ledger.products.describe(
        Product(
          id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      try await body(ledger)
    }
  }
}

extension Ledger {
  fileprivate func statuses(of orders: [UUID]) async throws -> [PurchaseOrder.Status?] {
    var statuses: [PurchaseOrder.Status?] = []
    for order in orders { statuses.append(try await self.orders.order(order)?.order.status) }
    return statuses
  }
}

extension Evidence {
  fileprivate var transactionKey: TransactionKey? {
    if case .transaction(let record) = self { record.key } else { nil }
  }
}
