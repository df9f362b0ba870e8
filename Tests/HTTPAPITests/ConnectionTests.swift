import HTTPTypes
import NIOCore
import Observability
import ScratchDatabases
import Subscriptions
import Synchronization
import Testing

@testable import HTTPAPI

/// The limits for clients that are slow, or hold connections that they do not use.
struct ConnectionTests {
  private static let key = "Authorization: Bearer app-secret-for-trying"

  /// Runs a body with a server that has limits.
  private static func withServer(
    _ limits: ConnectionLimits = ConnectionLimits(),
    _ body: @Sendable (LiveAPI) async throws -> Void
  ) async throws {
    try await withScratchDatabase { database in
      try await LiveAPI.run(on: database, limits: limits, body)
    }
  }

  /// The time until the server closes a connection on which something is done.
  private static func timeToClose(
    _ live: LiveAPI, _ action: @Sendable (RawConnection) async throws -> Void
  ) async throws -> Duration {
    try await RawConnection.to(live.port) { connection in
      let start = ContinuousClock.now
      try await action(connection)
      // It may be reset, if something was under way.
      while (try? await connection.answer()) != nil {}
      return ContinuousClock.now - start
    }
  }

  /// Sends a byte every 20 ms until the connection is closed.
  private static func trickle(_ byte: String, to connection: RawConnection) async throws {
    for _ in 0..<1000 {
      try await Task.sleep(for: .milliseconds(20))
      do { try await connection.send(byte) } catch { return }
    }
  }

  @Test(arguments: [("", 30_000, 200), (key + "\r\n", 700, 30_000)])
  func `a body that trickles is cut off, sooner without a key`(
    fields: String, request: Int64, requestWithoutKey: Int64
  ) async throws {
    let limits = ConnectionLimits(
      request: .milliseconds(request), requestWithoutKey: .milliseconds(requestWithoutKey))
    try await Self.withServer(limits) { live in
      let time = try await Self.timeToClose(live) { connection in
        try await connection.send(
          "POST /v1/appstore/notifications HTTP/1.1\r\nHost: a\r\n\(fields)"
            + "Content-Length: 100000\r\n\r\n")
        try await Self.trickle("x", to: connection)
      }
      #expect(time >= .milliseconds(min(request, requestWithoutKey)))
      #expect(time < .seconds(15))
    }
  }

  @Test func `a notification needs less time without a key than a receipt with one`() {
    let limits = ConnectionLimits()
    #expect(limits.requestWithoutKey == .seconds(5))
    #expect(limits.requestWithoutKey < limits.request)
  }

  @Test(arguments: ["/openapi.yaml", "/v1/accounts/anna/entitlements"])
  func `an answer that is not taken closes the connection`(path: String) async throws {
    try await Self.withServer(ConnectionLimits(answer: .milliseconds(200))) { live in
      // With a small buffer few answers fill it; a large one takes thousands of reads.
      try await RawConnection.to(live.port, receiveBuffer: 4096) { connection in
        let requests = String(repeating: RawConnection.get(path, [Self.key]), count: 200)
        // Nothing is received. Once the buffers of both ends are full, sending waits, until the
        // server closes the connection.
        let start = ContinuousClock.now
        await #expect(throws: (any Error).self) {
          while ContinuousClock.now - start < .seconds(300) {
            try await connection.send(requests)
          }
        }
      }
    }
  }

  @Test func `a connection too many takes the place of an idle one without a key`() async throws {
    try await Self.withServer(ConnectionLimits(connections: 2)) { live in
      try await RawConnection.to(live.port) { caller in
        try await caller.get("/v1/products")
        #expect(try await caller.answer()?.status == 200)
        try await RawConnection.to(live.port) { idle in
          try await idle.get("/healthz", [])
          #expect(try await idle.answer()?.status == 200)
          try await RawConnection.to(live.port) { new in
            try await new.get("/healthz", ["Authorization: Bearer app-secret-for-trying"])
            #expect(try await new.answer()?.status == 200)
            #expect((try? await idle.answer()) == nil)
            // Both that are left have sent keys: now there is none to close.
            try await RawConnection.to(live.port) { third in
              let answer = try await third.answer()
              #expect(answer?.status == 503)
              #expect(answer?["Retry-After"] == "2")
              #expect(try await third.answer() == nil)
            }
            try await caller.get("/v1/products")
            #expect(try await caller.answer()?.status == 200)
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

  @Test func `idle connections are closed before busy ones, the longest idle first`() throws {
    let open = OpenConnections(limit: 3, metrics: RequestMetrics(PrometheusRegistry()))
    let closed = Mutex<[String]>([])
    func connection(
      _ name: String, _ use: OpenConnection.Use, since seconds: Int64
    ) -> OpenConnection {
      let connection = OpenConnection { closed.withLock { $0.append(name) } }
      connection.note(use, since: .uptimeNanoseconds(1) + .seconds(seconds))
      return connection
    }
    let last = connection("last", .authenticated, since: 7)
    for added in [
      connection("caller", .authenticated, since: 1), connection("busy", .busy, since: 2),
      connection("idle", .idle, since: 4), connection("longer idle", .idle, since: 3),
      connection("other caller", .authenticated, since: 6), last,
    ] { #expect(open.add(added)) }
    #expect(closed.withLock(\.self) == ["idle", "longer idle", "busy"])
    #expect(!open.add(connection("stranger", .idle, since: 8)))
    open.remove(last)
    #expect(open.add(connection("stranger", .idle, since: 8)))
    #expect(closed.withLock(\.count) == 3)
  }

  @Test func `a head may have 16 kB and a hundred fields`() async throws {
    @Sendable func many(_ count: Int) -> String {
      (0..<count).map { "X-\($0): a" }.joined(separator: "\r\n")
    }
    @Sendable func long(_ bytes: Int) -> String {
      "X-Filler: " + String(repeating: "a", count: bytes)
    }
    try await Self.withServer { live in
      for (fields, status) in [
        (long(15_000), 200), (long(17_000), 400), (many(90), 200), (many(110), 400),
      ] {
        // The rest of a refused request is not read, so the connection may be reset.
        let answer = try? await live.exchange(RawConnection.get("/healthz", [fields]))
        #expect((answer?.status ?? 400) == status)
      }
    }
  }

  @Test func `a large body of a caller arrives whole, and what follows it too`() async throws {
    try await Self.withServer { live in
      try await RawConnection.to(live.port) { connection in
        for size in [1000, 65_536, 200_000, 1_000_000] {
          let body = #"{"account_ids":["\#(String(repeating: "a", count: size))"]}"#
          try await connection.send(
            "POST /v1/entitlements/query HTTP/1.1\r\nHost: a\r\n\(Self.key)\r\n"
              + "Content-Type: application/json\r\nContent-Length: \(body.utf8.count)\r\n\r\n"
              + body + RawConnection.get("/healthz"))
          let answer = try #require(try await connection.answer())
          // It was read to its end: the fault is the id's length.
          #expect(answer.status == 400)
          #expect(answer.body.contains("account_ids"))
          #expect(try await connection.answer()?.status == 200)
        }
      }
    }
  }

  @Test func `an answer that leaves a body unread is the connection's last`() async throws {
    try await Self.withServer(ConnectionLimits(drain: .milliseconds(200))) { live in
      for (status, head) in [
        (401, "POST /v1/receipts HTTP/1.1\r\nHost: a"),
        (404, "POST /nothing HTTP/1.1\r\nHost: a\r\n\(Self.key)"),
        (415, "POST /v1/receipts HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\n\(Self.key)"),
      ] {
        let time = try await Self.timeToClose(live) { connection in
          try await connection.send(head + "\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
          let answer = try #require(try await connection.answer())
          #expect(answer.status == status)
          #expect(answer["Connection"] == "close")
          try await Self.trickle("1\r\nx\r\n", to: connection)
        }
        #expect(time < .seconds(9))
      }
    }
  }

  @Test func `a body that was read leaves the connection open`() async throws {
    try await Self.withServer { live in
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

/// How bodies share memory.
struct BodyBudgetTests {
  private final class Flag: Sendable {
    let isSet = Atomic(false)
  }

  /// A share, and whether it was dropped.
  private struct Sender {
    let share: BodyShare
    private let flag: Flag

    var isDropped: Bool { flag.isSet.load(ordering: .relaxed) }

    init(_ budget: BodyBudget, from address: String = "a") {
      let flag = Flag()
      self.flag = flag
      share = BodyShare(of: budget, from: address) { flag.isSet.store(true, ordering: .relaxed) }
    }
  }

  @Test func `bodies beyond the budget are refused, and get their share back`() async throws {
    let budget = BodyBudget(limit: 100)
    let (first, second) = (Sender(budget).share, Sender(budget).share)
    try await first.take(60)
    try await second.take(40)
    let problem = await #expect(throws: Problem.self) { try await second.take(1) }
    #expect(problem?.status == .serviceUnavailable)
    #expect(problem?.headers[.retryAfter] == "2")
    first.giveBack()
    first.giveBack()
    try await second.take(60)
    second.giveBack()
    try await first.take(100)
  }

  @Test func `slow bodies make room for new ones`() async throws {
    let budget = BodyBudget(limit: 100, isOpenToAll: true)
    let slow = (0..<4).map { Sender(budget, from: "\($0)") }
    for sender in slow { try await sender.share.take(25) }
    let new = Sender(budget, from: "new")
    try await new.share.take(30)
    #expect(slow.map(\.isDropped) == [true, true, false, false])
    // A dropped sender gets no more, and has nothing to give back.
    await #expect(throws: Problem.self) { try await slow[0].share.take(1) }
    slow[0].share.giveBack()
    try await new.share.take(20)
    #expect(slow.map(\.isDropped) == [true, true, false, false])
    try await new.share.take(0)
  }

  @Test func `a body that has arrived is not dropped`() async throws {
    let budget = BodyBudget(limit: 100, isOpenToAll: true)
    let (first, second, third) = (
      Sender(budget, from: "1"), Sender(budget, from: "2"), Sender(budget, from: "3")
    )
    try await first.share.take(50)
    first.share.keep()
    try await second.share.take(50)
    second.share.keep()
    await #expect(throws: Problem.self) { try await third.share.take(1) }
    #expect(!first.isDropped && !second.isDropped)
    first.share.giveBack()
    try await third.share.take(50)
  }

  @Test func `one address gets half of the budget`() async throws {
    let budget = BodyBudget(limit: 100, isOpenToAll: true)
    let (other, many) = (Sender(budget, from: "other"), (0..<10).map { _ in Sender(budget) })
    try await other.share.take(10)
    for sender in many { try await sender.share.take(10) }
    #expect(many.filter(\.isDropped).count == 5)
    #expect(!other.isDropped)
    for sender in many.suffix(5) { sender.share.keep() }
    await #expect(throws: Problem.self) { try await Sender(budget).share.take(10) }
    try await other.share.take(40)
  }

  @Test func `large bodies wait for each other, and not for long`() {
    let pace = BodyPace(bytesPerSecond: 16 * BodyPace.part)
    let start = ContinuousClock.now + .seconds(1)
    // A quarter of a second is made up for.
    for _ in 0...4 { #expect(pace.wait(at: start) == .zero) }
    #expect(pace.wait(at: start) == .milliseconds(62.5))
    #expect(pace.wait(at: start + .milliseconds(125)) == .zero)
    let later = start + .seconds(1)
    for _ in 0...4 { #expect(pace.wait(at: later) == .zero) }
    for number in 1...32 { #expect(pace.wait(at: later) == .milliseconds(62.5) * number) }
    #expect(pace.wait(at: later) == nil)
    #expect(pace.wait(at: later + .seconds(2)) == .milliseconds(62.5))
  }

  @Test func `only what follows the first part of a body waits`() async throws {
    let pace = BodyPace(bytesPerSecond: BodyPace.part)
    let budget = BodyBudget(limit: .max / 2, isOpenToAll: true, pace: pace)
    for _ in 0..<100 { try await Sender(budget).share.take(BodyPace.part - 1) }
    let long = Sender(budget).share
    try await long.take(BodyPace.part)
    let start = ContinuousClock.now
    try await long.take(BodyPace.part)
    #expect(ContinuousClock.now - start > .milliseconds(500))
    while pace.wait() != nil {}
    await #expect(throws: Problem.self) { try await long.take(BodyPace.part) }
    try await Sender(budget).share.take(1)
  }
}
