import AppStore
import AppStoreSimulator
import struct Foundation.UUID
import JSONText
import Subscriptions
import Testing

/// Apple's data for the worked scenarios of the ownership rule, by their numbers there.
///
/// Account A and then B use one phone and one Apple ID. Each test checks
/// Apple's response and who really acted; deciding the owner is the ledger's job.
struct OwnershipScenarioTests {
  private let stage: Stage
  private var simulation: AppStoreSimulation { stage.simulation }

  init() throws {
    stage = try Stage()
  }

  private func buy(_ product: ProductID, as account: AppAccountID) throws -> SimulatedEvent {
    try simulation.logIn(account, on: "phone")
    return try simulation.buy(product, on: "phone")
  }

  private func truth(_ item: JSONValue?) throws -> SimulatedCharge {
    let id = try #require(item?.text("transaction_id"))
    return try simulation.truth(of: TransactionID(id))
  }

  @Test("1, 9, 15: a renewal is charged a day before the end, and B's session brings it")
  func renewalBeforeTheEnd() throws {
    let line = try buy("monthly", as: "A").originalTransactionID
    try stage.advance(to: "2026-01-31T05:00:00Z")
    try simulation.logIn("B", on: "phone")
    let answer = try stage.answer()
    #expect(answer.latest.count == 2)
    #expect(answer.latest.last?.minute("purchase") == "2026-02-01T00:00")
    #expect(answer.latest.last?.text("original_transaction_id") == line.rawValue)
    let renewal = try truth(answer.latest.last)
    #expect(renewal.kind == .renewal)
    #expect(renewal.account == "A")
    #expect(renewal.madeAt == Timestamp(rfc3339: "2026-01-31T04:00:00Z"))
  }

  @Test("2, 3: A off, A's month ends, B buys quarterly, which renews while A is logged in")
  func anotherAccountBuysAfterTheEnd() throws {
    let line = try buy("monthly", as: "A").originalTransactionID
    try simulation.setAutoRenew(false, line)
    try stage.advance(to: "2026-02-03T00:00:00Z")
    let purchase = try buy("quarterly", as: "B")
    #expect(purchase.kind == .resubscribed)
    #expect(purchase.originalTransactionID == line)
    try simulation.logIn("A", on: "phone")
    try stage.advance(to: "2026-05-03T00:00:00Z")
    let answer = try stage.answer()
    #expect(answer.latest.map { $0.text("product_id") } == ["monthly", "quarterly", "quarterly"])
    #expect(try answer.latest.map { try truth($0).account } == ["A", "B", "B"])
    #expect(answer.latest[1].minute("purchase") == "2026-02-03T00:00")
    #expect(answer.latest[2].minute("purchase") == "2026-05-03T00:00")
  }

  @Test("2b: A off, B upgrades while A's month runs: charged at once, A's rest superseded")
  func anotherAccountUpgrades() throws {
    let line = try buy("monthly", as: "A").originalTransactionID
    try simulation.setAutoRenew(false, line)
    try stage.advance(to: "2026-01-10T00:00:00Z")
    #expect(try buy("premium", as: "B").kind == .upgraded)
    let latest = try stage.answer().latest
    #expect(latest.map { $0.text("is_upgraded") } == ["true", nil])
    #expect(latest.last?.minute("purchase") == "2026-01-10T00:00")
    #expect(try stage.answer().pending.first?.text("auto_renew_status") == "1")
    #expect(try truth(latest.last).account == "B")
    #expect(latest.last?.text("original_transaction_id") == line.rawValue)
  }

  @Test("2c: A off, B asks for quarterly: renewal goes on, charged when A's month ends")
  func anotherAccountSwitchesOn() throws {
    let line = try buy("monthly", as: "A").originalTransactionID
    try simulation.setAutoRenew(false, line)
    try stage.advance(to: "2026-01-10T00:00:00Z")
    let change = try buy("quarterly", as: "B")
    #expect(change.kind == .renewalProductChanged("quarterly"))
    let before = try stage.answer()
    #expect(before.latest.count == 1)
    #expect(before.pending.first?.text("auto_renew_status") == "1")
    #expect(before.pending.first?.text("auto_renew_product_id") == "quarterly")
    try stage.advance(to: "2026-02-01T00:00:00Z")
    let answer = try stage.answer()
    #expect(answer.latest.last?.text("product_id") == "quarterly")
    #expect(answer.latest.last?.minute("purchase") == "2026-02-01T00:00")
    #expect(try truth(answer.latest.last).account == "B")
  }

  @Test("5: A's card fails, Apple retries, recovered on day 20")
  func recovery() throws {
    _ = try buy("monthly", as: "A")
    try simulation.failCard(of: "ada")
    try stage.advance(to: "2026-02-18T00:00:00Z")
    let during = try stage.answer()
    #expect(during.pending.first?.text("is_in_billing_retry_period") == "1")
    #expect(during.pending.first?.text("grace_period_expires_date") == nil)
    try simulation.logIn("B", on: "phone")
    try stage.advance(to: "2026-02-21T00:00:00Z")
    #expect(try simulation.repairCard(of: "ada").map(\.kind) == [.recovered])
    let answer = try stage.answer()
    #expect(answer.latest.last?.minute("purchase") == "2026-02-21T00:00")
    let charge = try truth(answer.latest.last)
    #expect(charge.kind == .recovery)
    #expect(charge.account == "A")
  }

  @Test("6, 10: lapsed for four months, then another customer resubscribes")
  func resubscription() throws {
    let line = try buy("monthly", as: "A").originalTransactionID
    try simulation.setAutoRenew(false, line)
    try stage.advance(to: "2026-06-01T00:00:00Z")
    let event = try simulation.buyInSettings("monthly", appleID: "ada")
    #expect(event.kind == .resubscribed)
    #expect(event.account == nil)
    let latest = try stage.answer().latest
    #expect(latest.map { $0.text("original_transaction_id") } == [line.rawValue, line.rawValue])
    #expect(try truth(latest.last).account == nil)
  }

  @Test("7: A's latest period is refunded, B buys")
  func purchaseAfterRefund() throws {
    let purchase = try buy("monthly", as: "A")
    try stage.advance(to: "2026-01-10T00:00:00Z")
    try simulation.refund(purchase.transactionID, reason: "1")
    try stage.advance(to: "2026-01-12T00:00:00Z")
    #expect(try buy("monthly", as: "B").kind == .resubscribed)
    let latest = try stage.answer().latest
    #expect(latest.map { $0.minute("cancellation") } == ["2026-01-10T00:00", nil])
    #expect(latest.map { $0.text("cancellation_reason") } == ["1", nil])
    #expect(latest.last?.minute("purchase") == "2026-01-12T00:00")
    #expect(latest[0].text("original_transaction_id") == latest[1].text("original_transaction_id"))
  }

  @Test("11: B restores a non-consumable of A's")
  func restoredNonConsumable() throws {
    let purchase = try buy("lifetime", as: "A")
    let before = try #require(try stage.answer().inApp.first)
    try simulation.logIn("B", on: "phone")
    let restored = try simulation.restore(on: "phone")
    let after = try #require(try stage.answer().inApp.first)
    #expect(after.text("transaction_id") == restored.first?.transactionID.rawValue)
    #expect(after.text("transaction_id") != before.text("transaction_id"))
    for key in ["product_id", "original_transaction_id", "purchase_date_ms"] {
      #expect(after.text(key) == before.text(key))
    }
    #expect(try truth(after).transactionID == purchase.transactionID)
    #expect(try truth(after).account == "A")
  }

  @Test("12: A off, B restores: A's month under a new transaction id")
  func restoredSubscription() throws {
    let line = try buy("monthly", as: "A").originalTransactionID
    try simulation.setAutoRenew(false, line)
    let old = try stage.answer()
    try simulation.logIn("B", on: "phone")
    stage.simulation.advance(by: .days(3))
    try simulation.restore(on: "phone")
    let new = try stage.answer()
    #expect(new.latest.count == 1)
    #expect(new.latest[0].text("transaction_id") != old.latest[0].text("transaction_id"))
    #expect(new.latest[0].date("original_purchase") != old.latest[0].date("original_purchase"))
    let same = [
      "product_id", "original_transaction_id", "web_order_line_item_id", "purchase_date_ms",
      "expires_date_ms",
    ]
    for key in same { #expect(new.latest[0].text(key) == old.latest[0].text(key)) }
    #expect(try truth(new.latest[0]).account == "A")
    #expect(simulation.truth().count == 1)
  }

  @Test("13: the period of three months ago is refunded while the current one runs")
  func refundOfAnOldPeriod() throws {
    let first = try buy("monthly", as: "A").transactionID
    try stage.advance(to: "2026-04-05T00:00:00Z")
    try simulation.refund(first)
    let answer = try stage.answer()
    #expect(answer.latest.map { $0.minute("cancellation") } == ["2026-04-05T00:00", nil, nil, nil])
    #expect(answer.pending.first?.text("auto_renew_status") == "1")
    try stage.advance(to: "2026-05-01T00:00:00Z")
    #expect(try stage.answer().latest.count == 5)
  }

  @Test("16: A off; bought again with no account logged in; it renews")
  func unclaimedPurchase() throws {
    let line = try buy("monthly", as: "A").originalTransactionID
    try simulation.setAutoRenew(false, line)
    try stage.advance(to: "2026-03-01T00:00:00Z")
    try simulation.buyInSettings("monthly", appleID: "ada")
    try stage.advance(to: "2026-04-01T00:00:00Z")
    #expect(try stage.answer().latest.map { try truth($0).account } == ["A", nil, nil])
  }

  @Test("17: charged 22 hours early; A switches off after it")
  func offAfterTheEarlyCharge() throws {
    let stage = try Stage(lead: .hours(22))
    let line = try stage.simulation.buy("monthly", on: "phone").originalTransactionID
    try stage.advance(to: "2026-01-31T02:00:00Z")
    try stage.simulation.setAutoRenew(false, line)
    try stage.simulation.logIn("B", on: "phone")
    let answer = try stage.answer()
    #expect(answer.latest.count == 2)
    #expect(answer.latest.last?.minute("purchase") == "2026-02-01T00:00")
    #expect(answer.pending.first?.text("auto_renew_status") == "0")
    try stage.advance(to: "2026-03-02T00:00:00Z")
    #expect(try stage.answer().latest.count == 2)
  }

  @Test("19: a receipt made early shows later charges when it is sent late")
  func oldReceipt() throws {
    let receipt = try simulation.receipt(on: "phone")
    try stage.advance(to: "2026-01-15T00:00:00Z")
    _ = try buy("monthly", as: "B")
    let answer = try stage.answer(to: receipt)
    #expect(answer.inApp.isEmpty)
    #expect(answer.latest.count == 1)
    #expect(answer["receipt"]?.minute("receipt_creation") == "2026-01-01T00:00")
    #expect(answer["receipt"]?.minute("request") == "2026-01-15T00:00")
  }

  @Test("tokens: a purchase's stays for renewals, a change of plan can move it")
  func tokens() throws {
    let a = UUID(uuid: (1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
    let b = UUID(uuid: (2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
    try simulation.buy("monthly", on: "phone", appAccountToken: a)
    try stage.advance(to: "2026-02-05T00:00:00Z")
    try simulation.buy("quarterly", on: "phone", appAccountToken: b)
    try stage.advance(to: "2026-03-05T00:00:00Z")
    let tokens = try stage.answer().latest.map { $0.text("app_account_token") }
    #expect(tokens == [a, a, b].map { $0.uuidString.lowercased() })
    let line = try #require(simulation.truth().last).originalTransactionID
    try simulation.setAutoRenew(false, line)
    try stage.advance(to: "2026-09-01T00:00:00Z")
    try simulation.buyInSettings("monthly", appleID: "ada")
    #expect(try stage.answer().latest.last?["app_account_token"] == nil)
  }
}
