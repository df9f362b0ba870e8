import AppStore
import AppStoreSimulator
import JSONText
import Subscriptions
import Testing

@testable import HTTPAPI

struct CorrectionTests {
  private static let start: Int64 = 1_767_225_600_000

  @Test func `what was corrected to another account is not newly owned any more`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      api.apple.answer("e30tLS00", with: Self.answer(on: 0, periods: 1, renews: true))
      api.apple.answer("e30tLS10", with: Self.answer(on: 10, periods: 1, renews: false))
      // Auto-renew was on again, which is not known before the last of these.
      api.apple.answer("e30tLS20", with: Self.answer(on: 20, periods: 1, renews: true))
      api.apple.answer("e30tLS31", with: Self.answer(on: 31, periods: 2, renews: true))
      api.apple.simulation.advance(by: .days(32))
      _ = try await api.submit("4711", receipt: "e30tLS00")
      _ = try await api.submit("4711", receipt: "e30tLS10")
      let claimed = try await api.submit("4712", receipt: "e30tLS31")
      #expect(claimed["transactions"]?[0]["transaction_id"] == "101")
      #expect(claimed["transactions"]?[0]["newly_owned"] == true)

      _ = try await api.submit("4711", receipt: "e30tLS20")
      let id = try #require(claimed["submission_id"]?.string)
      let state = try await api.get("/v1/receipts/\(id)")
      #expect(state["transactions"]?[0]["transaction_id"] == "101")
      #expect(state["transactions"]?[0]["owner_account_id"] == "4711")
      #expect(state["transactions"]?[0]["newly_owned"] == false)
    }
  }

  /// An answer of Apple's of a day, with a subscription of that many periods of thirty days.
  private static func answer(on day: Int64, periods: Int64, renews: Bool) -> [UInt8] {
    func date(_ day: Int64) -> JSONValue { .string(String(start + day * 86_400_000)) }
    let transactions = (0..<periods).map { period -> JSONValue in
      [
        "quantity": "1", "product_id": "monthly", "transaction_id": .string("\(100 + period)"),
        "original_transaction_id": "100", "purchase_date_ms": date(period * 30),
        "original_purchase_date_ms": date(0), "expires_date_ms": date(period * 30 + 30),
        "web_order_line_item_id": .string("\(900 + period)"), "is_trial_period": "false",
        "is_in_intro_offer_period": "false",
      ]
    }
    let json: JSONValue = [
      "status": 0, "environment": "Production",
      "receipt": [
        "bundle_id": .string(SimulatedApp.sample.bundleID),
        "receipt_creation_date_ms": date(day), "request_date_ms": date(day), "in_app": [],
      ],
      "latest_receipt_info": .array(transactions),
      "pending_renewal_info": [
        [
          "auto_renew_status": renews ? "1" : "0", "original_transaction_id": "100",
          "product_id": "monthly", "auto_renew_product_id": "monthly",
        ]
      ],
    ]
    return json.bytes
  }
}
