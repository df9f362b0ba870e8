import AppStoreSimulator
import HTTPTypes
import JSONText
import LedgerStorage
import Postgres
import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI

/// Finding customers: by a part of a name, by an ID, and in the list.
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
    ("meier", ["klara"]), ("KM@EX", ["klara"]), ("KM@example.com", ["klara"]),
    ("klaus%", ["Klaus-1"]), ("Öz", ["4711"]),
    ("ÖZIL_1", ["4711"]), ("471", ["4711"]), ("47", ["47"]), ("%", ["%"]), ("m", ["klara"]),
    // Within a name, from three characters on.
    ("LARA", ["klara"]), ("r, K", ["klara"]), ("example", ["Klaus-1", "klara"]),
    ("il_1", ["4711"]), ("Klara Meier", ["klara"]), ("Klara Maier", []), ("_", []), ("ra", []),
    ("k_a", []), ("raa", []),
  ])
  func `an account is found by a part of its names`(text: String, found: [String])
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
        #expect(answer.contains("No results for") == found.isEmpty)
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

  @Test func `accounts whose names begin with the text come first`()
    async throws
  {
    try await TestAPI.run { api in
      for id in ["anna-maria", "maria", "zoe"] {
        _ = try await api.call(.put, "/v1/accounts/\(id)", ["label": .string("Mrs \(id)")])
      }
      let accounts = api.ledger.accounts
      #expect(
        try await accounts.accounts(named: "maria", limit: 9).map(\.id) == ["maria", "anna-maria"])
      #expect(
        try await accounts.accounts(named: "mrs", limit: 2).map(\.id) == ["anna-maria", "maria"])
    }
  }

  @Test func `a submission and an app account token lead to the account`() async throws {
    try await TestAPI.run { api in
      try api.addCustomer("phone")
      let submission = try #require(
        try await api.submit("klara", from: "phone")["submission_id"]?.string)
      let account = try #require(try await api.ledger.accounts.account("klara"))
      var browser = try await AdminBrowser.loggedIn(api)
      let found = try await browser.get(AdminURL.search(submission.uppercased()))
      #expect(found.location == "/admin/accounts/klara#\(submission)")
      #expect(try await browser.get("/admin/accounts/klara").contains("<li id=\"\(submission)\">"))
      let token = account.appAccountToken.text
      #expect(
        try await browser.get(AdminURL.search(token)).location == "/admin/accounts/klara")
      #expect(
        try await browser.get(AdminURL.search(account.key.rawValue.text)).contains("No results for")
      )
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
      #expect(try await browser.get(AdminURL.search("km@ex")).contains("No results for"))
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

  @Test func `the list and the account's page say what was spent`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      var month = Payment(id: "1", from: 0, to: 30, price: 9990)
      try await api.claim(month, by: "anna", on: 0.1)
      try await api.claim(Payment(id: "2", from: 30, to: 60, price: 4990), by: "anna", on: 30.1)
      // Apple links Ben's subscription with Anna's.
      let linked = Payment(
        id: "3", line: "2000", from: 70, to: 100, previousLine: "1000", price: 2990)
      try await api.claim(linked, by: "ben", on: 70.1)
      _ = try await api.call(.put, "/v1/accounts/carl")
      var browser = try await AdminBrowser.loggedIn(api)
      func spent() async throws -> [String: String] {
        let page = try await browser.get("/admin/accounts")
        let rows = page.text.matches(
          of: /accounts\/([a-z]*)\x22>(?s:.*?)<td class=\x22number \x22>([^<]*)<\/td>/)
        return Dictionary(uniqueKeysWithValues: rows.map { (String($0.1), String($0.2)) })
      }
      #expect(try await spent() == ["anna": "14.98 USD", "ben": "2.99 USD", "carl": ""])
      #expect(try await browser.get("/admin/accounts/anna").contains("Spent 14.98 USD"))
      // Ben's charge is stored with Anna's subscription alone.
      #expect(try await browser.get("/admin/accounts/ben").contains("Spent 2.99 USD"))
      // Amounts are numbers, and Anna also paid in another currency.
      let euro = Payment(id: "4", line: "4000", from: 70, to: 100, price: 1990, currency: "EUR")
      try await api.claim(euro, by: "anna", on: 70.2)
      let file = try await browser.get("/admin/accounts?format=csv")
      #expect(file.contains(",1990,1.99,EUR,false,14.98 USD,monthly,"))
      #expect(try await !browser.get("/admin/accounts/carl").contains("Spent"))
      month.revokedOn = 71
      try await api.deliver(Notice("REFUND", nil, month, on: 71.1))
      browser = try await AdminBrowser.loggedIn(api)
      #expect(try await spent()["anna"] == "1.99 EUR, 4.99 USD")
      // All of it refunded is an amount, too.
      var only = Payment(id: "5", line: "5000", from: 72, to: 100, price: 2990)
      try await api.claim(only, by: "carl", on: 72.1)
      only.revokedOn = 73
      try await api.deliver(Notice("REFUND", nil, only, on: 73.1))
      browser = try await AdminBrowser.loggedIn(api)
      #expect(try await spent()["carl"] == "0.00 USD")
      #expect(try await browser.get("/admin/accounts/carl").contains("Spent 0.00 USD"))
    }
  }

  @Test func `what the catalogue's price is a part of is marked as estimated`() async throws {
    try await TestAPI.run { api in
      _ = try await api.call(
        .put, "/v1/products/monthly",
        [
          "type": "auto_renewable", "entitlements": ["news", "premium"], "period": "P1M",
          "price_milliunits": 9990, "currency": "USD",
        ], as: .admin)
      try await api.claim(Payment(id: "1", from: 0, to: 30, price: nil), by: "anna", on: 0.1)
      var browser = try await AdminBrowser.loggedIn(api)
      #expect(try await browser.get("/admin/accounts").contains(">≈ 9.99 USD</td>"))
      let file = try await browser.get("/admin/accounts?format=csv")
      // A customer is one row.
      #expect(file.contains("\r\nanna,,,\"news: Active, premium: Active\","))
      #expect(file.contains(",9990,9.99,USD,true,,monthly,"))
      #expect(file.text.split(separator: "\r\n").count == 2)
      #expect(try await browser.get("/admin/accounts/anna").contains("Spent ≈ 9.99 USD"))
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
      for state in [
        "Payment failed", "Moved or released", "No longer shared", "Merged", "Erased",
      ] {
        #expect(form.contains("<option value=\"\(state)\">\(state)</option>"))
      }
      let all = try await listed("")
      #expect(all.first == "new")
      #expect(Set(all) == Set(Self.names.map(\.id) + ["new"]))
      #expect(try await listed("?state=Active") == ["47"])
      #expect(try await listed("?state=Active&product_id=monthly") == ["47"])
      #expect(try await listed("?product_id=quarterly") == [])
      #expect(try await listed("?state=Expired") == [])
      #expect(try await listed("?state=No+entitlement").count == 5)
      #expect(try await listed("?since=2026-01-02") == ["new"])
      // All that match are counted, whatever part is shown.
      for (query, total) in [
        ("", "6 customers"), ("?limit=4", "6 customers"), ("?since=2026-01-02", "1 customer"),
        ("?state=No+entitlement&limit=2", "5 customers"), ("?state=Active", "1 customer"),
      ] {
        #expect(
          try await browser.get("/admin/accounts\(query)").contains("<h2>\(total)</h2>"), "\(query)"
        )
      }
      #expect(
        try await browser.get("/admin/accounts").contains(
          #"<span class="tag">premium <span class="badge good">Active</span></span>"#))
      #expect(try await listed("?order=oldest") == all.reversed())
      #expect(try await listed("?order=id&since=2026-01-02") == ["new"])
      for query in ["state=x", "since=x", "after=x", "order=email"] {
        #expect(try await browser.get("/admin/accounts?\(query)").status == 400, "\(query)")
      }
      for order in ["newest", "oldest", "id"] {
        var (path, seen): (String?, [String]) = ("?limit=4&order=\(order)", [])
        while let query = path, seen.count < 10 {
          let page = try await browser.get("/admin/accounts\(query)")
          seen += page.text.matches(of: /<th scope=\x22row\x22[^>]*><a[^>]*>([^<]*)/).map {
            String($0.1)
          }
          path = page.text.firstMatch(
            of: /href=\x22\/admin\/accounts([^\x22]*)\x22 rel=\x22next/
          ).map { String($0.1).replacing("&amp;", with: "&") }
        }
        #expect(try await seen == listed("?order=\(order)"), "\(order)")
      }

      let csv = try await browser.get("/admin/accounts?format=csv&since=2026-01-02")
      #expect(
        csv.text == "account_id,label,email,entitlements,access_until,spent_milliunits,spent,"
          + "currency,spent_is_estimated,spent_in_other_currencies,products,first_seen_at\r\n"
          + "new,\"'=1+1, \"\"x\"\"\",,,,,,,,,,2026-01-03T00:00:00.000Z\r\n")
      let active = try await browser.get("/admin/accounts?format=csv&state=Active")
      #expect(
        active.text.contains(
          /\r\n47,,,premium: Active,2026-[^,]*Z,[^,]*,[^,]*,[^,]*,[^,]*,,monthly,2026-01-01T/))
      #expect(try await browser.get("/admin").contains(#"href="/admin/accounts/new">new</a>"#))
      // Its place by ID is another one than by date.
      _ = try await api.call(.put, "/v1/accounts/0")
      let byID = try await api.database.query(
        "SELECT account_id FROM tenure.account ORDER BY account_id"
      ).decode(String.self)
      #expect(try await listed("?order=id") == byID)
      let oldest = try await listed("?order=oldest")
      #expect(byID != oldest && byID != oldest.reversed())
      let merge: JSONValue = ["into": "47", "reason": "r"]
      #expect(
        try await api.call(.post, "/v1/accounts/new/merge", merge, as: .admin).status == 200)
      #expect(
        try await api.call(.delete, "/v1/accounts/klara?reason=r", as: .admin).status == 200)
      browser = try await AdminBrowser.loggedIn(api)
      #expect(try await listed("?state=Merged") == ["new"])
      let erased = try await listed("?state=Erased")
      #expect(erased.count == 1 && erased.first?.hasPrefix("erased-") == true)
      #expect(try await !listed("?state=No+entitlement").contains("new"))
      #expect(try await browser.get("/admin/accounts").contains(">Merged</span>"))
      let merged = try await browser.get("/admin/accounts?format=csv&state=Merged")
      #expect(merged.contains(",Merged,"))
      let none = try await browser.get("/admin/accounts?state=Expired")
      #expect(none.contains("No customers for these filters.") && !none.contains("Spent: "))
    }
  }
}
