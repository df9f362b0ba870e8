import AppStore
import AppStoreSimulator
import Foundation
import JSONText
import Subscriptions
import Testing

@testable import HTTPAPI

/// The published answers of Apple's, through the whole of it.
struct SampleTests {
  struct Expected: Sendable {
    var product: ProductID
    var type: ProductType
    var environment: String
    var expiresAt: JSONValue
    var revokedAt: JSONValue
    var state: String
    var appleStatus: Int64
  }

  @Test(
    "What the samples state is what is answered",
    arguments: [
      (
        "response1",
        Expected(
          product: "year-premium", type: .autoRenewable, environment: "production",
          expiresAt: "2015-05-23T17:05:59.000Z", revokedAt: .null, state: "expired",
          appleStatus: 0)
      ),
      (
        "response2",
        Expected(
          product: "year-premium", type: .autoRenewable, environment: "production",
          expiresAt: "2019-08-20T04:28:57.000Z", revokedAt: .null, state: "expired",
          appleStatus: 0)
      ),
      (
        "response3",
        Expected(
          product: "year-premium", type: .autoRenewable, environment: "production",
          expiresAt: "2019-03-16T03:27:28.000Z", revokedAt: "2018-03-26T14:57:39.000Z",
          state: "revoked", appleStatus: 21006)
      ),
      (
        "response4",
        Expected(
          product: "lifetime", type: .nonConsumable, environment: "sandbox", expiresAt: .null,
          revokedAt: .null, state: "active", appleStatus: 0)
      ),
    ])
  func samples(name: String, expected: Expected) async throws {
    let url = try #require(
      Bundle.module.url(forResource: name, withExtension: "json", subdirectory: "Samples"))
    let body = Array(try Data(contentsOf: url))
    try await TestAPI.run { api in
      try await api.describe(expected.product, "premium", type: expected.type)
      api.apple.answer("e3JlY2VpcHR9", with: body)
      let answer = try await api.submit("4711", receipt: "e3JlY2VpcHR9")
      #expect(answer.status == 200, "\(answer)")
      #expect(answer["environment"]?.string == expected.environment)
      #expect(answer["transactions"]?.array?.count == 1)
      let transaction = try #require(answer["transactions"]?[0])
      #expect(transaction["product_id"]?.string == expected.product.rawValue)
      #expect(transaction["expires_at"] == expected.expiresAt)
      #expect(transaction["revoked_at"] == expected.revokedAt)
      #expect(transaction["owner_account_id"] == "4711")

      let entitlements = try await api.get("/v1/accounts/4711/entitlements")
      let entitlement = try #require(entitlements["entitlements"]?[0])
      #expect(entitlement["state"]?.string == expected.state)
      #expect(entitlement["active"] == .bool(expected.state == "active"))

      let id = try #require(answer["submission_id"]?.string)
      let seen = try await api.get("/v1/receipts/\(id)", as: .admin)
      let text = try #require(seen["exchanges"]?.array?.last?["answer"]?.string)
      let exchanged = try JSONValue(parsing: text.utf8)
      #expect(exchanged["status"]?.integer == expected.appleStatus)
      // By the id that was made for it where Apple gave none.
      let transactionID = try #require(transaction["transaction_id"]?.string)
      let explained = try await api.get("/v1/transactions/\(transactionID)")
      #expect(explained["expires_at"] == expected.expiresAt)
    }
  }

  @Test func `while its period ran, the cancelled sample was active, then revoked`()
    async throws
  {
    let url = try #require(
      Bundle.module.url(forResource: "response3", withExtension: "json", subdirectory: "Samples"))
    let body = Array(try Data(contentsOf: url))
    try await TestAPI.run { api in
      try await api.describe("year-premium", "premium")
      api.apple.answer("e3JlY2VpcHR9", with: body)
      _ = try await api.submit("4711", receipt: "e3JlY2VpcHR9")
      for (moment, state) in [
        ("2018-03-26T14:57:38.999Z", "active"), ("2018-03-26T14:57:39Z", "revoked"),
        ("2019-03-16T03:27:27Z", "revoked"), ("2019-03-16T03:27:28Z", "revoked"),
      ] {
        let answer = try await api.get("/v1/accounts/4711/entitlements?at=\(moment)")
        #expect(answer["entitlements"]?[0]["state"]?.string == state, "\(moment)")
      }
    }
  }
}
