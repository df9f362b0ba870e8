import AppStore
import AppStoreSimulator
import JSONText
import Subscriptions
import Testing

@testable import HTTPAPI

struct OriginalTransactionTests {
  /// Anna's account buys a month and switches off; later Ben's account buys a quarter on the same
  /// phone.
  private func recordStory(_ api: TestAPI) async throws -> OriginalTransactionID {
    try await api.describe("monthly", "premium")
    try await api.describe("quarterly", "premium")
    try api.addCustomer("phone")
    let bought = try api.apple.simulation.buy("monthly", on: "phone")
    _ = try await api.submit("anna", from: "phone")
    api.apple.simulation.advance(by: .days(10))
    try api.apple.simulation.setAutoRenew(false, bought.originalTransactionID)
    _ = try await api.submit("anna", from: "phone")
    api.apple.simulation.advance(by: .days(30))
    return bought.originalTransactionID
  }

  @Test func `an original transaction, with its bindings`() async throws {
    try await TestAPI.run { api in
      let line = try await recordStory(api)
      let lapsed = try await api.get("/v1/original-transactions/\(line)")
      #expect(lapsed.status == 200)
      #expect(lapsed["state"] == "expired")
      #expect(lapsed["auto_renewing"] == false)
      #expect(lapsed["account_id"] == "anna")
      #expect(lapsed["expires_at"] == "2026-02-01T00:00:00.000Z")

      let second = try api.apple.simulation.buy("quarterly", on: "phone")
      #expect(second.originalTransactionID == line)
      api.apple.simulation.advance(by: .minutes(1))
      _ = try await api.submit("ben", from: "phone")
      let answer = try await api.get("/v1/original-transactions/\(line)")
      #expect(answer["account_id"] == "ben")
      #expect(answer["auto_renewing"] == true)
      #expect(answer["auto_renew_product_id"] == "quarterly")
      #expect(answer["product_id"] == "quarterly")
      #expect(answer["state"] == "active")
      #expect(answer["expires_at"] == "2026-05-10T00:00:00.000Z")
      let bindings = try #require(answer["bindings"]?.array)
      #expect(bindings.map { $0["account_id"] } == ["anna", "ben"])
      #expect(bindings.map { $0["rule"] } == ["submitter", "submitter"])
      #expect(bindings.last?["bound_at"] == "2026-02-10T00:00:00.000Z")
      #expect(bindings.last?["transaction_id"]?.string == second.transactionID.rawValue)
      let owners = answer["transactions"]?.array?.map { $0["owner_account_id"] }
      #expect(owners == ["anna", "ben"])
    }
  }

  @Test func `who would own it, before the customer pays`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("phone")
      let line = try api.apple.simulation.buy("monthly", on: "phone").originalTransactionID
      api.apple.simulation.advance(by: .days(1))
      let path = "/v1/ownership-preview?account_id=ben&original_transaction_id=\(line)"

      let unseen = try await api.get(path)
      #expect(unseen.status == 200)
      #expect(unseen["purchase"]?["owner_account_id"] == "ben")
      #expect(unseen["purchase"]?["rule"] == "submitter")
      #expect(unseen["renewal"]?["owner_account_id"] == .null)
      #expect(unseen["environment"] == "production")

      _ = try await api.submit("anna", from: "phone")
      let annas = try await api.get(path)
      #expect(annas["purchase"]?["owner_account_id"] == "anna")
      #expect(annas["purchase"]?["rule"] == "actively_auto_renewing")
      #expect(annas["renewal"]?["owner_account_id"] == "anna")
      #expect(annas["purchase"]?["because"]?.string?.contains("“anna”") == true)
      // Asking creates nothing.
      #expect(try await api.get("/v1/accounts/ben").status == 404)

      try api.apple.simulation.setAutoRenew(false, line)
      api.apple.simulation.advance(by: .minutes(1))
      _ = try await api.submit("anna", from: "phone")
      api.apple.simulation.advance(by: .days(40))
      let free = try await api.get(path)
      #expect(free["purchase"]?["owner_account_id"] == "ben")
    }
  }

  @Test func `one that was never recorded is 404`() async throws {
    try await TestAPI.run { api in
      let answer = try await api.get("/v1/original-transactions/1")
      #expect(answer.status == 404)
      #expect(answer.code == "unknown_original_transaction")
    }
  }
}
