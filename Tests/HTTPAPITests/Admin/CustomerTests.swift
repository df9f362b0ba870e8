import AppStoreSimulator
import HTTPTypes
import JSONText
import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI

/// Finding customers: by the beginning of a name, by Apple's order ID, and in the list.
struct CustomerTests {
  private static let names: [(id: String, label: String?, email: String?)] = [
    ("klara", "Meier, Klara", "km@example.com"), ("Klaus-1", nil, "klaus%@example.com"),
    ("4711", "Özil_100%", nil), ("47", nil, nil), ("%", nil, nil),
  ]

  private func name(_ api: TestAPI) async throws {
    for (id, label, email) in Self.names {
      let body = JSONValue.object([
        ("label", label.map { .string($0) }), ("email", email.map { .string($0) }),
      ])
      let path = AdminURL.account(id).replacing("/admin/", with: "/v1/")
      #expect(try await api.call(.put, path, body).status == 200)
    }
  }

  @Test(arguments: [
    ("klar", ["klara"]), ("KLARA", ["klara"]), ("kla", ["Klaus-1", "klara"]),
    ("meier", ["klara"]), ("KM@EX", ["klara"]), ("klaus%", ["Klaus-1"]), ("Öz", ["4711"]),
    ("ÖZIL_1", ["4711"]), ("471", ["4711"]), ("47", ["47"]), ("lara", []), ("_", []), ("%", ["%"]),
    ("m", ["klara"]),
  ])
  func `an account is found by the beginning of its names`(text: String, found: [String])
    async throws
  {
    try await TestAPI.run { api in
      try await name(api)
      var browser = try await AdminBrowser.loggedIn(api)
      let answer = try await browser.get(AdminURL.search(text))
      if let only = found.first, found.count == 1 {
        #expect(answer.location == AdminURL.account(only))
      } else {
        let hits = answer.text.matches(of: /<strong class=\x22code\x22>([^<]*)/).map {
          String($0.1)
        }
        #expect(Set(hits) == Set(found))
        #expect(answer.contains("No results.") == found.isEmpty)
      }
    }
  }

  @Test func `results show the state, the product and the latest date`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("phone")
      let id = try api.apple.simulation.buy("monthly", on: "phone").transactionID.rawValue
      _ = try await api.submit("rita", from: "phone")
      for name in ["ritchie", id] { _ = try await api.call(.put, "/v1/accounts/\(name)") }
      var browser = try await AdminBrowser.loggedIn(api)
      func tag(_ name: String, _ tone: String, _ state: String) -> String {
        #"<span class="tag">\#(name) <span class="badge \#(tone)">\#(state)</span></span>"#
      }
      let accounts = try await browser.get(AdminURL.search("rit"))
      for text in [
        tag("premium", "good", "Active"), tag("", "quiet", "No entitlement"),
        "<p class=\"note\">monthly · access until ", "2 results for “rit”.",
      ] { #expect(accounts.contains(text), "\(text)") }
      let both = try await browser.get(AdminURL.search(id))
      #expect(both.contains(tag("monthly", "good", "Active")))
      #expect(both.text.contains(/1 charge · latest charge [^·]* · owned by rita/))
    }
  }

  @Test func `a search that finds too many says so`() async throws {
    try await TestAPI.run { api in
      for number in 1...51 { _ = try await api.call(.put, "/v1/accounts/guest-\(number)") }
      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get(AdminURL.search("guest"))
      #expect(page.contains("First 50 results for “guest”; refine the search."))
      #expect(page.text.matches(of: /<strong class="code">/).count == 50)
    }
  }

  @Test func `names are replaced one by one, shown, and erased with the person`() async throws {
    try await TestAPI.run { api in
      try await name(api)
      let path = "/v1/accounts/klara"
      let both = try await api.get(path)
      #expect(both["label"] == "Meier, Klara")
      #expect(both["email"] == "km@example.com")
      let one = try await api.call(.put, path, ["label": .null])
      #expect(one["label"] == nil)
      #expect(one["email"] == "km@example.com")
      #expect(try await api.call(.put, path)["email"] == "km@example.com")
      for body in [["label": ""], ["email": 1], ["label": "a\u{0}"]] as [JSONValue] {
        #expect(try await api.call(.put, path, body).status == 400)
      }
      var browser = try await AdminBrowser.loggedIn(api)
      #expect(try await browser.get("/admin/accounts/klara").contains("km@example.com"))
      let export = try await api.get("/v1/accounts/klara/export?reason=r", as: .admin)
      #expect(export["account"]?["email"] == "km@example.com")

      #expect(try await api.call(.delete, "\(path)?reason=r", as: .admin).status == 200)
      #expect(try await browser.get(AdminURL.search("km@ex")).contains("No results."))
      #expect(try await api.count("account", where: "email LIKE 'km%'") == 0)
    }
  }

  @Test func `an order that Apple's email names leads to its charge`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("phone")
      let bought = try api.apple.simulation.buy("monthly", on: "phone")
      let order = try #require(try api.apple.simulation.truth(of: bought.transactionID).orderID)
      var browser = try await AdminBrowser.loggedIn(api)
      let unseen = try await browser.get(AdminURL.search(order))
      #expect(unseen.contains("transaction \(bought.transactionID)), but it was never submitted"))
      _ = try await api.submit("anna", from: "phone")
      let found = try await browser.get(AdminURL.search(order.lowercased()))
      #expect(found.location?.contains("#charge-\(bought.transactionID)-monthly") == true)
      #expect(
        try await browser.get(AdminURL.search("MQ00000000"))
          .contains("Apple has no order with this ID"))
    }
  }

  @Test func `customers are listed latest first, with filters, as a page and as CSV`() async throws
  {
    try await TestAPI.run { api in
      try await name(api)
      try await api.describe("monthly", "premium")
      try api.addCustomer("phone")
      try api.apple.simulation.buy("monthly", on: "phone")
      _ = try await api.submit("47", from: "phone")
      api.live(until: 2)
      _ = try await api.call(.put, "/v1/accounts/new", ["label": "=1+1, \"x\""])
      var browser = try await AdminBrowser.loggedIn(api)
      func listed(_ query: String) async throws -> [String] {
        let page = try await browser.get("/admin/accounts\(query)")
        #expect(page.status == 200, "\(query)")
        return page.text.matches(of: /<th scope=\x22row\x22[^>]*><a[^>]*>([^<]*)/).map {
          String($0.1)
        }
      }
      // Only what grants an entitlement can be found by it.
      _ = try await api.call(.put, "/v1/products/coins", ["type": "consumable"], as: .admin)
      let form = try await browser.get("/admin/accounts")
      #expect(form.contains(">monthly</option>") && !form.contains(">coins</option>"))
      #expect(form.contains(">Refunded, moved or revoked</option>"))
      let all = try await listed("")
      #expect(all.first == "new")
      #expect(Set(all) == Set(Self.names.map(\.id) + ["new"]))
      #expect(try await listed("?state=active") == ["47"])
      #expect(try await listed("?state=active&product_id=monthly") == ["47"])
      #expect(try await listed("?product_id=quarterly") == [])
      #expect(try await listed("?state=expired") == [])
      #expect(try await listed("?state=none").count == 5)
      #expect(try await listed("?since=2026-01-02") == ["new"])
      // All that match are counted, whatever part is shown.
      for (query, total) in [
        ("", "6 customers"), ("?limit=4", "6 customers"), ("?since=2026-01-02", "1 customer"),
        ("?state=none&limit=2", "5 customers"), ("?state=active", "1 customer"),
      ] {
        #expect(
          try await browser.get("/admin/accounts\(query)").contains("<h2>\(total)</h2>"), "\(query)"
        )
      }
      #expect(
        try await browser.get("/admin/accounts").contains(
          #"<span class="tag">premium <span class="badge good">Active</span></span>"#))
      for query in ["state=x", "since=x", "after=x"] {
        #expect(try await browser.get("/admin/accounts?\(query)").status == 400, "\(query)")
      }
      var (path, seen): (String?, [String]) = ("?limit=4", [])
      while let query = path, seen.count < 10 {
        let page = try await browser.get("/admin/accounts\(query)")
        seen += page.text.matches(of: /<th scope=\x22row\x22[^>]*><a[^>]*>([^<]*)/).map {
          String($0.1)
        }
        path = page.text.firstMatch(of: /href=\x22\/admin\/accounts([^\x22]*)\x22 rel=\x22next/)
          .map { String($0.1).replacing("&amp;", with: "&") }
      }
      #expect(seen == all)

      let csv = try await browser.get("/admin/accounts?format=csv&since=2026-01-02")
      #expect(
        csv.text == "account_id,label,email,created_at,entitlement,state,product_id,"
          + "access_ends_at,ended_because\r\n"
          + "new,\"'=1+1, \"\"x\"\"\",,2026-01-03T00:00:00.000Z,,,,,\r\n")
      let active = try await browser.get("/admin/accounts?format=csv&state=active")
      #expect(active.contains("47,,,2026-01-01T00:00:00.000Z,premium,active,monthly,2026-"))
      #expect(try await browser.get("/admin").contains(#"href="/admin/accounts/new">new</a>"#))
    }
  }
}
