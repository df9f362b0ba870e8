@testable import AppStore
import Subscriptions
import Testing

/// Renewal statuses from `pending_renewal_info`, or from an old response's top level.
struct RenewalStatusTests {
  private static let line = OriginalTransactionKey(.production, "10")
  private static let grace = "grace_period_expires_date_ms"
  private static let graceText = "grace_period_expires_date"
  private static let retry = "is_in_billing_retry_period"
  private static let intent = "expiration_intent"

  /// The answer is from 5000; the paid period ends at 4000 unless the row says otherwise.
  // swift-format-ignore
  @Test(arguments: [
    ([:],                                       4000, .undisturbed),
    ([:],                                       9000, .undisturbed),
    ([grace: "5001", retry: "1"],               4000, .gracePeriod(until: at(5001))),
    ([grace: "5001"],                           4000, .gracePeriod(until: at(5001))),
    ([graceText: "1970-01-01 00:00:09 Etc/GMT"], 4000, .gracePeriod(until: at(9000))),
    ([grace: "5000", retry: "1"],               4000, .billingRetry),
    ([grace: "5000"],                           4000, .billingRetry),
    ([grace: "5000", retry: "0"],               4000, .undisturbed),
    ([grace: "5000", retry: "0", intent: "2"],  4000, .expired),
    // Recovered: the paid period reaches beyond the grace period that is still listed.
    ([grace: "8000"],                           9000, .undisturbed),
    ([retry: "1"],                              4000, .billingRetry),
    ([retry: true, intent: 2],                  4000, .billingRetry),
    ([retry: "1", intent: "2"],                 9000, .billingRetry),
    ([retry: "0", intent: "2"],                 4000, .expired),
    ([intent: "1"],                             4000, .expired),
    ([intent: "1"],                             5000, .expired),
    ([intent: "1"],                             5001, .undisturbed),
    ([retry: "0"],                              4000, .undisturbed),
    (["auto_renew_status": "0"],                4000, .undisturbed),
  ] as [([String: JSON], Int64, RenewalStatus.Phase)])
  func `the phase of each entry`(
    entry: [String: JSON], expires: Int64, phase: RenewalStatus.Phase
  ) async throws {
    let period = month.with(["expires_date_ms": .number(expires)])
    let renewal = JSON.object(["original_transaction_id": "10"]).with(entry)
    let status = try await receipt(answer(latest: [period], renewals: [renewal])).statuses
    #expect(status[Self.line]?.phase == phase)
    #expect(status[Self.line]?.asOf == at(5000))

    // The same at the top level of an answer to an iOS 6 style receipt.
    guard !entry.isEmpty else { return }
    let flat = JSON.object(["status": 0, "latest_receipt_info": period])
      .with(["receipt": period.with(["request_date_ms": "5000"])]).with(entry)
    #expect(try await receipt(flat).statuses[Self.line]?.phase == phase)
  }

  // swift-format-ignore
  @Test(arguments: [
    (JSON.text("1"), true), ("0", false), (1, true), (0, false), (true, true), (false, false),
    (.null, nil),
  ] as [(JSON, Bool?)])
  func `auto_renew_status in every form`(value: JSON, renews: Bool?) async throws {
    let renewal: JSON = [
      "original_transaction_id": "10", "auto_renew_status": value,
      "auto_renew_product_id": "yearly", "expiration_intent": "1",
    ]
    let statuses = try await receipt(answer(latest: [month], renewals: [renewal])).statuses
    #expect(
      statuses == [
        Self.line: RenewalStatus(
          asOf: at(5000), autoRenews: renews, phase: .expired, autoRenewProductID: "yearly",
          expirationIntent: 1)
      ])
  }

  @Test func `an original transaction without a known period can't be called expired`() async throws
  {
    let renewal: JSON = ["original_transaction_id": "77", "expiration_intent": "1"]
    let statuses = try await receipt(answer(latest: [month], renewals: [renewal])).statuses
    let status = try #require(statuses[OriginalTransactionKey(.production, "77")])
    #expect(status.phase == nil)
    #expect(status.expirationIntent == 1)
  }

  @Test(arguments: [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2, 0, 1, 2]])
  func `of several entries that of the latest product counts`(order: [Int]) async throws {
    let entries: [JSON] = ["weekly", "monthly", "yearly"].map { product in
      [
        "original_transaction_id": "10", "product_id": .text(product),
        "auto_renew_product_id": .text(product), "auto_renew_status": "1",
      ]
    }
    let yearly = month.with([
      "product_id": "yearly", "transaction_id": "12", "purchase_date_ms": "3000",
      "expires_date_ms": "9000",
    ])
    let renewals = JSON.array(order.map { entries[$0] })
    let one = try await receipt(answer(latest: [yearly, month], renewals: renewals))
    #expect(one.statuses[Self.line]?.autoRenewProductID == "yearly")
    let other = try await receipt(answer(latest: [month], renewals: renewals))
    #expect(other.statuses[Self.line]?.autoRenewProductID == "monthly")
    // None fits: any, but always the same.
    let none = try await receipt(
      answer(latest: [month.with(["product_id": "daily"])], renewals: renewals))
    #expect(none.statuses[Self.line]?.autoRenewProductID == "yearly")
  }

  /// 21006 with the renewal switched off is the end; with it on, it may be Apple's lag.
  @Test(arguments: [(0, .expired), (1, .undisturbed)] as [(Int64, RenewalStatus.Phase)])
  func `21006 in the old shape`(renews: Int64, phase: RenewalStatus.Phase) async throws {
    let flat: JSON = [
      "status": 21006, "receipt": month, "latest_expired_receipt_info": month,
      "auto_renew_status": .number(renews),
    ]
    #expect(try await receipt(flat).statuses[Self.line]?.phase == phase)
  }

  /// The cancellation can stand at the top level, in `latest_expired_receipt_info`, or in both.
  @Test(arguments: ["top", "inner", "both", "top without a list"])
  func `21006 with a cancellation revokes`(place: String) async throws {
    let cancellation: [String: JSON] = [
      "cancellation_date_ms": "3000", "cancellation_reason": "1",
    ]
    var flat: JSON = ["status": 21006, "receipt": month, "auto_renew_status": 0]
    if place != "top without a list" { flat["latest_expired_receipt_info"] = month }
    if place != "inner" { flat = flat.with(cancellation) }
    if place == "inner" || place == "both" {
      flat["latest_expired_receipt_info"] = month.with(cancellation)
    }
    let receipt = try await receipt(flat)
    #expect(receipt.records.map(\.revocation) == [.mentioned(at: at(3000), reason: "1")])
    #expect(receipt.records.map(\.asOf) == [receipt.requestDate])
  }

  @Test func `an answer without renewal information gives no status`() async throws {
    #expect(try await receipt(answer(latest: [month])).statuses.isEmpty)
    #expect(try await receipt(["status": 0, "receipt": month]).statuses.isEmpty)
  }

  @Test func `a renewal that cannot be read is reported, and says nothing`() async throws {
    let flat: JSON = ["status": 0, "receipt": month, "auto_renew_status": "maybe"]
    let receipt = try await receipt(flat)
    #expect(receipt.statuses.isEmpty)
    #expect(
      receipt.unreadable == [
        UnreadableRecord(
          list: "top level", reason: "auto_renew_status is neither true nor false")
      ])
  }
}
