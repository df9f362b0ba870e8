import HTTPTypes
import JSONText
import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI

/// The account page's first sentence beside the causes of ``AccessCauseTests``, its buttons and its
/// timeline.
struct AccountSentenceTests {
  private static let month = Payment(id: "1", from: 0, to: 30)
  private static let on = Future(isOn: true, end: 30)

  private func page(of account: String, _ api: TestAPI) async throws -> AdminBrowser.Page {
    var browser = try await AdminBrowser.loggedIn(api)
    return try await browser.get("/admin/accounts/\(account)")
  }

  private func buttons(_ page: AdminBrowser.Page) -> [String] {
    page.text.matches(
      of: /<a class=\x22button\x22 href=\x22[^\x22]*\x22>((?:Transfer|Assign)[^<]*)/
    ).map {
      String($0.1)
    }
  }

  @Test func `a later purchase does not hide why access ended, and is named once`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.claim(Self.month, Future(isOn: false, end: 30), by: "carla", on: 10)
      let bought = Payment(id: "2", from: 50, to: 80)
      try await api.claim(bought, by: "dario", on: 50.1)
      try await api.claim(bought, by: "carla", on: 50.2)
      let carla = try await page(of: "carla", api)
      #expect(
        carla.verdict
          == "monthly expired on 31 Jan 2026: auto-renew had been off since 11 Jan 2026. The "
          + "purchase of 20 Feb 2026 belongs to dario, who submitted it first.")
      #expect(
        carla.contains(#"belongs to <a class="code" href="/admin/accounts/dario">dario</a>,"#))

      // Another account's charge of another subscription is named, too, each with its link.
      let other = Payment(id: "9", line: "9000", from: 60, to: 90)
      try await api.claim(other, by: "emil", on: 60.1)
      try await api.claim(other, by: "carla", on: 60.2)
      let both = try await page(of: "carla", api)
      #expect(both.contains("The purchase of 20 Feb 2026 belongs to <a"))
      #expect(
        both.contains(
          #"belongs to <a class="code" href="/admin/accounts/emil">emil</a>, who submitted it"#))
    }
  }

  @Test func `a grant does not hide the subscription, nor one that is unclaimed`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.claim(Self.month, Self.on, by: "petra", on: 0.1)
      let grant: JSONValue = [
        "account_id": "petra", "entitlement": "premium", "expires_at": "2026-12-30T00:00:00Z",
        "reason": "r",
      ]
      _ = try await api.call(.post, "/v1/grants", grant, as: .admin)
      let granted =
        "Active entitlement: premium was granted by an administrator, through 29 Dec 2026 (UTC)."
      let petra = try await page(of: "petra", api)
      #expect(petra.verdict.contains("\(granted) monthly renews on 31 Jan 2026."), "\(petra.text)")
      #expect(petra.contains(#"<p class="verdict good">"#))
      // Overlapping grants are drawn apart.
      _ = try await api.call(.post, "/v1/grants", grant, as: .admin)
      let twice = try await page(of: "petra", api)
      #expect(twice.text.matches(of: />premium \(grant\)<\/text>/).count == 2)
      #expect(twice.contains(">monthly</text>") && !twice.contains(">1000</text>"))

      #expect(
        try await api.call(.delete, "/v1/transactions/1/owner?reason=r", as: .admin).status == 200)
      let released = try await page(of: "petra", api)
      #expect(
        released.verdict.contains(
          "monthly, charged 1 Jan 2026, is unclaimed (paid through 31 Jan 2026)."))
      #expect(released.contains(#"<p class="verdict warning">"#))
      #expect(buttons(released) == ["Assign monthly…"])
    }
  }

  @Test func `an unclaimed purchase needs attention as long as its period lasts`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.claim(Self.month, Future(isOn: false, end: 30), by: "mia", on: 10)
      let bought = Payment(id: "2", from: 50, to: 80)
      try await api.deliver(Notice("SUBSCRIBED", "RESUBSCRIBE", bought, on: 50.1))
      for (day, tone) in [(60.0, "warning"), (90, "quiet")] {
        api.live(until: day)
        let mia = try await page(of: "mia", api)
        #expect(
          mia.verdict.hasSuffix(
            "The purchase of 20 Feb 2026 is unclaimed (paid through 22 Mar 2026)."))
        #expect(mia.contains(#"<p class="verdict \#(tone)">"#), "\(day)")
      }
    }
  }

  @Test func `consumables alone are nothing to worry about`() async throws {
    try await TestAPI.run { api in
      func coins(_ id: String, _ product: String = "coins", on day: Double) -> Payment {
        Payment(id: id, line: id, product: product, type: "Consumable", from: day)
      }
      try await api.claim(coins("1", on: 1), by: "sam", on: 1.1)
      let once = try await page(of: "sam", api)
      #expect(once.verdict == "Bought coins once (2 Jan 2026); it grants no entitlement.")
      #expect(once.contains(#"<p class="verdict quiet">"#) && !once.contains("<h2>Timeline</h2>"))
      try await api.claim(coins("2", on: 2), by: "sam", on: 2.1)
      #expect(
        try await page(of: "sam", api).verdict
          == "Bought coins 2 times (latest: 3 Jan 2026); it grants no entitlement.")
      try await api.claim(coins("3", "gems", on: 3), by: "sam", on: 3.1)
      #expect(
        try await page(of: "sam", api).verdict
          == "Bought 3 consumables (latest: gems, 4 Jan 2026); they grant no entitlement.")
    }
  }

  @Test func `a receipt without purchases is not called unsubmitted`() async throws {
    try await TestAPI.run { api in
      try api.addCustomer("phone")
      _ = try await api.call(.put, "/v1/accounts/cyrus")
      let none = "No active entitlements. The account has no purchases and no grants."
      #expect(
        try await page(of: "cyrus", api).verdict
          == "\(none) If the customer paid, the purchase was never submitted: search for the "
          + "transaction.")
      _ = try await api.submit("cyrus", from: "phone")
      #expect(
        try await page(of: "cyrus", api).verdict
          == "\(none) The latest submission (\(api.api.now().dayName)) contained no purchases; the "
          + "customer may use another Apple ID.")
    }
  }

  @Test func `each active subscription can be transferred, by its product`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.describe("news", "news")
      let news = Payment(id: "7", line: "7000", product: "news", from: 10, to: 40)
      let old = Payment(id: "8", line: "8000", product: "old", from: 15, to: 16)
      try await api.claim(Self.month, Self.on, by: "vera", on: 0.1)
      try await api.claim(news, by: "vera", on: 10.1)
      try await api.claim(old, by: "vera", on: 15.1)
      api.live(until: 20)
      #expect(buttons(try await page(of: "vera", api)) == ["Transfer news…", "Transfer monthly…"])
      api.live(until: 35)
      #expect(buttons(try await page(of: "vera", api)) == ["Transfer news…"])
      // What has ended says why it has no button.
      api.live(until: 50)
      let ended = try await page(of: "vera", api)
      #expect(buttons(ended) == [])
      #expect(
        ended.text.matches(of: /The subscription has ended: a transfer would give no access\./)
          .count
          == 3)
      // One in its grace period is active.
      try await api.claim(
        Payment(id: "9", from: 60, to: 90), Future(isOn: true, end: 90), by: "vera", on: 60.1)
      try await api.claim(
        Payment(id: "10", line: "8000", product: "old", from: 85, to: 86), by: "vera", on: 85.1)
      try await api.claim(
        Payment(id: "9", from: 60, to: 90),
        Future(isOn: true, end: 90, graceUntil: 106, isInRetry: true), by: "vera", on: 91)
      #expect(buttons(try await page(of: "vera", api)) == ["Transfer monthly…"])
      // And so can one be that Apple still tries to charge.
      try await api.claim(
        Payment(id: "9", from: 60, to: 90), Future(isOn: true, end: 90, isInRetry: true),
        by: "vera", on: 91.5)
      #expect(buttons(try await page(of: "vera", api)) == ["Transfer monthly…"])
      // Two of one product differ by their dates.
      try await api.claim(
        Payment(id: "11", line: "9000", from: 92, to: 122), by: "vera", on: 92.1)
      #expect(
        buttons(try await page(of: "vera", api))
          == ["Transfer monthly (until 3 May 2026)…", "Transfer monthly (until 1 Apr 2026)…"])
    }
  }

  @Test func `charges that move together are one row of the history`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.claim(Self.month, Self.on, by: "klara", on: 0.1)
      try await api.claim(Payment(id: "2", from: 50, to: 80, reason: nil), by: "leo", on: 50.1)
      for (id, from) in [("3", 80.0), ("4", 110)] {
        try await api.claim(
          Payment(id: id, from: from, to: from + 30, reason: "RENEWAL"), by: "leo", on: from + 0.1)
      }
      let recovered = Payment(id: "2", from: 50, to: 80, reason: "RENEWAL")
      try await api.deliver(
        Notice("DID_RENEW", "BILLING_RECOVERY", recovered, Future(isOn: true, end: 80), on: 50.05),
        on: 120)
      var browser = try await AdminBrowser.loggedIn(api)
      for path in ["accounts/leo", "accounts/klara", "original-transactions/1000"] {
        let text = try await browser.get("/admin/\(path)").text
        #expect(
          text.matches(of: /3 charges moved from leo to klara\./).count == 1, "\(path)")
      }

      let owner: JSONValue = ["account_id": "leo", "reason": "His."]
      _ = try await api.call(.post, "/v1/transactions/4/owner", owner, as: .admin)
      let acts = try await browser.get("/admin/accounts/leo?history=administrators").text
        .replacing(/<[^>]*>/, with: "")
      #expect(acts.contains("Transferred monthly 4 from klara to leo."), "\(acts)")
    }
  }

  @Test func `auto-renew is on again with a purchase, and a grace period is not cut off`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.claim(Self.month, Future(isOn: false, end: 30), by: "mia", on: 10)
      try await api.claim(Payment(id: "2", from: 50, to: 80), by: "mia", on: 50.1)
      func page() async throws -> AdminBrowser.Page {
        var browser = try await AdminBrowser.loggedIn(api)
        return try await browser.get("/admin/original-transactions/1000")
      }
      func spans() async throws -> Int {
        try await page().text.matches(of: /<title>Auto-renew on<\/title>/).count
      }
      #expect(try await spans() == 2)
      try await api.claim(
        Payment(id: "2", from: 50, to: 80), Future(isOn: false, end: 80), by: "mia", on: 60)
      #expect(try await spans() == 2)
      try await api.claim(
        Payment(id: "2", from: 50, to: 80), Future(isOn: true, end: 80), by: "mia", on: 70)
      #expect(try await spans() == 3)
      try await api.claim(
        Payment(id: "2", from: 50, to: 80),
        Future(isOn: true, end: 80, graceUntil: 96, isInRetry: true), by: "mia", on: 81)
      let text = try await page().text
      #expect(text.contains(/<title>22 Mar 2026 to 7 Apr 2026: grace period<\/title>/))
      let mark = text.firstMatch(of: /<line class="now" x1="([0-9.]*)%"/)?.1
      #expect(try #require(mark.flatMap { Double($0) }) < 90)
    }
  }

  @Test func `an age begins when the charge lost its owner`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.claim(Self.month, Self.on, by: "walter", on: 0.1)
      api.live(until: 20)
      #expect(
        try await api.call(.delete, "/v1/transactions/1/owner?reason=r", as: .admin).status == 200)
      api.live(until: 22)
      var browser = try await AdminBrowser.loggedIn(api)
      let queue = try await browser.get("/admin/unclaimed")
      #expect(queue.contains("1 paid charge gives no account access, since "))
      #expect(try await browser.get("/admin").contains("(oldest: 2 days"))
    }
  }
}
