import AsyncHTTPClient
import Foundation
import NIOCore
import NIOHTTP1
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// Follows the demo's suggestions, with the addresses and keys that it has printed.
struct DemoVisit {
  private let invitation: String

  init(_ output: String) { invitation = output }

  func visit() async throws {
    let tenure = try address(/\nTenure +(http\S+)/)
    let pages = try address(/\nAdmin UI +(http\S+)/)
    let interface = try address(/\nAPI reference +(http\S+)/)
    let appStore = try address(/\nApp Store +(http\S+)/)
    let admin = try address(/(demo-admin-\S+) \(role admin\)/)
    #expect(pages.hasPrefix(tenure) && interface.hasPrefix(tenure))

    try await Self.logIn(to: pages, with: admin)
    try await Self.logIn(to: pages, with: try address(/(demo-support-\S+) \(role support\)/))
    #expect(try await Self.get(interface).contains("openapi:"))
    #expect(try await Self.get(appStore).contains("refund"))
    let questions = invitation.matches(of: /curl -s -H '(?<name>\w+): (?<value>.+)' (?<url>\S+)/)
    #expect(questions.count == 2)
    for question in questions {
      let header = (String(question.name), String(question.value))
      #expect(question.url.hasPrefix(tenure))
      #expect(try await Self.get(String(question.url), header).contains("{"))
    }
    let change = try #require(invitation.firstMatch(of: /curl -s (?<url>http\S+) -d '(?<body>.+)'/))
    #expect(change.url.hasPrefix(appStore))
    _ = try await Self.post(String(change.url), String(change.body), as: "application/json")
  }

  private func address(_ pattern: some RegexComponent<(Substring, Substring)>) throws -> String {
    String(try #require(invitation.firstMatch(of: pattern)).output.1)
  }

  /// Logs in with a key and looks at the pages behind it.
  ///
  /// - Parameters:
  ///   - pages: Their address, with `/admin` at its end.
  ///   - key: One of role admin.
  /// - Throws: Errors of the visit.
  static func logIn(to pages: String, with key: String) async throws {
    #expect(try await get(pages + "/login").contains("<form"))
    let answer = try await post(
      pages + "/login", "key=\(key)&return_to=", as: "application/x-www-form-urlencoded",
      expecting: .seeOther)
    let cookie = try #require(answer.headers.first(name: "Set-Cookie")?.split(separator: ";").first)
    let shown = try await get(pages, ("Cookie", String(cookie)))
    #expect(!shown.contains(#"name="key""#), "It asks to log in again.")
  }

  static func get(_ url: String, _ header: (name: String, value: String)? = nil) async throws
    -> String
  {
    var request = HTTPClientRequest(url: url)
    if let header { request.headers.add(name: header.name, value: header.value) }
    let answer = try await HTTPClient.shared.execute(request, timeout: .seconds(60))
    #expect(answer.status == .ok, "\(url)")
    return try await String(buffer: answer.body.collect(upTo: 1 << 20))
  }

  private static func post(
    _ url: String, _ body: String, as type: String, expecting status: HTTPResponseStatus = .ok
  ) async throws -> HTTPClientResponse {
    var request = HTTPClientRequest(url: url)
    request.method = .POST
    request.headers.add(name: "Content-Type", value: type)
    let origin = try #require(url.firstMatch(of: /https?:\/\/[^\/]+/)).output
    request.headers.add(name: "Origin", value: String(origin))
    request.body = .bytes(ByteBuffer(string: body))
    return try await withHTTPClient { [request] client in
      let answer = try await client.execute(request, timeout: .seconds(60))
      #expect(answer.status == status, "\(url)")
      _ = try await answer.body.collect(upTo: 1 << 20)
      return answer
    }
  }
}
