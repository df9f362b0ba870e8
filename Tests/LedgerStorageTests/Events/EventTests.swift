import Foundation
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Events of recordings")
struct EventTests {
  private func phase(_ phase: RenewalStatus.Phase, on date: Double) -> Evidence {
    .renewalStatus(
      RenewalStatus(asOf: day(date), autoRenews: true, phase: phase), line: originalKey)
  }

  @Test("a submission publishes the charge, the owner, the binding and the access")
  func submission() async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
      #expect(
        try await ledger.publishedKinds("anna") == [
          "transaction.recorded", "transaction.claimed", "binding.opened", "entitlement.granted",
        ])
      let events = try await ledger.publishedEvents()
      #expect(events.allSatisfy { $0.at == day(0.1) })
      let opened = try #require(events.first { $0.kind == .bindingOpened })
      #expect(opened.data.counterpart == "nobody")
      #expect(opened.data.entitlements?.map(\.entitlement) == ["premium"])
      #expect(events.last?.data.entitlement?.access_ends_at == day(30).description)
    }
  }

  @Test("a notification and a poll report an unclaimed charge; the claim informs its account")
  func unclaimed() async throws {
    try await withLedger { ledger in
      try await ledger.receive([charge("1", on: 0)], on: 0.1)
      try await ledger.learn(
        [charge("9", on: 40, line: OriginalTransactionKey(.production, "9"))], on: 40)
      let unclaimed = try await ledger.publishedEvents()
      #expect(unclaimed.map(\.kind) == [.transactionRecorded, .transactionRecorded])
      #expect(unclaimed.allSatisfy { $0.account == nil })
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.2, terms: .shop)
      #expect(
        try await ledger.publishedKinds("anna") == [
          "transaction.claimed", "binding.opened", "entitlement.granted",
        ])
    }
  }

  @Test("a renewal by notification, and one by poll, extend what its account has")
  func renewals() async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
      try await ledger.receive([charge("2", on: 30)], on: 29.5)
      try await ledger.learn([charge("3", on: 60)], on: 59.5)
      let published = try await ledger.publishedEvents("anna").dropFirst(4)
      #expect(
        published.map(\.kind) == [
          .transactionRecorded, .ownerDecided, .entitlementExtended,
          .transactionRecorded, .ownerDecided, .entitlementExtended,
        ])
      #expect(published.last?.data.entitlement?.access_ends_at == day(90).description)
    }
  }

  @Test("both accounts get an event when a binding moves, without the other's name")
  func bothSides() async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
      try await ledger.receive([status(false, on: 10)], on: 10)
      try await ledger.submit(
        [charge("2", on: 31, product: "quarterly")], claiming: [key("2", product: "quarterly")],
        by: "ben", on: 31, terms: .shop)
      let closed = try #require(
        try await ledger.publishedEvents("anna").first { $0.kind == .bindingClosed })
      let opened = try #require(
        try await ledger.publishedEvents("ben").first { $0.kind == .bindingOpened })
      for event in [closed, opened] {
        #expect(event.data.counterpart == "another_account")
        #expect(event.data.rule == "submitter")
        #expect(event.data.because?.isEmpty == false)
      }
      #expect(closed.data.entitlements?.map(\.state) == ["expired"])
      #expect(opened.data.entitlements?.map(\.state) == ["active"])
      let keys = try await ledger.database.query("SELECT account_key::text FROM tenure.account")
        .decode(String.self)
      for event in try await ledger.publishedEvents() {
        for name in ["anna", "ben"] + keys { #expect(!event.text.contains(name)) }
      }
    }
  }

  @Test("late evidence against an owner publishes to both, in the commit of the correction")
  func correction() async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0), status(false, on: 10)], claiming: [key("1")], by: "anna", on: 10,
        terms: .shop)
      try await ledger.submit(
        [charge("2", on: 30)], claiming: [key("2")], by: "ben", on: 30.1, terms: .shop)
      try await ledger.receive([status(true, on: 20)], on: 31)
      for account in ["anna", "ben"] {
        let published = try #require(
          try await ledger.publishedEvents(account).last { $0.kind == .ownerCorrected })
        #expect(published.data.counterpart == "another_account")
        #expect(published.at == day(31))
      }
      #expect(try await ledger.publishedEvents("ben").last?.kind == .entitlementRevoked)
      #expect(try await ledger.publishedEvents("anna").last?.kind == .entitlementGranted)
      #expect(
        try await FeedReplay(ledger.publishedEvents()).usable.filter { !$0.value.isEmpty }
          == ["anna": ["premium": day(60)]])
    }
  }

  @Test("a refund takes access away at once, and its reversal gives it back")
  func refund() async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
      try await ledger.receive([charge("1", on: 0, asOf: 5, revokedOn: 4)], on: 5)
      try await ledger.learn([charge("1", on: 0, asOf: 6)], on: 6)
      #expect(
        try await ledger.publishedKinds("anna").dropFirst(4) == [
          "transaction.revoked", "entitlement.revoked", "transaction.restored",
          "entitlement.granted",
        ])
    }
  }

  /// Names an order for a charge that was matched with a later one.
  private func reopenOrder(in ledger: Ledger) async throws {
    let line = OriginalTransactionKey(.production, "5001")
    let named = try await ledger.orders.openOrder(
      accountID: "anna", productID: "coins", at: day(0.2))
    _ = try await ledger.orders.openOrder(accountID: "anna", productID: "coins", at: day(0.3))
    for order in [nil, named.order.id] {
      try await ledger.submit(
        [charge("52", on: 0.4, days: 0, line: line, product: "coins")],
        claiming: [key("52", line: line, product: "coins")], by: "anna", on: 0.5, order: order,
        terms: .shop)
    }
  }

  @Test("every kind of event is published by a story, and repeating the story publishes nothing")
  func everyKind() async throws {
    try await withScratchLedger { ledger in
      _ = try await ledger.orders.openOrder(accountID: "carl", productID: "coins", at: day(0))
      let ordered = try await ledger.orders.openOrder(
        accountID: "anna", productID: "coins", at: day(0))
      let coins = OriginalTransactionKey(.production, "5000")
      let coin = charge("51", on: 0, days: 0, line: coins, product: "coins")
      let refunded = charge(
        "51", on: 0, days: 0, line: coins, product: "coins", asOf: 2, revokedOn: 1)
      let restored = charge("51", on: 0, days: 0, line: coins, product: "coins", asOf: 3)
      var published = 0
      for round in 1...2 {
        try await ledger.submit(
          [coin], claiming: [key("51", line: coins, product: "coins")], by: "anna", on: 0.1,
          terms: .shop)
        if round == 1 { try await reopenOrder(in: ledger) }
        try await ledger.receive([refunded], on: 2)
        try await ledger.receive([restored], on: 3)
        try await ledger.submit(
          [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 3.1, terms: .shop)
        if round == 1 { try await ledger.work(until: 8) }
        try await ledger.receive([charge("1", on: 0, days: 20, asOf: 9)], on: 9)
        try await ledger.receive([phase(.gracePeriod(until: day(25)), on: 20.1)], on: 20.1)
        try await ledger.receive([phase(.billingRetry, on: 25)], on: 25)
        if round == 1 { try await ledger.work(until: 25) }
        try await ledger.receive([charge("2", on: 26)], on: 26)
        try await ledger.receive([charge("3", on: 56, product: "quarterly")], on: 55.9)
        try await ledger.receive([status(false, on: 57)], on: 57)
        try await ledger.submit(
          [charge("4", on: 86)], claiming: [key("4")], by: "ben", on: 86.1, terms: .shop)
        try await ledger.receive([status(true, on: 58)], on: 91)
        try await ledger.receive([charge("4", on: 86, asOf: 93, revokedOn: 92)], on: 93)
        if round == 1 { _ = try await ledger.accounts.erase("carl", by: support, at: day(94)) }
        let events = try await ledger.publishedEvents()
        if round == 1 {
          published = events.count
          let kinds = Set(events.map(\.kind))
          let missing = Set(LedgerEvent.Kind.allCases).subtracting(kinds).map(\.rawValue).sorted()
          #expect(missing == [])
        }
        #expect(events.count == published, "in round \(round)")
      }
      #expect(try await ledger.orders.order(ordered.order.id)?.order.status == .fulfilled)
      #expect(try await ledger.auditor.audit().isClean)
    }
  }

  @Test("an order's events are fulfilled, refunded and fulfilled again, each once")
  func orders() async throws {
    try await withScratchLedger { ledger in
      let order = try await ledger.orders.openOrder(
        accountID: "anna", productID: "monthly", at: day(0))
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
      // Apple gives the refund another date once more.
      for date in [4.0, 4.5] {
        try await ledger.receive(
          [charge("1", on: 0, asOf: date + 1, revokedOn: date)], on: date + 1)
      }
      try await ledger.receive([charge("1", on: 0, asOf: 6)], on: 6)
      let published = try await ledger.publishedEvents("anna").filter { $0.data.order_id != nil }
      #expect(published.map(\.kind) == [.orderFulfilled, .orderRefunded, .orderFulfilled])
      #expect(
        published.allSatisfy { $0.data.order_id == order.order.id.uuidString.lowercased() })
    }
  }

  @Test("an unpaid order expires at its moment, and its event is published once")
  func expiry() async throws {
    try await withScratchLedger(orderLifetime: .days(2)) { ledger in
      let order = try await ledger.orders.openOrder(
        accountID: "anna", productID: "monthly", at: day(0))
      try await ledger.work(until: 1.9)
      #expect(try await ledger.orders.order(order.order.id)?.order.status == .open)
      try await ledger.work(until: 2.1)
      #expect(try await ledger.orders.order(order.order.id)?.order.status == .expired)
      let published = try await ledger.publishedEvents()
      #expect(published.map(\.kind) == [.orderExpired])
      #expect(published.first?.account == "anna")
      #expect(published.first?.at == day(2))
      try await ledger.work(until: 3)
      #expect(try await ledger.publishedEvents().count == 1)
      // The money of a late charge was paid.
      let result = try await ledger.submit(
        [charge("1", on: 3)], claiming: [key("1")], by: "anna", on: 3.1, terms: .shop)
      #expect(result?.outcome.orderID == order.order.id)
      #expect(try await ledger.publishedEvents().contains { $0.kind == .orderFulfilled })
    }
  }

  @Test("an order that was paid for has nothing left to expire")
  func paid() async throws {
    try await withScratchLedger { ledger in
      _ = try await ledger.orders.openOrder(accountID: "anna", productID: "monthly", at: day(0))
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
      let jobs = try await ledger.database.query(
        "SELECT kind FROM tenure.job WHERE kind <> 'poll_status' ORDER BY kind"
      )
      .decode(String.self)
      #expect(jobs == ["publish_entitlements", "reconcile"])
    }
  }

  @Test("a rolled-back event is not published, and a published one is stored")
  func oneCommit() async throws {
    try await withLedger { ledger in
      let submission = try await ledger.store(by: "anna", on: 0.1)
      var broken = exchange("{}")
      broken.endpoint = "broken"
      try await ledger.database.execute(
        "ALTER TABLE tenure.submission_exchange ADD CHECK (endpoint <> 'broken')")
      await #expect(throws: PostgresError.self) {
        try await ledger.verify(
          submission, [charge("1", on: 0)], claiming: [key("1")], on: 0.1, exchanges: [broken],
          terms: .shop)
      }
      #expect(try await ledger.publishedEvents().isEmpty)
      #expect(try await ledger.entryCount() == 0)
      try await ledger.verify(
        submission, [charge("1", on: 0)], claiming: [key("1")], on: 0.1, terms: .shop)
      #expect(try await ledger.publishedEvents().count == 4)
    }
  }

  @Test("concurrent recordings for one account publish in order")
  func concurrency() async throws {
    try await withLedger { ledger in
      try await withThrowingTaskGroup(of: Void.self) { group in
        for number in 1...12 {
          let line = OriginalTransactionKey(.production, OriginalTransactionID("line \(number)"))
          let id = TransactionID("\(number)")
          group.addTask {
            let evidence = charge(id, on: 0, days: Double(10 + number), line: line)
            if number.isMultiple(of: 2) {
              try await ledger.submit(
                [evidence], claiming: [key(id, line: line)], by: "anna", on: 0.1, terms: .shop)
            } else {
              try await ledger.submit(
                [evidence], claiming: [key(id, line: line)], by: "ben", on: 0.1, terms: .shop)
              try await ledger.receive(
                [charge(id, on: 0, days: 40, line: line, asOf: 1)], on: 1)
            }
          }
        }
        try await group.waitForAll()
      }
      let usable = try FeedReplay(await ledger.publishedEvents()).usable
      #expect(usable == ["anna": ["premium": day(22)], "ben": ["premium": day(40)]])
    }
  }

  /// A ledger that knows the products that are ordered.
  private func withScratchLedger(
    orderLifetime: Duration = StoredOrder.lifetime,
    _ body: @Sendable (Ledger) async throws -> Void
  ) async throws {
    try await withLedger { ledger in
      for (id, type) in [("monthly", .autoRenewable), ("coins", .consumable)]
        as [(ProductID, ProductType)]
      {
        _ = try await ledger.products.describe(
          Product(id: id, validFrom: start, type: type, entitlements: []))
      }
      try await body(Ledger(database: ledger.database, orderLifetime: orderLifetime))
    }
  }
}
