import AppStore
import AppStoreSimulator
import Foundation
import JSONText
import LedgerStorage
import Postgres
import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI

/// The pages of the catalogue, the webhook and the program's health.
struct SetupPageTests {
  private typealias Fields = [(String, String)]

  // MARK: Products

  @Test func `a product is added and changed as by the API, and its versions stay`() async throws {
    try await TestAPI.run { api in
      var browser = try await AdminBrowser.loggedIn(api)
      let form = try await browser.get("/admin/product-form")
      #expect(form.contains("Add product"))
      var fields: Fields = [
        ("product_id", "gold<1>"), ("type", "auto_renewable"),
        ("entitlements", "premium\r\n plus \r\n"), ("subscription_group", "all"), ("level", "2"),
        ("period", "P1M"), ("price_milliunits", "9.99"), ("currency", "usd"),
        ("display_name", "Gold & more"), ("reason", "A dearer plan."),
      ]
      let asked = try await browser.post("/admin/product-form", fields)
      for text in [
        "“gold&lt;1&gt;” is added.", "Price: 9.99 USD.", "Entitlements: plus, premium.",
        "No product grants “plus” yet: check the spelling.", "No product grants “premium” yet",
      ] { #expect(asked.contains(text), "\(text)") }
      #expect(try await api.get("/v1/products")["products"]?.array == [])
      let done = try await browser.post("/admin/product-form", fields + [("confirmed", "yes")])
      #expect(done.location == "/admin/product?product_id=gold%3C1%3E")
      let product = try #require(try await api.get("/v1/products")["products"]?.array?.first)
      #expect(product["entitlements"] == ["plus", "premium"])
      #expect(product["price_milliunits"] == 9990 && product["level"] == 2)

      api.apple.simulation.advance(by: .hours(1))
      let path = "/admin/product-form?product_id=gold%3C1%3E"
      let filled = try await browser.get(path)
      #expect(filled.contains(#"value="9.99""#))
      #expect(filled.contains(#"<option value="P1M" selected>1 month</option>"#))
      fields = fields.filter { $0.0 != "level" && $0.0 != "product_id" }
      fields[1].1 = "premium"
      fields[4].1 = "12"
      let change = try await browser.post(path, fields)
      for text in [
        "Price: 9.99 USD → 12.00 USD.", "Level: 2 → –.", "Entitlements: plus, premium → premium.",
        "earlier charges change too",
        "Customers with “gold&lt;1&gt;” lose “plus”, unless another purchase or a grant provides it.",
      ] { #expect(change.contains(text), "\(text)") }
      _ = try await browser.post(path, fields + [("confirmed", "yes")])
      let page = try await browser.get("/admin/product?product_id=gold%3C1%3E")
      for text in ["“gold&lt;1&gt;” was saved.", "9.99 USD", "12.00 USD", "Gold &amp; more"] {
        #expect(page.contains(text), "\(text)")
      }
      #expect(try await browser.get("/admin/products").contains("12.00 USD"))
      let unchanged = try await browser.post(path, fields)
      #expect(unchanged.contains("The values are those of the current version."))
      #expect(!unchanged.contains("Confirm"))
      #expect(!unchanged.contains("check the spelling"))

      let logged = try await api.ledger.administration.administratorActions(limit: 9)
      #expect(logged.map(\.action) == ["set_product", "set_product"])
      #expect(logged.allSatisfy { $0.subject == "gold<1>" && $0.reason == "A dearer plan." })
      let overview = try await browser.get("/admin")
      #expect(
        overview.contains(
          #"saved the product <a class="code" href="/admin/product?product_id=gold%3C1%3E">gold&lt;1&gt;</a>"#
        ))
    }
  }

  @Test(
    arguments: [
      ("product_id", "monthly", "is in the catalogue already"), ("product_id", "", "is missing"),
      ("type", "x", "must be one of"), ("level", "0", "must be from 1"),
      ("level", "x", "must be a whole number"), ("period", "1 month", "must be an ISO 8601"),
      ("price_milliunits", "9,99", "must be an amount such as 9.99"),
      ("price_milliunits", "1e3", "must be an amount"),
      ("price_milliunits", "4.999", "must have at most 2 decimals in USD"),
      ("currency", "jpy", "must be a whole number in JPY"),
      ("currency", "XXQ", "must be an ISO 4217"),
      ("period", "", "is missing: an auto-renewable subscription has one"),
      ("type", "non_consumable", "must be None"),
      ("currency", "", "is missing"), ("entitlements", "a\na", "must not contain duplicates"),
      ("reason", "", "is missing"),
    ])
  func `what the API refuses is refused`(name: String, value: String, fault: String) async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      var browser = try await AdminBrowser.loggedIn(api)
      let fields: Fields = [
        ("product_id", "yearly"), ("type", "auto_renewable"), ("entitlements", "premium"),
        ("period", "P1Y"), ("price_milliunits", "9.99"), ("currency", "USD"), ("reason", "New."),
        ("confirmed", "yes"),
      ]
      let sent = fields.filter { $0.0 != name } + [(name, value)]
      let page = try await browser.post("/admin/product-form", sent)
      #expect(page.status == 400 && page.contains(fault), "\(page.text)")
      // The entered values are shown again, and a cleared one stays cleared.
      #expect(page.contains(#"id="display-name" name="display_name" type="text" value="""#))
      #expect(try await api.get("/v1/products")["products"]?.array?.count == 1)
    }
  }

  @Test func `all errors are shown at once, each at its field, and what was entered stays`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      var browser = try await AdminBrowser.loggedIn(api)
      let fields: Fields = [
        ("product_id", "monthly"), ("type", "auto_renewable"), ("display_name", "Kept"),
        ("price_milliunits", "9,99"), ("currency", "XXQ"), ("level", "top"),
        ("entitlements", "a\na"), ("confirmed", "yes"),
      ]
      let page = try await browser.post("/admin/product-form", fields)
      #expect(page.status == 400)
      let faults = page.text.matches(of: /id="([a-z-]*)-fault">([^<]*)/).map {
        "\($0.1): \($0.2)"
      }
      #expect(
        faults == [
          "product-id: Product ID is in the catalogue already.",
          "period: Period is missing: an auto-renewable subscription has one.",
          "price-milliunits: Price must be an amount such as 9.99.",
          "currency: Currency must be an ISO 4217 code, such as EUR.",
          "entitlements: Entitlements must not contain duplicates.",
          "level: Level must be a whole number.", "reason: Reason is missing.",
        ])
      #expect(page.contains("Nothing was changed. Fix the highlighted fields."))
      for text in [#"value="monthly""#, #"value="Kept""#, #"value="9,99""#, #"value="XXQ""#] {
        #expect(page.contains(text), "\(text)")
      }
      // Other fields are named as on the page.
      let half = fields.filter { !["price_milliunits", "currency"].contains($0.0) }
      let dear = try await browser.post("/admin/product-form", half + [("currency", "EUR")])
      #expect(dear.contains("Price is missing: Currency needs a price."))
    }
  }

  @Test func `another period is typed, and its fault is shown at its field`() async throws {
    try await TestAPI.run { api in
      var browser = try await AdminBrowser.loggedIn(api)
      func sent(_ period: String) -> Fields {
        [
          ("product_id", "pass"), ("type", "non_renewing"), ("entitlements", "premium"),
          ("period", "other"), ("other_period", period), ("reason", "New."), ("confirmed", "yes"),
        ]
      }
      let wrong = try await browser.post("/admin/product-form", sent("ten days"))
      #expect(wrong.status == 400 && wrong.contains(#"id="other-period-fault""#))
      #expect(wrong.text.contains(#"other-period-fault">Other period must"#), "\(wrong.text)")
      #expect(wrong.contains(#"value="ten days""#))
      #expect(try await browser.post("/admin/product-form", sent("P10D")).status == 303)
      let form = try await browser.get("/admin/product-form?product_id=pass")
      #expect(form.contains(#"<option value="other" selected>Other</option>"#))
      #expect(form.contains(#"value="P10D""#))
      #expect(try await browser.get("/admin/product?product_id=pass").contains("10 days"))
    }
  }

  @Test func `support reads the catalogue, and changes nothing`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      var browser = AdminBrowser(api)
      _ = try await browser.logIn("support-secret-for-trying")
      for path in ["/admin/products", "/admin/product?product_id=monthly"] {
        let page = try await browser.get(path)
        #expect(page.status == 200 && page.contains("premium"))
        #expect(!page.contains("product-form") && !page.contains("/admin/health"))
      }
      #expect(try await browser.get("/admin/product?product_id=x").status == 404)
      let forbidden = [
        "/admin/product-form", "/admin/product-form?product_id=monthly", "/admin/webhooks",
        "/admin/health",
      ]
      for path in forbidden { #expect(try await browser.get(path).status == 403, "\(path)") }
      for path in ["/admin/product-form", "/admin/webhooks", "/admin/webhooks/test"] {
        #expect(try await browser.post(path, [("type", "consumable")]).status == 403, "\(path)")
      }
    }
  }

  // MARK: Webhook

  @Test func `the latest attempts are listed, and their events delivered again`() async throws {
    try await TestAPI.run { api in
      let webhooks = api.ledger.webhooks
      _ = try await webhooks.pushEvents(at: Timestamp(milliseconds: 0))
      try await api.describe("monthly", "premium")
      try api.addCustomer("phone")
      _ = try api.apple.simulation.buy("monthly", on: "phone")
      _ = try await api.submit("<anna>", from: "phone")
      let now = api.apple.simulation.clock.now
      _ = try await webhooks.pushEvents(at: now)
      let job = try #require(
        try await api.ledger.jobs.claimJobs(
          limits: [.webhooks: 1], worker: "w", at: now, lease: .seconds(60)
        ).first)
      let first = try #require(try await webhooks.nextDelivery(job, at: now))
      func attempt(_ delivery: WebhookDelivery, _ failure: String?) -> WebhookAttempt {
        WebhookAttempt(
          eventID: delivery.eventID, at: now, took: .milliseconds(120), failure: failure)
      }
      let second = try #require(
        try await webhooks.nextDelivery(job, after: first, attempt: attempt(first, nil), at: now))
      try await webhooks.postpone(
        second, of: job, because: "<b>down</b>", failures: 1,
        attempt: attempt(second, "<b>down</b>"), until: now + .minutes(1), isLast: true, at: now)

      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get("/admin/webhooks")
      for text in [
        "Waiting now", "Event\u{A0}\(first.eventID)", "Event\u{A0}\(second.eventID)", "120 ms",
        ">Delivered<",
        "&lt;b&gt;down&lt;/b&gt;", "Account &lt;anna&gt;", "not configured",
      ] { #expect(page.contains(text), "\(text)") }
      #expect(page.contains("<pre>{\n  &quot;id&quot;: &quot;\(first.eventID)&quot;,\n"))
      for (query, shown) in [
        ("outcome=failed", [second]), ("outcome=delivered", [first]), ("type=test", []),
        ("type=\(LedgerEvent.Kind.transactionRecorded.rawValue)&outcome=delivered", [first]),
      ] {
        let page = try await browser.get("/admin/webhooks?\(query)")
        for delivery in [first, second] {
          #expect(
            page.contains(">Event\u{A0}\(delivery.eventID)<") == shown.contains(delivery),
            "\(query)")
        }
      }
      #expect(try await browser.get("/admin/webhooks?outcome=lost").status == 400)
      // Page after page.
      let latest = try await browser.get("/admin/webhooks?limit=1")
      let next = try #require(
        latest.text.firstMatch(of: /href=\x22(\/admin\/webhooks[^\x22]*)\x22 rel=\x22next/)?.1)
      let older = try await browser.get(String(next).replacing("&amp;", with: "&"))
      for delivery in [first, second] {
        let text = ">Event\u{A0}\(delivery.eventID)<"
        #expect(latest.contains(text) != older.contains(text))
      }
      #expect(page.contains(#"Webhooks <span class="count">1</span>"#))
      // A delivery is no job.
      #expect(!page.contains(#"Failed jobs <span class="count">"#))
      #expect(!page.contains("/admin/webhooks/test"))
      #expect(try await browser.post("/admin/webhooks/test", []).status == 409)

      let items = [first.eventID, second.eventID, second.eventID, 999_999]
      let done = try await browser.post(
        "/admin/webhooks",
        items.map { ("item", "\($0)") } + [("do", "redeliver"), ("reason", "Fixed.")])
      #expect(done.location == "/admin/webhooks")
      #expect(try await browser.get("/admin/webhooks").contains("2 events will be redelivered."))
      #expect(try await webhooks.webhookStatus().parked == 0)
      let actions = try await api.ledger.administration.administratorActions(limit: 9)
      #expect(actions.map(\.action) == ["redeliver_event", "redeliver_event"])

      // The table keeps as many attempts as it has slots: behind the last one comes the first.
      _ = try await api.database.query(
        """
        SELECT setval(seqrelid, seqmax) FROM pg_sequence
        WHERE seqrelid = pg_get_serial_sequence('tenure.webhook_attempt', 'slot')::regclass
        """)
      let again = try #require(
        try await api.ledger.jobs.claimJobs(
          limits: [.webhooks: 1], worker: "w", at: now + .hours(1), lease: .seconds(60)
        ).first)
      _ = try await webhooks.nextDelivery(again, attempt: attempt(first, "third"), at: now)
      #expect(
        try await Set(webhooks.deliveries(limit: 9).flatMap(\.attempts).map(\.failure))
          == ["third", "<b>down</b>"])
      // Several attempts are one row, with the time of the next one.
      try await webhooks.postpone(
        second, of: again, because: "Still down.", failures: 2,
        attempt: attempt(second, "Still down."), until: now + .hours(2), isLast: false, at: now)
      // The one before took the place of its first attempt.
      try await webhooks.log(attempt(second, "Down again."))
      browser = try await AdminBrowser.loggedIn(api)
      let retried = try await browser.get("/admin/webhooks")
      #expect(retried.text.matches(of: />Event\u{A0}\d+</).count == 2)
      #expect(retried.contains("2 attempts, 120 ms, next attempt \(Moment(now + .hours(2)).text)"))
      #expect(retried.contains(">Retrying<") && retried.contains("120 ms: Still down."))
      // A delivery says what came before it.
      try await webhooks.log(attempt(second, "The receiver responded with HTTP 503."))
      try await webhooks.log(attempt(second, nil))
      browser = try await AdminBrowser.loggedIn(api)
      #expect(
        try await browser.get("/admin/webhooks").text.contains(/attempts, 120 ms, after HTTP 503/))
    }
  }

  @Test func `a test event is sent, and its failure shown without the URL`() async throws {
    let sent = Sent()
    let webhook = Installation.Webhook(origin: "https://hooks.example.com") { body, _ in
      await sent.add(body)
    }
    try await TestAPI.run(choices: TestAPI.Choices(installation: Installation(webhook: webhook))) {
      api in
      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get("/admin/webhooks")
      #expect(page.contains("https://hooks.example.com"))
      #expect(page.contains("set by TENURE_WEBHOOK_URL"))
      #expect(try await browser.post("/admin/webhooks/test", [], token: .none).status == 403)
      _ = try await browser.post("/admin/webhooks/test", [])
      #expect(try await browser.get("/admin/webhooks").contains("The test event was delivered."))
      _ = try await browser.post("/admin/webhooks/test", [])
      #expect(
        try await browser.get("/admin/webhooks")
          .contains("The test event was not delivered. HTTP 500."))
      let log = try await browser.get("/admin/webhooks?type=test")
      #expect(log.contains(">Delivered<") && log.contains(">Not delivered<"))
      #expect(log.contains("HTTP 500."))
      // Test events can't be delivered again.
      #expect(!log.contains(">Redeliver</button>"))
      // A test event is tried once.
      #expect(
        try await browser.get("/admin/webhooks?outcome=failed&type=test").contains("HTTP 500."))
      #expect(!log.contains("type=\"checkbox\""))
      let bodies = await sent.bodies
      #expect(bodies.count == 2)
      let event = try JSONValue(parsing: Array(bodies[0].utf8))
      #expect(event["type"] == "test" && event["id"] == "0" && event["account_id"] == .null)
    }
  }

  /// A receiver that fails from the second event on.
  private actor Sent {
    var bodies: [String] = []

    func add(_ body: String) -> String? {
      bodies.append(body)
      return bodies.count == 1 ? nil : "HTTP 500."
    }
  }

  // MARK: Health

  @Test func `health shows the doctor's findings and the keys' names, never a secret`()
    async throws
  {
    let installation = Installation(version: "1.2.3") {
      [
        .ok("database", "It <works>."), .fault("apple", "Unreachable.", remedy: "Check & retry."),
        .warning("settings", "Odd.", remedy: "Fix it."),
      ]
    }
    try await TestAPI.run(choices: TestAPI.Choices(installation: installation)) { api in
      var browser = try await AdminBrowser.loggedIn(api)
      // The overview has the number of faults, and then each page does.
      let overview = try await browser.get("/admin")
      #expect(overview.contains("1 fault found by the health checks"))
      #expect(overview.contains(#"Health <span class="count">1</span>"#))
      #expect(
        try await browser.get("/admin/rates").contains(#"Health <span class="count">1</span>"#))
      let page = try await browser.get("/admin/health")
      for text in [
        "1.2.3", "read when this server started", "It &lt;works&gt;.",
        "Check &amp; retry.", ">shop<", ">desk<", ">ops<",
        ">support<",
      ] { #expect(page.contains(text), "\(text)") }
      let places = ["Unreachable.", "Odd.", "It &lt;works"].map { page.text.range(of: $0) }
      #expect(places.compactMap { $0?.lowerBound } == places.compactMap { $0?.lowerBound }.sorted())
      #expect(!page.contains("secret-for-trying"))
      #expect(page.contains(#"<span title="settings">Odd.</span>"#))
      #expect(page.contains("<p class=\"verdict bad\">1 fault, 1 warning, 1 check passed.</p>"))
    }
  }
}
