import AppStore
import AppStoreSimulator
import JSONText
import Subscriptions
import Testing

/// Each quirk makes its documented change, and no facts get lost.
struct QuirkTests {
  private let stage: Stage
  private let oldReceipt: String

  init() throws {
    stage = try Stage()
    let line = try stage.simulation.buy("monthly", on: "phone").originalTransactionID
    try stage.advance(to: "2026-05-15T00:00:00Z")
    try stage.simulation.buy("premium", on: "phone")
    try stage.simulation.buy("lifetime", on: "phone")
    _ = line
    oldReceipt = try stage.simulation.receipt(on: "phone")
    try stage.advance(to: "2026-08-20T00:00:00Z")
  }

  private func answer(_ quirks: Set<Quirk>) throws -> JSONValue {
    stage.simulation.setQuirks(quirks)
    return try stage.answer(to: oldReceipt)
  }

  private func ids(_ items: [JSONValue]) -> [String] {
    items.compactMap { $0.text("transaction_id") }
  }

  private func rawLatest(_ answer: JSONValue) -> [JSONValue] {
    answer["latest_receipt_info"]?.array ?? []
  }

  @Test func shuffled() throws {
    let plain = try answer([])
    let orders = try (0..<8).map { _ in ids(rawLatest(try answer([.shuffled]))) }
    #expect(Set(orders).count > 1)
    #expect(
      orders.allSatisfy { Set($0) == Set(ids(plain.latest)) && $0.count == plain.latest.count })
  }

  @Test func doubled() throws {
    let plain = try answer([])
    let doubled = try answer([.doubled])
    #expect(doubled.latest.count > plain.latest.count)
    #expect(Set(ids(doubled.latest)) == Set(ids(plain.latest)))
  }

  @Test func split() throws {
    let plain = try answer([])
    var wasSplit = false
    for _ in 0..<20 {
      let split = try answer([.split, .shuffled])
      #expect(
        Set(ids(split.latest)).union(ids(split.inApp))
          == Set(ids(plain.latest)).union(ids(plain.inApp)))
      // The newest charge and the upgrade stay where only the latest list can tell them.
      #expect(ids(split.latest).contains(try #require(ids(plain.latest).last)))
      #expect(split.latest.contains { $0["is_upgraded"] == "true" })
      let held = Set(ids(split.inApp))
      wasSplit = wasSplit || (!held.isSubset(of: ids(split.latest)) && !held.isEmpty)
    }
    #expect(wasSplit)
  }

  @Test func emptyInApp() throws {
    let empty = try answer([.emptyInApp])
    #expect(empty["receipt"]?["in_app"] == [])
    #expect(empty.latest.count == (try answer([])).latest.count)
  }

  @Test func restoredPurchaseDates() throws {
    let plain = try answer([])
    try stage.simulation.restore(on: "phone")
    stage.simulation.setQuirks([.restoredPurchaseDates])
    let old = try #require(
      try stage.answer().latest.first { $0.minute("expires") == "2026-02-01T00:00" })
    #expect(old.date("purchase") > old.date("expires"))
    #expect(old.minute("original_purchase") == plain.latest[0].minute("purchase"))
  }

  @Test func upgradesAsCancellations() throws {
    let modern = try answer([]).latest.filter { $0["is_upgraded"] == "true" }
    let old = try answer([.upgradesAsCancellations]).latest.filter {
      $0.minute("cancellation") == "2026-05-15T00:00"
    }
    #expect(ids(modern) == ids(old))
    #expect(modern.count == 1)
    #expect(old.allSatisfy { $0["is_upgraded"] == nil })
  }

  @Test func nativeValues() throws {
    let item = try #require(rawLatest(try answer([.nativeValues])).first)
    #expect(item["quantity"] == 1)
    #expect(item["is_trial_period"] == false)
    #expect(item["purchase_date_ms"]?.integer != nil)
    #expect(item["transaction_id"]?.integer != nil)
    #expect(item["product_id"]?.string != nil)
  }

  @Test func otherShapes() throws {
    #expect(try answer([.receiptAsArray])["receipt"]?.array?.count == 1)
    let object = try #require(try answer([.latestInfoAsObject])["latest_receipt_info"])
    #expect(object.text("transaction_id") == ids(try answer([]).latest).last)
    #expect(
      try answer([.withoutOwnershipType]).latest.allSatisfy { $0["in_app_ownership_type"] == nil })
    #expect(
      try answer([.withoutLineItemIDs]).latest.allSatisfy { $0["web_order_line_item_id"] == nil })
  }

  @Test func answersLag() throws {
    let bought = try stage.simulation.buy("season.pass", on: "phone").transactionID
    stage.simulation.setAnswerLag(.minutes(10))
    stage.simulation.setQuirks([])
    #expect(!ids(try stage.answer(to: oldReceipt).latest).contains(bought.rawValue))
    stage.simulation.advance(by: .minutes(10))
    #expect(ids(try stage.answer(to: oldReceipt).latest).contains(bought.rawValue))
  }
}
