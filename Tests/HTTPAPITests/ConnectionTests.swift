import HTTPTypes
import NIOCore
import ScratchDatabases
import Subscriptions
import Testing

@testable import HTTPAPI

/// What clients may take up that do not get on with a request or an answer.
struct ConnectionTests {
  private static let key = "Authorization: Bearer app-secret-for-trying"

  /// The time until the server closes a connection on which something is done.
  private static func timeToClose(
    _ limits: ConnectionLimits, _ act: @Sendable (RawConnection) async throws -> Void
  ) async throws -> Duration {
    try await withScratchDatabase { database in
      try await LiveAPI.run(on: database, limits: limits) { live in
        try await RawConnection.to(live.port) { connection in
          let start = ContinuousClock.now
          try await act(connection)
          // It may be reset, if something was under way.
          while (try? await connection.answer()) != nil {}
          return ContinuousClock.now - start
        }
      }
    }
  }

  @Test func `a body that trickles is cut off, though each byte comes in time`() async throws {
    let limits = ConnectionLimits(request: .milliseconds(600))
    let time = try await Self.timeToClose(limits) { connection in
      try await connection.send(
        "POST /v1/appstore/notifications HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n")
      for _ in 0..<200 {
        try await Task.sleep(for: .milliseconds(100))
        do { try await connection.send("x") } catch { return }
      }
    }
    #expect(time >= .milliseconds(600))
    #expect(time < .seconds(15))
  }

  @Test(arguments: ["/openapi.yaml", "/v1/accounts/anna/entitlements"])
  func `an answer that is not taken closes the connection`(path: String) async throws {
    try await withScratchDatabase { database in
      try await LiveAPI.run(on: database, limits: ConnectionLimits(answer: .milliseconds(500))) {
        live in
        try await RawConnection.to(live.port) { connection in
          let requests = String(repeating: RawConnection.get(path, [Self.key]), count: 200)
          // Nothing is received. Once the buffers of both ends are full, sending waits, until the
          // server closes the connection.
          let start = ContinuousClock.now
          await #expect(throws: (any Error).self) {
            while ContinuousClock.now - start < .seconds(60) {
              try await connection.send(requests)
            }
          }
        }
      }
    }
  }

  @Test func `one connection too many is answered 503`() async throws {
    try await withScratchDatabase { database in
      try await LiveAPI.run(on: database, limits: ConnectionLimits(connections: 2)) { live in
        try await RawConnection.to(live.port) { first in
          try await first.get("/healthz")
          #expect(try await first.answer()?.status == 200)
          try await RawConnection.to(live.port) { second in
            try await second.get("/healthz")
            #expect(try await second.answer()?.status == 200)
            try await RawConnection.to(live.port) { third in
              let answer = try await third.answer()
              #expect(answer?.status == 503)
              #expect(answer?["Retry-After"] == "2")
              #expect(try await third.answer() == nil)
            }
          }
        }
        // A place that is free again is given away again.
        var status: Int?
        for _ in 0..<100 where status != 200 {
          status = try? await live.exchange(RawConnection.get("/healthz"))?.status
        }
        #expect(status == 200)
      }
    }
  }

  @Test(
    "an answer that leaves a body unread is the connection's last",
    arguments: [
      ("401", "POST /v1/receipts HTTP/1.1\r\nHost: a"),
      ("404", "POST /nothing HTTP/1.1\r\nHost: a\r\n\(key)"),
      ("415", "POST /v1/receipts HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\n\(key)"),
    ])
  func unread(status: String, head: String) async throws {
    let limits = ConnectionLimits(drain: .milliseconds(400))
    let time = try await Self.timeToClose(limits) { connection in
      try await connection.send(head + "\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
      let answer = try #require(try await connection.answer())
      #expect(answer.status == Int(status))
      #expect(answer["Connection"] == "close")
      for _ in 0..<200 {
        try await Task.sleep(for: .milliseconds(50))
        do { try await connection.send("1\r\nx\r\n") } catch { return }
      }
    }
    #expect(time < .seconds(9))
  }

  @Test func `a body that was read leaves the connection open`() async throws {
    try await withScratchDatabase { database in
      try await LiveAPI.run(on: database) { live in
        try await RawConnection.to(live.port) { connection in
          for _ in 0..<3 {
            try await connection.send(
              "POST /v1/appstore/notifications HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
            let answer = try #require(try await connection.answer())
            #expect(answer.status == 400)
            #expect(answer["Connection"] == nil)
          }
        }
      }
    }
  }

  @Test func `bodies beyond the budget are refused, and get their share back`() async throws {
    let budget = BodyBudget(limit: 100)
    let first = BodyShare(of: budget)
    try first.take(60)
    let second = BodyShare(of: budget)
    try second.take(40)
    let problem = #expect(throws: Problem.self) { try second.take(1) }
    #expect(problem?.status == .serviceUnavailable)
    #expect(problem?.headers[.retryAfter] == "2")
    first.giveBack()
    first.giveBack()
    try second.take(60)
    second.giveBack()
    try first.take(100)
  }
}
