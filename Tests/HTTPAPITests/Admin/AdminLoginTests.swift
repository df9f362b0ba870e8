import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import Subscriptions
import Testing

@testable import HTTPAPI

/// Who gets in, for how long, and whose forms count.
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

      let answer = try await browser.logIn("admin-secret", returnTo: "/admin/search?q=a%20b")
      #expect(answer.status == 303)
      #expect(answer.location == "/admin/search?q=a%20b")
      let cookie = try #require(answer.headers[.setCookie])
      for attribute in ["HttpOnly", "SameSite=Lax", "Path=/admin", "Max-Age=43200"] {
        #expect(cookie.contains("; \(attribute)"), "\(cookie)")
      }
      #expect(!cookie.contains("Secure"))
      #expect(!cookie.contains("admin-secret"))
      let page = try await browser.get("/admin/search?q=a%20b")
      #expect(page.status == 200)
      #expect(page.contains("<span>ops</span>"))
    }
  }

  @Test func `the cookie is for HTTPS alone where the browser came by it`() async throws {
    try await TestAPI.run { api in
      var browser = AdminBrowser(api)
      let answer = try await browser.logIn(
        "admin-secret", headers: [.forwardedProto: "https", .origin: "https://localhost"])
      #expect(answer.headers[.setCookie]?.contains("; Secure") == true)
    }
  }

  @Test(
    "What is no administrator's key is refused with the same words",
    arguments: ["", "wrong", "app-secret", "admin-secret ", "ops:admin:admin-secret"])
  func refused(key: String) async throws {
    try await TestAPI.run { api in
      var browser = AdminBrowser(api)
      let answer = try await browser.logIn(key, returnTo: "/admin/parked")
      #expect(answer.status == 403)
      #expect(answer.headers[.setCookie] == nil)
      #expect(answer.contains("This is no administrator&#39;s key."))
      #expect(answer.contains(#"value="/admin/parked""#))
      #expect(key.isEmpty || !answer.contains(key))
      #expect(try await browser.get("/admin/parked").status == 303)
    }
  }

  @Test(
    "Nobody is sent on to another host",
    arguments: [
      "https://example.org/", "//example.org", "/\\example.org", "/admin/../v1", "/v1/products",
      "javascript:alert(1)", "/administrator",
    ])
  func elsewhere(path: String) async throws {
    try await TestAPI.run { api in
      var browser = AdminBrowser(api)
      let location = try await browser.logIn("admin-secret", returnTo: path).location
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
      // Whoever fills in a form for longer is told that it did nothing.
      let late = try await browser.post("/admin/parked/jobs", [("item", "1"), ("do", "retry")])
      #expect(late.status == 303)
      let login = try await browser.get(try #require(late.location))
      #expect(login.status == 200)
      #expect(login.contains("nothing was done"))
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
        ([Base64URL.text(of: Array("shop".utf8))] + parts.dropFirst()).joined(separator: "."),
        [parts[0], later, parts[2], parts[3]].joined(separator: "."),
        [parts[0], parts[1], "AAAAAAAAAAAAAAAAAAAAAA", parts[3]].joined(separator: "."),
        [parts[0], parts[1], parts[2], Base64URL.text(of: Array(repeating: 0, count: 32))]
          .joined(separator: "."),
        // What signs forms signs no sessions.
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
      ("gone:admin:admin-secret", "gone"), ("ops:admin:other-secret", "ops"),
      ("shop:admin:app-secret", "shop"),
    ])
  func removed(keys: String, name: String) async throws {
    try await TestAPI.run { api in
      let keys = try APIKeys(parsing: keys)
      let session = AdminSession(
        of: name, key: try #require(keys.sessionKey(ofAdministrator: name)),
        at: api.apple.simulation.clock.now)
      #expect(
        AdminSession(cookie: session.cookie, keys: keys, at: api.apple.simulation.clock.now) != nil)
      var browser = AdminBrowser(api)
      browser.set(cookie: session.cookie)
      #expect(try await browser.get("/admin/parked").status == 303)
    }
  }

  @Test func `whoever logs out is asked again`() async throws {
    try await TestAPI.run { api in
      var browser = try await AdminBrowser.loggedIn(api)
      let answer = try await browser.post("/admin/logout", [])
      #expect(answer.status == 303)
      #expect(browser.cookies.isEmpty)
      #expect(try await browser.get("/admin/parked").status == 303)
    }
  }

  @Test func `who fails often has to wait, whatever the key is`() async throws {
    try await TestAPI.run { api in
      var browser = AdminBrowser(api)
      for _ in 0..<LoginThrottle.freeFailures {
        #expect(try await browser.logIn("wrong").status == 403)
      }
      let late = try await browser.logIn("admin-secret")
      #expect(late.status == 429)
      #expect(late.headers[.retryAfter] == "2")
      #expect(late.headers[.setCookie] == nil)
      // Another client behind the same proxy need not.
      let other = try await browser.logIn("wrong", headers: [.forwardedFor: "192.0.2.1"])
      #expect(other.status == 403)
      api.apple.simulation.advance(by: .seconds(1))
      #expect(try await browser.logIn("admin-secret").status == 303)
      // Who got in is forgiven.
      for _ in 0..<LoginThrottle.freeFailures {
        #expect(try await browser.logIn("wrong").status == 403)
      }
      #expect(try await browser.logIn("wrong").status == 429)
    }
  }

  // MARK: Forms

  /// A form that changes something, for a job that was given up.
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
      #expect(try await browser.logIn("admin-secret", headers: headers).status == 403)
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

/// Reading what forms send, and remembering who failed, without a server.
struct FormFieldsTests {
  @Test(
    "Fields are read as browsers write them",
    arguments: [
      ("a=1&a=2&b=3", ["1", "2"]), ("a=x+y%2B", ["x y+"]), ("a", [""]), ("a=%C3%A9=", ["é="]),
      ("b=1", []), ("a=%", []), ("", []), ("%61=1", ["1"]),
    ])
  func reading(text: String, values: [String]) {
    #expect(FormFields(text).all("a") == values)
  }

  @Test func `an address is made to wait whatever it calls itself, and never for long`() {
    let throttle = LoginThrottle()
    var now = Timestamp(milliseconds: 0)
    func wait(_ name: String) -> Duration? {
      let client = [(name: name, free: 5), (name: "proxy", free: 50)]
      return switch throttle.attempt(by: client, at: now, { nil as Int? }) {
      case .tooSoon(let wait): wait
      case .failure, .success: nil
      }
    }
    for number in 0..<50 { #expect(wait("proxy for \(number)") == nil) }
    #expect(wait("proxy for 50") == .seconds(1))
    var longest = Duration.zero
    for number in 51..<80 {
      guard let wait = wait("proxy for \(number)") else { continue }
      longest = max(longest, wait)
      now = now + wait
      _ = throttle.attempt(by: [("x", 5), ("proxy", 50)], at: now) { nil as Int? }
    }
    #expect(longest <= LoginThrottle.memory)
    #expect(longest > .minutes(1))
  }

  @Test func `failures are kept for few clients, and not for ever`() {
    let throttle = LoginThrottle()
    let start = Timestamp(milliseconds: 0)
    func fail(_ name: String, at now: Timestamp) -> Bool {
      switch throttle.attempt(by: [(name, 1)], at: now, { nil as Int? }) {
      case .failure: true
      case .success, .tooSoon: false
      }
    }
    #expect(fail("a", at: start))
    #expect(!fail("a", at: start))
    #expect(!fail("a", at: start + .milliseconds(999)))
    #expect(fail("a", at: start + .seconds(1)))
    #expect(!fail("a", at: start + .seconds(2)))
    #expect(fail("a", at: start + .seconds(3)))
    #expect(fail("a", at: start + .hours(1)))
    #expect(fail("a", at: start + .hours(1) + .seconds(1)))
    for number in 0...LoginThrottle.mostClients { _ = fail("\(number)", at: start) }
    #expect(fail("a", at: start))
  }
}
