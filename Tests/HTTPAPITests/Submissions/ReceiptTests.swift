import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import Intake
import JSONText
import Subscriptions
import LedgerStorage
import Testing

@testable import HTTPAPI

struct ReceiptTests {
  @Test func `a receipt goes in, the account is entitled`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      let answer = try await api.submit("4711", from: "anna")
      #expect(answer.status == 200)
      #expect(answer["status"] == "verified")
      #expect(answer["environment"] == "production")
      #expect(answer["warnings"] == [])
      #expect(answer["order"] == nil)
      #expect(answer["transactions"]?.array?.count == 1)
      let transaction = try #require(answer["transactions"]?[0])
      #expect(transaction["transaction_id"]?.string == bought.transactionID.rawValue)
      #expect(transaction["product_type"] == "auto_renewable")
      #expect(transaction["owner_account_id"] == "4711")
      #expect(transaction["decision"]?["rule"] == "submitter")
      #expect(transaction["newly_owned"] == true)
      #expect(transaction["purchased_at"] == "2026-01-01T00:00:00.000Z")
      #expect(transaction["expires_at"] == "2026-02-01T00:00:00.000Z")
      #expect(transaction["revoked_at"] == .null)
      #expect(answer["entitlements"]?[0]["entitlement"] == "premium")
      #expect(answer["entitlements"]?[0]["active"] == true)

      // The same again: the same decisions, and nothing newly owned.
      let again = try await api.submit("4711", from: "anna")
      #expect(again.status == 200)
      #expect(again["submission_id"] != answer["submission_id"])
      #expect(again["transactions"]?[0]["newly_owned"] == false)
      #expect(again["transactions"]?[0]["decision"] == transaction["decision"])

      // The submission's status is the first response.
      let id = try #require(answer["submission_id"]?.string)
      let state = try await api.get("/v1/receipts/\(id)")
      #expect(state.status == 200)
      #expect(state["transactions"] == answer["transactions"])
      #expect(state["exchanges"] == nil)
    }
  }

  @Test func `another account's submission of the same receipt gets an honest answer`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      try api.apple.simulation.buy("monthly", on: "anna")
      _ = try await api.submit("4711", from: "anna")
      let answer = try await api.submit("4712", from: "anna")
      #expect(answer.status == 200)
      #expect(answer["warnings"] == ["owned_by_another_account"])
      #expect(answer["transactions"]?[0]["owner_account_id"] == "4711")
      #expect(answer["transactions"]?[0]["newly_owned"] == false)
      #expect(answer["entitlements"] == [])
    }
  }

  @Test func `an alias is echoed as the id that was sent`() async throws {
    try await TestAPI.run { api in
      try await api.describe("lifetime", "lifetime", type: .nonConsumable)
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("lifetime", on: "anna")
      _ = try await api.submit("4711", from: "anna")
      try api.apple.simulation.addDevice("tablet", appleID: "anna")
      api.apple.simulation.advance(by: .days(1))
      let restored = try #require(try api.apple.simulation.restore(on: "tablet").first)
      let answer = try await api.submit("4712", from: "tablet", ["restore": true])
      let transaction = try #require(answer["transactions"]?[0])
      #expect(transaction["transaction_id"]?.string == bought.transactionID.rawValue)
      #expect(
        transaction["submitted_transaction_id"]?.string == restored.transactionID.rawValue)
      #expect(transaction["aliases"] == [.string(restored.transactionID.rawValue)])
      #expect(transaction["owner_account_id"] == "4711")

      let alias = try await api.get("/v1/transactions/\(restored.transactionID)")
      #expect(alias["transaction_id"]?.string == bought.transactionID.rawValue)
      #expect(alias["submitted_transaction_id"]?.string == restored.transactionID.rawValue)
    }
  }

  @Test func `while Apple is down a receipt waits, and is decided without being sent again`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      try api.apple.simulation.buy("monthly", on: "anna")
      api.apple.setDown(true)
      let answer = try await api.submit("4711", from: "anna")
      #expect(answer.status == 202)
      #expect(answer["status"] == "pending")
      let id = try #require(answer["submission_id"]?.string)
      #expect(answer.headers[.location] == "/v1/receipts/\(id)")
      let retryAt = try #require(
        answer["retry_at"]?.string.flatMap { Timestamp(rfc3339: $0) })
      #expect(retryAt > api.apple.simulation.now)
      // A worker notices it at most half a second later, two seconds after the response.
      #expect(retryAt <= api.apple.simulation.now + .milliseconds(1500))
      #expect(try await api.get("/v1/accounts/4711/entitlements")["entitlements"] == [])

      let waiting = try await api.get("/v1/receipts/\(id)", as: .admin)
      #expect(waiting.status == 202)
      #expect(waiting["exchanges"]?[0]["http_status"] == .null)
      #expect(waiting["exchanges"]?[0]["fault"]?.string?.isEmpty == false)

      api.apple.setDown(false)
      _ = try await api.intake.resume(try #require(UUID(uuidString: id)))
      let decided = try await api.get("/v1/receipts/\(id)", as: .admin)
      #expect(decided.status == 200)
      #expect(decided["transactions"]?[0]["newly_owned"] == true)
      #expect(decided["exchanges"]?.array?.count == 2)
      #expect(decided["exchanges"]?[1]["http_status"] == 200)
      #expect(decided["exchanges"]?[1]["answer"]?.string?.contains("in_app") == true)
      let entitlements = try await api.get("/v1/accounts/4711/entitlements")
      #expect(entitlements["entitlements"]?[0]["active"] == true)
    }
  }

  @Test(
    "Receipts that are refused",
    arguments: [
      ("e3JlY2VpcHR9", "wrong_bundle_id", #"{"status":0,"receipt":{"bundle_id":"com.other"}}"#),
      ("e3JlamVjdGVk", "receipt_rejected", #"{"status":21003}"#),
    ])
  func rejected(receipt: String, code: String, apple: String) async throws {
    try await TestAPI.run { api in
      api.apple.answer(receipt, with: Array(apple.utf8))
      let answer = try await api.submit("4711", receipt: receipt)
      #expect(answer.status == 422, "\(answer)")
      #expect(answer.code == code)
      #expect(answer["title"]?.string?.isEmpty == false)
      if apple.contains("21003") { #expect(answer["apple_status"] == 21003) }
      let id = try #require(answer["submission_id"]?.string)
      #expect(try await api.get("/v1/receipts/\(id)").content == answer.content)
      let seen = try await api.get("/v1/receipts/\(id)", as: .admin)
      #expect(seen["exchanges"]?.array?.isEmpty == false)
    }
  }

  @Test func `what is not a receipt is stored as rejected without asking Apple`() async throws {
    try await TestAPI.run { api in
      try api.addCustomer("anna")
      try api.apple.simulation.buy("monthly", on: "anna")
      let receipt = try api.apple.simulation.receipt(on: "anna")
      let half = String(receipt.prefix(receipt.count / 8 * 4))
      let whole = "MBcGCSqGSIb3DQEHAgAAAAAAAAAAAAAAAA=="
      // "hello world", other DER, receipts that were cut off, the last by a byte, and a middle.
      for text in [
        "aGVsbG8gd29ybGQ=", "MAMCAQU=", half, "MBgGCSqGSIb3DQEHAgAAAAAAAAAAAAAAAA==",
        String(receipt.dropFirst(64)),
      ] {
        let answer = try await api.submit("4711", receipt: text)
        #expect(answer.status == 422, "\(text.prefix(20)): \(answer)")
        #expect(answer.code == "receipt_rejected")
        let id = try #require(answer["submission_id"]?.string)
        let seen = try await api.get("/v1/receipts/\(id)", as: .admin)
        #expect(seen.status == 422)
        #expect(seen["exchanges"]?.array == [])
      }
      let rejected = try await api.ledger.submissions.rejectedSubmissions(before: nil, limit: 9)
      #expect(rejected.count == 5)
      // Only Apple knows more about these: a property list, and BER without a length, as from Xcode.
      for text in ["e30=", "CiB7fQ==", "MIAGCSqGSIb3DQEHAqCA", whole, String(whole.dropLast(2))] {
        #expect(try await api.submit("4711", receipt: text).status == 202)
      }
      #expect(try await api.submit("4711", receipt: receipt).status == 200)
    }
  }

  @Test func `a bundle id of no app of ours is refused without asking Apple`() async throws {
    try await TestAPI.run { api in
      let answer = try await api.submit(
        "4711", receipt: "e30=", ["bundle_id": "com.example.other"])
      #expect(answer.status == 422)
      #expect(answer.code == "wrong_bundle_id")
      #expect(answer["apple_status"] == nil)
    }
  }

  @Test func `a submission that never was is 404`() async throws {
    try await TestAPI.run { api in
      let answer = try await api.get("/v1/receipts/\(UUID())")
      #expect(answer.status == 404)
      #expect(answer.code == "unknown_submission")
    }
  }
}
