import AppStore
import AppStoreSimulator
import HTTPTypes
import HummingbirdTesting
import JSONText
import Logging
import Observability
import Postgres
import ScratchDatabases
import Testing

@testable import HTTPAPI

/// Errors before, outside and in the handlers.
struct ProblemTests {
  @Test func `an unknown path is a problem for every caller`() async throws {
    try await TestAPI.run { api in
      for path in ["/", "/v1", "/v2/products", "/v1/accounts", "/v1/products/p/q", "/v1/jobs"] {
        let answer = try await api.get(path, as: .anonymous)
        #expect(answer.status == 404, "\(path)")
        #expect(answer.code == "not_found")
        #expect(answer["type"]?.string == "urn:tenure:problem:not_found")
        #expect(answer["status"]?.integer == 404)
      }
    }
  }

  @Test(
    "A method that a path does not have",
    arguments: [
      (HTTPRequest.Method.delete, "/v1/products/p", "PUT"),
      (.get, "/v1/products/p", "PUT"),
      (.post, "/v1/products", "GET, HEAD"),
      (.put, "/v1/receipts", "POST"),
      (.patch, "/v1/accounts/a", "DELETE, GET, HEAD, PUT"),
      (.options, "/healthz", "GET, HEAD"),
      (.trace, "/v1/orders", "POST"),
      (.head, "/v1/orders", "POST"),
    ])
  func methodNotAllowed(method: HTTPRequest.Method, path: String, allowed: String) async throws {
    try await TestAPI.run { api in
      let answer = try await api.call(method, path, as: .admin)
      #expect(answer.status == 405)
      #expect(answer.headers[.allow] == allowed)
      if method != .head { #expect(answer.code == "method_not_allowed") }
    }
  }

  @Test(
    "Bodies that can't be read",
    arguments: [
      ("", "The body is empty: send a JSON object."),
      (
        #"{"account_id":"a""#, "Invalid JSON: the body has an object that does not end, at byte 17."
      ),
      (
        #"{"account_id":"a",}"#,
        "Invalid JSON: the body has an object with a member without a name, at byte 18."
      ),
      (
        #"{"account_id":'a'}"#,
        "Invalid JSON: the body has a character where no value can begin, at byte 14."
      ),
      ("[]", "The body must be a JSON object."),
    ])
  func unreadable(body: String, detail: String) async throws {
    try await TestAPI.run { api in
      let answer = try await api.send(
        .post, "/v1/orders", Array(body.utf8), headers: [.contentType: "application/json"])
      #expect(answer.status == 400)
      #expect(answer["detail"]?.string == detail)
    }
  }

  @Test func `a price with a fraction is named, with what is expected`() async throws {
    try await TestAPI.run { api in
      let answer = try await api.call(
        .put, "/v1/products/p",
        ["type": "consumable", "entitlements": [], "price_milliunits": 9.99, "currency": "EUR"],
        as: .admin)
      #expect(answer.field == "price_milliunits")
      #expect(answer["detail"]?.string == "`price_milliunits` must be a whole number.")
    }
  }

  @Test func `a missing key and an unknown one are told apart`() async throws {
    try await TestAPI.run { api in
      for (caller, beginning) in [
        (TestAPI.Caller.anonymous, "`Authorization` is missing"),
        (.stranger, "`Authorization` has no configured API key"),
      ] {
        let answer = try await api.get("/v1/products", as: caller)
        #expect(answer.status == 401)
        #expect(answer["detail"]?.string?.hasPrefix(beginning) == true, "\(answer)")
      }
    }
  }

  @Test func `an encoded body is refused as such`() async throws {
    try await TestAPI.run { api in
      let answer = try await api.call(
        .post, "/v1/orders", ["account_id": "a"], headers: [.contentEncoding: "gzip"])
      #expect(answer.status == 415)
      #expect(answer["detail"]?.string == "Send the body without a `Content-Encoding`.")
      let plain = try await api.call(
        .post, "/v1/orders", ["account_id": "a"], headers: [.contentEncoding: "Identity"])
      #expect(plain.field == "product_id")
    }
  }

  @Test func `what can be got can be asked about with HEAD`() async throws {
    try await TestAPI.run { api in
      let answer = try await api.call(.head, "/v1/products")
      #expect(answer.status == 200)
      #expect(answer.body.isEmpty)
      #expect(answer.headers[.contentType] == "application/json")
    }
  }

  @Test(
    "Bodies that say what they are",
    arguments: [
      ("application/json", 404), ("application/json; charset=utf-8", 404),
      ("Application/JSON", 404), ("application/vnd.api+json", 404), (nil, 404),
      ("application/x-www-form-urlencoded", 415), ("text/plain", 415),
      ("multipart/form-data; boundary=x", 415), ("", 415),
    ])
  func mediaTypes(mediaType: String?, status: Int) async throws {
    try await TestAPI.run { api in
      var headers: HTTPFields = [:]
      headers[.contentType] = mediaType
      let answer = try await api.send(
        .post, "/v1/orders", Array(#"{"account_id":"a","product_id":"p"}"#.utf8),
        headers: headers)
      #expect(answer.status == status, "\(answer)")
      #expect(answer.code == (status == 415 ? "unsupported_media_type" : "unknown_product"))
    }
  }

  @Test(
    "Bodies up to their limit and a byte beyond",
    arguments: [
      ("/v1/orders", BodyLimit.small), ("/v1/entitlements/query", BodyLimit.batch),
      ("/v1/receipts", BodyLimit.receipt), ("/v1/transactions/1/delivery", BodyLimit.small),
    ])
  func bodyLimits(path: String, limit: Int) async throws {
    try await TestAPI.run(.router) { api in
      for (length, status) in [(limit, 400), (limit + 1, 413)] {
        let body = [UInt8](repeating: UInt8(ascii: " "), count: length)
        let answer = try await api.send(.post, path, body)
        #expect(answer.status == status, "\(length) bytes")
        #expect(answer.code == (status == 413 ? "content_too_large" : "invalid_request"))
      }
    }
  }

  @Test func `a body that does not say how long it is has the same limit`() async throws {
    try await withScratchDatabase { database in
      try await LiveAPI.run(on: database) { live in
        let body = String(repeating: " ", count: BodyLimit.small + 1)
        let answer = try await live.exchange(
          "POST /v1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer app-secret-for-trying\r\n"
            + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
            + String(body.utf8.count, radix: 16) + "\r\n\(body)\r\n0\r\n\r\n")
        #expect(answer?.status == 413)
      }
    }
  }

  @Test func `a receipt of more than 16 MB is refused`() async throws {
    try await TestAPI.run { api in
      let receipt = String(repeating: "A", count: ReceiptRequest.maximumReceiptLength + 1)
      let answer = try await api.submit("a", receipt: receipt)
      #expect(answer.status == 400)
      #expect(answer.field == "receipt_data")
    }
  }

  @Test func `a database that is gone is 503 everywhere but where it is not needed`()
    async throws
  {
    try await TestAPI.run { api in
      await api.database.close()
      for path in [
        "/v1/accounts/a/entitlements", "/v1/accounts/a", "/v1/transactions/1", "/readyz",
        "/v1/accounts/a/entitlements?at=2026-01-01T00:00:00Z",
      ] {
        let answer = try await api.get(path)
        #expect(answer.status == 503, "\(path): \(answer)")
        #expect(answer.code == "unavailable")
        #expect(answer.headers[.retryAfter] == "2")
      }
      #expect(try await api.submit("a", receipt: "e30=").status == 503)
      let alive = try await api.get("/healthz")
      #expect(alive.status == 200)
      #expect(alive["version"]?.string == TenureVersion.current)
      #expect(try await api.get("/v1/products").status == 200)
    }
  }

  @Test func `a request's id comes back, unless it can't be logged`() async throws {
    try await TestAPI.run { api in
      let own = try await api.call(
        .get, "/healthz", headers: [.requestID: "4bf92f3577b34da6a3ce929d0e0e4736"])
      #expect(own.headers[.requestID] == "4bf92f3577b34da6a3ce929d0e0e4736")
      let problem = try await api.call(.get, "/nowhere", headers: [.requestID: "4711"])
      #expect(problem["request_id"]?.string == "4711")
      for unusable in ["", "with space", String(repeating: "a", count: 129)] {
        let answer = try await api.call(.get, "/nowhere", headers: [.requestID: unusable])
        let id = try #require(answer.headers[.requestID])
        #expect(id != unusable)
        #expect(!id.isEmpty)
        #expect(answer["request_id"]?.string == id)
      }
    }
  }

  @Test func `a path without a route is reported the same way everywhere`() async throws {
    let log = RecordedLog()
    try await TestAPI.run(logger: log.logger) { api in
      _ = try await api.call(.get, "/nowhere/4711", headers: [.requestID: "a"])
      _ = try await api.call(.get, "/v1/products", headers: [.requestID: "b"])
    }
    let routes = log.lines.filter { ["a", "b"].contains($0.metadata["request.id"]) }
      .map { $0.metadata["http.route"] }
    #expect(routes == ["none", "/v1/products"])
  }

  @Test func `the log has a line for each request, and no secrets`() async throws {
    let log = RecordedLog()
    try await TestAPI.run(logger: log.logger) { api in
      _ = try await api.get("/v1/accounts/anna@example.com/entitlements")
      _ = try await api.submit("anna@example.com", receipt: "e25vdCBhIHJlY2VpcHR9")
      _ = try await api.get("/v1/accounts/anna@example.com", as: .stranger)
      _ = try await api.get("/v1/transactions/1?environment=sandbox")
    }
    // The last request is the stage's own.
    let lines = log.lines.filter { $0.message == "Request answered" }.dropLast()
    #expect(lines.map { $0.metadata["http.status"] } == ["200", "202", "401", "404"])
    #expect(lines.map(\.level) == [.debug, .info, .info, .info])
    #expect(lines.map { $0.metadata["caller"] } == ["shop", "shop", "none", "shop"])
    #expect(lines.first?.metadata["http.route"] == "/v1/accounts/{account_id}/entitlements")
    // Every line has the request's id once.
    let ids = lines.map { $0.metadata["request.id"] ?? "" }
    #expect(Set(ids).count == 4 && !ids.contains(""))
    #expect(!log.text.contains("hb.request.id"))
    for secret in ["anna", "app-secret-for-trying", "no-such-secret", "e25vdCBhIHJlY2VpcHR9"] {
      #expect(!log.text.contains(secret), "\(secret)")
    }
  }
}
