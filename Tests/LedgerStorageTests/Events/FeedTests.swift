import Foundation
import Logging
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

struct FeedTests {
  // MARK: Many writers

  private struct Published: Hashable {
    var account: Int
    var number: Int
  }

  private static let writers = 16
  private static let commitsPerWriter = 20
  private static let accounts = 5

  /// Writes events like recordings: locks the accounts in order, writes, and takes some time to
  /// commit.
  private static func write(
    to database: ConnectionPool, _ generator: inout SystemRandomNumberGenerator
  ) async throws {
    for _ in 0..<commitsPerWriter {
      let accounts = (0..<Self.accounts).shuffled(using: &generator)
        .prefix(Int.random(in: 1...2, using: &generator)).sorted()
      let pauses = (0..<2).map { _ in Double.random(in: 0...0.004, using: &generator) }
      let rollsBack = Int.random(in: 1...5, using: &generator) == 1
      do {
        try await database.withTransaction { transaction in
          for account in accounts {
            _ = try await transaction.execute(
              """
              UPDATE account_counter SET number = number + 1 WHERE account = \(account)
              """)
          }
          _ = try await transaction.query("SELECT pg_sleep(\(pauses[0]))")
          _ = try await transaction.execute(
            """
            INSERT INTO tenure.event (type, occurred_at, data)
            SELECT 'transaction.recorded', now(),
              convert_to('{"account":' || account || ',"number":' || number || '}', 'UTF8')
            FROM account_counter WHERE account = ANY(\(accounts))
            """)
          _ = try await transaction.query("SELECT pg_sleep(\(pauses[1]))")
          if rollsBack { throw CancellationError() }
        }
      } catch is CancellationError where rollsBack {
        continue
      }
    }
  }

  /// Reads the feed until it has returned a number of events.
  private static func follow(
    _ ledger: Ledger, until isComplete: @Sendable ([Published]) async throws -> Bool
  ) async throws -> [Published] {
    var (published, cursor): ([Published], FeedCursor?) = ([], nil)
    while true {
      let limit = Int.random(in: 1...40)
      guard case .page(let page) = try await ledger.events.events(after: cursor, limit: limit)
      else {
        throw CancellationError()
      }
      for event in page.events {
        let match = try #require(event.firstMatch(of: /"account":(\d+),"number":(\d+)/))
        published.append(Published(account: Int(match.1) ?? 0, number: Int(match.2) ?? 0))
      }
      // Positions have no gaps.
      #expect(page.next.position - (cursor?.position ?? 0) == Int64(page.events.count))
      cursor = page.next
      if page.events.isEmpty, try await isComplete(published) { return published }
    }
  }

  @Test func `readers that follow many writers get every event once, in order`()
    async throws
  {
    try await withScratchDatabase { database in
      try await database.runScript(
        """
        CREATE TABLE account_counter (account bigint PRIMARY KEY, number bigint NOT NULL);
        INSERT INTO account_counter SELECT n, 0 FROM generate_series(0, \(Self.accounts - 1)) AS n
        """)
      let ledger = Ledger(database: database)
      let writing = Writing(Self.writers)
      let feeds = try await withThrowingTaskGroup(of: [Published]?.self) { group in
        for _ in 0..<Self.writers {
          group.addTask {
            var generator = SystemRandomNumberGenerator()
            try await Self.write(to: database, &generator)
            await writing.end()
            return nil
          }
        }
        for _ in 0..<3 {
          group.addTask {
            try await Self.follow(ledger) { published in
              guard await writing.isOver else { return false }
              let count = try await database.query("SELECT count(*) FROM tenure.event")
              return try published.count >= count.decodeOnly(Int.self)
            }
          }
        }
        return try await group.reduce(into: [[Published]]()) { $0 += $1.map { [$0] } ?? [] }
      }
      let written = try await database.query("SELECT account, number FROM account_counter")
        .decode(Int.self, Int.self)
      for published in feeds {
        for (account, last) in written {
          let numbers = published.filter { $0.account == account }.map(\.number)
          #expect(numbers == (0..<last).map { $0 + 1 })
        }
        #expect(published == feeds[0])
      }
    }
  }

  @Test func `places are given by one at a time, whatever is committed meanwhile`() async throws {
    @Sendable func write(_ id: Int64, to ledger: Ledger) async throws {
      try await ledger.database.execute(
        """
        INSERT INTO tenure.event (event_id, type, occurred_at, data) OVERRIDING SYSTEM VALUE
        VALUES (\(id), 'order.expired', \(start), '{}')
        """)
    }
    try await withLedger { ledger in
      try await write(1002, to: ledger)
      try await ledger.database.withTransaction(isolation: .readCommitted) { slow in
        _ = try await slow.batch(EventFeed.positioning)
        // An earlier transaction commits only now.
        try await write(1001, to: ledger)
        async let end = ledger.events.placeEvents()
        try await ledger.waitForALock()
        _ = try await slow.commit(with: [])
        #expect(try await end == 2)
      }
      let places = try await ledger.database.query(
        "SELECT event_id, position FROM tenure.event ORDER BY position"
      ).decode(Int64.self, Int64.self)
      #expect(places.map(\.0) == [1002, 1001])
      #expect(places.map(\.1) == [1, 2])
    }
  }

  private actor Writing {
    private var underWay: Int
    init(_ count: Int) { underWay = count }
    func end() { underWay -= 1 }
    var isOver: Bool { underWay == 0 }
  }

  // MARK: Reading

  private func write(_ count: Int, to ledger: Ledger, daysOld: Double = 0) async throws {
    _ = try await ledger.database.execute(
      """
      INSERT INTO tenure.event (type, occurred_at, data, stored_at)
      SELECT 'order.expired', \(start), '{}', now() - make_interval(secs => \(daysOld * 86_400))
      FROM generate_series(1, \(count))
      """)
  }

  private func page(_ ledger: Ledger, after cursor: Int64? = nil, limit: Int = 100) async throws
    -> FeedPage?
  {
    if case .page(let page) = try await ledger.events.events(
      after: cursor.map { FeedCursor(position: $0) }, limit: limit)
    {
      page
    } else {
      nil
    }
  }

  @Test func `the feed is read on page by page`() async throws {
    try await withLedger { ledger in
      #expect(try await page(ledger)?.next.position == 0)
      try await write(5, to: ledger)
      let first = try #require(try await page(ledger, limit: 2))
      #expect(first.events.count == 2)
      #expect(first.next.position == 2)
      let rest = try #require(try await page(ledger, after: first.next.position))
      #expect(rest.events.count == 3)
      #expect(rest.next.position == 5)
      #expect(Set(first.events + rest.events).count == 5)
      #expect(try await page(ledger, after: 5)?.next.position == 5)
      try await write(1, to: ledger)
      #expect(try await page(ledger, after: 5)?.next.position == 6)
    }
  }

  @Test func `an event is published under the account's own name, or a pseudonym`() async throws {
    try await withLedger { ledger in
      let account = try await ledger.accounts.findOrCreateAccount("a \"quoted\" name", at: start)
      _ = try await ledger.database.execute(
        """
        INSERT INTO tenure.event (type, occurred_at, account_key, data)
        VALUES ('order.expired', \(start + .milliseconds(7)), \(account.key), '{"x":1}')
        """)
      let id = try await ledger.database.query("SELECT event_id FROM tenure.event")
        .decodeOnly(Int64.self)
      func published(_ name: String) -> String {
        """
        {"id":"\(id)","type":"order.expired","occurred_at":"2026-01-01T00:00:00.007Z",\
        "account_id":\(name),"data":{"x":1}}
        """
      }
      #expect(try await page(ledger)?.events == [published(#""a \"quoted\" name""#)])
      _ = try await ledger.database.execute(
        "UPDATE tenure.account_by_key SET account_id = 'erased-1', erased_at = now()")
      #expect(try await page(ledger)?.events == [published("\"erased-1\"")])
    }
  }

  @Test func `a cursor from a feed that went further is of no use`() async throws {
    try await withLedger { ledger in
      try await write(3, to: ledger)
      #expect(try await page(ledger, after: 3) != nil)
      #expect(try await page(ledger, after: 4) == nil)
    }
  }

  // swift-format-ignore
  @Test(arguments: [
    // text                   position        stored
    ("0",                     0,              nil),
    ("81200-gs1hnx8pxc",      81_200,         1_704_067_200_123_456),
    ("9223372036854775807-0", Int64.max,      0),
  ] as [(String, Int64, Int64?)])
  func `a cursor is a text`(text: String, position: Int64, storedAt: Int64?) {
    let cursor = FeedCursor(text)
    #expect(cursor?.position == position)
    #expect((cursor?.storedAt == nil) == (storedAt == nil))
    #expect(cursor?.text == text)
  }

  @Test(arguments: [
    "", "81200", "-", "1-", "-1", "+1", "1-+1", "1--1", "1-a-b", "1-!", "x", "9223372036854775808",
  ])
  func `and nothing else is one`(text: String) {
    #expect(FeedCursor(text) == nil)
  }

  /// A reader may have a cursor from after the backup.
  @Test func `a cursor of another history is known as such, even when places are given again`()
    async throws
  {
    try await withLedger { ledger in
      try await write(4, to: ledger)
      let cursor = try #require(try await page(ledger)).next
      #expect(cursor.position == 4)
      // The backup has two events; others are written afterwards.
      _ = try await ledger.database.execute("DELETE FROM tenure.event WHERE position > 2")
      #expect(try await ledger.events.events(after: cursor, limit: 10) == .cursorUnknown)
      try await write(6, to: ledger)
      #expect(try await ledger.events.events(after: cursor, limit: 10) == .cursorUnknown)
      let own = try #require(try await page(ledger)).next
      #expect(
        try await ledger.events.events(after: own, limit: 10) == .page(.init(events: [], next: own))
      )

      // The same after the event was pruned, because the last pruned one is noted.
      _ = try await ledger.database.execute(
        "UPDATE tenure.event SET stored_at = '2020-01-01' WHERE position <= 4")
      try await pruneEvents(ledger)
      #expect(try await ledger.events.events(after: cursor, limit: 10) == .cursorUnknown)
    }
  }

  // MARK: Pruning

  private func trimming(_ ledger: Ledger) async throws -> Job {
    _ = try await ledger.database.execute(Job.insert(.pruneEvents, runAt: start, at: start))
    _ = try await ledger.database.execute("UPDATE tenure.job SET run_at = \(start)")
    return try #require(
      try await ledger.jobs.claimJobs(
        limits: [.maintenance: 1], worker: "a", at: start, lease: .seconds(60)
      ).first)
  }

  private func pruneEvents(_ ledger: Ledger, days: Int = 30) async throws {
    try await ledger.maintenance.pruneEvents(
      try await trimming(ledger), olderThan: .days(days), every: .hours(1), at: start)
  }

  private func places(_ ledger: Ledger) async throws -> [Int64] {
    try await ledger.database.query(
      "SELECT position FROM tenure.event WHERE position > 0 ORDER BY position"
    ).decode(Int64.self).map(\.self)
  }

  @Test func `positions are given without an update of the feed's row`() async throws {
    try await withLedger { ledger in
      func version() async throws -> String {
        try await ledger.database.query("SELECT ctid::text FROM tenure.feed").decodeOnly(
          String.self)
      }
      #expect(try await ledger.webhooks.pushEvents(at: start) == 0)
      let first = try await version()
      for round in 1...3 as ClosedRange<Int64> {
        try await write(5, to: ledger)
        #expect(try await ledger.events.placeEvents() == round * 5)
      }
      #expect(try await version() == first)
      // All of them are queued for the webhook by one.
      #expect(try await ledger.webhooks.pushEvents(at: start) == 15)
      let second = try await version()
      #expect(second != first)
      #expect(try await ledger.webhooks.pushEvents(at: start) == 0)
      #expect(try await version() == second)
    }
  }

  @Test func `a reader does not wait for writers`() async throws {
    try await withLedger { ledger in
      try await write(1, to: ledger)
      // Another event is written whenever positions are assigned.
      try await ledger.database.runScript(
        """
        CREATE FUNCTION tenure.write_another() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          INSERT INTO tenure.event (type, occurred_at, data) VALUES ('order.expired', now(), '{}');
          RETURN NULL;
        END $$
        """)
      try await ledger.database.runScript(
        """
        CREATE TRIGGER another AFTER UPDATE OF position ON tenure.event
        EXECUTE FUNCTION tenure.write_another()
        """)
      #expect(try await ledger.events.placeEvents() == 1)
      #expect(try await ledger.events.placeEvents() == 2)
    }
  }

  @Test func `what is older than the retention is forgotten, from the beginning on`() async throws {
    try await withLedger { ledger in
      try await write(3, to: ledger, daysOld: 31)
      try await write(2, to: ledger, daysOld: 29)
      // Its age counts from when it was stored.
      try await write(1, to: ledger, daysOld: 31)
      try await ledger.events.placeEvents()
      try await pruneEvents(ledger)
      #expect(try await places(ledger) == [4, 5, 6])
      #expect(try await page(ledger)?.events.count == 3)
      #expect(try await page(ledger, after: 3)?.next.position == 6)
      #expect(try await page(ledger, after: 2) == nil)
      let (runAt, isFree) = try await ledger.database.query(
        "SELECT run_at, locked_by IS NULL FROM tenure.job"
      ).decodeOnly(Timestamp.self, Bool.self)
      #expect(runAt == start + .hours(1))
      #expect(isFree)

      try await pruneEvents(ledger, days: 1)
      #expect(try await places(ledger) == [])
      #expect(try await page(ledger)?.next.position == 6)
      #expect(try await page(ledger, after: 5) == nil)
      try await write(1, to: ledger)
      #expect(try await page(ledger, after: 6)?.next.position == 7)
    }
  }

  @Test func `a feed of many batches is forgotten at once`() async throws {
    try await withLedger { ledger in
      try await write(11_000, to: ledger, daysOld: 31)
      try await ledger.events.placeEvents()
      // Pruning assigns positions, too, for feeds without readers.
      try await write(1, to: ledger, daysOld: 31)
      try await pruneEvents(ledger)
      let count = try await ledger.database.query("SELECT count(*) FROM tenure.event")
      #expect(try count.decodeOnly(Int.self) == 0)
      #expect(try await page(ledger)?.next.position == 11_001)
    }
  }

  @Test func `what webhooks are still to deliver stays, and what they gave up does not`()
    async throws
  {
    try await withLedger { ledger in
      try await write(6, to: ledger, daysOld: 31)
      try await ledger.events.placeEvents()
      // The second waits, the third was given up, and the last two have no delivery yet.
      _ = try await ledger.database.execute(
        """
        INSERT INTO tenure.webhook_delivery
          (event_id, stream, position, due_since, parked_at, last_error)
        SELECT event_id, 'x', position, now(), CASE WHEN position = 3 THEN now() END,
          CASE WHEN position = 3 THEN 'down' END
        FROM tenure.event WHERE position IN (2, 3)
        """)
      _ = try await ledger.database.execute("UPDATE tenure.feed SET pushed_to = 4")
      try await pruneEvents(ledger)
      #expect(try await places(ledger) == [2, 5, 6])
      #expect(try await page(ledger)?.events.count == 2)
      #expect(try await page(ledger, after: 1) == nil)

      // Delivered, and webhooks turned off: nothing is kept forever.
      _ = try await ledger.database.execute("DELETE FROM tenure.webhook_delivery")
      try await pruneEvents(ledger, days: 28)
      #expect(try await places(ledger) == [])
    }
  }

  @Test func `what is pushed again while the feed is trimmed keeps its event`() async throws {
    try await withLedger { ledger in
      try await write(1, to: ledger, daysOld: 31)
      try await ledger.events.placeEvents()
      let event = try await ledger.database.query("SELECT event_id FROM tenure.event")
        .decodeOnly(Int64.self)
      _ = try await ledger.database.execute(
        """
        INSERT INTO tenure.webhook_delivery
          (event_id, stream, position, due_since, parked_at, last_error)
        VALUES (\(event), 'x', 1, now(), now(), 'down')
        """)
      _ = try await ledger.database.execute("UPDATE tenure.feed SET pushed_to = 1")
      let job = try await trimming(ledger)
      // On a separate pool, so that no query waits behind this transaction.
      let other = Ledger(
        database: ConnectionPool(
          configuration: ledger.database.configuration,
          logger: Logger(label: "other", factory: { _ in SwiftLogNoOpLogHandler() })))
      let trimming = try await other.database.withTransaction { transaction in
        _ = try await transaction.query(
          "UPDATE tenure.webhook_delivery SET parked_at = NULL, last_error = NULL")
        let trimming = Task {
          try await ledger.maintenance.pruneEvents(
            job, olderThan: .days(30), every: .hours(1), at: start)
        }
        try await other.waitForALock()
        return trimming
      }
      await other.database.close()
      // The job is retried later.
      await #expect(throws: PostgresError.self) { try await trimming.value }
      #expect(try await places(ledger) == [1])
      let left = try await ledger.database.query("SELECT event_id FROM tenure.webhook_delivery")
      #expect(try left.decodeOnly(Int64.self) == event)
    }
  }
}
