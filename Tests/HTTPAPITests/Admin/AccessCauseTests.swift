import HTTPTypes
import JSONText
import LedgerStorage
import Postgres
import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI

/// The first sentence of the account page, and the same in the API, for the stories of the demo.
///
/// Day 0 is 1 January 2026.
struct AccessCauseTests {
  /// A story, and what an account is told at its end.
  struct Story: Sendable, CustomTestStringConvertible {
    var name: String
    var account: String
    var tell: @Sendable (TestAPI) async throws -> Void
    var verdict: String
    var state: String
    var because: Entitlement.EndReason
    /// The day on which access ended.
    var ended: Double
    var testDescription: String { name }
  }

  private static let on = Future(isOn: true, end: 30)
  private static let month = Payment(id: "1", from: 0, to: 30)

  /// Klara's card fails without a word from Apple; leo submits the recovered month.
  @Sendable private static func recoverLate(_ api: TestAPI) async throws {
    try await api.claim(month, on, by: "klara", on: 0.1)
    try await api.claim(Payment(id: "2", from: 50, to: 80, reason: nil), by: "leo", on: 50.1)
  }

  /// Leo's months move to klara after they have ended.
  private static let movedLate = Story(
    name: "moved after they had ended", account: "leo",
    tell: { api in
      try await recoverLate(api)
      try await api.claim(
        Payment(id: "3", from: 80, to: 110, reason: "RENEWAL"), by: "leo", on: 80.1)
      let recovered = Payment(id: "2", from: 50, to: 80, reason: "RENEWAL")
      try await api.deliver(
        Notice(
          "DID_RENEW", "BILLING_RECOVERY", recovered, Future(isOn: true, end: 80), on: 50.05),
        on: 150)
    },
    verdict:
      "monthly expired on 21 Apr 2026. 2 charges moved to klara on 31 May 2026 when Apple's late "
      + "renewal notice arrived.",
    state: "expired", because: .moved, ended: 110)

  /// An administrator gives leo's month to klara, and later to another account or to none.
  @Sendable private static func transfer(_ api: TestAPI, to last: String?) async throws {
    try await recoverLate(api)
    for (day, account) in [(51.0, "klara"), (52.0, last)] {
      api.live(until: day)
      let owner: JSONValue = [
        "account_id": account.map { .string($0) } ?? .null, "reason": "Not theirs.",
      ]
      _ = try await api.call(.post, "/v1/transactions/2/owner", owner, as: .admin)
    }
  }

  private static let stories: [Story] = [
    movedLate,
    Story(
      name: "upgraded by another account", account: "edith",
      tell: { api in
        try await api.claim(month, Future(isOn: false, end: 30), by: "edith", on: 10)
        let upgrade = Payment(id: "2", product: "premium", from: 12, to: 42)
        try await api.claim(upgrade, by: "felix", on: 12.1)
        api.live(until: 60)
      },
      verdict: "Lost access on 13 Jan 2026: upgraded to premium; the upgrade belongs to felix, who "
        + "submitted it first (edith's auto-renew was off).",
      state: "expired", because: .replaced, ended: 12),
    Story(
      name: "renewed after a lapse by another account", account: "mona",
      tell: { api in
        try await api.claim(month, on, by: "mona", on: 0.1)
        try await api.claim(Payment(id: "2", from: 50, to: 80, reason: nil), by: "nils", on: 50.1)
      },
      verdict: "monthly expired on 31 Jan 2026. The purchase of 20 Feb 2026 belongs to nils, who "
        + "submitted it first: auto-renew had lapsed and Apple had not reported a billing retry.",
      state: "expired", because: .expired, ended: 30),
    Story(
      name: "refunded, and the period is over", account: "rita",
      tell: { api in
        try await api.claim(month, on, by: "rita", on: 0.1)
        var refunded = month
        refunded.revokedOn = 5
        try await api.deliver(Notice("REFUND", nil, refunded, on: 5.1))
        api.live(until: 90)
      },
      verdict: "Refunded by Apple on 6 Jan 2026: monthly, charged 1 Jan 2026.", state: "revoked",
      because: .refunded, ended: 5),
    Story(
      name: "refunded, and bought later by another account", account: "rita",
      tell: { api in
        try await api.claim(month, on, by: "rita", on: 0.1)
        var refunded = month
        refunded.revokedOn = 5
        try await api.deliver(Notice("REFUND", nil, refunded, on: 5.1))
        try await api.claim(
          Payment(id: "2", from: 50, to: 80, reason: "PURCHASE"), by: "otto", on: 50.1)
      },
      verdict:
        "Refunded by Apple on 6 Jan 2026: monthly, charged 1 Jan 2026. The purchase of 20 Feb "
        + "2026 belongs to otto, who submitted it first.",
      state: "revoked", because: .refunded, ended: 5),
    Story(
      name: "refunded within the period", account: "xenia",
      tell: { api in
        try await api.claim(month, on, by: "xenia", on: 0.1)
        var refunded = month
        refunded.revokedOn = 5
        try await api.deliver(Notice("REFUND", nil, refunded, on: 5.1))
      },
      verdict: "Refunded by Apple on 6 Jan 2026: monthly, charged 1 Jan 2026.", state: "revoked",
      because: .refunded, ended: 5),
    Story(
      name: "corrected by late evidence", account: "leo",
      tell: { api in
        try await recoverLate(api)
        let recovered = Payment(id: "2", from: 50, to: 80, reason: "RENEWAL")
        try await api.deliver(
          Notice(
            "DID_RENEW", "BILLING_RECOVERY", recovered, Future(isOn: true, end: 80), on: 50.05),
          on: 53)
        api.live(until: 99)
      },
      verdict:
        "Lost premium on 23 Feb 2026: moved to klara when Apple's late renewal notice arrived.",
      state: "revoked", because: .moved, ended: 53),
    Story(
      name: "transferred by an administrator", account: "leo",
      tell: { api in
        try await recoverLate(api)
        api.live(until: 51)
        let owner: JSONValue = ["account_id": "klara", "reason": "Hers."]
        _ = try await api.call(.post, "/v1/transactions/2/owner", owner, as: .admin)
      },
      verdict: "Lost premium on 21 Feb 2026: moved to klara by an administrator.",
      state: "revoked", because: .moved, ended: 51),
    Story(
      name: "transferred twice", account: "leo", tell: { try await transfer($0, to: "zeno") },
      verdict: "Lost premium on 21 Feb 2026: moved to klara by an administrator.",
      state: "revoked", because: .moved, ended: 51),
    Story(
      name: "transferred, and then released", account: "leo",
      tell: { try await transfer($0, to: nil) },
      verdict: "Lost premium on 21 Feb 2026: moved to klara by an administrator.",
      state: "revoked", because: .moved, ended: 51),
    Story(
      name: "expired", account: "olga",
      tell: { api in
        try await api.claim(month, Future(isOn: false, end: 30), by: "olga", on: 10)
        api.live(until: 40)
      },
      verdict: "monthly expired on 31 Jan 2026: auto-renew had been off since 11 Jan 2026.",
      state: "expired",
      because: .expired, ended: 30),
    Story(
      name: "refunded after it expired", account: "rolf",
      tell: { api in
        try await api.claim(month, on, by: "rolf", on: 10)
        var refunded = month
        refunded.revokedOn = 50
        try await api.claim(
          refunded, Future(isOn: false, end: 30, intent: 1), by: "rolf", on: 50)
      },
      verdict: "monthly expired on 31 Jan 2026.", state: "expired", because: .expired, ended: 30),
    Story(
      name: "in billing retry", account: "karin",
      tell: { api in
        try await api.claim(
          month, Future(isOn: true, end: 30, isInRetry: true), by: "karin", on: 31)
      },
      verdict: "monthly could not be charged on 31 Jan 2026; access has been suspended since then "
        + "while Apple retries.",
      state: "in_billing_retry", because: .billing, ended: 30),
    Story(
      name: "Apple has given up, and switched auto-renew off", account: "gerd",
      tell: { api in
        for (day, isInRetry) in [(31.0, true), (95, false)] {
          try await api.claim(
            month, Future(isOn: isInRetry, end: 30, isInRetry: isInRetry, intent: 2), by: "gerd",
            on: day)
        }
      },
      verdict: "monthly could not be charged; access ended on 31 Jan 2026.", state: "expired",
      because: .billing, ended: 30),
    Story(
      name: "Apple has given up after a grace period", account: "gina",
      tell: { api in
        try await api.claim(
          month, Future(isOn: true, end: 30, graceUntil: 46, isInRetry: true), by: "gina", on: 31)
        for (day, isInRetry) in [(47.0, true), (95, false)] {
          try await api.claim(
            month, Future(isOn: isInRetry, end: 30, isInRetry: isInRetry, intent: 2), by: "gina",
            on: day)
        }
      },
      verdict: "monthly could not be charged; the grace period ended on 16 Feb 2026.",
      state: "expired", because: .billing, ended: 46),
    Story(
      name: "billing failed, and another account bought it later", account: "jana",
      tell: { api in
        try await api.claim(
          month, Future(isOn: true, end: 30, isInRetry: true, intent: 2), by: "jana", on: 31)
        try await api.claim(
          month, Future(isOn: false, end: 30, isInRetry: false, intent: 2), by: "jana", on: 95)
        try await api.claim(
          Payment(id: "2", from: 100, to: 130, reason: "PURCHASE"), by: "otto", on: 100.1)
      },
      verdict: "monthly could not be charged; access ended on 31 Jan 2026. The purchase of 11 Apr "
        + "2026 belongs to otto, who submitted it",
      state: "expired", because: .billing, ended: 30),
  ]

  @Test(arguments: stories)
  func `the page and the API say why access ended`(story: Story) async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.describe("premium", "premium")
      try await story.tell(api)

      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get("/admin/accounts/\(story.account)")
      let text = page.verdict
      #expect(text.hasPrefix(story.verdict), "\(text)")

      let path = "/v1/accounts/\(story.account)/entitlements"
      for answer in [
        try await api.get(path)["entitlements"],
        try await api.get("\(path)?at=\(api.api.now())")["entitlements"],
      ] {
        let entitlement = answer?[0]
        #expect(answer?.array?.count == 1)
        #expect(entitlement?["active"]?.bool == false)
        #expect(entitlement?["state"]?.string == story.state)
        #expect(entitlement?["ended_because"]?.string == story.because.rawValue)
        #expect(entitlement?["ended_at"]?.string == storyDay(story.ended).description)
      }
    }
  }

  @Test func `beside an active entitlement the latest loss is named`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.describe("lifetime", "lifetime")
      let forever = Payment(
        id: "9", line: "9", product: "lifetime", type: "Non-Consumable", from: 1)
      try await api.claim(forever, by: "karin", on: 1.1)
      try await api.claim(
        Self.month, Future(isOn: true, end: 30, isInRetry: true), by: "karin", on: 31)
      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get("/admin/accounts/karin")
      #expect(
        page.contains(
          #"<p class="verdict warning">Active entitlement: lifetime. lifetime does not expire. "#
            + "monthly could not be charged on 31 Jan 2026; access has been suspended"))
    }
  }

  private func verdict(of account: String, _ api: TestAPI) async throws -> String {
    var browser = try await AdminBrowser.loggedIn(api)
    return try await browser.get("/admin/accounts/\(account)").verdict
  }

  @Test func `a change of the product is told, and the next one`() async throws {
    try await TestAPI.run { api in
      for (product, level) in [("monthly", 2), ("premium", 1)] as [(String, Int64)] {
        let body: JSONValue = [
          "type": "auto_renewable", "entitlements": ["pro"], "level": .integer(level),
        ]
        _ = try await api.call(.put, "/v1/products/\(product)", body, as: .admin)
      }
      try await api.describe("other", "pro")
      try await api.claim(Self.month, Self.on, by: "bella", on: 0.1)
      #expect(try await verdict(of: "bella", api).hasSuffix("monthly renews on 31 Jan 2026."))
      func change(_ id: String, to product: String, from: Double) async throws -> String {
        let payment = Payment(id: id, product: product, from: from, to: from + 30)
        let future = Future(product: product, isOn: true, end: from + 30)
        try await api.claim(payment, future, by: "bella", on: from + 0.1)
        return try await verdict(of: "bella", api)
      }
      let upgraded = try await change("2", to: "premium", from: 12)
      #expect(upgraded.hasSuffix("Upgraded from monthly to premium on 13 Jan 2026."), "\(upgraded)")
      let announced = Payment(id: "2", product: "premium", from: 12, to: 42)
      let next = Future(product: "premium", isOn: true, next: "monthly", end: 42)
      try await api.deliver(
        Notice("DID_CHANGE_RENEWAL_PREF", "DOWNGRADE", announced, next, on: 20))
      #expect(
        try await verdict(of: "bella", api).hasSuffix(
          "Upgraded from monthly to premium on 13 Jan 2026. It will renew as monthly."))
      let downgraded = try await change("3", to: "monthly", from: 42)
      #expect(downgraded.hasSuffix("Downgraded from premium to monthly on 12 Feb 2026."))
      let crossed = try await change("4", to: "other", from: 72)
      #expect(crossed.hasSuffix("Changed from monthly to other on 14 Mar 2026."))
      // A purchase after a lapse changes nothing.
      let bought = try await change("5", to: "monthly", from: 140)
      #expect(bought.hasSuffix("monthly renews on 20 Jun 2026."), "\(bought)")
    }
  }

  @Test func `only the charges that moved together are told, and only if they moved last`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      for line in ["1000", "2000", "3000"] {
        try await api.claim(Payment(id: line, line: line, from: 0, to: 30), by: "leo", on: 0.1)
      }
      _ = try await api.call(.put, "/v1/accounts/klara")
      for (line, day) in [("1000", 50.0), ("2000", 60)] {
        api.live(until: day)
        let moved = try await api.call(
          .post, "/v1/transactions/\(line)/owner", ["account_id": "klara", "reason": "r"],
          as: .admin
        )
        #expect(moved.status == 200)
      }
      let story = try await verdict(of: "leo", api)
      #expect(
        story == "monthly expired on 31 Jan 2026. 1 charge moved to klara on 2 Mar 2026 by an "
          + "administrator.", "\(story)")
      try await api.claim(Payment(id: "9", line: "4000", from: 70, to: 100), by: "leo", on: 70.1)
      api.live(until: 110)
      let later = try await verdict(of: "leo", api)
      #expect(later.hasPrefix("monthly expired on 11 Apr 2026"), "\(later)")
      #expect(!later.contains("moved to klara"), "\(later)")
    }
  }

  @Test(
    arguments: [
      ("xenia", 7, "8 Jan 2026", "Refunded by Apple on 6 Jan 2026: monthly, charged 1 Jan 2026."),
      (
        "olga", 41, "11 Feb 2026",
        "monthly expired on 31 Jan 2026: auto-renew had been off since 11 Jan 2026."
      ),
      (
        "mona", 60, "2 Mar 2026",
        "monthly expired on 31 Jan 2026. The purchase of 20 Feb 2026 belongs to nils, who submitted "
          + "it first: auto-renew had lapsed and Apple had not reported a billing retry."
      ),
    ] as [(String, Double, String, String)])
  func `a revoked grant does not hide how the subscription ended`(
    account: String, day: Double, revoked: String, end: String
  ) async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await Self.stories.first { $0.account == account }?.tell(api)
      let grant: JSONValue = [
        "account_id": .string(account), "entitlement": "premium", "reason": "Sorry.",
      ]
      let granted = try await api.call(.post, "/v1/grants", grant, as: .admin)
      let id = try #require(granted["grant_id"]?.string)
      api.live(until: day)
      _ = try await api.call(.delete, "/v1/grants/\(id)?reason=r", as: .admin)
      #expect(
        try await verdict(of: account, api)
          == "premium was granted by an administrator; revoked on \(revoked). \(end)")
      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get("/admin/accounts/\(account)")
      #expect(page.contains(#"<span class="until">ended <time datetime="2026-"#))
      #expect(
        page.contains(">premium (grant)</text>") && page.contains(##"href="#grant-\##(id)""##))
    }
  }

  @Test func `all refunds are told, the latest first, and counted`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      for (id, from) in [("1", 0.0), ("2", 30), ("3", 60), ("4", 90)] {
        var month = Payment(id: id, from: from, to: from + 30)
        try await api.claim(month, by: "chloe", on: from + 0.1)
        month.revokedOn = from + 5
        try await api.deliver(Notice("REFUND", nil, month, on: from + 5.1))
      }
      #expect(
        try await verdict(of: "chloe", api).hasSuffix(
          "Refunded by Apple on 6 Apr 2026: monthly, charged 1 Apr 2026. Also refunded: monthly of 2 "
            + "Mar 2026 on 7 Mar 2026; monthly of 31 Jan 2026 on 5 Feb 2026; monthly of 1 Jan 2026 "
            + "on 6 Jan 2026."))
      var browser = try await AdminBrowser.loggedIn(api)
      #expect(try await badgesAndHistory("chloe", &browser).badges == ["Refunded", "4 refunds"])
    }
  }

  @Test func `a timeline shows the retry that only a late renewal tells, and the former owner`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await Self.movedLate.tell(api)
      var browser = try await AdminBrowser.loggedIn(api)
      let retry = "31 Jan 2026 to 20 Feb 2026: billing retry without access"
      for path in ["/admin/accounts/klara", "/admin/original-transactions/1000"] {
        #expect(try await browser.get(path).contains(retry), "\(path)")
      }
      let page = try await browser.get("/admin/original-transactions/1000")
      #expect(page.contains(">Former owner</text>"))
      #expect(page.contains(": leo owned monthly until 31 May 2026"))
    }
  }

  @Test(arguments: [
    (
      "corrected by late evidence", "leo",
      [
        "since 23 Feb 2026 (moved to klara when Apple's late renewal notice arrived)"
      ],
      true
    ),
    (
      "corrected by late evidence", "klara",
      ["31 Jan 2026 to 23 Feb 2026 (payment failed)", "since 22 Mar 2026 (monthly expired)"], false
    ),
    // Klara got the months when they were over.
    ("moved after they had ended", "klara", ["since 31 Jan 2026 (payment failed)"], false),
    ("moved after they had ended", "leo", ["since 21 Apr 2026 (monthly expired)"], true),
    ("upgraded by another account", "edith", ["since 13 Jan 2026 (replaced by an upgrade)"], false),
    ("refunded within the period", "xenia", ["since 6 Jan 2026 (refunded)"], false),
  ])
  func `a timeline shows when access ended and began again`(
    name: String, account: String, gaps: [String], isLost: Bool
  ) async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.describe("premium", "premium")
      try await #require(Self.stories.first { $0.name == name }).tell(api)
      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get("/admin/accounts/\(account)")
      let text = page.text.replacing("&#39;", with: "'")
      #expect(text.contains("No access to premium: \(gaps.joined(separator: "; "))."), "\(text)")
      #expect(text.contains(">Access to premium</text>"))
      let time = gaps[0].prefix { $0 != "(" }.dropLast()
      #expect(text.contains("<title>\(time): no access to premium ("))
      // Drawn as long as the account had it.
      #expect(text.contains(">lost to another account</li>") == isLost)
      #expect(
        text.contains("; moved to klara when Apple's late renewal notice arrived on") == isLost)
      #expect(text.contains("; moved here from leo when Apple's") == (account == "klara"))
    }
  }

  @Test func `access that was learned of later is hatched until then`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.claim(Self.month, Future(isOn: true, end: 30), by: "olga", on: 12)
      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get("/admin/accounts/olga")
      #expect(
        page.contains(
          "Paid, but without access to premium until Tenure knew the charge and its owner: 1 Jan "
            + "2026 to 13 Jan 2026."), "\(page.text)")
      #expect(page.contains(#"fill="url(#charges-late)""#))
      #expect(page.contains("<title>1 Jan 2026 to 13 Jan 2026: paid, without access</title>"))
    }
  }

  @Test func `an active account has no gap in its timeline, and grants close one`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.claim(Self.month, Future(isOn: false, end: 30), by: "olga", on: 0.1)
      var browser = try await AdminBrowser.loggedIn(api)
      let active = try await browser.get("/admin/accounts/olga")
      #expect(active.contains("1 Jan 2026 to 31 Jan 2026: access to premium</title>"))
      #expect(!active.contains("no access"))
      api.live(until: 40)
      let grant: JSONValue = ["account_id": "olga", "entitlement": "premium", "reason": "r"]
      _ = try await api.call(.post, "/v1/grants", grant, as: .admin)
      browser = try await AdminBrowser.loggedIn(api)
      #expect(
        try await browser.get("/admin/accounts/olga").contains(
          "No access to premium: 31 Jan 2026 to 10 Feb 2026 (monthly expired)."))
    }
  }

  @Test func `a merged account still says that its submission waits`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.claim(Self.month, Self.on, by: "guest", on: 0.1)
      _ = try await api.call(.put, "/v1/accounts/member")
      let merge: JSONValue = ["into": "member", "reason": "One person."]
      let merged = "The account was merged into “member”, which gets its charges."
      _ = try await api.call(.post, "/v1/accounts/guest/merge", merge, as: .admin)
      #expect(try await verdict(of: "guest", api) == merged)
      _ = try await api.database.execute(
        "UPDATE tenure.submission SET status = 'pending', environment = NULL, decided_at = NULL")
      #expect(
        try await verdict(of: "guest", api) == "\(merged) The latest submission is pending.")
    }
  }

  /// The texts of the badges beside the title and of the history's rows.
  private func badgesAndHistory(_ account: String, _ browser: inout AdminBrowser) async throws
    -> (badges: [String], history: String)
  {
    let text = try await browser.get("/admin/accounts/\(account)").text
    let title = text.firstMatch(of: /<div class="title">([^\n]+)/)?.1 ?? ""
    return (
      title.matches(of: /<span class="badge [a-z]+">([^<]*)/).map { String($0.1) },
      String(text[(text.firstRange(of: "id=\"history\"")?.upperBound ?? text.endIndex)...])
    )
  }

  @Test func `a refund before the present period is told too, and a loss is one sentence`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      var refunded = Self.month
      refunded.price = 9990
      try await api.claim(refunded, Self.on, by: "chloe", on: 0.1)
      refunded.revokedOn = 5
      try await api.deliver(Notice("REFUND", nil, refunded, on: 5.1))
      var browser = try await AdminBrowser.loggedIn(api)
      let before = try await badgesAndHistory("chloe", &browser)
      #expect(before.badges == ["Refunded"])
      #expect(
        before.history.contains(
          "<p class=\"story\">monthly, charged 1 Jan 2026, was refunded. Access to “premium” ended.</p>"
        ))
      try await api.claim(
        Payment(id: "2", from: 10, to: 40, price: 4990), by: "chloe", on: 10.1)
      browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get("/admin/accounts/chloe")
      #expect(
        page.contains("monthly, charged 1 Jan 2026, was refunded on 6 Jan 2026."), "\(page.text)")
      #expect(page.contains("First seen 1 Jan 2026 · 2 charges"))
      #expect(try await badgesAndHistory("chloe", &browser).badges == ["Active", "1 refund"])
    }
  }

  @Test(arguments: [
    ("upgraded by another account", "Upgraded"),
    ("Apple has given up, and switched auto-renew off", "Payment failed"),
    ("corrected by late evidence", "Moved"), ("moved after they had ended", "Expired"),
  ])
  func `a badge tells why access ended`(name: String, badge: String) async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.describe("premium", "premium")
      let story = try #require(Self.stories.first { $0.name == name })
      let account = story.account
      try await story.tell(api)
      var browser = try await AdminBrowser.loggedIn(api)
      #expect(try await badgesAndHistory(account, &browser).badges == [badge])
      // The list's filter has the same words.
      let name = badge == "Moved" ? "Moved or released" : badge
      for (state, isFound) in [(name.replacing(" ", with: "+"), true), ("Refunded", false)] {
        let list = try await browser.get("/admin/accounts?state=\(state)")
        #expect(list.contains(">\(account)</a>") == isFound, "\(state)")
      }
    }
  }

  @Test func `the end of Family Sharing is no refund, and a shared charge has no price`()
    async throws
  {
    try await TestAPI.run { api in
      let price: JSONValue = [
        "type": "auto_renewable", "entitlements": ["premium"], "period": "P1M",
        "price_milliunits": 9990, "currency": "USD",
      ]
      _ = try await api.call(.put, "/v1/products/monthly", price, as: .admin)
      var shared = Self.month
      shared.isFamilyShared = true
      try await api.claim(shared, Self.on, by: "yusuf", on: 0.1)
      shared.revokedOn = 5
      try await api.deliver(Notice("REVOKE", nil, shared, on: 5.1))
      _ = try await api.call(.put, "/v1/accounts/yusra")
      var browser = try await AdminBrowser.loggedIn(api)
      let badge = #"premium <span class="badge bad">No longer shared</span>"#
      for path in ["/admin", "/admin/accounts", AdminURL.search("yus")] {
        #expect(try await browser.get(path).contains(badge), "\(path)")
      }
      #expect(try await badgesAndHistory("yusuf", &browser).badges == ["No longer shared"])
      for (state, isFound) in [("No+longer+shared", true), ("Refunded", false)] {
        let list = try await browser.get("/admin/accounts?state=\(state)")
        #expect(list.contains(">yusuf</a>") == isFound, "\(state)")
      }
      let held = try await api.get("/v1/accounts/yusuf/entitlements")["entitlements"]?[0]
      #expect(held?["ended_because"] == "family_sharing_ended")
      #expect(
        try await verdict(of: "yusuf", api) == "Family Sharing of monthly ended on 6 Jan 2026.")
      let page = try await browser.get("/admin/accounts/yusuf")
      #expect(page.contains("no price (shared)") && !page.contains("(catalogue)"))
      #expect(page.contains(", no longer shared") && !page.contains("mark-refund\"><title>"))
      let original = try await browser.get("/admin/original-transactions/1000")
      #expect(!original.contains("mark-refund\"><title>"))
    }
  }

  @Test func `a charge that was released is not called moved, and is released once`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.claim(Self.month, Self.on, by: "walter", on: 0.1)
      var browser = try await AdminBrowser.loggedIn(api)
      let line = "/admin/original-transactions/1000"
      #expect(try await browser.get(line).contains("Release…"))
      api.live(until: 1)
      let path = "/v1/transactions/1/owner?reason=r"
      #expect(try await api.call(.delete, path, as: .admin).status == 200)
      browser = try await AdminBrowser.loggedIn(api)
      let (badges, history) = try await badgesAndHistory("walter", &browser)
      #expect(badges == ["Released"])
      // It is the row itself, not one of its details.
      #expect(
        history.contains(
          /<\/time>\n<div><p class="story">monthly of 1 Jan 2026: An administrator released it from/
        )
      )
      let words = history.replacing(/<[^>]*>/, with: "")
      #expect(
        words.contains(
          "An administrator released it from “walter”. Access to “premium” ended."), "\(words)")
      #expect(words.contains("original transaction 1000"))
      let original = try await browser.get(line)
      #expect(original.contains("An administrator released transaction 1."))
      #expect(!original.contains("Release…"))

      // Another account's gain afterwards is not how walter lost it.
      _ = try await api.call(.put, "/v1/accounts/tina")
      let owner: JSONValue = ["account_id": "tina", "reason": "Hers."]
      _ = try await api.call(.post, "/v1/transactions/1/owner", owner, as: .admin)
      browser = try await AdminBrowser.loggedIn(api)
      #expect(try await badgesAndHistory("walter", &browser).badges == ["Released"])
      let list = try await browser.get("/admin/accounts")
      #expect(list.contains(#"premium <span class="badge warning">Released</span>"#))
    }
  }

  @Test func `the history tells what auto-renew became, and that a refund was reversed`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.claim(Self.month, Self.on, by: "edith", on: 0.1)
      for (day, future) in [
        (1.0, Future(isOn: false, end: 30)), (2, Future(isOn: true, next: "yearly", end: 30)),
      ] {
        try await api.deliver(
          Notice("DID_CHANGE_RENEWAL_STATUS", nil, Self.month, future, on: day))
      }
      var refunded = Self.month
      refunded.revokedOn = 5
      try await api.deliver(Notice("REFUND", nil, refunded, on: 5.1))
      try await api.deliver(Notice("REFUND_REVERSED", nil, Self.month, on: 6))
      var browser = try await AdminBrowser.loggedIn(api)
      let history = try await badgesAndHistory("edith", &browser).history
        .replacing(/<[^>]*>/, with: "")
      for text in [
        "Auto-renew was turned off.", "Auto-renew is on: renews as yearly.",
        "The refund of monthly, charged 1 Jan 2026, was reversed. Access to “premium” began.",
        "Apple reversed the refund of transaction 1: a purchase of monthly",
      ] { #expect(history.contains(text), "\(text)") }
    }
  }

  @Test func `a loss and its cause are one sentence`() {
    let at = Moment(storyDay(5))
    let line = OriginalTransactionKey(.production, OriginalTransactionID("1"))
    let rows = [
      FactRow(
        at: at, sentence: [("Access to “pro” ended.", nil)], source: "Event", symbol: .poll,
        line: line, transactionID: "1", meaning: .access, access: ("pro", false)),
      FactRow(
        at: at, sentence: [("Apple reported it.", nil)], source: "Submission", symbol: .submission,
        line: line, transactionID: "1", meaning: .revocation,
        story: "monthly was replaced by an upgrade"),
    ]
    let charges = HistoryCharges(of: [RecordedOriginalTransaction]()) { _ in "" }
    #expect(
      rows.folded(charges).map { $0.sentence.map(\.text).joined() }
        == ["monthly was replaced by an upgrade. Access to “pro” ended."])
    // Each row is one of the details.
    #expect(
      rows.folded(charges)[0].parts.map { $0.sentence[0].text }
        == ["Access to “pro” ended.", "Apple reported it."])
    // A refund that was reversed when it was reported is no loss.
    var (late, newer) = (rows[1], rows[1])
    (late.evidenceDate, late.story) = (storyDay(1), "monthly was refunded")
    (newer.evidenceDate, newer.meaning) = (storyDay(2), .charge)
    #expect(
      [late, newer].folded(charges).map { $0.sentence[0].text }
        == ["monthly was refunded; Apple had reversed it when that was reported."])
    #expect(
      [rows[0]].folded(charges).map { $0.sentence.map(\.text) } == [["Access to “pro” ended."]])
  }

  @Test func `an original transaction that will not renew says why, and has an owner`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      func page() async throws -> AdminBrowser.Page {
        var browser = try await AdminBrowser.loggedIn(api)
        return try await browser.get("/admin/original-transactions/1000")
      }
      let next = Future(isOn: true, next: "yearly", end: 30)
      try await api.claim(Self.month, next, by: "olga", on: 5)
      let renewing = try await page()
      #expect(renewing.verdict == "monthly renews on 31 Jan 2026. Renewals belong to olga.")
      #expect(
        renewing.contains(#"belong to <a class="code" href="/admin/accounts/olga">"#))
      #expect(
        renewing.contains(
          #"<dt>Renews as</dt><dd><a href="/admin/product?product_id=yearly">yearly</a>"#))
      try await api.claim(Self.month, Future(isOn: false, end: 30), by: "olga", on: 10)
      #expect(
        try await page().verdict
          == "monthly expires on 31 Jan 2026 and will not renew. The subscription belongs to olga.")
      api.live(until: 40)
      let ended = try await page()
      #expect(
        ended.verdict
          == "monthly expired on 31 Jan 2026: auto-renew had been off since 11 Jan 2026. The "
          + "subscription belongs to olga.")
      #expect(!ended.contains("<dt>Renews as</dt>"))
    }
  }

  @Test func `what is no subscription has an owner, and no renewals`() async throws {
    try await TestAPI.run { api in
      try await api.describe("lifetime", "lifetime")
      let forever = Payment(
        id: "9", line: "9", product: "lifetime", type: "Non-Consumable", from: 1)
      try await api.claim(forever, by: "vera", on: 1.1)
      var browser = try await AdminBrowser.loggedIn(api)
      let account = try await browser.get("/admin/accounts/vera")
      #expect(account.contains("lifetime belongs to this account."))
      let line = try await browser.get("/admin/original-transactions/9")
      #expect(line.verdict.contains("It belongs to vera."))
      for page in [account, line] { #expect(!page.contains("Renewals")) }
    }
  }

  @Test func `a grant ends on its day, or is revoked before`() async throws {
    try await TestAPI.run { api in
      var ids: [String] = []
      for account in ["gina", "hugo"] {
        _ = try await api.call(.put, "/v1/accounts/\(account)")
        let grant: JSONValue = [
          "account_id": .string(account), "entitlement": "pro",
          "expires_at": "2026-01-03T00:00:00Z", "reason": "r",
        ]
        let given = try await api.call(.post, "/v1/grants", grant, as: .admin)
        ids.append(try #require(given["grant_id"]?.string))
      }
      func reason(_ account: String) async throws -> String? {
        let answer = try await api.get("/v1/accounts/\(account)/entitlements")
        return answer["entitlements"]?[0]["ended_because"]?.string
      }
      #expect(try await reason("gina") == nil)
      api.live(until: 1)
      #expect(
        try await api.call(.delete, "/v1/grants/\(ids[1])?reason=r", as: .admin).status == 200)
      api.live(until: 2)
      #expect(try await reason("gina") == "grant_ended")
      #expect(try await reason("hugo") == "grant_revoked")
    }
  }
}

extension AdminBrowser.Page {
  /// The first sentence of an account's page, without its links.
  var verdict: String {
    let verdict = text.firstMatch(of: /<p class="verdict [a-z]+">(.*?)<\/p>/)?.1 ?? ""
    return String(verdict).replacing(/<[^>]*>/, with: "").replacing("&#39;", with: "'")
  }
}
