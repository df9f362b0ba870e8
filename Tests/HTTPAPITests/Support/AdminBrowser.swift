import Foundation
import HTTPTypes
import HummingbirdTesting
import NIOCore
import Testing

@testable import AdminSite
@testable import HTTPAPI

/// A client for the administrator's pages that keeps cookies and sends forms with the token of the
/// last page.
///
/// Checks the security headers of every response.
struct AdminBrowser {
  let api: TestAPI
  private(set) var cookies: [String: String] = [:]
  /// The token of the last page.
  private(set) var token: String?

  init(_ api: TestAPI) { self.api = api }

  /// A client logged in as the administrator `ops`.
  static func loggedIn(_ api: TestAPI) async throws -> AdminBrowser {
    var browser = AdminBrowser(api)
    let answer = try await browser.logIn("admin-secret-for-trying")
    try #require(answer.status == 303)
    _ = try await browser.get("/admin/search")
    return browser
  }

  struct Page {
    let status: Int
    let headers: HTTPFields
    let text: String

    var location: String? { headers[.location] }

    /// Whether the page contains a text, compared by bytes.
    func contains(_ part: String) -> Bool {
      part.isEmpty || Array(text.utf8).firstRange(of: Array(part.utf8)) != nil
    }
  }

  enum Token {
    case ofPage
    case none
    case other(String)
  }

  mutating func set(cookie: String?) { cookies["tenure_admin"] = cookie }

  mutating func get(
    _ path: String, headers: HTTPFields = [:], sourceLocation: SourceLocation = #_sourceLocation
  ) async throws -> Page {
    try await send(.get, path, nil, headers, sourceLocation)
  }

  mutating func logIn(
    _ key: String, returnTo path: String = "", headers: HTTPFields = [:],
    sourceLocation: SourceLocation = #_sourceLocation
  ) async throws -> Page {
    try await post(
      "/admin/login", [("key", key), ("return_to", path)], token: .none, headers: headers,
      sourceLocation: sourceLocation)
  }

  mutating func post(
    _ path: String, _ fields: [(String, String)], token: Token = .ofPage,
    headers: HTTPFields = [:], sourceLocation: SourceLocation = #_sourceLocation
  ) async throws -> Page {
    var fields = fields
    switch token {
    case .ofPage: fields.append(("csrf", self.token ?? ""))
    case .none: break
    case .other(let text): fields.append(("csrf", text))
    }
    var headers = headers
    headers[.contentType] = "application/x-www-form-urlencoded"
    if !headers.contains(.origin) { headers[.origin] = "http://localhost" }
    let body = fields.map { "\(Self.encoded($0.0))=\(Self.encoded($0.1))" }.joined(separator: "&")
    return try await send(.post, path, body, headers, sourceLocation)
  }

  mutating func send(
    _ method: HTTPRequest.Method, _ path: String, _ body: String?, _ headers: HTTPFields = [:],
    _ sourceLocation: SourceLocation = #_sourceLocation
  ) async throws -> Page {
    // Browsers don't send the fragment.
    let path = String(path.prefix { $0 != "#" })
    var headers = headers
    if !cookies.isEmpty {
      headers[.cookie] = cookies.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
        .joined(separator: "; ")
    }
    let response = try await api.client.executeRequest(
      uri: path, method: method, headers: headers, body: body.map { ByteBuffer(string: $0) })
    for field in response.headers[values: .setCookie] {
      let pair = field.prefix { $0 != ";" }.split(
        separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      cookies[String(pair[0])] = field.contains("Max-Age=0") ? nil : String(pair[1])
    }
    let page = Page(
      status: response.status.code, headers: response.headers,
      text: String(buffer: response.body))
    for (name, value) in Self.headers {
      #expect(page.headers[name] == value, "\(method) \(path)", sourceLocation: sourceLocation)
    }
    if page.text.contains("<!doctype html>") {
      #expect(page.headers[.cacheControl] == "no-store", sourceLocation: sourceLocation)
      #expect(
        page.text.split(separator: "<script", omittingEmptySubsequences: false).count == 2,
        "A page has the one script of ours.", sourceLocation: sourceLocation)
      if let range = page.text.firstRange(of: #"name="csrf" value=""#) {
        token = String(page.text[range.upperBound...].prefix { $0 != "\"" })
      }
    }
    return page
  }

  private static let headers: [(HTTPField.Name, String)] = [
    (
      .contentSecurityPolicy,
      "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        + "connect-src 'self'; "
        + "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    (.xContentTypeOptions, "nosniff"),
    (.referrerPolicy, "same-origin"),
    (.frameOptions, "DENY"),
    (.openerPolicy, "same-origin"),
    (.resourcePolicy, "same-origin"),
  ]

  private static func encoded(_ text: String) -> String {
    text.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""
  }
}
