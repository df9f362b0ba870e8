import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import HummingbirdCore
import HummingbirdTesting
import JSONText
import NIOCore
import Postgres
import Secrets
import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI

/// Login, sessions, and the protection of forms.
struct AdminLoginTests {
  @Test func `who is not logged in is asked to, and gets to the page then`() async throws {
    try await TestAPI.run { api in
      var browser = AdminBrowser(api)
      let asked = try await browser.get("/admin/search?q=a%20b")
      #expect(asked.status == 303)
      #expect(asked.location == "/admin/login?return_to=%2Fadmin%2Fsearch%3Fq%3Da%2520b")
      let form = try await browser.get(try #require(asked.location))
      #expect(form.status == 200)
      #expect(form.contains(#"name="return_to" value="/admin/search?q=a%20b""#))
      #expect(!form.contains("<nav"))

      let answer = try await browser.logIn(
        "admin-secret-for-trying", returnTo: "/admin/search?q=a%20b")
      #expect(answer.status == 303)
      #expect(answer.location == "/admin/search?q=a%20b")
      let cookie = try #require(answer.headers[.setCookie])
      for attribute in ["HttpOnly", "SameSite=Lax", "Path=/admin", "Max-Age=43200"] {
        #expect(cookie.contains("; \(attribute)"), "\(cookie)")
      }
      #expect(!cookie.contains("Secure"))
      #expect(!cookie.contains("admin-secret-for-trying"))
      let page = try await browser.get("/admin/search?q=a%20b")
      #expect(page.status == 200)
      #expect(page.contains("<span>ops</span>"))
    }
  }

  @Test func `the cookie is for HTTPS alone where the browser came by it`() async throws {
    try await TestAPI.run { api in
      var browser = AdminBrowser(api)
      let answer = try await browser.logIn(
        "admin-secret-for-trying",
        headers: [.forwardedProto: "https", .origin: "https://localhost"])
      #expect(answer.headers[.setCookie]?.contains("; Secure") == true)
    }
  }

  @Test(arguments: [
    ("localhost", "tenure_admin"), ("127.0.0.1:8082", "tenure_admin_8082"),
    ("[::1]:8080", "tenure_admin_8080"), ("[::1]", "tenure_admin"),
  ])
  func `the cookie is named by the port, as browsers send it to all ports of a host`(
    authority: String, name: String
  ) {
    let request = Request(
      head: HTTPRequest(method: .get, scheme: "http", authority: authority, path: "/admin"),
      body: RequestBody(buffer: ByteBuffer()))
    #expect(AdminCookie.session.name(on: request) == name)
  }

  @Test(
    "What is no administrator's key is refused",
    arguments: [
      "", "wrong", "app-secret-for-trying", "admin-secret-for-trying ",
      "ops:admin:admin-secret-for-trying",
    ])
  func refused(key: String) async throws {
    try await TestAPI.run { api in
      var browser = AdminBrowser(api)
      let answer = try await browser.logIn(key, returnTo: "/admin/parked")
      #expect(answer.status == 403)
      #expect(answer.headers[.setCookie] == nil)
      #expect(
        answer.contains("This key is for the app server.") == (key == "app-secret-for-trying"))
      #expect(answer.contains("Invalid key.") == (key != "app-secret-for-trying"))
      #expect(answer.contains(#"value="/admin/parked""#))
      #expect(key.isEmpty || !answer.contains(key))
      #expect(try await browser.get("/admin/parked").status == 303)
    }
  }

  @Test(
    "No login redirects to another host",
    arguments: [
      "https://example.org/", "//example.org", "/\\example.org", "/admin/../v1", "/v1/products",
      "javascript:alert(1)", "/administrator",
    ])
  func elsewhere(path: String) async throws {
    try await TestAPI.run { api in
      var browser = AdminBrowser(api)
      let location = try await browser.logIn("admin-secret-for-trying", returnTo: path).location
      #expect(location == "/admin" || location?.hasPrefix("/admin/") == true)
    }
  }

  @Test func `a session ends after twelve hours`() async throws {
    try await TestAPI.run { api in
      var browser = try await AdminBrowser.loggedIn(api)
      api.apple.simulation.advance(by: .hours(12) - .seconds(1))
      #expect(try await browser.get("/admin/parked").status == 200)
      api.apple.simulation.advance(by: .seconds(1))
      #expect(try await browser.get("/admin/parked").status == 303)
      // A form sent after the session has ended reports that nothing was changed.
      let late = try await browser.post(
        "/admin/parked/jobs", [("item", "1"), ("do", "retry")],
        headers: [.referer: "http://localhost/admin/parked?jobs_limit=5"])
      #expect(late.status == 303)
      let login = try await browser.get(try #require(late.location))
      #expect(login.status == 200)
      #expect(login.contains("nothing was changed"))
      // The login leads back to the page with the form.
      #expect(login.contains(#"name="return_to" value="/admin/parked?jobs_limit=5""#))
    }
  }

  @Test func `a cookie that was not made here is none`() async throws {
    try await TestAPI.run { api in
      let browser = try await AdminBrowser.loggedIn(api)
      let cookie = try #require(browser.cookies["tenure_admin"])
      let parts = cookie.split(separator: ".").map(String.init)
      #expect(parts.count == 4)
      let later = "\(try #require(Int64(parts[1])) + 1000)"
      let forged = [
        "", "x", "a.b.c", "a.b.c.d", cookie + "A", cookie + ".", "." + cookie,
        ([Base64.encode(url: "shop".utf8)] + parts.dropFirst()).joined(separator: "."),
        [parts[0], later, parts[2], parts[3]].joined(separator: "."),
        [parts[0], parts[1], "AAAAAAAAAAAAAAAAAAAAAA", parts[3]].joined(separator: "."),
        [parts[0], parts[1], parts[2], Base64.encode(url: repeatElement(0, count: 32))]
          .joined(separator: "."),
        // A form token is not a session signature.
        [parts[0], parts[1], parts[2], browser.token ?? ""].joined(separator: "."),
      ]
      for cookie in forged {
        var other = AdminBrowser(api)
        other.set(cookie: cookie)
        #expect(try await other.get("/admin/parked").status == 303, "\(cookie)")
      }
    }
  }

  @Test(
    "A session ends with its key",
    arguments: [
      ("gone:admin:admin-secret-for-trying", "gone"), ("ops:admin:other-secret-for-trying", "ops"),
      ("shop:admin:app-secret-for-trying", "shop"),
    ])
  func removed(keys: String, name: String) async throws {
    try await TestAPI.run { api in
      let keys = try APIKeys(parsing: Secret(keys))
      let (caller, key) = try #require(keys.session(of: name))
      let session = AdminSession(of: caller, key: key, at: api.apple.simulation.clock.now)
      #expect(
        AdminSession(cookie: session.cookie, keys: keys, at: api.apple.simulation.clock.now) != nil)
      var browser = AdminBrowser(api)
      browser.set(cookie: session.cookie)
      #expect(try await browser.get("/admin/parked").status == 303)
    }
  }

  @Test func `support grants and transfers, and has no reports, jobs, merging or erasure`()
    async throws
  {
    try await TestAPI.run { api in
      _ = try await api.get("/v1/accounts/petra/entitlements")
      #expect(try await api.call(.put, "/v1/accounts/petra", [:]).status < 300)
      var browser = AdminBrowser(api)
      #expect(try await browser.logIn("app-secret-for-trying").status == 403)
      #expect(try await browser.logIn("support-secret-for-trying").status == 303)
      #expect(try await browser.get("/admin").location == "/admin/accounts")
      #expect(try await browser.get("/admin/unclaimed").status == 200)
      let account = try await browser.get("/admin/accounts/petra")
      #expect(account.status == 200)
      #expect(account.contains("Grant…") && account.contains("<span>desk</span>"))
      for part in ["Erase…", "Merge…", "Export…", "/admin/reports", "/admin/parked"] {
        #expect(!account.contains(part), "\(part)")
      }
      #expect(try await browser.get("/admin/accounts/petra/grant").status == 200)
      for path in [
        "/admin/reports", "/admin/reports/mrr", "/admin/parked",
        "/admin/rejected", "/admin/accounts/petra/erase", "/admin/accounts/petra/merge",
        "/admin/accounts/petra/export",
      ] {
        #expect(try await browser.get(path).status == 403, "\(path)")
      }
      for path in ["/admin/accounts/petra/erase", "/admin/accounts/petra/export"] {
        #expect(try await browser.post(path, [("reason", "r")]).status == 403, "\(path)")
      }
      #expect(try await api.get("/v1/accounts/petra").status == 200)
    }
  }

  @Test func `replaced keys apply to the next request and end the sessions of removed ones`()
    async throws
  {
    try await TestAPI.run { api in
      var browser = try await AdminBrowser.loggedIn(api)
      #expect(try await browser.get("/admin/parked").status == 200)
      let same = try APIKeys(
        parsing: Secret(
          "shop:app:app-secret-for-trying, desk:support:support-secret-for-trying, "
            + "ops:admin:admin-secret-for-trying"))
      let now = api.api.now()
      #expect(!api.api.keys.replace(by: same, at: now))
      #expect(api.api.keys.reloadedAt == nil)
      let new = try APIKeys(
        parsing: "shop:app:app-secret-for-trying, ops:admin:other-secret-for-trying")
      #expect(api.api.keys.replace(by: new, at: now))
      #expect(api.api.keys.reloadedAt == now)
      #expect(try await browser.get("/admin/parked").status == 303)
      #expect(try await api.get("/metrics", as: .admin).status == 401)
      #expect(try await api.get("/v1/products").status == 200)
      #expect(api.api.keys.replace(by: same, at: now))
      #expect(try await api.get("/metrics", as: .admin).status == 200)
    }
  }

  @Test func `a trusted proxy signs people in, and its header fields count from nobody else`()
    async throws
  {
    func proxy(_ address: String) -> TrustedProxy {
      TrustedProxy(
        addresses: [address], secret: "proxy-secret-for-trying",
        userField: .token("X-Forwarded-Email"), groupsField: .token("X-Forwarded-Groups"),
        roles: ["desk": .support, "ops team": .admin])
    }
    @Sendable func fields(
      groups: String, secret: String = "proxy-secret-for-trying", user: String = "ann@example.com"
    ) -> HTTPFields {
      [
        .token("X-Forwarded-Email"): user, .token("X-Forwarded-Groups"): groups,
        .token(TrustedProxy.secretField): secret,
      ]
    }
    try await TestAPI.run(choices: .init(proxy: proxy("127.0.0.1")), .live) { api in
      #expect(try await api.call(.put, "/v1/accounts/petra", [:]).status < 300)
      var browser = AdminBrowser(api)
      for (groups, status) in [("staff, ops team,desk", 200), ("ops team", 200)] {
        let page = try await browser.get("/admin/parked", headers: fields(groups: groups))
        #expect(page.status == status)
        #expect(page.contains("<span>ann@example.com</span>"))
      }
      #expect(try await browser.get("/admin/parked", headers: fields(groups: "desk")).status == 403)
      var (twoUsers, twoGroups) = (fields(groups: "ops team"), fields(groups: "staff"))
      twoUsers.append(HTTPField(name: .token("X-Forwarded-Email"), value: "eve@example.com"))
      twoGroups.append(HTTPField(name: .token("X-Forwarded-Groups"), value: "ops team"))
      for made in [
        twoUsers, twoGroups, fields(groups: "staff"), fields(groups: "Ops team"),
        fields(groups: ""),
        fields(groups: "ops team", secret: "proxy-secret-for-tryinh"),
        fields(groups: "ops team", secret: ""), fields(groups: "ops team", user: "a b"), [:],
      ] {
        #expect(try await browser.get("/admin/parked", headers: made).status == 303, "\(made)")
      }
      // A form needs the token of the person's page.
      let desk = fields(groups: "desk")
      #expect(
        try await browser.get("/admin/accounts/petra/grant", headers: desk).status == 200)
      let grant = [("entitlement", "pro"), ("reason", "r"), ("confirmed", "yes")]
      let other = fields(groups: "desk", user: "eve@example.com")
      #expect(
        try await browser.post("/admin/accounts/petra/grant", grant, headers: other).status == 403)
      #expect(
        try await browser.get("/admin/accounts/petra/grant", headers: desk).status == 200)
      #expect(
        try await browser.post("/admin/accounts/petra/grant", grant, headers: desk).status != 403)
    }
    try await TestAPI.run(choices: .init(proxy: proxy("127.0.0.9")), .live) { api in
      var browser = AdminBrowser(api)
      let page = try await browser.get("/admin/parked", headers: fields(groups: "ops team"))
      #expect(page.status == 303)
    }
  }

  @Test func `after a logout the key is required again`() async throws {
    try await TestAPI.run { api in
      var browser = try await AdminBrowser.loggedIn(api)
      let answer = try await browser.post("/admin/logout", [])
      #expect(answer.status == 303)
      #expect(browser.cookies.isEmpty)
      #expect(try await browser.get("/admin/parked").status == 303)
    }
  }

  @Test func `logging out ends every copy of the session's cookie`() async throws {
    try await TestAPI.run { api in
      var browser = try await AdminBrowser.loggedIn(api)
      var thief = AdminBrowser(api)
      thief.set(cookie: browser.cookies["tenure_admin"] ?? "")
      var elsewhere = try await AdminBrowser.loggedIn(api)
      #expect(try await thief.get("/admin/parked").status == 200)
      #expect(try await browser.post("/admin/logout", []).status == 303)
      #expect(try await thief.get("/admin/parked").status == 303)
      // Other sessions of the same key stay open.
      #expect(try await elsewhere.get("/admin/parked").status == 200)
      // The next login deletes expired sessions.
      api.apple.simulation.advance(by: .hours(13))
      _ = try await AdminBrowser.loggedIn(api)
      let count = try await api.database.query("SELECT count(*) FROM tenure.admin_session")
        .decodeOnly(Int.self)
      #expect(count == 1)
    }
  }

  @Test func `the right key gets in at once, however many wrong ones there were`() async throws {
    try await TestAPI.run { api async throws in
      var browser = AdminBrowser(api)
      let start = ContinuousClock.now
      for _ in 0..<FailureBrake.Client.freeLogins + 2 {
        #expect(try await browser.logIn("wrong").status == 403)
      }
      // The last two waited 100 and 200 ms.
      #expect(ContinuousClock.now - start >= .milliseconds(300))
      // The next invalid key would be delayed; many from this address have failed.
      let client = FailureBrake.Client(sources: [
        .init(kind: .loginAddress, name: "unknown", free: 0)
      ])
      for _ in 0..<200 { _ = api.api.brake.count(client, at: api.apple.simulation.clock.now) }
      let before = ContinuousClock.now
      #expect(try await browser.logIn("admin-secret-for-trying").status == 303)
      #expect(ContinuousClock.now - before < FailureBrake.longest)
    }
  }

  // MARK: Forms

  /// A form for a failed job.
  private func retry(_ browser: inout AdminBrowser, token: AdminBrowser.Token, headers: HTTPFields)
    async throws -> Int
  {
    try await browser.post(
      "/admin/parked/jobs", [("item", "1"), ("do", "retry"), ("reason", "x")], token: token,
      headers: headers
    ).status
  }

  @Test func `a form without the session's token changes nothing`() async throws {
    try await TestAPI.run { api in
      var browser = try await AdminBrowser.loggedIn(api)
      let other = try await AdminBrowser.loggedIn(api)
      let tokens: [AdminBrowser.Token] = [
        .none, .other(""), .other("x"), .other(try #require(other.token)),
        .other((browser.token ?? "") + "A"),
        .other(String(browser.cookies["tenure_admin"]?.split(separator: ".").last ?? "")),
      ]
      for token in tokens {
        #expect(try await retry(&browser, token: token, headers: [:]) == 403, "\(token)")
      }
      _ = try await browser.get("/admin/search")
      #expect(try await retry(&browser, token: .ofPage, headers: [:]) == 303)
    }
  }

  @Test(
    "A form from another site changes nothing, whatever its token is",
    arguments: [
      ("https://example.org", "same-origin"), ("http://localhost.example.org", ""), ("null", ""),
      ("http://localhost", "cross-site"), ("http://localhost", "same-site"),
      ("http://localhost:8081", ""), ("localhost", ""),
    ])
  func foreign(origin: String, site: String) async throws {
    try await TestAPI.run { api in
      var browser = try await AdminBrowser.loggedIn(api)
      var headers: HTTPFields = [.origin: origin]
      if !site.isEmpty { headers[.secFetchSite] = site }
      #expect(try await retry(&browser, token: .ofPage, headers: headers) == 403)
      #expect(try await browser.logIn("admin-secret-for-trying", headers: headers).status == 403)
    }
  }

  @Test func `a proxy may call us by another name`() async throws {
    try await TestAPI.run { api in
      var browser = try await AdminBrowser.loggedIn(api)
      let headers: HTTPFields = [
        .origin: "https://tenure.example.org", .forwardedHost: "tenure.example.org:443",
        .secFetchSite: "same-origin",
      ]
      #expect(try await retry(&browser, token: .ofPage, headers: headers) == 303)
    }
  }

  @Test func `what is no form is refused`() async throws {
    try await TestAPI.run { api in
      var browser = try await AdminBrowser.loggedIn(api)
      let json: HTTPFields = [.contentType: "application/json"]
      #expect(try await browser.send(.post, "/admin/parked/jobs", "{}", json).status == 400)
      let form: HTTPFields = [.contentType: "application/x-www-form-urlencoded"]
      let long = String(repeating: "a", count: BodyLimit.small + 1)
      #expect(try await browser.send(.post, "/admin/parked/jobs", long, form).status == 413)
    }
  }
}

/// Form fields and failure counts, without a server.
struct FormFieldsTests {
  @Test(
    "Fields are read as browsers write them",
    arguments: [
      ("a=1&a=2&b=3", ["1", "2"]), ("a=x+y%2B", ["x y+"]), ("a", []), ("a=&a=1", ["1"]),
      ("a=%C3%A9=", ["é="]),
      ("b=1", []), ("a=%", []), ("", []), ("%61=1", ["1"]),
    ])
  func reading(text: String, values: [String]) {
    #expect(EncodedFields(text, .html).all("a").map(\.rawValue) == values)
  }
}

/// The delays of responses to invalid keys.
struct FailureBrakeTests {
  private static let start = Timestamp(milliseconds: 0)

  private static func client(
    _ name: String, _ free: Int, _ kind: FailureBrake.Kind = .loginAddress
  ) -> FailureBrake.Client {
    FailureBrake.Client(sources: [.init(kind: kind, name: name, free: free)])
  }

  // swift-format-ignore
  @Test("failures are delayed for twice as long each, up to five seconds", arguments: [
      // before  free  delay of the next in milliseconds
      (0,        1,    0),
      (1,        1,    100),
      (2,        1,    200),
      (5,        1,    1_600),
      (6,        1,    3_200),
      (7,        1,    5_000),
      (500,      1,    5_000),
      (49,       50,   0),
      (50,       50,   100),
    ])
  func delays(before: Int, free: Int, delay: Int) {
    let brake = FailureBrake()
    let client = Self.client("a", free)
    for _ in 0..<before { _ = brake.count(client, at: Self.start) }
    #expect(brake.count(client, at: Self.start) == .milliseconds(delay))
    #expect(brake.count(Self.client("b", 1), at: Self.start) == .zero)
    #expect(brake.count(Self.client("a", 1, .requestAddress), at: Self.start) == .zero)
  }

  @Test func `an address is slowed whatever it calls itself, and forgotten after a while`() {
    let brake = FailureBrake()
    func fail(_ name: String, at now: Timestamp) -> Duration {
      brake.count(
        FailureBrake.Client(sources: [
          .init(kind: .forwardedLoginAddress, name: name, free: 5),
          .init(kind: .loginAddress, name: "proxy", free: 50),
        ]), at: now)
    }
    for number in 0..<50 { #expect(fail("proxy for \(number)", at: Self.start) == .zero) }
    #expect(fail("proxy for 50", at: Self.start) == .milliseconds(100))
    #expect(fail("proxy for 51", at: Self.start + FailureBrake.memory) == .zero)
  }

  @Test func `the newer half of many sources is remembered, and all of other kinds`() {
    let brake = FailureBrake()
    let (old, new) = (Self.client("old", 0), Self.client("new", 0))
    let key = Self.client("old", 0, .loginKey)
    for client in [old, key] { #expect(brake.count(client, at: Self.start) > .zero) }
    for number in 0..<FailureBrake.mostSources - 2 {
      let time = Self.start + .milliseconds(number)
      _ = brake.count(Self.client("\(number)", 0), at: time)
    }
    let end = Self.start + .seconds(60)
    #expect(brake.count(new, at: end) == FailureBrake.shortest)
    // One more than the limit: the older half is forgotten.
    #expect(brake.count(Self.client("last", 0), at: end) == FailureBrake.shortest)
    #expect(brake.count(new, at: end) == FailureBrake.shortest * 2)
    #expect(brake.count(key, at: end) == FailureBrake.shortest * 2)
    #expect(brake.count(old, at: end) == FailureBrake.shortest)
  }

  @Test(arguments: [
    (FailureBrake.Kind.requestAddress, FailureBrake.Client.freeRequests),
    (.notificationAddress, FailureBrake.Client.freeNotifications),
    (.notification, FailureBrake.Client.freeNotificationsOfAll),
  ])
  func `wrong keys and refused notifications are delayed, and what is right is not`(
    kind: FailureBrake.Kind, free: Int
  ) async throws {
    try await TestAPI.run { api async throws in
      let client = Self.client(kind == .notification ? "" : "unknown", free, kind)
      @Sendable func fail(_ count: Int) {
        for _ in 0..<count { _ = api.api.brake.count(client, at: api.apple.simulation.clock.now) }
      }
      fail(free + 2)
      let start = ContinuousClock.now
      if kind == .requestAddress {
        #expect(try await api.get("/v1/products", as: .stranger).status == 401)
      } else {
        #expect(try await api.post(["a": 1]).status == 400)
      }
      #expect(ContinuousClock.now - start >= .milliseconds(400))
      fail(200)
      let next = ContinuousClock.now
      #expect(try await api.get("/v1/products").status == 200)
      #expect(ContinuousClock.now - next < FailureBrake.longest)
    }
  }
}
