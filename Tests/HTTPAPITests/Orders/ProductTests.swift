import AppStore
import AppStoreSimulator
import HTTPTypes
import JSONText
import Subscriptions
import Testing

@testable import HTTPAPI

struct ProductTests {
  @Test func `a product is described, listed, and described again`() async throws {
    try await TestAPI.run { api in
      #expect(try await api.get("/v1/products")["products"] == [])
      let description: JSONValue = [
        "type": "auto_renewable", "entitlements": ["premium", "basic"],
        "subscription_group": "main", "level": 1, "period": "P1M", "price_milliunits": 9990,
        "currency": "EUR", "display_name": "Premium, monthly",
      ]
      let first = try await api.call(.put, "/v1/products/monthly", description, as: .admin)
      #expect(first.status == 200)
      #expect(
        first.text
          == #"{"product_id":"monthly","type":"auto_renewable","entitlements":["basic","premium"],"#
          + #""subscription_group":"main","level":1,"period":"P1M","price_milliunits":9990,"#
          + #""currency":"EUR","display_name":"Premium, monthly","#
          + #""valid_from":"2026-01-01T00:00:00.000Z"}"#)

      api.apple.simulation.advance(by: .seconds(1))
      let same = try await api.call(.put, "/v1/products/monthly", description, as: .admin)
      #expect(same.body == first.body)
      let other = try await api.call(
        .put, "/v1/products/monthly", ["type": "auto_renewable", "entitlements": []], as: .admin)
      #expect(other["valid_from"]?.string == "2026-01-01T00:00:01.000Z")
      #expect(other["price_milliunits"] == nil)

      let list = try await api.get("/v1/products")
      #expect(list["products"]?.array?.count == 1)
      #expect(list["products"]?[0] == other.json)
      #expect(list["next"] == .null)

      // What changed nothing is not logged.
      let actions = try await api.get("/v1/administrator-actions", as: .admin)["actions"]?.array
      #expect(actions?.map { $0["action"] } == ["set_product", "set_product"])
      #expect(actions?.map { $0["subject"] } == ["monthly", "monthly"])
      #expect(actions?.first?["data"]?["changes"]?.string?.contains(" → ") == true)
      #expect(actions?.last?["data"]?["changes"] == nil)
      #expect(
        actions?.map { $0["data"]?["valid_from"]?.string } == [
          "2026-01-01T00:00:01.000Z", "2026-01-01T00:00:00.000Z",
        ])
    }
  }

  @Test func `the list comes in pages`() async throws {
    try await TestAPI.run { api in
      for product: ProductID in ["a", "b", "c", "dd", "e"] {
        try await api.describe(product, "x", type: .consumable)
      }
      var (path, found): (String, [String]) = ("/v1/products?limit=2", [])
      for _ in 0..<10 {
        let page = try await api.get(path)
        found += page["products"]?.array?.compactMap { $0["product_id"]?.string } ?? []
        guard let next = page["next"]?.string else { break }
        path = "/v1/products?limit=2&after=\(next)"
      }
      #expect(found == ["a", "b", "c", "e", "dd"])
    }
  }
}
