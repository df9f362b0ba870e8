import Foundation
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Charges that administrators transfer")
struct TransferTests {
  /// A ledger on which anna's subscription has begun, and ben is known.
  private func withSubscription(_ body: @Sendable (Ledger) async throws -> Void) async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
      _ = try await ledger.accounts.findOrCreateAccount("ben", at: start)
      try await body(ledger)
    }
  }

  private func transfer(
    _ ledger: Ledger, _ id: TransactionID = "1", to account: String?, on date: Double,
    from effective: Double? = nil
  ) async throws -> Bool {
    try await ledger.ownership.transfer(
      key(id), to: account, effectiveFrom: effective.map(day), by: support, terms: .shop,
      at: day(date))
  }

  @Test func `the charge and its renewals move to the other account, with events for both`()
    async throws
  {
    try await withSubscription { ledger in
      let count = try await ledger.publishedEvents().count
      #expect(try await transfer(ledger, to: "ben", on: 5))
      #expect(try await ledger.owner(of: "1") == "ben")
      #expect(try await ledger.rule(of: "1") == .administrator)
      #expect(try await ledger.usable(by: "anna", on: 6).isEmpty)
      #expect(try await ledger.usable(by: "ben", on: 6) == ["premium": day(30)])
      let published = try await ledger.publishedEvents().dropFirst(count)
      #expect(
        published.filter { $0.account == "anna" }.map(\.kind.rawValue)
          == ["transaction.owner_corrected", "binding.closed", "entitlement.revoked"])
      #expect(
        published.filter { $0.account == "ben" }.map(\.kind.rawValue)
          == ["transaction.owner_corrected", "binding.opened", "entitlement.granted"])

      // It renews; it is ben's for any submitter.
      try await ledger.submit(
        [charge("2", on: 30)], claiming: [key("2")], by: "anna", on: 30.1, terms: .shop)
      #expect(try await ledger.owner(of: "2") == "ben")
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test(arguments: ["anna", "ben"])
  func `a released charge has no owner until it is submitted again`(claimant: String)
    async throws
  {
    try await withSubscription { ledger in
      #expect(try await transfer(ledger, to: nil, on: 5))
      #expect(try await ledger.owner(of: "1") == nil)
      #expect(try await ledger.rule(of: "1") == .unclaimed)
      #expect(try await ledger.usable(by: "anna", on: 6).isEmpty)
      // An unclaimed charge is not released again.
      #expect(try await transfer(ledger, to: nil, on: 5.5) == false)
      #expect(try await ledger.auditor.audit().differences == [])

      for account in [claimant, "cora"] {
        try await ledger.submit(
          [charge("1", on: 0)], claiming: [key("1")], by: account, on: 6, terms: .shop)
      }
      #expect(try await ledger.owner(of: "1") == claimant)
      #expect(try await ledger.rule(of: "1") == .submitter)
      #expect(try await ledger.usable(by: claimant, on: 6) == ["premium": day(30)])
      #expect(try await ledger.auditor.audit().differences == [])
      #expect(try await transfer(ledger, to: nil, on: 7))
      #expect(try await ledger.owner(of: "1") == nil)
      #expect(
        try await ledger.administration.administratorActions(limit: 10).map(\.action) == [
          "release", "release",
        ])
    }
  }

  @Test func `an unclaimed charge can be assigned`() async throws {
    try await withSubscription { ledger in
      try await ledger.receive(
        [charge("7", on: 0, line: OriginalTransactionKey(.production, "7"))], on: 1)
      let unclaimed = key("7", line: OriginalTransactionKey(.production, "7"))
      #expect(try await ledger.owner(of: "7", line: unclaimed.line) == nil)
      #expect(
        try await ledger.ownership.transfer(
          unclaimed, to: "ben", by: support, terms: .shop, at: day(5)))
      #expect(try await ledger.owner(of: "7", line: unclaimed.line) == "ben")
      #expect(try await ledger.usable(by: "ben", on: 6) == ["premium": day(30)])
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test func `what was charged before it takes effect keeps its owner`() async throws {
    let cases: [(Double?, String)] = [(20, "ben"), (nil, "anna"), (45, "anna")]
    for (effective, owner) in cases {
      try await withSubscription { ledger in
        try await ledger.submit(
          [charge("2", on: 30)], claiming: [key("2")], by: "anna", on: 30.1, terms: .shop)
        #expect(try await transfer(ledger, to: "ben", on: 40, from: effective))
        #expect(try await ledger.owner(of: "1") == "ben")
        #expect(try await ledger.owner(of: "2") == owner)
        #expect(try await ledger.auditor.audit().differences == [])
      }
    }
  }

  @Test func `once more the same changes nothing and leaves no trace`() async throws {
    try await withSubscription { ledger in
      #expect(try await transfer(ledger, to: "ben", on: 5))
      let (entries, events) = (
        try await ledger.entryCount(), try await ledger.publishedEvents().count
      )
      #expect(try await transfer(ledger, to: "ben", on: 6) == false)
      #expect(try await transfer(ledger, to: "ben", on: 6, from: 5) == false)
      #expect(try await ledger.entryCount() == entries)
      #expect(try await ledger.publishedEvents().count == events)
      #expect(try await ledger.administration.administratorActions(limit: 10).count == 1)
      #expect(try await transfer(ledger, to: "ben", on: 6, from: 4))
      #expect(try await transfer(ledger, to: "anna", on: 7))
      #expect(try await ledger.administration.administratorActions(limit: 10).count == 3)
    }
  }

  @Test func `an alias stands for its charge`() async throws {
    try await withSubscription { ledger in
      try await ledger.submit(
        [charge("1a", on: 0)], claiming: [key("1a")], by: "ben", on: 1, terms: .shop)
      #expect(try await ledger.owner(of: "1a") == "anna")
      #expect(try await transfer(ledger, "1a", to: "ben", on: 5))
      #expect(try await ledger.owner(of: "1") == "ben")
      #expect(try await transfer(ledger, "1", to: "ben", on: 6) == false)
    }
  }

  @Test func `a transferred charge fulfils the order that waits for it`() async throws {
    try await withSubscription { ledger in
      _ = try await ledger.products.describe(
        Product(id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      let order = try await ledger.orders.openOrder(
        accountID: "ben", productID: "monthly", at: start)
      #expect(try await transfer(ledger, to: "ben", on: 5))
      let found = try await ledger.orders.order(order.order.id)
      #expect(found?.order.status == .fulfilled)
      #expect(found?.transactionID == "1")
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test func `who or what is not known is refused, and nothing is written`() async throws {
    try await withSubscription { ledger in
      let entries = try await ledger.entryCount()
      await #expect(throws: LedgerError.unknownTransaction("9")) {
        try await transfer(ledger, "9", to: "ben", on: 5)
      }
      await #expect(throws: LedgerError.unknownAccount("carl")) {
        try await transfer(ledger, to: "carl", on: 5)
      }
      let line = OriginalTransactionKey(.sandbox, "1")
      await #expect(throws: LedgerError.unknownTransaction("1")) {
        try await ledger.ownership.transfer(
          key("1", line: line), to: "ben", by: support, terms: .shop, at: day(5))
      }
      #expect(try await ledger.ownership.original(of: line) == nil)
      let erased = try await ledger.accounts.erase("ben", by: support, at: day(5))
      await #expect(throws: LedgerError.erasedAccount(erased.pseudonym)) {
        try await transfer(ledger, to: erased.pseudonym, on: 6)
      }
      #expect(try await ledger.entryCount() == entries)
      #expect(
        try await ledger.administration.administratorActions(limit: 10).map(\.action) == [
          "erase_account"
        ])
    }
  }
}
