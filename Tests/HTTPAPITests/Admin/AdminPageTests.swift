import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import HummingbirdTesting
import JSONText
import LedgerStorage
import Postgres
import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI

/// The pages with a real server and ledger.
struct AdminPageTests {
  /// Anna's account buys a month and turns auto-renew off; later Ben's account buys a quarter on
  /// the same phone, and Anna's month is refunded.
  private func recordStory(_ api: TestAPI) async throws
    -> (first: TransactionID, second: TransactionID)
  {
    try await api.describe("monthly", "premium")
    try await api.describe("quarterly", "premium")
    try api.addCustomer("phone")
    let bought = try api.apple.simulation.buy("monthly", on: "phone")
    _ = try await api.submit("anna", from: "phone")
    api.apple.simulation.advance(by: .days(10))
    try api.apple.simulation.setAutoRenew(false, bought.originalTransactionID)
    _ = try await api.submit("anna", from: "phone")
    api.apple.simulation.advance(by: .days(30))
    let second = try api.apple.simulation.buy("quarterly", on: "phone")
    api.apple.simulation.advance(by: .minutes(1))
    _ = try await api.submit("ben", from: "phone")
    api.apple.simulation.advance(by: .days(1))
    try api.apple.simulation.refund(bought.transactionID)
    _ = try await api.submit("ben", from: "phone")
    return (bought.transactionID, second.transactionID)
  }

  @Test func `an account: what it may use and why, charges, submissions and events`() async throws {
    try await TestAPI.run { api in
      let (first, second) = try await recordStory(api)
      var browser = try await AdminBrowser.loggedIn(api)
      let ben = try await browser.get("/admin/accounts/ben")
      #expect(ben.status == 200)
      #expect(ben.contains("Active entitlement: premium. quarterly renews on 10 May 2026."))
      // The monthly subscription before was Anna's.
      #expect(!ben.contains("Changed from"))
      #expect(ben.contains(">\(second)</a>"))
      #expect(ben.text.split(separator: #"<article class="charge">"#).count == 2)
      #expect(ben.contains("submitted it first"))
      #expect(ben.contains("Receipt verified by Apple."))
      #expect(ben.contains("Access to “premium” began, until 10 May 2026."))

      let anna = try await browser.get("/admin/accounts/anna")
      #expect(
        anna.contains(
          "monthly expired on 1 Feb 2026: auto-renew had been off since 11 Jan 2026. The purchase "
            + "of 10 Feb 2026 belongs to "
            + #"<a class="code" href="/admin/accounts/ben">ben</a>, who submitted it"#))
      #expect(anna.contains(">Refunded</span>"))
      #expect(anna.contains(">\(first)</a>"))
      let unknown = try await browser.get("/admin/accounts/unknown")
      #expect(unknown.status == 404)
      #expect(unknown.contains("Search above by a part of an account&#39;s ID"))
      let wrong = try await browser.get("/admin/accounts?state=lost")
      #expect(wrong.status == 400 && wrong.contains("State must be one of"))
      #expect(
        wrong.contains(
          #"<a class="button" href="/admin/accounts">Open the page without it</a>"#))
    }
  }

  @Test func `charges and events are paged, there and back`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("phone")
      try api.apple.simulation.buy("monthly", on: "phone")
      for _ in 1...4 {
        _ = try await api.submit("anna", from: "phone")
        api.apple.simulation.advance(by: .days(30))
      }
      var browser = try await AdminBrowser.loggedIn(api)
      func charges(_ page: AdminBrowser.Page) -> Int {
        page.text.split(separator: #"<article class="charge">"#).count - 1
      }
      let all = try await browser.get("/admin/accounts/anna")
      #expect(charges(all) == 4)
      #expect(!all.contains(#"rel="next""#))
      var page = try await browser.get("/admin/accounts/anna?limit=3&history_limit=1")
      #expect(charges(page) == 3)
      #expect(page.contains("1–3 of 4"))
      let next = try #require(
        page.text.firstMatch(of: /href=\x22([^\x22]*)\x22 rel=\x22next/)?.1.description)
      page = try await browser.get(next.replacing("&amp;", with: "&"))
      #expect(charges(page) == 1)
      #expect(page.contains("4–4 of 4"))
      #expect(page.contains(#"rel="prev""#))
      for query in ["limit=0", "limit=x", "after=x", "history_after=x", "history=x"] {
        #expect(try await browser.get("/admin/accounts/anna?\(query)").status == 400, "\(query)")
      }
    }
  }

  @Test func `an original transaction after another account bought, and a refund`() async throws {
    try await TestAPI.run { api in
      let (first, second) = try await recordStory(api)
      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get("/admin/original-transactions/\(first)")
      #expect(page.status == 200)
      for part in [
        "mark mark-refund", "mark mark-move", "mark mark-off", "owner-1", "owner-2",
        "renewals go to ben", "Renewals belong to ", #"href="/admin/accounts/ben""#,
        #"id="charge-\#(first)-monthly""#, #"id="charge-\#(second)-quarterly""#,
        "submitted it first; ", "Submission", "from ben", "“anna” submitted transaction \(first).",
        "refunded on 11 Feb 2026", ##"href="#charge-\##(first)-monthly""##,
      ] {
        #expect(page.contains(part), "\(part)")
      }
      let sandbox = "/admin/original-transactions/\(first)?environment=sandbox"
      #expect(try await browser.get(sandbox).status == 404)
      #expect(try await browser.get("/admin/original-transactions/1").status == 404)
    }
  }

  // MARK: Search

  @Test func `each kind of id leads to what it names`() async throws {
    try await TestAPI.run { api in
      let (first, second) = try await recordStory(api)
      let order = try #require(
        try await api.call(.post, "/v1/orders", ["account_id": "ben", "product_id": "monthly"])[
          "order_id"]?.string)
      let item = try await api.database.query(
        "SELECT min(web_order_line_item_id) FROM tenure.store_transaction"
      ).decodeOnly(String.self)
      let line = "/admin/original-transactions/\(first)?environment=production"
      var browser = try await AdminBrowser.loggedIn(api)
      let expected: [(id: String, location: String)] = [
        ("anna", "/admin/accounts/anna"), ("  anna ", "/admin/accounts/anna"),
        (first.rawValue, line), (second.rawValue, "\(line)#charge-\(second)-quarterly"),
        (order, "/admin/accounts/ben"), (order.uppercased(), "/admin/accounts/ben"), (item, line),
      ]
      for (id, location) in expected {
        let answer = try await browser.get(AdminURL.search(id))
        #expect(answer.status == 303, "\(id)")
        #expect(answer.location == location, "\(id)")
      }
      // Two matches are listed.
      _ = try await api.call(.put, "/v1/accounts/\(second)")
      let both = try await browser.get(AdminURL.search(second.rawValue))
      #expect(both.status == 200)
      #expect(both.contains(#"<span class="kind">Account</span>"#))
      #expect(both.contains(#"<span class="kind">Transaction</span>"#))
      for id in ["nothing", "'; DROP TABLE x; --", String(repeating: "9", count: 300), "\u{1}"] {
        let none = try await browser.get(AdminURL.search(id))
        #expect(none.status == 200)
        #expect(none.contains("No results for"))
      }
      #expect(try await browser.get("/admin/search").contains("Press <kbd>/</kbd> to search."))
    }
  }

  // MARK: Hostile account ids

  private static let names = [
    "<script>alert(1)</script>", "'; DROP TABLE x; --", "\"\u{301} onclick=x", "a/b?c#d&e",
    "{{page.csrfToken}}", "</title><img src=x>", "“x” & y+z", "%2e%2e", ".", "..",
  ]

  @Test("Nothing that an account is called becomes a part of a page", arguments: names)
  func hostile(name: String) async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("phone")
      let bought = try api.apple.simulation.buy("monthly", on: "phone")
      #expect(try await api.submit(name, from: "phone").status == 200)
      var browser = try await AdminBrowser.loggedIn(api)
      let found = try await browser.get(AdminURL.search(name))
      #expect(found.location == AdminURL.account(name))
      for path in [
        AdminURL.account(name),
        AdminURL.originalTransaction(
          bought.originalTransactionID.rawValue, environment: "production"),
        AdminURL.transaction(
          bought.transactionID.rawValue, form: "transfer", productID: "monthly",
          environment: "production"),
      ] {
        let page = try await browser.get(path)
        #expect(page.status == 200, "\(path)")
        let escaped = PageText.escaped(name)
        #expect(page.contains(escaped), "\(path)")
        if escaped != name { #expect(!page.contains(name), "\(path)") }
      }
    }
  }

  // MARK: Errors and static files

  @Test func `errors under /admin are pages, and elsewhere they are not`() async throws {
    try await TestAPI.run { api in
      for isLoggedIn in [true, false] {
        var browser = isLoggedIn ? try await AdminBrowser.loggedIn(api) : AdminBrowser(api)
        let missing = try await browser.get("/admin/nothing")
        #expect(missing.status == 404)
        #expect(missing.contains("Page not found"))
        #expect(missing.contains("<nav") == isLoggedIn)
        // As other pages, with the numbers of the menu.
        #expect(missing.contains("As of <time") == isLoggedIn)
        let other = try await browser.send(.delete, "/admin/search", nil)
        #expect(other.status == 405)
        #expect(other.headers[.allow]?.contains("GET") == true)
        #expect(!other.contains("Try again"))
        #expect(try await browser.send(.head, "/admin/nothing", nil).text.isEmpty)
        // The router ignores empty path segments; `AdminBrowser` checks the headers.
        #expect(try await browser.get("//admin/login").status == 200)
      }
      let answer = try await api.client.executeRequest(
        uri: "/administrator", method: .get, headers: [:], body: nil)
      #expect(answer.status == .notFound)
      #expect(answer.headers[.contentType] == "application/problem+json")
      #expect(answer.headers[.contentSecurityPolicy] == nil)
    }
  }

  @Test func `a database error is a page without details`() async throws {
    try await TestAPI.run { api in
      var browser = try await AdminBrowser.loggedIn(api)
      _ = try await api.database.execute("ALTER TABLE tenure.charge_lookup RENAME TO gone")
      let page = try await browser.get("/admin/search?q=anna")
      #expect(page.status == 500)
      #expect(page.contains("Internal error; see the log"))
      #expect(!page.contains("charge_lookup"))
      _ = try await api.database.execute("ALTER TABLE tenure.gone RENAME TO charge_lookup")
    }
  }

  @Test(
    "What the pages load is kept by its content",
    arguments: ["admin.css", "admin.js", "icon.svg"])
  func files(name: String) async throws {
    try await TestAPI.run { api in
      var browser = AdminBrowser(api)
      let login = try await browser.get("/admin/login")
      let href = try #require(
        login.text.firstMatch(of: try Regex("\"(/admin/\(name)[^\"]*)\""))?[1].substring)
      let file = try await browser.get(String(href))
      #expect(file.status == 200)
      #expect(file.headers[.cacheControl] == "public, max-age=31536000, immutable")
      let tag = try #require(file.headers[.eTag])
      let same = try await browser.get("/admin/\(name)", headers: [.ifNoneMatch: tag])
      #expect(same.status == 304)
      #expect(same.text.isEmpty)
      let plain = try await browser.get("/admin/\(name)?v=older")
      #expect(plain.text == file.text)
      #expect(plain.headers[.cacheControl] == "no-cache")
    }
  }
}
