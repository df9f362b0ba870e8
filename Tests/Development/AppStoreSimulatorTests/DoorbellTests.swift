import AppStore
import AppStoreSimulator
import JSONText
import Subscriptions
import Testing

/// Notifications of version 1, in both shapes that they had.
struct DoorbellTests {
  private func bodies(_ stage: Stage) throws -> [JSONValue] {
    try stage.simulation.notifications().map { try JSONValue(parsing: $0.body) }
  }

  @Test func newShape() throws {
    let stage = try Stage()
    try stage.notify(.v1)
    let line = try stage.simulation.buy("monthly", on: "phone").originalTransactionID
    try stage.advance(to: "2026-02-10T00:00:00Z")
    try stage.simulation.setAutoRenew(false, line)
    let bodies = try bodies(stage)
    #expect(
      bodies.map { $0.text("notification_type") } == [
        "INITIAL_BUY", "DID_RENEW", "DID_CHANGE_RENEWAL_STATUS",
      ])
    let last = try #require(bodies.last)
    #expect(last.text("password") == SimulatedApp.sample.sharedSecret)
    #expect(last.text("bid") == SimulatedApp.sample.bundleID)
    #expect(last.text("environment") == "PROD")
    #expect(last.text("auto_renew_status") == "false")
    #expect(last.text("auto_renew_product_id") == "monthly")
    #expect(last.minute("auto_renew_status_change") == "2026-02-10T00:00")
    #expect(last.text("original_transaction_id") == line.rawValue)
    #expect(bodies[1]["auto_renew_status_change_date_ms"] == nil)
    let unified = try #require(last["unified_receipt"])
    #expect(unified.text("environment") == "Production")
    #expect(unified.status == 0)
    #expect(unified.latest.count == 2)
    #expect(unified.pending.first?.text("auto_renew_status") == "0")
    // The receipt it contains can be verified.
    let answer = try stage.answer(to: try #require(unified.text("latest_receipt")))
    #expect(answer["latest_receipt_info"] == unified["latest_receipt_info"])
    // An event's body is of the event's time.
    #expect(bodies[0]["unified_receipt"]?.latest.count == 1)
  }

  @Test func aQuestionAfterARefundRequestCanBeEmpty() throws {
    let stage = try Stage(environment: .sandbox)
    try stage.notify(.v1)
    let bought = try stage.simulation.buy("coins.100", on: "phone")
    try stage.simulation.requestRefund(bought.transactionID)
    let body = try #require(try bodies(stage).last)
    #expect(body.text("notification_type") == "CONSUMPTION_REQUEST")
    #expect(body.text("environment") == "Sandbox")
    #expect(body["unified_receipt"]?["latest_receipt_info"] == [])
    #expect(body["auto_renew_status"] == nil)
  }

  @Test func onlyTheLatestHundred() throws {
    let stage = try Stage()
    for _ in 0..<110 {
      try stage.simulation.buy("coins.100", on: "phone")
      stage.simulation.advance(by: .minutes(1))
    }
    try stage.notify(.v1)
    let bought = try stage.simulation.buy("monthly", on: "phone")
    let items = try #require(
      try bodies(stage).last?["unified_receipt"]?["latest_receipt_info"]?.array)
    #expect(items.count == 100)
    #expect(items.first?.text("transaction_id") == bought.transactionID.rawValue)
  }

  @Test func oldShape() throws {
    let stage = try Stage()
    try stage.notify(.v1Before2021)
    let bought = try stage.simulation.buy("monthly", on: "phone")
    try stage.advance(to: "2026-01-10T00:00:00Z")
    try stage.simulation.buy("premium", on: "phone")
    let bodies = try bodies(stage)
    let first = try #require(bodies.first)
    #expect(first.text("notification_type") == "INITIAL_BUY")
    #expect(first.text("password") == SimulatedApp.sample.sharedSecret)
    #expect(first["unified_receipt"] == nil)
    #expect(first["bid"] == nil)
    let info = try #require(first["latest_receipt_info"])
    #expect(info.text("original_transaction_id") == bought.originalTransactionID.rawValue)
    #expect(info.text("expires_date") == "1769904000000")
    #expect(info.text("bid") == SimulatedApp.sample.bundleID)
    let answer = try stage.answer(to: try #require(first.text("latest_receipt")))
    #expect(answer["receipt"]?.text("transaction_id") == bought.transactionID.rawValue)
    let cancel = try #require(bodies.first { $0.text("notification_type") == "CANCEL" })
    #expect(cancel.minute("cancellation") == "2026-01-10T00:00")
    #expect(cancel["latest_expired_receipt_info"]?.text("product_id") == "monthly")
    let renewal = try #require(bodies.last)
    #expect(renewal.text("notification_type") == "INTERACTIVE_RENEWAL")
    #expect(renewal["latest_receipt_info"]?.text("product_id") == "premium")
  }
}
