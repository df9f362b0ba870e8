import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import JSONText
import LedgerStorage
import Postgres
import ScratchDatabases
import ServiceLifecycle
import Testing

@testable import HTTPAPI

/// `GET /v1/events`, and waiting for what comes.
struct FeedTests {
  private static let order = "0192f1c5-2b7e-4c1d-9a53-8f0d6d1c6c11"
  private static let expiry = #"{"order_id":"\#(order)","product_id":"monthly"}"#
  private static let charge =
    #"{"order_id":"\#(order)","environment":"production","original_transaction_id":"1000"}"#

  /// Writes an event as recordings do, and rings unless the ring is lost.
  static func write(_ type: String, to database: ConnectionPool, isNotified: Bool = true)
    async throws
  {
    _ = try await database.execute(
      """
      INSERT INTO tenure.event (type, occurred_at, data)
      VALUES (\(type), now(), 
        convert_to(\(type == "order.expired" ? Self.expiry : Self.charge), 'UTF8'))
      """)
    if isNotified { try await database.runScript("NOTIFY tenure_events") }
  }

  @Test func `the feed is read on with the cursor of each answer`() async throws {
    try await TestAPI.run { api in
      let empty = try await api.get("/v1/events")
      #expect(empty.json["events"]?.array == [])
      #expect(empty.json["next"] == "0")
      for type in ["order.expired", "order.fulfilled", "order.refunded"] {
        try await Self.write(type, to: api.database)
      }
      let first = try await api.get("/v1/events?limit=2")
      #expect(first.types == ["order.expired", "order.fulfilled"])
      #expect(first.json["events"]?[0]["account_id"] == .null)
      #expect(first.json["events"]?[1]["data"]?["original_transaction_id"] == "1000")
      let second = try await api.get("/v1/events?after=\(first.cursor)&wait=60")
      #expect(second.types == ["order.refunded"])
      let last = try await api.get("/v1/events?after=\(second.cursor)", as: .admin)
      #expect(last.types == [])
      #expect(last.cursor == second.cursor)
    }
  }

  @Test(arguments: [
    ("after=", "after"), ("after=x", "after"), ("after=-1", "after"), ("after=1.5", "after"),
    ("after=99999999999999999999", "after"), ("limit=0", "limit"), ("limit=1001", "limit"),
    ("wait=61", "wait"), ("wait=-1", "wait"), ("wait=soon", "wait"),
  ])
  func `a wrong parameter is named`(_ query: String, _ field: String) async throws {
    try await TestAPI.run { api in
      let answer = try await api.get("/v1/events?\(query)")
      #expect(answer.status == 400)
      #expect(answer.json["field"]?.string == field)
    }
  }

  @Test func `an expired cursor is reported as such`() async throws {
    try await TestAPI.run { api in
      for _ in 0..<3 { try await Self.write("order.expired", to: api.database) }
      let end = try await api.get("/v1/events").cursor
      #expect(end.hasPrefix("3-"))
      let second = try await api.get("/v1/events?limit=2").cursor
      _ = try await api.database.execute("UPDATE tenure.feed SET trimmed_to = 2")
      for (cursor, code) in [
        ("1-1", "cursor_expired"), ("4-1", "cursor_unknown"), ("3-1", "cursor_unknown"),
      ] {
        let answer = try await api.get("/v1/events?after=\(cursor)&wait=60")
        #expect(answer.status == 410)
        #expect(answer.code == code)
      }
      #expect(try await api.get("/v1/events?after=\(end)").types == [])
      #expect(try await api.get("/v1/events?after=\(second)").types == ["order.expired"])
    }
  }

  @Test(arguments: [true, false])
  func `a waiting reader receives new events, notified or not`(_ isNotified: Bool) async throws {
    try await TestAPI.run { api in
      let answers = try await withThrowingTaskGroup(of: Answer.self) { group in
        for _ in 0..<5 {
          group.addTask { try await api.get("/v1/events?after=0&wait=60") }
        }
        try await api.api.untilWaiting(5)
        try await Self.write("order.expired", to: api.database, isNotified: isNotified)
        return try await group.reduce(into: []) { $0.append($1) }
      }
      #expect(answers.map(\.types) == Array(repeating: ["order.expired"], count: 5))
    }
  }

  @Test func `a reader that waits in vain gets an empty answer`() async throws {
    try await TestAPI.run { api in
      let begun = ContinuousClock.now
      let answer = try await api.get("/v1/events?wait=1")
      #expect(answer.types == [])
      #expect(ContinuousClock.now - begun >= .seconds(1))
    }
  }

  @Test func `a waiting reader does not hold up a shutdown`() async throws {
    let begun = ContinuousClock.now
    try await withScratchDatabase { database in
      let answer = try await LiveAPI.run(on: database) { live in
        async let answer = live.exchange(RawConnection.get("/v1/events?wait=60"))
        try await live.api.untilWaiting(1)
        await live.group.triggerGracefulShutdown()
        return try await answer
      }
      #expect(answer?.body == #"{"events":[],"next":"0"}"#)
    }
    #expect(ContinuousClock.now - begun < .seconds(50))
  }
}

extension API {
  /// Returns when so many requests wait for events.
  fileprivate func untilWaiting(_ count: Int) async throws {
    while watch.waitingCount < count { try await Task.sleep(for: .milliseconds(5)) }
  }
}

extension Answer {
  fileprivate var types: [String]? { json["events"]?.array?.compactMap { $0["type"]?.string } }
  fileprivate var cursor: String { json["next"]?.string ?? "" }
}
