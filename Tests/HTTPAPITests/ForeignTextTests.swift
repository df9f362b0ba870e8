import AppStore
import AppStoreSimulator
import HTTPTypes
import JSONText
import LedgerStorage
import ScratchDatabases
import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI

/// Callers' text is handled as bytes, in time proportional to its length.
///
/// Swift compares strings of combining marks in alternating order in quadratic time: a body of
/// 800 kB took minutes, and its sender needed no key.
struct ForeignTextTests {
  /// A request with marks in one place.
  struct Place: Sendable, CustomTestStringConvertible {
    var testDescription: String
    var head: String
    /// Nil: the marks are in the head.
    var body: String?

    /// The request with marks of about so many bytes in the place of `#`.
    func text(_ bytes: Int) -> String {
      func filled(_ text: String, _ bytes: Int) -> String {
        let marks = "a" + String(repeating: "\u{301}\u{323}", count: bytes / 4)
        let other = "a" + String(repeating: "\u{323}\u{301}", count: bytes / 4)
        let parts = text.split(separator: "#", omittingEmptySubsequences: false)
        guard parts.count > 1 else { return text }
        return parts[0]
          + parts.dropFirst().enumerated().map { index, part in
            (index.isMultiple(of: 2) ? marks : other) + part
          }.joined()
      }
      let body = body.map { filled($0, bytes) } ?? ""
      // Each from a different address, so that no failed login is slowed.
      let sender =
        head.contains("X-Forwarded-For")
        ? "" : "X-Forwarded-For: \(testDescription.filter { $0 != " " })\r\n"
      return filled(head, bytes) + "\r\nHost: x\r\nConnection: close\r\n" + sender
        + "Content-Length: \(body.utf8.count)\r\n\r\n" + body
    }
  }

  private static let json = "\r\nContent-Type: application/json"
  private static let app = "\r\nAuthorization: Bearer app-secret-for-trying"
  private static let admin = "\r\nAuthorization: Bearer admin-secret-for-trying"
  private static let form = "\r\nContent-Type: application/x-www-form-urlencoded"

  private static func posted(
    _ name: String, _ path: String, _ fields: String, _ body: String, method: String = "POST"
  ) -> Place {
    Place(
      testDescription: name, head: "\(method) \(path) HTTP/1.1\(fields)", body: body)
  }

  private static func got(_ name: String, _ path: String, _ fields: String = "") -> Place {
    Place(testDescription: name, head: "GET \(path) HTTP/1.1\(fields)")
  }

  private static let notifications = "/v1/appstore/notifications"
  private static let type = #""notification_type":"RENEWAL""#

  /// Bodies posted without a key and with one.
  static let bodies = [
    posted("a member's name", notifications, json, ##"{"#":1}"##),
    posted("two members' names", notifications, json, ##"{"#":1,"#":2}"##),
    posted("a nested member's name", notifications, json, ##"{"unified_receipt":{"#":1}}"##),
    posted("a repeated member's value", notifications, json, "{\(type),\"a\":\"#\",\"a\":\"#\"}"),
    posted("the environment", notifications, json, "{\(type),\"environment\":\"#\"}"),
    posted("a flag", notifications, json, "{\(type),\"auto_renew_status\":\"#\"}"),
    posted("the type", notifications, json, ##"{"notification_type":"#"}"##),
    posted("the bundle id", notifications, json, "{\(type),\"bid\":\"#\"}"),
    posted("the password", notifications, json, "{\(type),\"password\":\"#\"}"),
    posted("a line", notifications, json, "{\(type),\"original_transaction_id\":\"#\"}"),
    posted("signed data", notifications, json, ##"{"signedPayload":"#"}"##),
    posted("a form's field", "/admin/login", form, "#=1"),
    posted("a key", "/admin/login", form, "key=#"),
    posted("where to return to", "/admin/login", form, "key=x&return_to=#"),
    posted("a form without its type", "/admin/login", "", "key=#"),
    posted("an order's member", "/v1/orders", json + app, ##"{"#":1}"##),
    posted(
      "an order's account", "/v1/orders", json + app, ##"{"account_id":"#","product_id":"#"}"##),
    posted("many accounts", "/v1/entitlements/query", json + app, ##"{"account_ids":["#","#"]}"##),
    posted("a receipt", "/v1/receipts", json + app, ##"{"account_id":"a","receipt_data":"#"}"##),
    posted(
      "a wrapped receipt", "/v1/receipts", json + app,
      ##"{"account_id":"a","receipt_data":"{\"Store\":\"#\",\"Payload\":\"#\"}"}"##),
    posted(
      "a receipt's app", "/v1/receipts", json + app,
      ##"{"account_id":"a","receipt_data":"e30=","bundle_id":"#","transaction_id":"#"}"##),
    posted(
      "signed transactions", "/v1/receipts", json + app,
      ##"{"account_id":"a","signed_transactions":["#","#"]}"##),
    posted("a delivery", "/v1/transactions/1/delivery", json + app, ##"{"account_id":"#"}"##),
    posted(
      "a product's type", "/v1/products/p", json + admin, ##"{"type":"#","entitlements":[]}"##,
      method: "PUT"),
    posted(
      "a product's entitlements", "/v1/products/p", json + admin,
      ##"{"type":"consumable","entitlements":["#","#"]}"##, method: "PUT"),
    posted(
      "a product's period", "/v1/products/p", json + admin,
      ##"{"type":"consumable","entitlements":[],"period":"#","currency":"#"}"##, method: "PUT"),
    posted(
      "a grant", "/v1/grants", json + admin,
      ##"{"account_id":"#","entitlement":"#","reason":"#","expires_at":"#"}"##),
    posted(
      "a merge", "/v1/accounts/a/merge", json + admin, ##"{"into":"#","reason":"#"}"##),
  ]

  static let heads = [
    got("a path", "/v1/accounts/#/entitlements", app), got("a page's path", "/admin/#"),
    got("any path", "/#/#"), got("a query's name", "/v1/products?#=1", app),
    got("a cursor", "/v1/products?after=#", app),
    got("an environment", "/v1/transactions/1?environment=#&product_id=#", app),
    got("a report's choices", "/v1/reports/active?bucket=#&time_zone=#&product=#", admin),
    got("where to return to", "/admin/login?return_to=#"),
    got("a bearer token", "/v1/products", "\r\nAuthorization: Bearer #"),
    got("a scheme", "/v1/products", "\r\nAuthorization: #"),
    got("a cookie's name", "/admin", "\r\nCookie: #=1"),
    got("a session", "/admin", "\r\nCookie: tenure_admin=#.#"),
    // Readable base64: only once it is decoded does it have marks.
    got(
      "a session's administrator", "/admin",
      "\r\nCookie: tenure_admin="
        + Base64.encode(url: String(repeating: "\u{301}\u{323}", count: 2_500).utf8)
        + ".1.AAAAAAAAAAAAAAAAAAAAAA.AA"),
    got("what the last page said", "/admin", "\r\nCookie: tenure_admin_notice=#.#"),
    got("a request's id", "/healthz", "\r\nX-Request-ID: #"),
    got("a version", "/admin/admin.css?v=#", "\r\nIf-None-Match: #"),
    got("what is cached", "/v1/accounts/a/entitlements", app + "\r\nCache-Control: #"),
    got("a preference", "/v1/reports/active", admin + "\r\nPrefer: wait=#"),
    posted("a media type", "/v1/orders", app + "\r\nContent-Type: #; #", "{}"),
    posted("a form's media type", "/admin/login", "\r\nContent-Type: #", "key=x"),
    posted("an origin", "/admin/login", form + "\r\nOrigin: http://#", "key=x"),
    posted("a site", "/admin/login", form + "\r\nSec-Fetch-Site: #", "key=x"),
    posted(
      "what a proxy says", "/admin/login",
      form + "\r\nX-Forwarded-For: #,#\r\nX-Forwarded-Proto: #\r\nX-Forwarded-Host: #", "key=x"),
  ]

  /// Sends a request until it was answered quickly once: the machine has other things to do.
  private func expectQuick(
    _ place: Place, _ bytes: Int, within limit: Duration, _ live: LiveAPI
  ) async throws {
    let text = place.text(bytes)
    for _ in 0..<12 {
      let start = ContinuousClock.now
      // Where a limit is exceeded, the connection may end in the middle of the body.
      let answer = try? await live.exchange(text)
      let time = ContinuousClock.now - start
      #expect((answer?.status ?? 400) < 500, "\(place), \(bytes) bytes")
      if time < limit { return }
      // As strings, it would be far more than this.
      guard time < .seconds(30) else { break }
    }
    Issue.record("\(place) with \(bytes) bytes of marks takes too long")
  }

  @Test func `a body with marks in any place takes no longer than another one`() async throws {
    try await withScratchDatabase { database in
      try await LiveAPI.run(on: database) { live in
        for place in Self.bodies {
          for bytes in [120_000, 1_000_000] {
            try await expectQuick(place, bytes, within: .seconds(2), live)
          }
        }
      }
    }
  }

  @Test func `a head with marks in any place takes no longer than another one`() async throws {
    try await withScratchDatabase { database in
      try await LiveAPI.run(on: database) { live in
        for place in Self.heads {
          // Raw, and as browsers write them; more than 16 kB is refused by the parser of heads.
          let count = place.head.count { $0 == "#" }
          try await expectQuick(
            place, 14_000 / max(count, 1), within: .milliseconds(400), live)
          var encoded = place
          encoded.head = place.head.split(separator: "\r\n").enumerated().map { index, line in
            index > 0
              ? String(line)
              : String(
                line.replacing(
                  "#", with: String(repeating: "%CC%81%CC%A3", count: 1100 / max(count, 1))))
          }.joined(separator: "\r\n")
          try await expectQuick(encoded, 100, within: .milliseconds(400), live)
        }
      }
    }
  }

  @Test(arguments: [
    ("%EF%BB%BFzed", "\u{FEFF}zed"), ("caf%C3%A9", "caf\u{e9}"), ("cafe%CC%81", "cafe\u{301}"),
    ("a%2Bb+c", "a+b+c"), ("%E2%84%AA", "\u{212A}"),
  ])
  func `a path is the bytes that it is`(path: String, id: String) async throws {
    try await TestAPI.run { api in
      let answer = try await api.get("/v1/accounts/\(path)/entitlements")
      #expect(answer["account_id"] == .string(id))
    }
  }

  @Test func `erasing a name with a byte order mark erases no other account`() async throws {
    try await TestAPI.run { api in
      _ = try await api.ledger.accounts.findOrCreateAccount(
        "zed", at: api.apple.simulation.clock.now)
      let other = try await api.call(
        .delete, "/v1/accounts/%EF%BB%BFzed?reason=a%20customer's%20wish", as: .admin)
      #expect(other.status == 404)
      #expect(try await api.get("/v1/accounts/zed").status == 200)
    }
  }

  @Test(arguments: [
    ("%", nil), ("%2", nil), ("%GG", nil), ("%FF", nil), ("a%20b+c", "a b+c"), ("", ""),
    ("%EF%BB%BF", "\u{FEFF}"), ("é", "é"),
  ])
  func `percent-encoded text`(text: String, expected: String?) {
    #expect(String(percentEncoded: text.utf8).map(ExactText.init) == expected.map(ExactText.init))
  }

  @Test func `a query and a form have fields by their bytes`() {
    let text = "a=1+2&a=2&%C3%A9=3&e%CC%81=4&b&=5&\(String(repeating: "n", count: 257))=6&c=%F"
    let query = EncodedFields(text, .query)
    #expect(query["a"] == "1+2")
    #expect(query.all("a") == ["1+2", "2"])
    #expect(query["\u{e9}"] == "3")
    #expect(query["e\u{301}"] == "4")
    #expect(query["b"] == "")
    #expect(query["c"] == "%F")
    #expect(query.hasLongName)
    let form = EncodedFields(text, .html)
    #expect(form["a"] == "1 2")
    #expect(form["c"] == nil)
    #expect(form.hasLongName)
  }

  @Test(arguments: [
    ("price_milliunits", "9.99"), ("price_milliunits", "1e30"), ("price_milliunits", #""9""#),
    ("level", "1.5"), ("level", "99999999999999999999"),
  ])
  func `a number that is none is named`(field: String, number: String) async throws {
    try await TestAPI.run { api in
      let body =
        #"{"type":"consumable","entitlements":[],"currency":"EUR",""#
        + "\(field)\":\(number)}"
      let answer = try await api.send(
        .put, "/v1/products/p", Array(body.utf8), as: .admin,
        headers: [.contentType: "application/json"])
      #expect(answer.status == 400)
      #expect(answer.code == "invalid_request")
      #expect(answer["detail"] == .string("`\(field)` must be a whole number."))
    }
  }

  @Test(arguments: [
    ("x", "invalid_request", "must be a `next` value from a previous page"),
    ("-1", "invalid_request", "must be a `next` value from a previous page"),
    ("99999999999999999999", "invalid_request", "must be a `next` value from a previous page"),
    ("999999-abc", "cursor_unknown", "restored from an older backup, or the cursor belongs"),
  ])
  func `a cursor's message fits it`(cursor: String, code: String, words: String) async throws {
    try await TestAPI.run { api in
      let answer = try await api.get("/v1/events?after=\(cursor)")
      #expect(answer.code == code)
      #expect(answer["detail"]?.string?.contains(words) == true, "\(answer)")
    }
  }
}
