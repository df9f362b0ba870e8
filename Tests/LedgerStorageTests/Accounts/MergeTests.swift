import Foundation
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Accounts that administrators merge")
struct MergeTests {
  /// A ledger on which a guest has bought, and anna is a member.
  private func withGuest(_ body: @Sendable (Ledger) async throws -> Void) async throws {
    try await withLedger { ledger in
      _ = try await ledger.products.describe(
        Product(id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "guest", on: 0.1, terms: .shop)
      _ = try await ledger.accounts.findOrCreateAccount("anna", at: start)
      try await body(ledger)
    }
  }

  private func merge(
    _ ledger: Ledger, _ account: String = "guest", into other: String = "anna", on date: Double,
    atOnce limit: Int = AccountStore.mergedAtOnce
  ) async throws -> MergeProgress {
    try await ledger.accounts.merge(
      account, into: other, by: support, terms: .shop, at: day(date), atOnce: limit)
  }

  @Test
  func `the charges move to the member, with events for both, and a repetition changes nothing`()
    async throws
  {
    try await withGuest { ledger in
      let count = try await ledger.publishedEvents().count
      let merger = try await merge(ledger, on: 5)
      #expect(merger.completedAt == day(5))
      #expect(merger.moved.charges == 1)
      #expect(try await ledger.owner(of: "1") == "anna")
      #expect(try await ledger.rule(of: "1") == .administrator)
      #expect(try await ledger.usable(by: "guest", on: 6).isEmpty)
      #expect(try await ledger.usable(by: "anna", on: 6) == ["premium": day(30)])
      let published = try await ledger.publishedEvents().dropFirst(count)
      #expect(
        published.filter { $0.account == "guest" }.map(\.kind.rawValue)
          == ["transaction.owner_corrected", "binding.closed", "entitlement.revoked"])
      #expect(
        published.filter { $0.account == "anna" }.map(\.kind.rawValue)
          == ["transaction.owner_corrected", "binding.opened", "entitlement.granted"])
      let action = try #require(
        try await ledger.administration.administratorActions(limit: 10).first)
      #expect(action.action == "merge_account")
      #expect(action.accountID == "anna")
      #expect(action.previousAccountID == "guest")

      let (entries, events) = (
        try await ledger.entryCount(), try await ledger.publishedEvents().count
      )
      #expect(try await merge(ledger, on: 6).completedAt == day(5))
      #expect(try await ledger.entryCount() == entries)
      #expect(try await ledger.publishedEvents().count == events)
      #expect(try await ledger.administration.administratorActions(limit: 10).count == 1)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test func `what comes later for the guest is the member's`() async throws {
    try await withGuest { ledger in
      let token = try await ledger.accounts.findOrCreateAccount("guest", at: start).appAccountToken
      let waiting = try await ledger.store(by: "guest", on: 1)
      _ = try await merge(ledger, on: 5)
      // A submission that was read before and is verified after, one that is sent later, a renewal,
      // and a purchase with the guest's token without any submission.
      let lines = ["2000", "3000", "4000"].map {
        OriginalTransactionKey(.production, OriginalTransactionID($0))
      }
      try await ledger.verify(
        waiting, [charge("a", on: 0.5, line: lines[0])], claiming: [key("a", line: lines[0])],
        on: 6, terms: .shop)
      try await ledger.submit(
        [charge("b", on: 6, line: lines[1])], claiming: [key("b", line: lines[1])], by: "guest",
        on: 7, terms: .shop)
      try await ledger.receive([charge("2", on: 30)], on: 30)
      try await ledger.receive([charge("c", on: 8, line: lines[2], token: token)], on: 8)
      #expect(try await ledger.owner(of: "a", line: lines[0]) == "anna")
      #expect(try await ledger.owner(of: "b", line: lines[1]) == "anna")
      #expect(try await ledger.owner(of: "2") == "anna")
      #expect(try await ledger.owner(of: "c", line: lines[2]) == "anna")
      let order = try await ledger.orders.openOrder(
        accountID: "guest", productID: "monthly", at: day(40))
      #expect(order.accountID == "anna")
      #expect(try await ledger.usable(by: "guest", on: 31).isEmpty)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test func `orders and grants go along, and the rule knows who opened the orders`() async throws {
    try await withGuest { ledger in
      let open = try await ledger.orders.openOrder(
        accountID: "guest", productID: "monthly", at: day(1))
      let paid = try await ledger.orders.openOrder(
        accountID: "guest", productID: "monthly", at: day(2))
      let line = OriginalTransactionKey(.production, "2000")
      try await ledger.submit(
        [charge("x", on: 2.1, line: line)], claiming: [key("x", line: line)], by: "guest", on: 2.2,
        order: paid.order.id, terms: .shop)
      let grant = try await ledger.grants.grant(
        "gold", to: "guest", until: nil, by: support, terms: .shop, at: day(3)
      ).grant.grant.id
      let merger = try await merge(ledger, on: 5)
      #expect(merger.moved.orders == 2)
      #expect(merger.moved.grants == 1)
      #expect(try await ledger.orders.order(open.order.id)?.accountID == "anna")
      #expect(try await ledger.orders.order(paid.order.id)?.order.status == .fulfilled)
      #expect(try await ledger.usable(by: "anna", on: 6)["gold"] != nil)
      #expect(try await ledger.usable(by: "guest", on: 6).isEmpty)
      let revoked = try await ledger.grants.revokeGrant(
        grant, by: support, terms: .shop, at: day(7))
      #expect(revoked.accountID == "anna")
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test func `an account with charges on many original transactions is merged step by step`()
    async throws
  {
    try await withGuest { ledger in
      for number in 0..<70 {
        let line = OriginalTransactionKey(.production, OriginalTransactionID("5\(number)"))
        let id = TransactionID("5\(number)")
        try await ledger.submit(
          [charge(id, on: 1, line: line, product: "coins")],
          claiming: [key(id, line: line, product: "coins")], by: "guest", on: 1.1, terms: .shop)
      }
      let first = try await merge(ledger, on: 5, atOnce: 10)
      #expect(first.completedAt == nil)
      #expect(first.moved.charges == 10)
      #expect(try await ledger.auditor.audit().differences == [])
      // From the first commit on it is the member who submits.
      try await ledger.submit(
        [charge("late", on: 5, line: OriginalTransactionKey(.production, "6"))],
        claiming: [key("late", line: OriginalTransactionKey(.production, "6"))], by: "guest",
        on: 5.1, terms: .shop)
      #expect(
        try await ledger.owner(of: "late", line: OriginalTransactionKey(.production, "6")) == "anna"
      )
      let key = try #require(try await ledger.accounts.account("guest")).key
      var steps = 0
      while try await !ledger.accounts.continueMerge(of: key, terms: .shop, at: day(6)) {
        steps += 1
      }
      #expect(steps == 2)
      #expect(try await ledger.accounts.continueMerge(of: key, terms: .shop, at: day(7)))
      #expect(try await merge(ledger, on: 8).completedAt == day(6))
      let left = try await ledger.holdings.holdings(of: "guest").holdings
      #expect(left.allSatisfy { $0.movedAt != nil })
      #expect(try await ledger.administration.administratorActions(limit: 10).count == 1)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test func `a merge goes on though the member is merged, too, meanwhile`() async throws {
    try await withGuest { ledger in
      for number in 0..<70 {
        let line = OriginalTransactionKey(.production, OriginalTransactionID("5\(number)"))
        let id = TransactionID("5\(number)")
        try await ledger.submit(
          [charge(id, on: 1, line: line)], claiming: [key(id, line: line)], by: "guest", on: 1.1,
          terms: .shop)
      }
      #expect(try await merge(ledger, on: 5, atOnce: 10).completedAt == nil)
      _ = try await ledger.accounts.findOrCreateAccount("main", at: day(5))
      _ = try await merge(ledger, "anna", into: "main", on: 6)
      let key = try #require(try await ledger.accounts.account("guest")).key
      while try await !ledger.accounts.continueMerge(of: key, terms: .shop, at: day(7)) {}
      for number in 0..<70 {
        let line = OriginalTransactionKey(.production, OriginalTransactionID("5\(number)"))
        #expect(try await ledger.owner(of: TransactionID("5\(number)"), line: line) == "main")
      }
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test func `an audit during a merge finds orders that came with an earlier merge justified`()
    async throws
  {
    try await withGuest { ledger in
      _ = try await buyMuch(ledger)
      // A visitor's order is the guest's by the time that it is paid for.
      let order = try await ledger.orders.openOrder(
        accountID: "visitor", productID: "monthly", at: day(1.5)
      ).order
      _ = try await merge(ledger, "visitor", into: "guest", on: 2)
      let last = OriginalTransactionKey(.production, "999999")
      let result = try await ledger.submit(
        [charge("9", on: 3, line: last)], claiming: [key("9", line: last)], by: "visitor", on: 3.1,
        terms: .shop)
      #expect(result?.outcome.orderID == order.id)
      #expect(try await merge(ledger, on: 5, atOnce: 2).completedAt == nil)
      #expect(try await ledger.owner(of: "9", line: last) == "guest")
      #expect(
        try await ledger.orders.order(order.id)?.order.account
          == ledger.accounts.account("anna")?.key)
      #expect(try await ledger.auditor.audit().differences == [])
      // The member is merged, too, before the guest's charges are placed.
      _ = try await ledger.accounts.findOrCreateAccount("main", at: day(6))
      _ = try await merge(ledger, "anna", into: "main", on: 6)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  /// Lets the guest buy so much that a merge takes several commits.
  private func buyMuch(_ ledger: Ledger) async throws -> [OriginalTransactionKey] {
    var lines: [OriginalTransactionKey] = []
    for number in 0..<12 {
      let line = OriginalTransactionKey(.production, OriginalTransactionID("5\(number)"))
      let id = TransactionID("5\(number)")
      try await ledger.submit(
        [charge(id, on: 1, line: line)], claiming: [key(id, line: line)], by: "guest", on: 1.1,
        terms: .shop)
      lines.append(line)
    }
    return lines
  }

  @Test func `a guest's consent does not hold while it is merged, nor for the member`()
    async throws
  {
    try await withGuest { ledger in
      _ = try await buyMuch(ledger)
      _ = try await ledger.writeBacks.setConsumptionConsent(true, of: "guest", at: day(2))
      let guest = try #require(try await ledger.accounts.account("guest")).key
      let anna = try #require(try await ledger.accounts.account("anna")).key
      #expect(try await ledger.writeBacks.hasConsumptionConsent(guest))
      #expect(try await merge(ledger, on: 5, atOnce: 10).completedAt == nil)
      #expect(try await !ledger.writeBacks.hasConsumptionConsent(guest))
      #expect(try await !ledger.writeBacks.hasConsumptionConsent(anna))
      while try await !ledger.accounts.continueMerge(of: guest, terms: .shop, at: day(6)) {}
      #expect(try await !ledger.writeBacks.hasConsumptionConsent(anna))
    }
  }

  @Test func `a merge goes on though the guest is erased meanwhile, who gets nothing by it`()
    async throws
  {
    try await withGuest { ledger in
      let lines = try await buyMuch(ledger)
      let guest = try #require(try await ledger.accounts.account("guest")).key
      #expect(try await merge(ledger, on: 5, atOnce: 10).completedAt == nil)
      _ = try await ledger.accounts.erase("guest", by: support, at: day(6))
      // An unclaimed renewal without an override: the guest was erased before it.
      try await ledger.learn([charge("next", on: 6.4, line: lines[11])], on: 6.5)
      #expect(try await ledger.owner(of: "next", line: lines[11]) == nil)
      while try await !ledger.accounts.continueMerge(of: guest, terms: .shop, at: day(7)) {}
      for line in lines {
        let id = TransactionID(line.originalTransactionID.rawValue)
        #expect(try await ledger.owner(of: id, line: line) == "anna")
      }
      #expect(try await ledger.owner(of: "next", line: lines[11]) == nil)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test func `who can't be merged is refused, and nothing is written`() async throws {
    try await withGuest { ledger in
      await #expect(throws: LedgerError.mergesIntoItself("guest")) {
        try await merge(ledger, into: "guest", on: 5)
      }
      await #expect(throws: LedgerError.unknownAccount("carl")) {
        try await merge(ledger, "carl", on: 5)
      }
      await #expect(throws: LedgerError.unknownAccount("carl")) {
        try await merge(ledger, into: "carl", on: 5)
      }
      _ = try await ledger.accounts.findOrCreateAccount("ben", at: start)
      let erased = try await ledger.accounts.erase("ben", by: support, at: day(5)).pseudonym
      await #expect(throws: LedgerError.erasedAccount(erased)) {
        try await merge(ledger, into: erased, on: 5)
      }
      _ = try await merge(ledger, on: 6)
      _ = try await ledger.accounts.findOrCreateAccount("dora", at: start)
      // In a circle, and to another one.
      await #expect(throws: LedgerError.mergedAccount("guest", into: "anna")) {
        try await merge(ledger, "anna", into: "guest", on: 7)
      }
      await #expect(throws: LedgerError.mergedAccount("guest", into: "anna")) {
        try await merge(ledger, into: "dora", on: 7)
      }
      await #expect(throws: LedgerError.mergedAccount("guest", into: "anna")) {
        try await ledger.ownership.transfer(
          key("1"), to: "guest", by: support, terms: .shop, at: day(7))
      }
      // The member can be merged on, and the guest follows.
      _ = try await merge(ledger, "anna", into: "dora", on: 8)
      try await ledger.submit(
        [charge("9", on: 9, line: OriginalTransactionKey(.production, "9"))],
        claiming: [key("9", line: OriginalTransactionKey(.production, "9"))], by: "guest", on: 9.1,
        terms: .shop)
      #expect(
        try await ledger.owner(of: "9", line: OriginalTransactionKey(.production, "9")) == "dora")
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test func `erasing the member erases the guest that was merged into it`() async throws {
    try await withGuest { ledger in
      _ = try await merge(ledger, on: 5)
      _ = try await ledger.accounts.erase("anna", by: support, at: day(6))
      #expect(try await ledger.accounts.account("guest") == nil)
      #expect(
        try await ledger.administration.administratorActions(limit: 10).map(\.action)
          == ["erase_account", "erase_account", "merge_account"])
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }
}
