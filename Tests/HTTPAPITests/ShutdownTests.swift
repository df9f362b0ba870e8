import AppStore
import AppStoreSimulator
import AsyncHTTPClient
import JSONText
import NIOCore
import NIOHTTP1
import Postgres
import ScratchDatabases
import ServiceLifecycle
import Subscriptions
import Synchronization
import Testing

@testable import HTTPAPI

struct ShutdownTests {
  @Test func `what is in flight is finished, and nothing new is begun`() async throws {
    try await withScratchDatabase { database in
      let (api, apple, _, _) = try await TestAPI.assemble(database)
      try apple.simulation.addAppleID("anna")
      try apple.simulation.addDevice("anna", appleID: "anna")
      try apple.simulation.buy("coins.100", on: "anna")
      let receipt = try apple.simulation.receipt(on: "anna")
      let gate = Gate()
      apple.hold(at: gate)

      let (ports, port) = AsyncStream.makeStream(of: Int.self)
      let application = api.application(host: "127.0.0.1", port: 0) { port.yield($0) }
      let group = ServiceGroup(services: [application], logger: quietLogger)
      async let running: Void = group.run()
      let base = "http://127.0.0.1:\(try #require(await ports.first { _ in true }))"

      let body: JSONValue = ["account_id": "4711", "receipt_data": .string(receipt)]
      async let submitted = Self.post(base + "/v1/receipts", body)
      // Apple is being asked: now the server is stopped.
      await gate.reached()
      await group.triggerGracefulShutdown()
      try await Self.untilRefused(base + "/healthz")
      await gate.open()

      let answer = try await submitted
      #expect(answer.status == 200)
      #expect(answer.json["transactions"]?[0]["newly_owned"] == true)
      try await running
    }
  }

  private static func post(_ url: String, _ body: JSONValue) async throws
    -> (status: Int, json: JSONValue)
  {
    var request = HTTPClientRequest(url: url)
    request.method = .POST
    request.headers.add(name: "Authorization", value: "Bearer app-secret-for-trying")
    request.headers.add(name: "Content-Type", value: "application/json")
    request.body = .bytes(ByteBuffer(bytes: body.bytes))
    let response = try await HTTPClient.shared.execute(request, timeout: .seconds(240))
    let answer = try await response.body.collect(upTo: 1 << 20)
    return (Int(response.status.code), try JSONValue(parsing: answer.readableBytesView))
  }

  /// Returns when new connections are refused.
  private static func untilRefused(_ url: String) async throws {
    for _ in 0..<5000 {
      do {
        var request = HTTPClientRequest(url: url)
        request.headers.add(name: "Connection", value: "close")
        _ = try await HTTPClient.shared.execute(request, timeout: .seconds(60))
      } catch {
        return
      }
      try await Task.sleep(for: .milliseconds(10))
    }
    Issue.record("The server still takes connections.")
  }
}
