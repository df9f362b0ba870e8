import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import JSONText
import Subscriptions
import Testing

@testable import HTTPAPI

struct OrderTests {
  @Test func `an order is opened, paid, refunded`() async throws {
    try await TestAPI.run { api in
      try await api.describe("coins.100", "coins", type: .consumable)
      try api.addCustomer("anna")
      let opened = try await api.call(
        .post, "/v1/orders", ["account_id": "4711", "product_id": "coins.100"])
      #expect(opened.status == 201)
      #expect(opened["status"] == "open")
      #expect(opened["transaction_id"] == .null)
      let id = try #require(opened["order_id"]?.string)
      #expect(opened.headers[.location] == "/v1/orders/\(id)")
      #expect(try await api.get("/v1/orders/\(id)").body == opened.body)
      let account = try await api.get("/v1/accounts/4711")
      #expect(account["app_account_token"] == opened["app_account_token"])

      let bought = try api.apple.simulation.buy("coins.100", on: "anna")
      let submitted = try await api.submit("4711", from: "anna", ["order_id": .string(id)])
      #expect(submitted["order"]?["status"] == "fulfilled")
      let paid = try await api.get("/v1/orders/\(id)")
      #expect(paid.json == submitted["order"])
      #expect(paid["transaction_id"]?.string == bought.transactionID.rawValue)
      #expect(paid["fulfilled_at"]?.string == api.apple.simulation.now.description)

      api.apple.simulation.advance(by: .days(1))
      try api.apple.simulation.refund(bought.transactionID)
      _ = try await api.submit("4711", from: "anna", ["restore": true])
      #expect(try await api.get("/v1/orders/\(id)")["status"] == "refunded")
    }
  }

  @Test func `an order expires after a week, and a late purchase still fulfils it`() async throws {
    try await TestAPI.run { api in
      try await api.describe("coins.100", "coins", type: .consumable)
      try api.addCustomer("anna")
      let opened = try await api.call(
        .post, "/v1/orders", ["account_id": "4711", "product_id": "coins.100"])
      let id = try #require(opened["order_id"]?.string)
      api.apple.simulation.advance(by: .days(7))
      #expect(try await api.get("/v1/orders/\(id)")["status"] == "expired")
      _ = try api.apple.simulation.buy("coins.100", on: "anna")
      let submitted = try await api.submit("4711", from: "anna")
      #expect(submitted["order"]?["order_id"]?.string == id)
      #expect(try await api.get("/v1/orders/\(id)")["status"] == "fulfilled")
    }
  }

  @Test(arguments: [
    ("order_unknown", "4711", "coins.100"), ("order_account_mismatch", "4712", "coins.100"),
    ("order_product_mismatch", "4711", "monthly"), ("order_already_fulfilled", "4711", "coins.100"),
  ])
  func `a named order that the charge does not fulfil is warned of`(
    warning: String, account: String, product: String
  ) async throws {
    try await TestAPI.run { api in
      try await api.describe("coins.100", "coins", type: .consumable)
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let opened = try await api.call(
        .post, "/v1/orders", ["account_id": .string(account), "product_id": .string(product)])
      var id = try #require(opened["order_id"]?.string)
      if warning == "order_unknown" { id = UUID().uuidString }
      func buy() async throws -> JSONValue? {
        let bought = try api.apple.simulation.buy("coins.100", on: "anna")
        return try await api.submit(
          "4711", from: "anna",
          ["order_id": .string(id), "transaction_id": .string(bought.transactionID.rawValue)]
        )["warnings"]
      }
      if warning == "order_already_fulfilled" { #expect(try await buy() == []) }
      #expect(try await buy() == [.string(warning)])
    }
  }

  @Test func `an unknown product or order is 404`() async throws {
    try await TestAPI.run { api in
      let product = try await api.call(
        .post, "/v1/orders", ["account_id": "4711", "product_id": "unknown"])
      #expect(product.status == 404)
      #expect(product.code == "unknown_product")
      let order = try await api.get("/v1/orders/\(UUID())")
      #expect(order.status == 404)
      #expect(order.code == "unknown_order")
    }
  }
}
