import AppStore
import AppStoreSimulator
import struct Foundation.Data
import struct Foundation.UUID
import JSONText
import Subscriptions
import Testing

/// The fields of responses, compared with Apple's documentation and real responses.
struct AnswerShapeTests {
  private static func triple(_ name: String) -> Set<String> {
    [name, "\(name)_ms", "\(name)_pst"]
  }

  private static let oneTimeItem: Set<String> = triple("purchase_date")
    .union(triple("original_purchase_date")).union([
      "quantity", "product_id", "transaction_id", "original_transaction_id", "is_trial_period",
      "in_app_ownership_type",
    ])
  private static let subscriptionItem = oneTimeItem.union(triple("expires_date"))
    .union(["web_order_line_item_id", "is_in_intro_offer_period"])
  private static let receipt = triple("receipt_creation_date").union(triple("request_date"))
    .union(triple("original_purchase_date")).union([
      "receipt_type", "adam_id", "app_item_id", "bundle_id", "application_version", "download_id",
      "version_external_identifier", "original_application_version", "in_app",
    ])
  private static let pending: Set<String> = [
    "auto_renew_product_id", "original_transaction_id", "product_id", "auto_renew_status",
  ]

  @Test func appReceiptOfASubscriber() throws {
    let stage = try Stage()
    try stage.simulation.buy("monthly", on: "phone")
    stage.simulation.advance(by: .milliseconds(1_234))
    let answer = try stage.answer()
    #expect(
      Set(answer.keys) == [
        "environment", "receipt", "latest_receipt_info", "latest_receipt", "pending_renewal_info",
        "status",
      ])
    #expect(answer["environment"] == "Production")
    #expect(answer.status == 0)
    let receipt = try #require(answer["receipt"])
    #expect(Set(receipt.keys) == Self.receipt)
    #expect(receipt["receipt_type"] == "Production")
    #expect(receipt["adam_id"] == 1_234_567_890)
    #expect(receipt["request_date_ms"] == "1767225601234")
    #expect(receipt["receipt_creation_date_ms"] == "1767225601000")
    #expect(answer.inApp.map { Set($0.keys) } == [Self.subscriptionItem])
    #expect(
      answer.latest.map { Set($0.keys) }
        == [Self.subscriptionItem.union(["subscription_group_identifier"])])
    #expect(answer.pending.map { Set($0.keys) } == [Self.pending])
    // Every value of an item is text.
    for key in answer.latest[0].keys { #expect(answer.latest[0].text(key) != nil) }
  }

  @Test func datesComeInThreeForms() throws {
    let stage = try Stage(start: try #require(Timestamp(rfc3339: "2026-03-08T09:59:59.000Z")))
    try stage.simulation.buy("monthly", on: "phone")
    let item = try #require(try stage.answer().latest.first)
    #expect(item["purchase_date"] == "2026-03-08 09:59:59 Etc/GMT")
    #expect(item["purchase_date_ms"] == "1772963999000")
    #expect(item["purchase_date_pst"] == "2026-03-08 01:59:59 America/Los_Angeles")
    #expect(item["expires_date"] == "2026-04-08 09:59:59 Etc/GMT")
    // California has summer time by then.
    #expect(item["expires_date_pst"] == "2026-04-08 02:59:59 America/Los_Angeles")
  }

  @Test(arguments: [
    ("2026-03-08T09:59:59Z", "01:59:59"), ("2026-03-08T10:00:00Z", "03:00:00"),
    ("2026-11-01T08:59:59Z", "01:59:59"), ("2026-11-01T09:00:00Z", "01:00:00"),
    ("2026-07-01T12:00:00Z", "05:00:00"), ("2026-12-01T12:00:00Z", "04:00:00"),
  ])
  func californiaChangesItsClocks(_ moment: String, _ time: String) throws {
    let stage = try Stage(start: try #require(Timestamp(rfc3339: moment)))
    try stage.simulation.buy("lifetime", on: "phone")
    let item = try #require(try stage.answer().inApp.first)
    #expect(item.text("purchase_date_pst")?.contains(" \(time) ") == true)
  }

  @Test func receiptWithoutSubscriptions() throws {
    let stage = try Stage()
    try stage.simulation.buy("coins.100", on: "phone", quantity: 3)
    try stage.simulation.buy("lifetime", on: "phone")
    try stage.simulation.buy("season.pass", on: "phone")
    let answer = try stage.answer(to: try stage.simulation.receipt(on: "phone"), password: nil)
    #expect(Set(answer.keys) == ["environment", "receipt", "status"])
    #expect(answer.inApp.map { Set($0.keys) } == Array(repeating: Self.oneTimeItem, count: 3))
    #expect(answer.inApp.map { $0.text("quantity") } == ["3", "1", "1"])
    for item in answer.inApp {
      #expect(item.text("transaction_id") == item.text("original_transaction_id"))
    }
  }

  @Test func finishedConsumablesLeaveTheReceipts() throws {
    let stage = try Stage()
    let coins = try stage.simulation.buy("coins.100", on: "phone").transactionID
    try stage.simulation.buy("monthly", on: "phone")
    let old = try stage.simulation.receipt(on: "phone")
    stage.simulation.advance(by: .seconds(5))
    try stage.simulation.finish(coins)
    #expect(try stage.answer().inApp.map { $0.text("product_id") } == ["monthly"])
    // The old receipt still holds it; Apple's latest does not.
    #expect(try stage.answer(to: old).inApp.count == 2)
    #expect(try stage.answer(to: old).latest.count == 1)
  }

  @Test func sandboxReceipt() throws {
    let stage = try Stage(environment: .sandbox)
    try stage.simulation.buy("monthly", on: "phone")
    let answer = try stage.answer()
    #expect(answer["environment"] == "Sandbox")
    #expect(answer["receipt"]?["receipt_type"] == "ProductionSandbox")
    #expect(answer["receipt"]?["adam_id"] == 0)
    #expect(answer["receipt"]?["original_application_version"] == "1.0")
    #expect(answer["receipt"]?["original_purchase_date_ms"] == "1375340400000")
    #expect(answer.latest.first?.text("transaction_id")?.hasPrefix("2") == true)
  }

  @Test func fieldsOfRarerItems() throws {
    let stage = try Stage()
    let token = UUID()
    let first = try stage.simulation.buy(
      "monthly", on: "phone", appAccountToken: token, offer: SimulatedOffer(.promotional, "spring"))
    try stage.simulation.buy("premium", on: "phone")
    try stage.simulation.buy(
      "news.weekly", on: "phone", offer: SimulatedOffer(.code, "PODCAST"))
    stage.simulation.advance(by: .hours(1))
    try stage.simulation.refund(first.transactionID, reason: "1")
    let latest = try stage.answer().latest
    let group: Set<String> = ["subscription_group_identifier", "app_account_token"]
    let refunded = try #require(latest.first { $0["promotional_offer_id"] != nil })
    #expect(
      Set(refunded.keys)
        == Self.subscriptionItem.union(group).union(Self.triple("cancellation_date"))
        .union(["cancellation_reason", "promotional_offer_id"]))
    #expect(refunded["app_account_token"] == .string(token.uuidString.lowercased()))
    #expect(refunded["subscription_group_identifier"] == "20500001")
    #expect(latest.contains { $0["offer_code_ref_name"] == "PODCAST" })
  }

  @Test func upgradeAfterAnEarlyRenewalReplacesBothPeriods() throws {
    let stage = try Stage()
    try stage.simulation.buy("monthly", on: "phone")
    try stage.advance(to: "2026-01-31T06:00:00Z")
    try stage.simulation.buy("premium", on: "phone")
    let latest = try stage.answer().latest
    #expect(latest.map { $0.text("product_id") } == ["monthly", "premium", "monthly"])
    #expect(latest.map { $0.text("is_upgraded") } == ["true", nil, "true"])
  }

  @Test func trial() throws {
    let stage = try Stage()
    try stage.simulation.buy("yearly", on: "phone")
    try stage.advance(to: "2026-01-08T00:00:00Z")
    let latest = try stage.answer().latest
    #expect(latest.map { $0.text("is_trial_period") } == ["true", "false"])
    #expect(stage.simulation.truth().map(\.priceMilliunits) == [0, 89_990])
    let line = try #require(stage.simulation.truth().first).originalTransactionID
    try stage.simulation.setAutoRenew(false, line)
    try stage.advance(to: "2028-01-01T00:00:00Z")
    try stage.simulation.buy("yearly", on: "phone")
    #expect(try stage.answer().latest.last?.text("is_trial_period") == "false")
  }

  @Test func priceConsent() throws {
    let stage = try Stage()
    let line = try stage.simulation.buy("monthly", on: "phone").originalTransactionID
    try stage.simulation.raisePrice(of: "monthly", to: 12_990, needsConsent: true)
    let asked = try #require(try stage.answer().pending.first)
    #expect(
      Set(asked.keys) == Self.pending.union(["price_consent_status", "price_increase_status"]))
    #expect(asked["price_consent_status"] == "0")
    try stage.simulation.acceptPrice(line)
    #expect(try stage.answer().pending.first?["price_consent_status"] == "1")
  }

  @Test func gracePeriodFields() throws {
    let stage = try Stage()
    try stage.simulation.buy("monthly", on: "phone")
    try stage.simulation.failCard(of: "ada")
    try stage.advance(to: "2026-02-02T00:00:00Z")
    let pending = try #require(try stage.answer().pending.first)
    #expect(
      Set(pending.keys)
        == Self.pending.union(["expiration_intent", "is_in_billing_retry_period"])
        .union(Self.triple("grace_period_expires_date")))
  }

  @Test func excludingOldTransactions() throws {
    let stage = try Stage()
    try stage.simulation.buy("monthly", on: "phone")
    try stage.simulation.buy("news.weekly", on: "phone")
    stage.simulation.advance(by: .days(100))
    let receipt = try stage.simulation.receipt(on: "phone")
    let all = try stage.answer(to: receipt)
    let newest = try stage.answer(to: receipt, excludesOldTransactions: true)
    #expect(newest.latest.count == 2)
    #expect(newest.inApp.count == all.inApp.count)
    #expect(all.latest.count > 10)
    #expect(Set(newest.latest).isSubset(of: Set(all.latest)))
    #expect(newest.latest.last == all.latest.last)
  }

  @Test func latestReceiptCanBeAskedAgain() throws {
    let stage = try Stage()
    try stage.simulation.buy("monthly", on: "phone")
    let latestReceipt = try #require(try stage.answer().text("latest_receipt"))
    stage.simulation.advance(by: .days(45))
    let answer = try stage.answer(to: latestReceipt)
    #expect(answer.inApp.count == 1)
    #expect(answer.latest.count == 2)
  }

  @Test func familyMembersHaveSubscriptionsOfTheirOwn() throws {
    let stage = try Stage()
    try stage.simulation.addAppleID("bob")
    try stage.simulation.addDevice("tablet", appleID: "bob", account: "B")
    try stage.simulation.addFamilyMember("bob", of: "ada")
    let bought = try stage.simulation.buy("premium", on: "phone", appAccountToken: UUID())
    stage.simulation.advance(by: .days(40))
    let answer = try stage.answer(on: "tablet")
    #expect(answer.latest.count == 2)
    #expect(answer.latest.allSatisfy { $0["in_app_ownership_type"] == "FAMILY_SHARED" })
    #expect(answer.latest.allSatisfy { $0["app_account_token"] == nil })
    #expect(
      answer.latest[0].text("original_transaction_id") != bought.originalTransactionID.rawValue)
    #expect(answer.pending.first?.text("auto_renew_status") == "1")
    let own = Set(try stage.answer().latest.map { $0.text("web_order_line_item_id") })
    #expect(own.isDisjoint(with: answer.latest.map { $0.text("web_order_line_item_id") }))

    #expect(
      try stage.simulation.revokeFamilyAccess(of: "bob").map(\.kind) == [.familyAccessRevoked])
    let revoked = try stage.answer(on: "tablet")
    #expect(revoked.latest.map { $0.text("cancellation_reason") } == [nil, "0"])
    #expect(revoked.pending.first?.text("auto_renew_status") == "0")
    #expect(try stage.answer().latest.allSatisfy { $0["cancellation_date"] == nil })
  }

  @Test func refundOfThePurchaserReachesTheFamily() throws {
    let stage = try Stage()
    try stage.simulation.addAppleID("bob")
    try stage.simulation.addDevice("tablet", appleID: "bob")
    try stage.simulation.addFamilyMember("bob", of: "ada")
    let bought = try stage.simulation.buy("lifetime", on: "phone").transactionID
    try stage.simulation.refund(bought, reason: "1")
    #expect(try stage.answer(on: "tablet").inApp.first?.text("cancellation_reason") == "1")
    try stage.simulation.reverseRefund(bought)
    #expect(try stage.answer(on: "tablet").inApp.first?["cancellation_reason"] == nil)
  }

  // MARK: iOS 6

  private static let flatItem = triple("purchase_date").union(triple("original_purchase_date"))
    .union([
      "quantity", "product_id", "transaction_id", "original_transaction_id", "app_item_id",
      "item_id", "bid", "bvrs", "unique_identifier", "unique_vendor_identifier",
      "version_external_identifier",
    ])
  private static let flatSubscription = flatItem.union([
    "expires_date", "expires_date_formatted", "expires_date_formatted_pst",
    "web_order_line_item_id", "is_trial_period", "is_in_intro_offer_period",
  ])

  @Test func transactionReceiptOfASubscriber() throws {
    let stage = try Stage()
    let bought = try stage.simulation.buy("monthly", on: "phone")
    let receipt = try stage.simulation.transactionReceipt(bought.transactionID, on: "phone")
    try stage.advance(to: "2026-02-10T00:00:00Z")
    let active = try stage.answer(to: receipt)
    #expect(
      Set(active.keys) == [
        "auto_renew_status", "auto_renew_product_id", "receipt", "latest_receipt_info",
        "latest_receipt", "status",
      ])
    #expect(active.status == 0)
    #expect(active["auto_renew_status"] == 1)
    #expect(active["receipt"].map { Set($0.keys) } == Self.flatSubscription)
    #expect(active["receipt"]?["bid"] == "com.example.tenure")
    #expect(active["receipt"]?["expires_date"] == "1769904000000")
    #expect(active["receipt"]?["expires_date_formatted"] == "2026-02-01 00:00:00 Etc/GMT")
    #expect(active["latest_receipt_info"]?["expires_date"] == "1772323200000")

    try stage.simulation.setAutoRenew(false, bought.originalTransactionID)
    try stage.advance(to: "2026-03-10T00:00:00Z")
    let expired = try stage.answer(to: receipt)
    #expect(
      Set(expired.keys) == [
        "auto_renew_status", "auto_renew_product_id", "receipt", "latest_expired_receipt_info",
        "expiration_intent", "is_in_billing_retry_period", "status",
      ])
    #expect(expired.status == 21006)
    #expect(expired["auto_renew_status"] == 0)
    #expect(expired["expiration_intent"] == "1")
    #expect(expired["latest_expired_receipt_info"]?["expires_date"] == "1772323200000")
  }

  @Test func cancelledTransactionReceipt() throws {
    let stage = try Stage()
    let bought = try stage.simulation.buy("monthly", on: "phone").transactionID
    let receipt = try stage.simulation.transactionReceipt(bought, on: "phone")
    stage.simulation.advance(by: .days(2))
    try stage.simulation.refund(bought)
    let answer = try stage.answer(to: receipt)
    #expect(answer.status == 21006)
    #expect(answer["cancellation_reason"] == "0")
    #expect(answer["latest_expired_receipt_info"]?.minute("cancellation") == "2026-01-03T00:00")
  }

  @Test func transactionReceiptOfAOneTimePurchase() throws {
    let stage = try Stage()
    let bought = try stage.simulation.buy("coins.100", on: "phone").transactionID
    let answer = try stage.answer(
      to: try stage.simulation.transactionReceipt(bought, on: "phone"), password: nil)
    #expect(Set(answer.keys) == ["receipt", "status"])
    #expect(answer["receipt"].map { Set($0.keys) } == Self.flatItem)
  }

  @Test func transactionReceiptIsAPropertyList() throws {
    let stage = try Stage(environment: .sandbox)
    let bought = try stage.simulation.buy("coins.100", on: "phone").transactionID
    let receipt = try stage.simulation.transactionReceipt(bought, on: "phone")
    let data = try #require(Data(base64Encoded: receipt))
    let text = String(decoding: data, as: UTF8.self)
    #expect(text.hasPrefix("{\n\t\"signature\" = \""))
    #expect(text.contains("\"environment\" = \"Sandbox\";"))
    #expect(text.contains("\"purchase-info\" = \""))
  }
}
