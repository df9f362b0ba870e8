import AppStore
import AppStoreSimulator
import HTTPTypes
import JSONText
import Subscriptions
import Testing

@testable import HTTPAPI

struct TransactionTests {
  @Test func `a renewal is explained: what was looked at, and what was recorded`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      _ = try await api.submit("4711", from: "anna")
      let renewed = try #require(api.apple.simulation.advance(by: .days(31)).last)
      // Any account may submit it: the account that was renewing owns it.
      let submitted = try await api.submit("4712", from: "anna")
      #expect(submitted["warnings"] == ["owned_by_another_account"])

      let answer = try await api.get("/v1/transactions/\(renewed.transactionID)")
      #expect(answer.status == 200)
      #expect(answer["owner_account_id"] == "4711")
      #expect(answer["decision"]?["rule"] == "actively_auto_renewing")
      let because = answer["decision"]?["because"]?.string ?? ""
      #expect(because.contains("“4711”"))
      #expect(because.contains(bought.transactionID.rawValue))
      let evidence = try #require(answer["evidence"])
      #expect(evidence["ground"] == "renewed_at_period_end")
      #expect(evidence["kind"] == "unknown")
      #expect(evidence["charged_at"] == "2026-02-01T00:00:00.000Z")
      #expect(evidence["renewing_account_id"] == "4711")
      #expect(evidence["previous_transaction_id"]?.string == bought.transactionID.rawValue)
      #expect(evidence["in_words"]?.string?.contains(bought.transactionID.rawValue) == true)

      let history = try #require(answer["history"]?.array)
      let kinds = history.compactMap { $0["kind"]?.string }
      #expect(kinds.contains("transaction"))
      #expect(kinds.contains("claim"))
      #expect(kinds.contains("decided"))
      #expect(
        history.allSatisfy {
          $0["source"]?["id"] == submitted["submission_id"]
            || $0["kind"] == "renewal_status"
        })
      let claim = history.first { $0["kind"] == "claim" }
      #expect(claim?["in_words"]?.string?.contains("“4712” submitted") == true)
    }
  }

  @Test func `an id that both environments have needs one of them named`() async throws {
    try await TestAPI.run { api in
      try await api.describe("coins.100", "coins", type: .consumable)
      for environment in ["Production", "Sandbox"] {
        let receipt = "e30t\(environment.prefix(4))"
        api.apple.answer(receipt, with: Self.answer(environment))
        #expect(try await api.submit("in \(environment)", receipt: receipt).status == 200)
      }
      for path in ["/v1/transactions/100", "/v1/original-transactions/100"] {
        let ambiguous = try await api.get(path)
        #expect(ambiguous.status == 409, "\(path)")
        #expect(ambiguous.code == "ambiguous")
        for environment in ["production", "sandbox"] {
          let answer = try await api.get("\(path)?environment=\(environment)")
          #expect(answer.status == 200)
          #expect(answer["environment"]?.string == environment)
        }
      }
      let preview = try await api.get(
        "/v1/ownership-preview?account_id=a&original_transaction_id=100")
      #expect(preview.code == "ambiguous")
      let delivery: JSONValue = ["account_id": "in Sandbox"]
      #expect(
        try await api.call(.post, "/v1/transactions/100/delivery", delivery).code == "ambiguous")
      let delivered = try await api.call(
        .post, "/v1/transactions/100/delivery?environment=sandbox", delivery)
      #expect(delivered["first"] == true)
    }
  }

  /// An answer of Apple's with one consumable, of the same id in either environment.
  static func answer(_ environment: String) -> [UInt8] {
    let json: JSONValue = [
      "status": 0, "environment": .string(environment),
      "receipt": [
        "bundle_id": .string(SimulatedApp.sample.bundleID),
        "receipt_creation_date_ms": "1767225600000", "request_date_ms": "1767225600000",
        "in_app": [
          [
            "quantity": "1", "product_id": "coins.100", "transaction_id": "100",
            "original_transaction_id": "100", "purchase_date_ms": "1767225600000",
            "original_purchase_date_ms": "1767225600000", "is_trial_period": "false",
          ]
        ],
      ],
    ]
    return json.bytes
  }

  @Test func `an id that was never recorded is 404`() async throws {
    try await TestAPI.run { api in
      #expect(try await api.get("/v1/transactions/1").code == "unknown_transaction")
      let delivery = try await api.call(
        .post, "/v1/transactions/1/delivery", ["account_id": "a"])
      #expect(delivery.status == 404)
      #expect(delivery.code == "unknown_transaction")
    }
  }

  @Test func `an answer says newly owned until the delivery is acknowledged`() async throws {
    try await TestAPI.run { api in
      try await api.describe("coins.100", "coins", type: .consumable)
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("coins.100", on: "anna")
      let answer = try await api.submit("4711", from: "anna")
      let id = try #require(answer["submission_id"]?.string)
      let before = try await api.get("/v1/receipts/\(id)")
      #expect(before["transactions"]?[0]["newly_owned"] == true)
      _ = try await api.call(
        .post, "/v1/transactions/\(bought.transactionID)/delivery", ["account_id": "4711"])
      let after = try await api.get("/v1/receipts/\(id)")
      #expect(after["transactions"]?[0]["newly_owned"] == false)
    }
  }

  @Test func `the delivery of what was refunded is refused`() async throws {
    try await TestAPI.run { api in
      try await api.describe("coins.100", "coins", type: .consumable)
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("coins.100", on: "anna")
      _ = try await api.submit("4711", from: "anna")
      api.apple.simulation.advance(by: .days(1))
      try api.apple.simulation.refund(bought.transactionID)
      _ = try await api.submit("4711", from: "anna", ["restore": true])
      let refused = try await api.call(
        .post, "/v1/transactions/\(bought.transactionID)/delivery", ["account_id": "4711"])
      #expect(refused.status == 409)
      #expect(refused.code == "revoked")
    }
  }

  @Test func `a delivery is acknowledged once, and by the owner`() async throws {
    try await TestAPI.run { api in
      try await api.describe("coins.100", "coins", type: .consumable)
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("coins.100", on: "anna")
      _ = try await api.submit("4711", from: "anna")
      _ = try await api.call(.put, "/v1/accounts/4712")
      let path = "/v1/transactions/\(bought.transactionID)/delivery"
      for other in ["4712", "never seen"] {
        let refused = try await api.call(.post, path, ["account_id": .string(other)])
        #expect(refused.status == 409)
        #expect(refused.code == "not_the_owner")
      }
      api.apple.simulation.advance(by: .minutes(1))
      let first = try await api.call(.post, path, ["account_id": "4711"])
      #expect(first.text == #"{"delivered_at":"2026-01-01T00:01:00.000Z","first":true}"#)
      api.apple.simulation.advance(by: .minutes(1))
      let second = try await api.call(.post, path, ["account_id": "4711"])
      #expect(second.text == #"{"delivered_at":"2026-01-01T00:01:00.000Z","first":false}"#)
      let transaction = try await api.get("/v1/transactions/\(bought.transactionID)")
      #expect(transaction["delivered_at"] == first["delivered_at"])
    }
  }
}
