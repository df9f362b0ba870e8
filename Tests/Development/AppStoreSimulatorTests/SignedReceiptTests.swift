import AppStore
import JSONText
import Subscriptions
import Testing

@testable import AppStoreSimulator

/// The app receipts of devices: signed, and saying what verifyReceipt says of them.
struct SignedReceiptTests {
  private let stage: Stage

  init() throws {
    stage = try Stage()
    for product: ProductID in ["monthly", "coins.100", "lifetime", "season.pass"] {
      try stage.simulation.buy(product, on: "phone")
    }
  }

  private func verify(_ receipt: String) throws -> Result<LocalReceipt, LocalReceiptRefusal> {
    LocalReceiptVerifier(
      roots: try TrustedRoots(pem: stage.simulation.rootCertificatePEM),
      apps: try AppStoreApps([try AppStoreApp(bundleID: SimulatedApp.sample.bundleID)])
    ).verify(receipt)
  }

  @Test func `they verify below the simulation's root, and below no other`() throws {
    let receipt = try stage.simulation.receipt(on: "phone")
    let verified = try verify(receipt).get()
    #expect(verified.environment == .production)
    #expect(verified.createdAt == stage.simulation.now)
    #expect(verified.records.count == 4)
    let other = try Stage(seed: 2)
    try other.simulation.buy("monthly", on: "phone")
    #expect(throws: LocalReceiptRefusal.self) {
      try verify(try other.simulation.receipt(on: "phone")).get()
    }
  }

  @Test func `they list what verifyReceipt lists of them`() throws {
    stage.simulation.advance(by: .days(100))
    let refunded = try #require(stage.simulation.truth().first?.transactionID)
    try stage.simulation.refund(refunded)
    let receipt = try stage.simulation.receipt(on: "phone")
    let listed = try stage.answer(to: receipt)["receipt"]?["in_app"]?.array ?? []
    let purchases = try verify(receipt).get().contents.inApp
    #expect(purchases.count == listed.count)
    #expect(purchases.count > 4)
    for purchase in purchases {
      let item = try #require(
        listed.first { $0["transaction_id"]?.string == purchase.transactionID })
      #expect(item["product_id"]?.string == purchase.productID)
      #expect(item["original_transaction_id"]?.string == purchase.originalTransactionID)
      #expect(item["quantity"]?.string == purchase.quantity.map(String.init))
      #expect(item["purchase_date_ms"]?.string == milliseconds(purchase.purchaseDate))
      #expect(item["expires_date_ms"]?.string == milliseconds(purchase.expiresDate))
      #expect(item["cancellation_date_ms"]?.string == milliseconds(purchase.cancellationDate))
      #expect(
        item["web_order_line_item_id"]?.string == purchase.webOrderLineItemID?.rawValue)
      #expect(item["is_trial_period"]?.string == purchase.isTrialPeriod?.description)
    }
    #expect(purchases.contains { $0.cancellationDate != nil })
  }

  @Test func `the renewed receipt in an answer verifies, too`() throws {
    let latest = try #require(try stage.answer()["latest_receipt"]?.string)
    #expect(try verify(latest).get().records.count == 4)
    #expect(try stage.answer(to: latest).status == 0)
  }

  private func milliseconds(_ moment: Timestamp?) -> String? {
    moment.map { String($0.milliseconds) }
  }
}
