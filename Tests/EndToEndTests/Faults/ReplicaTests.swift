import AsyncHTTPClient
import Foundation
import LedgerStorage
import Logging
import NIOCore
import NIOHTTP1
import Postgres
import Subscriptions
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// Reads from a standby, through the real assembly and sockets.
@Suite("A replica for reads")
struct ReplicaTests {
  private static let support = Administrator(name: "support", reason: "A test.")
  private static let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })

  /// The ways to read entitlements: before the router, behind it, and in batches.
  private enum Way: CaseIterable { case short, router, batch }

  @Test("answers what it is known to have; recent writers read at the primary")
  func answers() async throws {
    try await withTemporaryDirectory { directory in
      let pair = try await ServerPair.start(in: directory)
      do {
        try await ServerPair.withPool(pair.primaryURI, connections: 5) { database in
          try await Self.serve(database, pair) { url, assembly in
            try await read(url, assembly, of: database, pair)
          }
        }
        await pair.stop()
      } catch {
        await pair.stop()
        throw error
      }
    }
  }

  private static func serve(
    _ database: ConnectionPool, _ pair: ServerPair,
    _ body: (_ url: String, Assembly) async throws -> Void
  ) async throws {
    let settings = try Settings(
      await SettingSource(
        flags: [
          "TENURE_BUNDLE_IDS": "com.example.app", "TENURE_API_KEYS": "shop:admin:secret-for-trying",
          "TENURE_READ_DATABASE_URL": pair.standbyURI,
          // Nothing here takes so long, however busy the machine is.
          "TENURE_READ_MAX_STALENESS": "600s",
        ],
        environment: [:]))
    let assembly = try await Assembly(
      database: database, settings: settings, transport: PreparedAppStore(), logger: quiet)
    let server = DemoServer(api: assembly.api(keys: try settings.apiKeys()), port: 0)
    try await withServices([server] + assembly.replicaWatch, logger: quiet) {
      try await body(
        "http://\(DemoServer.host):\(try await server.port)", assembly)
    }
  }

  private func read(
    _ url: String, _ assembly: Assembly, of database: ConnectionPool, _ pair: ServerPair
  ) async throws {
    let (ledger, terms) = (assembly.ledger, assembly.entitlements.terms)
    let replica = try #require(assembly.entitlements.replica)
    for account in ["anna", "ben"] {
      _ = try await ledger.accounts.findOrCreateAccount(account, at: .now)
    }
    try await eventually { replica.mayAnswer(for: ["anna", "ben"]) == [true, true] }
    try await pair.pauseStandby(true)
    // Another process writes for Ben, ours for Anna.
    _ = try await Ledger(database: database).grants.grant(
      "gold", to: "ben", until: nil, by: Self.support, terms: terms, at: .now)
    _ = try await ledger.grants.grant(
      "gold", to: "anna", until: nil, by: Self.support, terms: terms, at: .now)
    for way in Way.allCases {
      #expect(try await Self.entitlements(of: "ben", way, url) == [], "the standby has it not")
      #expect(
        try await Self.entitlements(of: "ben", way, url, cacheControl: "max-age=0, No-Cache")
          == ["gold"])
      #expect(try await Self.entitlements(of: "anna", way, url) == ["gold"])
    }
    #expect(replica.mayAnswer(for: ["anna", "ben"]) == [false, true])

    try await pair.pauseStandby(false)
    try await eventually { replica.mayAnswer(for: ["anna"]) == [true] }
    for way in Way.allCases {
      for account in ["anna", "ben"] {
        #expect(try await Self.entitlements(of: account, way, url) == ["gold"])
      }
    }
    // Requests in between notice nothing.
    await pair.killStandby()
    for way in Way.allCases {
      #expect(try await Self.entitlements(of: "ben", way, url) == ["gold"])
    }
    try await eventually { replica.mayAnswer(for: ["ben"]) == [false] }
  }

  private static func entitlements(
    of account: String, _ way: Way, _ url: String, cacheControl: String? = nil
  ) async throws -> [String] {
    let path = "/v1/accounts/\(account)/entitlements"
    var request = HTTPClientRequest(
      url: url
        + (way == .batch
          ? "/v1/entitlements/query" : way == .router ? path + "?active=true" : path))
    request.headers.add(name: "Authorization", value: "Bearer secret-for-trying")
    if let cacheControl { request.headers.add(name: "Cache-Control", value: cacheControl) }
    if way == .batch {
      request.method = .POST
      request.headers.add(name: "Content-Type", value: "application/json")
      request.body = .bytes(ByteBuffer(string: #"{"account_ids": ["\#(account)"]}"#))
    }
    let answer = try await HTTPClient.shared.execute(request, timeout: .seconds(120))
    let body = String(buffer: try await answer.body.collect(upTo: 1 << 20))
    #expect(answer.status == .ok, "\(body)")
    return body.matches(of: /\x22entitlement\x22:\x22(\w+)\x22/).map { String($0.output.1) }
  }

  private func eventually(_ isSo: () -> Bool) async throws {
    let end = ContinuousClock.now + .seconds(120)
    while !isSo(), ContinuousClock.now < end { try await Task.sleep(for: .milliseconds(10)) }
    #expect(isSo())
  }
}
