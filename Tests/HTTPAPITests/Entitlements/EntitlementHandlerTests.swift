import AppStoreSimulator
import Foundation
import HummingbirdTesting
import JSONText
import Logging
import NIOCore
import Postgres
import ScratchDatabases
import ServiceLifecycle
import Subscriptions
import Testing

@testable import HTTPAPI

/// The read that is answered in front of the router, over a real socket.
struct EntitlementHandlerTests {
  private static let composed = "jos\u{E9}"
  private static let key = "Authorization: Bearer app-secret-for-trying"

  /// Gives `anna` one subscription, `ben` three holdings, and others whatever the tests need.
  private static func fill(_ database: ConnectionPool) async throws {
    let (api, apple, intake, poll) = try await TestAPI.assemble(database)
    try await api.application(host: "127.0.0.1", port: 0).test(.router) { client in
      let api = TestAPI(
        client: client, api: api, apple: apple, intake: intake, poll: poll, ledger: api.ledger,
        database: database)
      try await api.describe("monthly", "premium")
      try await api.describe("lifetime", "lifetime", type: .nonConsumable)
      try await api.describe("season.pass", "season", type: .nonRenewing, period: "P6M")
      for name in ["anna", "ben", "jos"] {
        try api.addCustomer(name)
        try api.apple.simulation.buy("monthly", on: DeviceID(name))
      }
      for product in ["lifetime", "season.pass"] {
        try api.apple.simulation.buy(ProductID(product), on: "ben")
      }
      _ = try await api.submit("anna", from: "anna")
      _ = try await api.submit("ben", from: "ben")
      _ = try await api.submit(composed, from: "jos")
    }
  }

  /// Runs a test with two servers on one database: one with the handler, one without.
  private static func runBoth(
    _ test: @Sendable (_ direct: LiveAPI, _ routing: LiveAPI, ConnectionPool) async throws -> Void
  ) async throws {
    try await withScratchDatabase { database in
      try await fill(database)
      try await LiveAPI.run(on: database) { direct in
        try await LiveAPI.run(on: database, level: .debug) { routing in
          try await test(direct, routing, database)
        }
      }
    }
  }

  private static func path(_ account: String) -> String { "/v1/accounts/\(account)/entitlements" }

  @Test func `the answer is the router's, to the byte`() async throws {
    try await Self.runBoth { direct, routing, _ in
      let longest = String(repeating: "x", count: 255)
      for account in ["anna", "ben", "unknown", "a@b.c+d", "{x}", "..", "a\\\"b", longest] {
        for fields in [
          [Self.key], ["Authorization: Bearer admin-secret-for-trying"],
          ["authorization: bearer app-secret-for-trying"],
          [Self.key, "X-Request-ID: 4711-abc"], ["x-request-id: ~!", Self.key, "Accept: */*"],
          [Self.key, "User-Agent: test", "Content-Type: text/plain", "Cookie: a=b; c=d"],
        ] {
          let request = RawConnection.get(Self.path(account), fields)
          let answer = try #require(try await direct.exchange(request))
          let expected = try #require(try await routing.exchange(request))
          #expect(answer.comparable == expected.comparable, "\(request)")
          #expect(answer.status == 200)
          #expect(answer.comparable["Date"] == "now")
          #expect(answer["X-Request-ID"] != nil)
        }
      }
      #expect(direct.routed == [])
      #expect(routing.routed.count == 48)
      let ben = try #require(try await direct.exchange(RawConnection.get(Self.path("ben"))))
      #expect(ben.body.contains(#""account_id":"ben""#))
      #expect(ben.body.components(separatedBy: #""active":true"#).count == 4)
    }
  }

  /// Asks for several accounts.
  private static func batch(_ query: String) -> String {
    let body = #"{"account_ids":["anna","ben"]}"#
    return "POST /v1/entitlements/query\(query) HTTP/1.1\r\nHost: a\r\n\(key)\r\n"
      + "Content-Type: application/json\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)"
  }

  /// Every request that the handler leaves alone, with a reason.
  private static let others: [(why: String, request: String)] = [
    ("a query", RawConnection.get(path("anna") + "?active=true")),
    ("another time", RawConnection.get(path("anna") + "?at=2025-12-31T00:00:00Z")),
    ("another knowledge", RawConnection.get(path("anna") + "?known_at=2025-12-31T00:00:00Z")),
    ("no time", RawConnection.get(path("anna") + "?at=yesterday")),
    ("several accounts", batch("")),
    ("several accounts at another time", batch("?at=2025-12-31T00:00:00Z")),
    ("several accounts at no time", batch("?at=yesterday")),
    ("an empty query", RawConnection.get(path("anna") + "?")),
    ("percent-encoding", RawConnection.get(path("%61nna"))),
    ("bad percent-encoding", RawConnection.get(path("%zz"))),
    ("an id beyond ASCII, composed", RawConnection.get(path("jos%C3%A9"))),
    ("an id beyond ASCII, decomposed", RawConnection.get(path("jose%CC%81"))),
    ("no id", RawConnection.get("/v1/accounts//entitlements")),
    ("an id that is too long", RawConnection.get(path(String(repeating: "x", count: 256)))),
    ("two ids", RawConnection.get(path("anna/ben"))),
    ("a slash at the end", RawConnection.get(path("anna") + "/")),
    ("a slash too many", RawConnection.get("/v1//accounts/anna/entitlements")),
    ("a fragment", RawConnection.get(path("anna#x"))),
    ("an absolute URI", RawConnection.get("http://localhost" + path("anna"))),
    ("another path", RawConnection.get("/v1/accounts/anna")),
    ("capitals", RawConnection.get("/v1/accounts/anna/Entitlements")),
    ("no key", RawConnection.get(path("anna"), [])),
    ("an unknown key", RawConnection.get(path("anna"), ["Authorization: Bearer nothing"])),
    (
      "another scheme",
      RawConnection.get(path("anna"), ["Authorization: Basic app-secret-for-trying"])
    ),
    ("two keys", RawConnection.get(path("anna"), [key, key])),
    ("an unusable request id", RawConnection.get(path("anna"), [key, "X-Request-ID: a b"])),
    ("an empty request id", RawConnection.get(path("anna"), [key, "X-Request-ID: "])),
    (
      "a long request id",
      RawConnection.get(
        path("anna"), [key, "X-Request-ID: " + String(repeating: "x", count: 129)])
    ),
    (
      "two request ids",
      RawConnection.get(path("anna"), [key, "X-Request-ID: a", "X-Request-ID: b"])
    ),
    ("Connection", RawConnection.get(path("anna"), [key, "connection: keep-alive"])),
    ("Connection: close", RawConnection.get(path("anna"), [key, "Connection: close"])),
    ("a body", RawConnection.get(path("anna"), [key, "Content-Length: 2"]) + "{}"),
    ("no body, and saying so", RawConnection.get(path("anna"), [key, "Content-Length: 0"])),
    (
      "a body in chunks",
      RawConnection.get(path("anna"), [key, "Transfer-Encoding: chunked"]) + "2\r\n{}\r\n0\r\n\r\n"
    ),
    ("Expect", RawConnection.get(path("anna"), [key, "Expect: nothing"])),
    ("Upgrade", RawConnection.get(path("anna"), [key, "Upgrade: h2c"])),
    ("HTTP/1.0", "GET \(path("anna")) HTTP/1.0\r\n\(key)\r\n\r\n"),
    ("POST", "POST \(path("anna")) HTTP/1.1\r\nHost: a\r\n\(key)\r\nContent-Length: 0\r\n\r\n"),
  ]

  @Test func `everything else is the router's`() async throws {
    try await Self.runBoth { direct, routing, _ in
      for (index, (why, request)) in Self.others.enumerated() {
        let answer = try #require(try await direct.exchange(request), "\(why)")
        let expected = try #require(try await routing.exchange(request), "\(why)")
        #expect(answer.comparable == expected.comparable, "\(why)")
        #expect(direct.routed.count == index + 1, "\(why)")
      }
      // Nothing was there at the end of the year before, for one account as for several.
      for (request, count) in [
        (RawConnection.get(Self.path("anna") + "?at=2025-12-31T00:00:00Z"), 0),
        (RawConnection.get(Self.path("anna") + "?known_at=2025-12-31T00:00:00Z"), 0),
        (Self.batch("?at=2025-12-31T00:00:00Z"), 0), (Self.batch(""), 4),
      ] {
        let answer = try #require(try await direct.exchange(request))
        #expect(answer.status == 200)
        #expect(answer.body.components(separatedBy: #""active":true"#).count == count + 1)
      }
      let composed = try await direct.exchange(RawConnection.get(Self.path("jos%C3%A9")))
      #expect(composed?.body.contains(#""premium""#) == true)
      let decomposed = try await direct.exchange(RawConnection.get(Self.path("jose%CC%81")))
      #expect(decomposed?.body.contains(#""entitlements":[]"#) == true)
      try await RawConnection.to(direct.port) { connection in
        try await connection.send(
          "HEAD \(Self.path("anna")) HTTP/1.1\r\nHost: a\r\n\(Self.key)\r\n\r\n")
        #expect(try await connection.answer(toHead: true)?.status == 200)
        try await connection.get(Self.path("anna"))
        #expect(try await connection.answer()?.status == 200)
      }
      #expect(direct.routed.count == Self.others.count + 7)
    }
  }

  @Test func `answers keep the order of the requests`() async throws {
    try await Self.runBoth { direct, _, _ in
      let slow = ["/v1/products", Self.path("anna") + "?active=true", "/healthz", "/nowhere"]
      try await RawConnection.to(direct.port) { connection in
        // Fast and slow ones in every succession of three, and more than are held at a time.
        var text = ""
        for number in 0..<160 {
          let isFast = (number / 8 >> (number % 3)) & 1 == 0
          text += RawConnection.get(
            isFast ? Self.path("a\(number)") : slow[number % 4],
            [Self.key, "X-Request-ID: \(number)"])
        }
        try await connection.send(text)
        for number in 0..<160 {
          let answer = try #require(try await connection.answer())
          #expect(answer["X-Request-ID"] == "\(number)")
          if (number / 8 >> (number % 3)) & 1 == 0 {
            #expect(answer.body.hasPrefix(#"{"account_id":"a\#(number)""#))
          }
        }
      }
      #expect(direct.routed.contains("/v1/products"))
      #expect(direct.routed.count < 160)
    }
  }

  @Test func `a connection serves many requests, and half a request waits for its end`()
    async throws
  {
    try await Self.runBoth { direct, _, _ in
      try await RawConnection.to(direct.port) { connection in
        for account in ["anna", "ben", "unknown", "anna"] {
          try await connection.get(Self.path(account))
          let answer = try #require(try await connection.answer())
          #expect(answer.body.hasPrefix(#"{"account_id":"\#(account)""#))
        }
        let request = RawConnection.get(Self.path("anna"))
        for part in [request.prefix(30), request.dropFirst(30).dropLast(2), request.suffix(2)] {
          try await connection.send(String(part))
          try await Task.sleep(for: .milliseconds(20))
        }
        #expect(try await connection.answer()?.status == 200)
        #expect(direct.routed == [])
        try await connection.get("/healthz", ["Connection: close"])
        #expect(try await connection.answer()?.status == 200)
        #expect(try await connection.answer() == nil)
      }
    }
  }

  @Test func `shutting down finishes what is being read, and closes its connection`()
    async throws
  {
    try await Self.runBoth { direct, _, database in
      try await RawConnection.to(direct.port) { connection in
        try await database.whileHoldingsAreLocked { locking in
          // The second is held back, and read before the server is stopped.
          try await connection.send(
            RawConnection.get(Self.path("anna")) + RawConnection.get("/v1/products"))
          try await locking.untilWaiting()
          await direct.group.triggerGracefulShutdown()
          try await Task.sleep(for: .milliseconds(100))
        }
        #expect(try await connection.answer()?.body.contains(#""premium""#) == true)
        #expect(try await connection.answer()?.body.contains(#""products""#) == true)
        #expect(try await connection.answer() == nil)
      }
    }
  }

  @Test func `a caller that has closed its side still gets the answer`() async throws {
    try await Self.runBoth { direct, _, database in
      try await RawConnection.to(direct.port) { connection in
        try await database.whileHoldingsAreLocked { locking in
          try await connection.get(Self.path("anna"))
          connection.finish()
          try await locking.untilWaiting()
          try await Task.sleep(for: .milliseconds(50))
        }
        #expect(try await connection.answer()?.body.contains(#""premium""#) == true)
        #expect(try await connection.answer() == nil)
      }
      #expect(direct.routed == [])
    }
  }

  @Test func `a connection that goes away affects no other`() async throws {
    try await Self.runBoth { direct, _, database in
      try await RawConnection.to(direct.port) { other in
        try await database.whileHoldingsAreLocked { locking in
          try await RawConnection.to(direct.port) { connection in
            try await connection.get(Self.path("anna"))
            try await locking.untilWaiting()
            try await other.get(Self.path("ben"))
          }
        }
        #expect(try await other.answer()?.body.contains("lifetime") == true)
      }
      #expect(try await direct.exchange(RawConnection.get(Self.path("anna")))?.status == 200)
    }
  }

  @Test func `without the database the router says what is wrong`() async throws {
    try await Self.runBoth { direct, routing, database in
      await database.close()
      let request = RawConnection.get(Self.path("anna"), [Self.key, "X-Request-ID: a"])
      let answer = try #require(try await direct.exchange(request))
      #expect(answer.status == 503)
      #expect(answer.comparable == (try await routing.exchange(request))?.comparable)
      #expect(direct.routed.contains("/v1/accounts/{account_id}/entitlements"))
    }
  }

  @Test func `a read that has failed is not tried again by the router`() async throws {
    try await Self.runBoth { direct, _, database in
      try await RawConnection.to(direct.port) { connection in
        try await database.whileHoldingsAreLocked { locking in
          try await connection.get(Self.path("anna"))
          try await locking.untilWaiting()
          // Its connection is lost, and with it the read.
          _ = try await locking.query(
            """
            SELECT pg_terminate_backend(pid, 60000) FROM pg_locks WHERE NOT granted AND database =
              (SELECT oid FROM pg_database WHERE datname = current_database())
            """)
          let isTriedAgain = try await locking.isReadWaiting(within: .seconds(1))
          #expect(!isTriedAgain)
          let answer = try #require(try await connection.answer())
          #expect(answer.status == 503)
          #expect(answer.body.contains(#""code":"unavailable""#))
        }
        // The failure was that request's alone.
        try await connection.get(Self.path("anna"))
        #expect(try await connection.answer()?.status == 200)
        try await connection.get(Self.path("anna") + "?active=true")
        #expect(try await connection.answer()?.status == 200)
      }
      // The failed read has two lines, one of them its failure's.
      #expect(direct.routed.count == 3)
    }
  }

  @Test func `an unreadable row is one account's misfortune`() async throws {
    try await Self.runBoth { direct, routing, database in
      try await database.runScript(
        "UPDATE tenure.holding SET starts_at = 'infinity' WHERE account_id = 'anna'")
      try await RawConnection.to(direct.port) { anna in
        try await RawConnection.to(direct.port) { ben in
          try await database.whileHoldingsAreLocked { locking in
            for (connection, account) in [(anna, "anna"), (ben, "ben")] {
              try await connection.get(Self.path(account))
            }
            try await locking.untilWaiting()
          }
          #expect(try await ben.answer()?.body.contains("lifetime") == true)
          let answer = try #require(try await anna.answer())
          let expected = try await routing.exchange(RawConnection.get(Self.path("anna")))
          #expect(answer.status == 500)
          #expect(answer.comparable == expected?.comparable)
        }
      }
    }
  }

  @Test func `idle connections are closed, and no others`() async throws {
    let timeout = Duration.milliseconds(400)
    try await withScratchDatabase { database in
      try await Self.fill(database)
      try await LiveAPI.run(on: database, limits: ConnectionLimits(idle: .milliseconds(400))) {
        live in
        // On a busy machine a pause can grow longer than the timeout: then it is tried again.
        var wasLong = true
        for _ in 0..<50 where wasLong {
          let connecting = ContinuousClock.now
          wasLong = try await RawConnection.to(live.port) { connection in
            var asked = connecting
            func isAnswered(_ path: String, _ pause: () async throws -> Void) async throws -> Bool {
              let before = asked
              do {
                try await pause()
                asked = .now
                try await connection.get(path)
              } catch {
                #expect(ContinuousClock.now - before >= timeout)
                return false
              }
              let answer = try? await connection.answer()
              if answer == nil { #expect(ContinuousClock.now - before >= timeout) }
              return answer?.status == 200
            }
            for path in [Self.path("anna"), "/healthz", Self.path("anna"), Self.path("ben")] {
              let isAnswered = try await isAnswered(path) {
                try await Task.sleep(for: .milliseconds(200))
              }
              guard isAnswered else { return true }
            }
            #expect(try await connection.answer() == nil)
            return false
          }
        }
        #expect(!wasLong)
        // Half a request keeps no connection open.
        try await RawConnection.to(live.port) { connection in
          try await connection.send("GET \(Self.path("anna")) HTTP/1.1\r\n")
          #expect(try await connection.answer() == nil)
        }
      }
    }
  }

  @Test(arguments: ["", "?active=true"])
  func `a connection that waits for its answer is not idle`(query: String) async throws {
    try await withScratchDatabase { database in
      try await Self.fill(database)
      // On a busy machine the request can arrive later than the timeout: then it is tried again.
      // A read gives up after ten seconds, so it must not be held up for longer.
      for seconds in [4, 3, 4, 2, 4, 3] {
        let timeout = Duration.seconds(seconds)
        let isAnswered = try await LiveAPI.run(
          on: database, limits: ConnectionLimits(idle: .seconds(Int64(seconds)))
        ) { live in
          do {
            return try await RawConnection.to(live.port) { connection in
              let isReceived = try await database.whileHoldingsAreLocked { locking in
                try await connection.get(Self.path("anna") + query)
                guard try await locking.isReadWaiting(within: timeout * 2) else { return false }
                try await Task.sleep(for: timeout + .seconds(2))
                return true
              }
              let answer = try await connection.answer()
              return isReceived && answer?.status == 200
            }
          } catch {
            return false
          }
        }
        if isAnswered { return }
      }
      Issue.record("The connection was closed.")
    }
  }

  @Test func `the date has the form of HTTP`() {
    #expect(
      Timestamp(milliseconds: 784_111_777_000).httpDate == "Sun, 06 Nov 1994 08:49:37 GMT")
    #expect(Timestamp(milliseconds: 0).httpDate == "Thu, 01 Jan 1970 00:00:00 GMT")
    #expect(
      Timestamp(milliseconds: 1_709_251_199_999).httpDate == "Thu, 29 Feb 2024 23:59:59 GMT")
  }
}
