import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import JSONText
import LedgerStorage
import Postgres
import Secrets
import Subscriptions
import Testing

@testable import HTTPAPI
@testable import Intake

/// Polls as a worker runs them: each asks Apple and schedules the next.
struct PollJobTests {
  private static let bundleID = SimulatedApp.sample.bundleID

  /// A story without notifications.
  private struct Stage: Sendable {
    let api: TestAPI
    let poll: StatusPoller

    var simulation: AppStoreSimulation { api.apple.simulation }

    /// The time and priority of the next poll.
    func next() async throws -> (at: Timestamp, priority: Int)? {
      try await api.database.query(
        """
        SELECT run_at, priority FROM tenure.job WHERE kind = 'poll_status' ORDER BY run_at LIMIT 1
        """
      ).decodeFirst(Timestamp.self, Int.self).map { (at: $0, priority: $1) }
    }

    /// Runs due polls like a worker.
    func work() async throws -> [StatusPoller.Outcome] {
      let jobs = try await api.ledger.jobs.claimJobs(
        limits: [.polls: 10, .sandboxPolls: 10], worker: "w", at: simulation.now,
        lease: .seconds(60))
      var outcomes: [StatusPoller.Outcome] = []
      for job in jobs {
        let outcome = try await poll.poll(job)
        outcomes.append(outcome)
        switch outcome {
        case .polled, .passedOver: break
        case .over: try await api.ledger.jobs.complete(job)
        case .postponed(let reason, let notBefore):
          try await api.ledger.jobs.release(
            job, until: notBefore ?? simulation.now + .minutes(1), because: reason)
        case .failed(let reason, let notBefore):
          try await api.ledger.jobs.release(job, until: notBefore, because: reason)
        }
      }
      return outcomes
    }

    /// Advances the clock and runs each poll at its time.
    @discardableResult
    func live(days: Double) async throws -> [StatusPoller.Outcome] {
      let end = simulation.now + .milliseconds(Int64(days * 86_400_000))
      var outcomes: [StatusPoller.Outcome] = []
      while let next = try await next(), next.at <= end {
        simulation.advance(to: max(next.at, simulation.now))
        outcomes += try await work()
      }
      simulation.advance(to: end)
      return outcomes
    }

    func state(_ bought: SimulatedEvent) async throws -> String {
      try await api.state(of: bought.originalTransactionID.rawValue)
    }

    func charges(_ bought: SimulatedEvent) async throws -> Int {
      let line = OriginalTransactionKey(.production, bought.originalTransactionID)
      return try await api.ledger.ownership.original(of: line)?.rule.charges.count ?? 0
    }
  }

  /// Runs a story; `byReceipt` has no key for the App Store Server API.
  private func withStage(
    byReceipt: Bool = false, servesApp: Bool = true,
    _ test: @escaping @Sendable (Stage) async throws -> Void
  ) async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.describe("coins.100", "coins", type: .consumable)
      try api.addCustomer("anna")
      guard byReceipt || !servesApp else { return try await test(Stage(api: api, poll: api.poll)) }
      let clock = api.apple.simulation.clock
      let app = SimulatedApp.sample
      let apps = try AppStoreApps([
        servesApp
          ? AppStoreApp(bundleID: app.bundleID, sharedSecret: Secret(app.sharedSecret))
          : AppStoreApp(bundleID: "com.example.other")
      ])
      let receipts = ReceiptVerifier(
        transport: api.apple, apps: apps, timeout: .seconds(10), logger: quietLogger,
        now: { clock.now })
      var services = api.intake.services
      (services.serverAPI, services.apps, services.receipts) = (nil, apps, receipts)
      let poll = StatusPoller(services)
      try await test(Stage(api: api, poll: poll))
    }
  }

  // MARK: Lives

  @Test(arguments: [false, true])
  func `a subscription lives a year on polls alone`(byReceipt: Bool) async throws {
    try await withStage(byReceipt: byReceipt) { stage in
      let bought = try stage.simulation.buy("monthly", on: "anna")
      _ = try await stage.api.submit("anna", from: "anna")
      let outcomes = try await stage.live(days: 366)
      #expect(try await stage.charges(bought) == 13)
      #expect(try await stage.state(bought) == "anna, active, on, until 396, access")
      // Two for each month: before the charge, and at the end.
      #expect((24...26).contains(outcomes.count), "\(outcomes.count)")
      // Signed data contain more about the first charge than the receipt did.
      let newer = outcomes.count(where: { $0 == .polled(isChanged: true) })
      #expect(newer == (byReceipt ? 12 : 13))
      #expect(try await stage.api.ledger.auditor.audit().differences.map(\.description) == [])
    }
  }

  @Test(arguments: [false, true])
  func `what was imported is confirmed, and lives on by the rule`(byReceipt: Bool) async throws {
    try await withStage(byReceipt: byReceipt) { stage in
      let bought = try stage.simulation.buy("monthly", on: "anna")
      let verdicts = try await stage.api.ledger.imports.importOwners(
        [
          ImportedOwner(
            line: OriginalTransactionKey(.production, bought.originalTransactionID),
            accountID: "anna",
            asOf: stage.simulation.now,
            receipt: byReceipt ? try stage.simulation.receipt(on: "anna") : nil)
        ], from: "owners.csv",
        terms: AccessTerms(catalogue: try await stage.api.ledger.products.catalogue()),
        at: stage.simulation.now)
      #expect(verdicts == [.recorded])
      #expect(try await stage.work() == [.polled(isChanged: true)])
      #expect(try await stage.api.ledger.exports.importProgress().verified == 1)
      stage.simulation.advance(by: .hours(1))
      let confirmed = try await stage.state(bought)
      #expect(confirmed.hasPrefix("anna, active, on"), "\(confirmed)")
      try await stage.live(days: 40)
      #expect(try await stage.charges(bought) == 2)
      let renewed = try await stage.state(bought)
      #expect(renewed.hasPrefix("anna, active, on"), "\(renewed)")
      #expect(try await stage.api.ledger.auditor.audit().differences.map(\.description) == [])
    }
  }

  @Test(arguments: [false, true])
  func `what was imported and Apple does not know is given up with the reason`(
    byReceipt: Bool
  ) async throws {
    try await withStage(byReceipt: byReceipt) { stage in
      _ = try await stage.api.ledger.imports.importOwners(
        [
          ImportedOwner(
            line: OriginalTransactionKey(.production, "999999999"), accountID: "anna",
            asOf: stage.simulation.now)
        ], from: "owners.csv",
        terms: AccessTerms(catalogue: try await stage.api.ledger.products.catalogue()),
        at: stage.simulation.now)
      guard case .passedOver(let reason) = try await stage.work().first else {
        Issue.record("it is not passed over")
        return
      }
      #expect(try await stage.api.ledger.exports.importProgress().unverifiable == 1)
      let listed = try await stage.api.ledger.exports.page(of: .unverified).rows
      #expect(listed.map(\.last) == [reason])
      #expect(try await stage.work() == [])
    }
  }

  @Test(arguments: [false, true])
  func `that auto-renew is off is seen before the next charge, and who buys then`(
    byReceipt: Bool
  ) async throws {
    try await withStage(byReceipt: byReceipt) { stage in
      let bought = try stage.simulation.buy("monthly", on: "anna")
      _ = try await stage.api.submit("anna", from: "anna")
      try await stage.live(days: 20)
      try stage.simulation.setAutoRenew(false, bought.originalTransactionID)
      #expect(try await stage.state(bought).hasPrefix("anna, active, on"))
      try await stage.live(days: 10)
      #expect(try await stage.state(bought).hasPrefix("anna, active, off"))
      // The end, and then quiet looks, up to the last.
      let quiet = try await stage.live(days: 500)
      #expect((4...7).contains(quiet.count), "\(quiet.count)")
      #expect(try await stage.next() == nil)
      #expect(try await stage.state(bought) == "anna, expired, off, until 31, no access")

      // The customer buys again, and polling starts again.
      _ = try stage.simulation.buy("monthly", on: "anna")
      _ = try await stage.api.submit("berta", from: "anna")
      try await stage.live(days: 40)
      #expect(try await stage.state(bought).hasPrefix("berta, active, on"))
      #expect(try await stage.charges(bought) == 3)
    }
  }

  @Test(arguments: [false, true])
  func `grace, billing retry and recovery are found in growing gaps`(byReceipt: Bool)
    async throws
  {
    try await withStage(byReceipt: byReceipt) { stage in
      let bought = try stage.simulation.buy("monthly", on: "anna")
      _ = try await stage.api.submit("anna", from: "anna")
      try stage.simulation.failCard(of: "anna")
      try await stage.live(days: 31.5)
      #expect(try await stage.state(bought).hasPrefix("anna, in_grace_period, on"))
      let grace = try await stage.live(days: 16)
      #expect((18...32).contains(grace.count), "\(grace.count)")
      #expect(try await stage.state(bought).hasPrefix("anna, in_billing_retry"))
      let retry = try await stage.live(days: 10)
      #expect((9...12).contains(retry.count), "\(retry.count)")
      try stage.simulation.repairCard(of: "anna")
      let recovered = try await stage.live(days: 2)
      #expect(recovered.contains(.polled(isChanged: true)))
      #expect(try await stage.state(bought).hasPrefix("anna, active, on"))
      #expect(try await stage.charges(bought) == 2)
    }
  }

  @Test func `an original transaction without any evidence is given up in the end`() async throws {
    try await withStage { stage in
      let bought = try stage.simulation.buy("monthly", on: "anna")
      _ = try await stage.api.submit("anna", from: "anna")
      try stage.simulation.failCard(of: "anna")
      let outcomes = try await stage.live(days: 600)
      #expect(outcomes.count < 130, "\(outcomes.count)")
      #expect(try await stage.next() == nil)
      #expect(try await stage.state(bought).hasPrefix("anna, expired"))
    }
  }

  @Test func `a refund of what does not renew is found without notifications`() async throws {
    try await withStage { stage in
      let coins = try stage.simulation.buy("coins.100", on: "anna")
      _ = try await stage.api.submit("anna", from: "anna")
      let line = OriginalTransactionKey(.production, coins.originalTransactionID)
      #expect(try await stage.next()?.priority == 2)
      try await stage.live(days: 3)
      try stage.simulation.refund(coins.transactionID)
      #expect(
        try await stage.api.ledger.ownership.original(of: line)?.rule.charges[0].revocation == nil)
      try await stage.live(days: 8)
      #expect(
        try await stage.api.ledger.ownership.original(of: line)?.rule.charges[0].revocation != nil)
      #expect(try await stage.next() == nil)
      let asked = try await stage.api.ledger.polls.historyRevision(of: line, in: .refunds)
      #expect(asked != nil)
    }
  }

  @Test func `where notifications arrive, refunds are not polled for`() async throws {
    try await withStage { stage in
      _ = try stage.simulation.buy("coins.100", on: "anna")
      _ = try await stage.api.submit("anna", from: "anna")
      _ = try await Ledger(database: stage.api.database).notifications.store(
        NewNotification(
          id: "n", version: .two, receivedAt: stage.simulation.now, body: "a.b.c",
          environment: .production),
        processAt: nil)
      #expect(try await stage.live(days: 3) == [.over])
      #expect(try await stage.next() == nil)
    }
  }

  // MARK: Trouble

  @Test func `while Apple is away a poll waits, for as long as Apple asks`() async throws {
    try await withStage { stage in
      let bought = try stage.simulation.buy("monthly", on: "anna")
      _ = try await stage.api.submit("anna", from: "anna")
      stage.api.apple.setDown(true)
      let first = try #require(try await stage.next()).at
      stage.simulation.advance(to: first)
      guard case .postponed(let reason, nil) = try await stage.work().first else {
        Issue.record("It is not postponed.")
        return
      }
      #expect(reason.contains("the test said so"))
      #expect(try await stage.api.count("job", where: "last_error LIKE '%said so%'") == 1)
      stage.api.apple.setDown(false)

      stage.simulation.setServerFaults { $0.next = [.tooManyRequests(retryAfterSeconds: 1800)] }
      stage.simulation.advance(by: .minutes(2))
      let now = stage.simulation.now
      guard case .postponed(_, let notBefore?) = try await stage.work().first else {
        Issue.record("It is not postponed.")
        return
      }
      #expect((notBefore - (now + .seconds(1800))).isWithin(.seconds(2)))
      #expect(try await stage.next()?.at == notBefore)
      stage.simulation.advance(by: .minutes(31))
      #expect(try await stage.work().count == 1)
      #expect(try await stage.state(bought).hasPrefix("anna, active, on"))
      #expect(try await stage.api.count("job", where: "last_error IS NOT NULL") == 0)
    }
  }

  @Test func `what Apple does not know is left alone for long`() async throws {
    try await withStage { stage in
      let bought = try stage.simulation.buy("monthly", on: "anna")
      _ = try await stage.api.submit("anna", from: "anna")
      let stranger: JSONValue = ["errorCode": 4_040_001, "errorMessage": "Account not found."]
      stage.api.apple.answerServerAPI(with: 404, stranger.bytes)
      let outcomes = try await stage.live(days: 40)
      #expect(outcomes.count == 1)
      guard case .passedOver(let reason) = outcomes.first else {
        Issue.record("\(outcomes)")
        return
      }
      #expect(reason.contains("4040001"))
      #expect(try await stage.next()?.priority == 2)
      #expect(try await stage.charges(bought) == 1)
    }
  }

  @Test func `a wrong key is a failure, and takes nothing away`() async throws {
    try await withStage { stage in
      let bought = try stage.simulation.buy("monthly", on: "anna")
      _ = try await stage.api.submit("anna", from: "anna")
      stage.api.apple.answerServerAPI(with: 401, Array("Unauthenticated".utf8))
      let first = try #require(try await stage.next()).at
      stage.simulation.advance(to: first)
      guard case .failed(let reason, let notBefore) = try await stage.work().first else {
        Issue.record("It does not fail.")
        return
      }
      #expect(reason.contains("TENURE_APPSTORE_KEY_ID"))
      #expect(notBefore == stage.simulation.now + .hours(1))
      #expect(try await stage.state(bought).hasSuffix("access"))
    }
  }

  @Test func `without anything to ask with, a poll is passed over`() async throws {
    try await withStage(byReceipt: true) { stage in
      let bought = try stage.simulation.buy("monthly", on: "anna")
      _ = try await stage.api.submit(
        "anna", signed: [try stage.simulation.signedTransaction(of: bought.transactionID)])
      let outcomes = try await stage.live(days: 40)
      #expect(outcomes.count == 1)
      guard case .passedOver(let reason) = outcomes.first else {
        Issue.record("\(outcomes)")
        return
      }
      #expect(reason.contains("no receipt is stored"))
      // A receipt appears, and it goes on.
      _ = try await stage.api.submit("anna", from: "anna")
      #expect(try await stage.charges(bought) == 2)
      try await stage.live(days: 30)
      #expect(try await stage.charges(bought) == 3)
    }
  }

  @Test(arguments: ["anna", "ben"])
  func `an original transaction is polled though one of its submitters is erased`(
    erased: String
  ) async throws {
    try await withStage(byReceipt: true) { stage in
      let bought = try stage.simulation.buy("monthly", on: "anna")
      for account in ["anna", "ben"] {
        _ = try await stage.api.submit(account, from: "anna")
      }
      let erasure = try await stage.api.call(
        .delete, "/v1/accounts/\(erased)?reason=r", as: .admin)
      #expect(erasure.status == 200)
      try await stage.live(days: 40)
      #expect(try await stage.charges(bought) == 2)
    }
  }

  @Test func `a receipt in a notification of version 1 is asked with, too`() async throws {
    try await withStage(byReceipt: true) { stage in
      let bought = try stage.simulation.buy("monthly", on: "anna")
      let app = SimulatedApp.sample
      let receipt = try stage.simulation.receipt(on: "anna")
      let answer = try await stage.api.post([
        "notification_type": "INITIAL_BUY", "password": .string(app.sharedSecret),
        "environment": "PROD", "bid": .string(app.bundleID), "latest_receipt": .string(receipt),
      ])
      let id = try #require(answer["notification_id"]?.string)
      #expect(try await stage.api.api.notifications.process(id) == nil)
      #expect(try await stage.charges(bought) == 1)
      try await stage.live(days: 40)
      #expect(try await stage.charges(bought) == 2)
    }
  }

  @Test func `an app that is served no more is not asked about`() async throws {
    try await withStage(servesApp: false) { stage in
      _ = try stage.simulation.buy("monthly", on: "anna")
      _ = try await stage.api.submit("anna", from: "anna")
      let outcomes = try await stage.live(days: 40)
      #expect(outcomes.count == 1)
      guard case .passedOver = outcomes.first else {
        Issue.record("\(outcomes)")
        return
      }
    }
  }

  @Test func `a manual poll is immediate, and plans the next one`() async throws {
    try await withStage { stage in
      let bought = try stage.simulation.buy("monthly", on: "anna")
      _ = try await stage.api.submit("anna", from: "anna")
      let planned = try await stage.next()?.at
      let line = OriginalTransactionKey(.production, bought.originalTransactionID)
      stage.simulation.advance(by: .days(32))
      #expect(try await stage.poll.pollNow(line) == .polled(isChanged: true))
      #expect(try await stage.charges(bought) == 2)
      #expect(try await stage.next()?.at != planned)
      #expect(try await stage.poll.pollNow(line) == .polled(isChanged: false))
      #expect(try await stage.poll.pollNow(OriginalTransactionKey(.sandbox, "1")) == .over)
    }
  }
}
