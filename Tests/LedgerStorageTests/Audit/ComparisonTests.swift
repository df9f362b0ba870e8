import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Comparing Apple's notification history with the inbox")
struct ComparisonTests {
  private static let app = "com.example.app"
  private static let histories = [(bundleID: app, environment: Environment.production)]

  private func claim(_ ledger: Ledger, on date: Double) async throws -> Job? {
    try await ledger.jobs.claimJobs(
      limits: [.maintenance: 1], worker: "w", at: day(date), lease: .minutes(1)
    ).first
  }

  private func due(_ ledger: Ledger) async throws -> Timestamp? {
    try await ledger.database.query("SELECT run_at FROM tenure.job").decodeOnly(Timestamp?.self)
  }

  private func found(_ id: String, signedOn signed: Double, on date: Double) -> NewNotification {
    NewNotification(
      id: id, version: .two, receivedAt: day(date), arrival: .history, body: "a.b.c",
      environment: .production, bundleID: Self.app, signedAt: day(signed))
  }

  @Test("it is done at the asked time at the latest, and once more if it is under way")
  func schedules() async throws {
    try await withLedger { ledger in
      func schedule(_ date: Double) async throws {
        try await ledger.notifications.scheduleComparison(
          bundleID: Self.app, environment: .production, at: day(date))
      }
      try await schedule(5)
      #expect(try await due(ledger) == day(5))
      try await schedule(6)
      #expect(try await due(ledger) == day(5))
      try await schedule(4)
      #expect(try await due(ledger) == day(4))
      let job = try #require(try await claim(ledger, on: 4))
      #expect(job.key == .compareNotifications(bundleID: Self.app, .production))
      try await schedule(4.5)
      // The comparison requested during the job is still due.
      try await ledger.jobs.repeat(job, at: day(9), now: day(4.6))
      #expect(try await due(ledger) == day(4.5))
      let again = try #require(try await claim(ledger, on: 4.6))
      try await ledger.jobs.repeat(again, at: day(9), now: day(4.7))
      #expect(try await due(ledger) == day(9))
      #expect(try await claim(ledger, on: 8.9) == nil)
    }
  }

  @Test("what was given up is started again when it is asked for")
  func parked() async throws {
    try await withLedger { ledger in
      try await ledger.notifications.scheduleComparison(
        bundleID: Self.app, environment: .production, at: day(1))
      let job = try #require(try await claim(ledger, on: 1))
      #expect(try await ledger.jobs.discard(job, because: "No key.", at: day(1)))
      #expect(try await claim(ledger, on: 2) == nil)
      try await ledger.notifications.scheduleComparison(
        bundleID: Self.app, environment: .production, at: day(3))
      #expect(try await claim(ledger, on: 3)?.createdAt == day(3))
    }
  }

  // swift-format-ignore
  @Test("a server that comes after a pause has the history read", arguments: [
    // the last beat, minutes before   is late
    (nil,                              true),
    (0.5,                              false),
    (5,                                false),
    (5.1,                              true),
    (60 * 24 * 7,                      true),
    // Another server, whose clock is ahead.
    (-1,                               false),
  ] as [(Double?, Bool)])
  func beats(before minutes: Double?, isLate: Bool) async throws {
    try await withLedger { ledger in
      let now = day(10)
      if let minutes {
        let last = now - .milliseconds(Int64(minutes * 60_000))
        _ = try await ledger.notifications.beat(at: last, longestPause: .minutes(5), histories: [])
      }
      let (last, wasLate) = try await ledger.notifications.beat(
        at: now, longestPause: .minutes(5), histories: Self.histories)
      #expect((last == nil) == (minutes == nil))
      #expect(wasLate == isLate)
      let job = try await claim(ledger, on: 10)
      #expect((job != nil) == isLate)
      // It beats on: nothing was missed.
      let (_, again) = try await ledger.notifications.beat(
        at: now + .seconds(30), longestPause: .minutes(5), histories: Self.histories)
      #expect(!again)
    }
  }

  @Test("an earlier beat of a slow clock sets nothing back")
  func neverBack() async throws {
    try await withLedger { ledger in
      _ = try await ledger.notifications.beat(at: day(2), longestPause: .minutes(5), histories: [])
      _ = try await ledger.notifications.beat(at: day(1), longestPause: .minutes(5), histories: [])
      let (last, _) = try await ledger.notifications.beat(
        at: day(2), longestPause: .minutes(5), histories: [])
      #expect(last == day(2))
    }
  }

  @Test("notifications missing from the inbox are reported")
  func missing() async throws {
    try await withLedger { ledger in
      _ = try await ledger.notifications.store(found("n1", signedOn: 1, on: 2), processAt: nil)
      #expect(try await ledger.notifications.missingNotifications(among: ["n1", "n2"]) == ["n2"])
      #expect(try await ledger.notifications.missingNotifications(among: []) == [])
      let arrivals = try await ledger.database.query("SELECT arrival FROM tenure.notification")
        .decode(String.self)
      #expect(arrivals == ["history"])
    }
  }

  private func comparison(_ start: Double, _ end: Double, on date: Double, listed: Int)
    -> NotificationComparison
  {
    var comparison = NotificationComparison(
      bundleID: Self.app, environment: .production, windowStart: day(start), windowEnd: day(end),
      comparedAt: day(date))
    comparison.listed = listed
    return comparison
  }

  @Test("what a killed worker had found counts in the comparison that follows, and only there")
  func counts() async throws {
    try await withLedger { ledger in
      try await ledger.notifications.scheduleComparison(
        bundleID: Self.app, environment: .production, at: day(8))
      #expect(
        try await ledger.notifications.lastComparisonEnd(
          bundleID: Self.app, environment: .production) == nil)
      // One worker found n1 and died; the next one finds n2. Of n3 Apple does not say when.
      _ = try await ledger.notifications.store(found("n1", signedOn: 1, on: 8), processAt: nil)
      _ = try await ledger.notifications.store(found("n2", signedOn: 2, on: 8.1), processAt: nil)
      var other = found("n3", signedOn: 1, on: 8.1)
      other.environment = .sandbox
      _ = try await ledger.notifications.store(other, processAt: nil)
      var first = comparison(0, 8, on: 8.2, listed: 5)
      first.addMissing(signedAt: day(2), foundAt: day(8.1))
      let job = try #require(try await claim(ledger, on: 8))
      let recorded = try await ledger.notifications.record(first, by: job, next: day(9))
      #expect(recorded.missing == 2)
      #expect(recorded.firstMissingAt == day(1))
      #expect(recorded.longestDelay == .days(7))
      #expect(try await due(ledger) == day(9))
      #expect(
        try await ledger.notifications.lastComparisonEnd(
          bundleID: Self.app, environment: .production) == day(8))

      let next = try #require(try await claim(ledger, on: 9))
      let second = try await ledger.notifications.record(
        comparison(7, 9, on: 9, listed: 3), by: next, next: day(10))
      #expect(second.missing == 0)
      #expect(second.firstMissingAt == nil)
      #expect(second.longestDelay == nil)
      let recordedMissing = try await ledger.database.query(
        "SELECT missing FROM tenure.notification_history_check ORDER BY comparison_id DESC"
      ).decode(Int.self)
      #expect(recordedMissing == [0, 2])
    }
  }
}
