import AsyncHTTPClient
import Foundation
import NIOCore
import NIOHTTP1

/// Somebody who looks at reports and at the administrator's pages of a server, logged in.
struct BenchPages: Sendable {
  /// What the server said, and how long it took.
  struct Answer: Sendable {
    var status: UInt
    var body: String
    var duration: Duration

    /// A page that asks again by itself, or what tells a program to.
    var isWorking: Bool { status == 202 || body.contains("http-equiv=\"refresh\"") }
    /// Whether it is what was asked for, or leads there.
    var isGood: Bool { (200..<400).contains(status) }
  }

  /// Longer than the server asks its database for.
  private static let timeout: TimeAmount = .seconds(90)
  /// Far above the largest page.
  private static let longestAnswer = 32 << 20

  private let client: HTTPClient
  private let server: ServeProcess
  private let cookie: String

  /// Logs in; whoever does so ends it with ``close()``.
  ///
  /// - Throws: ``BenchError/wrongAnswer(_:)``, or what kept an answer from coming.
  init(of server: ServeProcess) async throws {
    self.server = server
    client = HTTPClient(
      eventLoopGroupProvider: .singleton,
      configuration: HTTPClient.Configuration(redirectConfiguration: .disallow))
    do {
      var request = HTTPClientRequest(url: server.url + "/admin/login")
      request.method = .POST
      request.headers.add(name: "Content-Type", value: "application/x-www-form-urlencoded")
      request.body = .bytes(ByteBuffer(string: "key=\(server.secret)"))
      let answer = try await client.execute(request, timeout: Self.timeout)
      guard let set = answer.headers.first(name: "Set-Cookie"), let end = set.firstIndex(of: ";")
      else { throw BenchError.wrongAnswer("logging in: \(answer.status)") }
      cookie = String(set[..<end])
    } catch {
      try? await client.shutdown()
      throw error
    }
  }

  func close() async { try? await client.shutdown() }

  /// Asks for something, as a program with a key where it is no page.
  ///
  /// - Parameter path: From the first slash on.
  /// - Returns: The answer.
  /// - Throws: What kept it from coming.
  func get(_ path: String) async throws -> Answer {
    var request = HTTPClientRequest(url: server.url + path)
    if path.hasPrefix("/admin") {
      request.headers.add(name: "Cookie", value: cookie)
    } else {
      request.headers.add(name: "Authorization", value: "Bearer \(server.secret)")
    }
    let start = ContinuousClock.now
    let answer = try await client.execute(request, timeout: Self.timeout)
    let body = try await answer.body.collect(upTo: Self.longestAnswer)
    return Answer(
      status: answer.status.code, body: String(buffer: body), duration: .now - start)
  }
}
