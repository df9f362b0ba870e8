import AppStore
import AppStoreSimulator
import HTTPTypes
import JSONText
import Subscriptions
import Testing

@testable import HTTPAPI

struct AccountTests {
  @Test func `an account has one token, for ever`() async throws {
    try await TestAPI.run { api in
      #expect(try await api.get("/v1/accounts/4711").code == "unknown_account")
      let first = try await api.call(.put, "/v1/accounts/4711")
      #expect(first.status == 200)
      #expect(first["account_id"] == "4711")
      #expect(first["created_at"] == "2026-01-01T00:00:00.000Z")
      api.apple.simulation.advance(by: .days(1))
      #expect(try await api.call(.put, "/v1/accounts/4711").body == first.body)
      #expect(try await api.get("/v1/accounts/4711").body == first.body)
      let other = try await api.call(.put, "/v1/accounts/4712")
      #expect(other["app_account_token"] != first["app_account_token"])
    }
  }

  @Test func `what an account owns, latest first, in pages`() async throws {
    try await TestAPI.run { api in
      #expect(try await api.get("/v1/accounts/4711/transactions")["transactions"] == [])
      try api.addCustomer("anna")
      var bought: [String] = []
      for product: ProductID in ["monthly", "lifetime", "coins.100", "coins.100"] {
        bought.append(
          try api.apple.simulation.buy(product, on: "anna").transactionID.rawValue)
        api.apple.simulation.advance(by: .minutes(1))
      }
      _ = try await api.submit("4711", from: "anna")
      _ = try await api.submit("4712", from: "anna")

      var (path, found): (String, [String]) = ("/v1/accounts/4711/transactions?limit=3", [])
      for _ in 0..<10 {
        let page = try await api.get(path)
        found += page["transactions"]?.array?.compactMap { $0["transaction_id"]?.string } ?? []
        guard let next = page["next"]?.string else { break }
        path = "/v1/accounts/4711/transactions?limit=3&after=\(next)"
      }
      #expect(found == bought.reversed())
      let other = try await api.get("/v1/accounts/4712/transactions")
      #expect(other["transactions"] == [])
      #expect(other["next"] == .null)
    }
  }
}
