import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import Intake
import JSONText
import LedgerStorage
import Postgres
import Subscriptions
import Testing

@testable import HTTPAPI

/// Notifications that never arrived, found in Apple's history.
struct NotificationComparisonTests {
  private static let bundleID = SimulatedApp.sample.bundleID

  /// Weekly subscribers, and a server that gets Apple's notifications.
  private func beginLife(_ api: TestAPI, subscribers: Int) async throws {
    try await api.describe("news.weekly", "news")
    try api.apple.simulation.setNotificationTargets([
      NotificationTarget(.v2, url: "http://127.0.0.1/v1/appstore/notifications")
    ])
    for number in 0..<subscribers {
      try api.addCustomer("customer\(number)")
      _ = try api.apple.simulation.buy("news.weekly", on: DeviceID("customer\(number)"))
    }
  }

  /// Delivers the notifications after a number; returns the latest number.
  private func deliver(_ api: TestAPI, after number: Int = 0) async throws -> Int {
    let mail = api.apple.simulation.notifications(after: number)
    for notification in mail {
      let answer = try await api.send(
        .post, "/v1/appstore/notifications", notification.body, as: .anonymous)
      try #require(answer.status == 200)
    }
    return number + mail.count
  }

  @Test func `a lost week is found, each notification once, and how late it is`() async throws {
    try await TestAPI.run { api in
      let simulation = api.apple.simulation
      try await beginLife(api, subscribers: 25)
      simulation.advance(by: .days(8))
      let delivered = try await deliver(api)
      #expect(delivered >= 50)
      simulation.advance(by: .minutes(2))
      let before = try await api.compareAll()
      #expect(before.map(\.missing).reduce(0, +) == 0)
      // Notifications in two overlapping windows are listed twice.
      #expect(before.map(\.listed).reduce(0, +) >= delivered)
      #expect(before.first.map { simulation.now - $0.windowStart } == .days(180) - .hours(1))
      #expect(before.last?.windowEnd == simulation.now - .minutes(1))

      // A week is lost, and a day on which an operator learns that it is.
      simulation.advance(by: .days(7))
      let lost = simulation.notifications(after: delivered)
      #expect(lost.count >= 25)
      let first = try #require(lost.map(\.at).min())
      let entries = try await api.count("ledger_entry")
      simulation.advance(by: .hours(12))
      let after = try await api.compareAll()
      #expect(after.map(\.missing).reduce(0, +) == lost.count)
      #expect(after.compactMap(\.firstMissingAt).min() == first)
      #expect(after.compactMap(\.longestDelay).max() == simulation.now - first)
      #expect(after.map(\.refused).allSatisfy { $0 == 0 })

      // They went through the same funnel.
      #expect(try await api.count("notification", where: "arrival = 'history'") == lost.count)
      #expect(try await api.count("notification") == delivered + lost.count)
      #expect(try await api.count("notification", where: "outcome IS NULL") == 0)
      #expect(try await api.count("job", where: "kind = 'process_notification'") == 0)
      #expect(try await api.count("ledger_entry") >= entries + 25)
      #expect(try await api.ledger.auditor.audit().differences.map(\.description) == [])

      // Apple delivers one of them after all, and nothing is missing any more.
      let recorded = try await api.count("ledger_entry")
      _ = try await deliver(api, after: delivered)
      #expect(try await api.count("notification") == delivered + lost.count)
      #expect(try await api.count("notification", where: "arrival = 'history'") == lost.count)
      simulation.advance(by: .minutes(2))
      let again = try await api.compareAll()
      #expect(again.count == 1)
      #expect(again.map(\.missing) == [0])
      #expect(try await api.count("ledger_entry") == recorded)

      // The report contains all of it.
      let report = try await api.get("/v1/reports/intake", as: .admin)
      let missed = report["rows"]?.array?.filter { $0["measure"] == "notifications_missed" } ?? []
      #expect(
        missed.compactMap { $0["number"]?.integer }.reduce(0, +) == Int64(lost.count))
      #expect(
        missed.compactMap { $0["longest_delay_ms"]?.integer }.max()
          == after.compactMap(\.longestDelay).max()?.inMilliseconds)
    }
  }

  @Test func `what is on its way is not missing yet, and is the next time`() async throws {
    try await TestAPI.run { api in
      try await beginLife(api, subscribers: 1)
      api.apple.simulation.advance(by: .seconds(30))
      #expect(try await api.compareAll().map(\.listed).reduce(0, +) == 0)
      #expect(try await api.count("notification") == 0)
      api.apple.simulation.advance(by: .hours(24))
      #expect(try await api.compareAll().map(\.missing) == [1])
    }
  }

  @Test func `each app and environment is compared on its own`() async throws {
    try await TestAPI.run { api in
      try await beginLife(api, subscribers: 2)
      try api.addCustomer("ted", environment: .sandbox)
      _ = try api.apple.simulation.buy("news.weekly", on: "ted")
      api.apple.simulation.advance(by: .minutes(2))
      let sandbox = try await api.compareAll(.sandbox)
      #expect(sandbox.map(\.missing).reduce(0, +) == 1)
      #expect(
        sandbox.first.map { api.apple.simulation.now - $0.windowStart } == .days(30) - .hours(1))
      #expect(try await api.count("notification", where: "environment = 'sandbox'") == 1)
      #expect(try await api.compareAll(.production).map(\.missing).reduce(0, +) == 2)
    }
  }

  @Test func `a page token that expires begins the list anew`() async throws {
    try await TestAPI.run { api in
      try await beginLife(api, subscribers: 45)
      api.apple.simulation.advance(by: .minutes(2))
      // Some windows of the past are empty; the last one has three pages.
      let windows = try await api.emptyWindows()
      api.apple.simulation.setServerFaults {
        $0.next = Array(repeating: .slow(milliseconds: 0), count: windows + 2)
        $0.next += [.serverError(4_000_017), .slow(milliseconds: 0), .serverError(4_000_017)]
      }
      let compared = try await api.compareAll()
      #expect(compared.last?.listed == 45)
      #expect(compared.last?.missing == 45)
      #expect(try await api.count("notification") == 45)

      // An error that persists fails the comparison.
      api.apple.simulation.advance(by: .hours(1))
      api.apple.simulation.setServerFaults {
        $0.next = Array(repeating: .serverError(4_000_017), count: 3)
      }
      guard case .failed(let reason, _) = try await api.compare() else {
        Issue.record("It did not fail.")
        return
      }
      #expect(reason.contains("4000017"))
    }
  }

  @Test func `where Apple fails halfway, what was found counts when it is done again`()
    async throws
  {
    try await TestAPI.run { api in
      try await beginLife(api, subscribers: 45)
      api.apple.simulation.advance(by: .minutes(2))
      let windows = try await api.emptyWindows()
      api.apple.simulation.setServerFaults {
        $0.next = Array(repeating: .slow(milliseconds: 0), count: windows + 1) + [.unavailable]
      }
      for _ in 0..<windows { _ = try await api.compare() }
      // Without a pause, the findings would belong to the comparison before.
      api.apple.simulation.advance(by: .seconds(1))
      guard case .failed(_, notBefore: nil) = try await api.compare() else {
        Issue.record("It did not fail, or Apple wished for something.")
        return
      }
      #expect(try await api.count("notification", where: "arrival = 'history'") == 20)
      #expect(try await api.count("notification_history_check", where: "missing > 0") == 0)

      api.apple.simulation.advance(by: .minutes(2))
      let compared = try await api.compareAll()
      #expect(compared.map(\.missing) == [45])
      #expect(compared.first?.longestDelay == .minutes(4) + .seconds(1))
      #expect(try await api.count("notification") == 45)
    }
  }

  @Test func `an app without an address for notifications misses none`() async throws {
    try await TestAPI.run { api in
      api.apple.simulation.setServerFaults { $0.next = [.serverError(4_040_007)] }
      guard case .nothing = try await api.compare() else {
        Issue.record("It is something.")
        return
      }
      #expect(try await api.count("notification_history_check") == 0)
      let next = try await api.database.query("SELECT run_at FROM tenure.job")
        .decodeOnly(Timestamp.self)
      #expect(next == api.apple.simulation.now + .hours(24))
    }
  }

  @Test func `what Apple did not sign is refused, and counted`() async throws {
    try await TestAPI.run { api in
      let stranger = try SimulatedSigner()
      let forged = stranger.sign(["notificationType": "DID_RENEW"])
      let page: JSONValue = [
        "hasMore": false,
        "notificationHistory": [["signedPayload": .string(forged), "sendAttempts": []]],
      ]
      api.apple.answerServerAPI(with: ["/inApps/v1/notifications/history": page.bytes])
      guard case .recorded(let comparison) = try await api.compare() else {
        Issue.record("It is not recorded.")
        return
      }
      #expect(comparison.listed == 1)
      #expect(comparison.refused == 1)
      #expect(comparison.missing == 0)
      #expect(try await api.count("notification") == 0)
    }
  }

  @Test func `a clock that went back compares nothing`() async throws {
    try await TestAPI.run { api in
      _ = try await api.compareAll()
      try await api.database.execute(
        """
        UPDATE tenure.notification_history_check
        SET window_start = '2099-01-01', window_end = '2099-01-02'
        """)
      guard case .nothing = try await api.compare() else {
        Issue.record("It is something.")
        return
      }
    }
  }
}

extension TestAPI {
  /// Compares once, as a worker does that has claimed the job.
  fileprivate func compare(
    _ environment: Subscriptions.Environment = .production
  ) async throws -> NotificationIntake.Compared {
    let (bundleID, now) = (SimulatedApp.sample.bundleID, apple.simulation.now)
    try await ledger.notifications.scheduleComparison(
      bundleID: bundleID, environment: environment, at: now)
    let key = Job.Key.compareNotifications(bundleID: bundleID, environment)
    let jobs = try await ledger.jobs.claimJobs(
      limits: [.maintenance: 100], worker: "w", at: now, lease: .seconds(1))
    let job = try #require(jobs.first { $0.key == key })
    let compared = try await api.notifications.compare(
      job, bundleID: bundleID, environment: environment, every: .hours(24))
    if case .failed(let reason, let notBefore) = compared {
      try await ledger.jobs.release(job, until: notBefore ?? now, because: reason)
    }
    return compared
  }

  /// Compares until there is nothing left to compare.
  fileprivate func compareAll(
    _ environment: Subscriptions.Environment = .production
  ) async throws -> [NotificationComparison] {
    var all: [NotificationComparison] = []
    while true {
      guard case .recorded(let comparison) = try await compare(environment) else {
        Issue.record("It is not recorded.")
        return all
      }
      all.append(comparison)
      let next = try await database.query(
        """
        SELECT run_at FROM tenure.job
        WHERE kind = 'compare_notifications' AND subject LIKE \(environment.rawValue + "/%")
        """
      ).decodeOnly(Timestamp.self)
      if next > apple.simulation.now { return all }
    }
  }

  /// How many comparisons of the first ones find nothing: all but the last one.
  fileprivate func emptyWindows() async throws -> Int {
    let (all, window) = (Duration.days(180) - .hours(1) - .minutes(1), Duration.days(7))
    // Each window goes seven days beyond the last, and overlaps by an hour.
    return Int((all / window).rounded(.up)) - 1
  }
}
