import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import JSONText
import LedgerStorage
import Postgres
import Subscriptions
import Testing

@testable import HTTPAPI
@testable import Intake

struct WriteBackTests {
  /// A story with both settings on, and a worker for their jobs.
  private struct Stage: Sendable {
    let api: TestAPI
    /// A program with both settings on.
    let appStoreWriteBack: AppStoreWriteBack
    /// A program with both settings off.
    let silent: AppStoreWriteBack

    var simulation: AppStoreSimulation { api.apple.simulation }

    /// Runs due jobs like a worker.
    func work(_ appStoreWriteBack: AppStoreWriteBack? = nil) async throws -> [AppStoreWriteBack
      .Outcome]
    {
      let appStoreWriteBack = appStoreWriteBack ?? self.appStoreWriteBack
      let jobs = try await api.ledger.jobs.claimJobs(
        limits: [.writeBack: 10, .sandboxWriteBack: 10], worker: "w", at: simulation.now,
        lease: .seconds(60))
      var outcomes: [AppStoreWriteBack.Outcome] = []
      for job in jobs {
        let outcome =
          switch job.kind {
          case .setAppAccountToken:
            try await appStoreWriteBack.sendOwnership(of: job.originalTransaction, doing: job)
          case .sendConsumption:
            try await appStoreWriteBack.sendConsumption(askedBy: job.scope.name, doing: job)
          default: throw CancellationError()
          }
        outcomes.append(outcome)
        switch outcome {
        case .finished: break
        case .nothingToSend: try await api.ledger.jobs.complete(job)
        case .postponed(let reason, let notBefore):
          try await api.ledger.jobs.release(
            job, until: notBefore ?? simulation.now + .minutes(1), because: reason)
        }
      }
      return outcomes
    }

    func waiting() async throws -> Int {
      try await api.count(
        "job", where: "kind IN ('set_app_account_token', 'send_consumption')")
    }

    func token(of account: String) async throws -> UUID {
      let answer = try await api.call(.put, "/v1/accounts/\(account)")
      return try #require(answer["app_account_token"]?.string.flatMap(UUID.init(uuidString:)))
    }

    /// The recorded write-backs, in order.
    func record() async throws -> [String] {
      try await api.database.query(
        """
        WITH t AS MATERIALIZED (SELECT * FROM tenure.app_store_write_back),
          a AS MATERIALIZED (SELECT account_key, account_id FROM tenure.account_by_key)
        SELECT concat_ws(' ', t.kind, a.account_id, t.outcome, t.reason, t.error_code,
          t.delivery_status)
        FROM t LEFT JOIN a USING (account_key)
        ORDER BY t.write_back_id
        """
      ).decode(String.self)
    }

    /// Anna buys with her token, lets it lapse, and ben buys on the same phone.
    func annaThenBen() async throws -> OriginalTransactionKey {
      let token = try await token(of: "anna")
      let bought = try simulation.buy("monthly", on: "phone", appAccountToken: token)
      _ = try await api.submit("anna", from: "phone")
      #expect(try await waiting() == 0, "Apple's word and ours are one.")
      try simulation.setAutoRenew(false, bought.originalTransactionID)
      simulation.advance(by: .days(40))
      _ = try simulation.buy("quarterly", on: "phone")
      simulation.advance(by: .minutes(1))
      _ = try await api.submit("ben", from: "phone")
      return OriginalTransactionKey(.production, bought.originalTransactionID)
    }

    func transfer(_ transaction: TransactionID, to account: String) async throws {
      let answer = try await api.call(
        .post, "/v1/transactions/\(transaction)/owner",
        ["account_id": .string(account), "reason": "r"], as: .admin)
      #expect(answer.status == 200)
    }

    /// Delivers Apple's new notifications.
    func deliver(after count: Int) async throws {
      for notification in simulation.notifications().dropFirst(count) {
        let answer = try await api.send(
          .post, "/v1/appstore/notifications", notification.body, as: .anonymous)
        #expect(answer.status == 200, "\(notification.type): \(answer)")
      }
    }

    /// Lets a customer ask Apple for the money of a purchase, and Apple ask what became of it.
    func askForMoney(of transaction: TransactionID) async throws {
      let count = simulation.notifications().count
      try simulation.requestRefund(transaction)
      try await deliver(after: count)
    }
  }

  private func withStage(
    _ test: @escaping @Sendable (Stage) async throws -> Void
  ) async throws {
    try await TestAPI.run(
      choices: TestAPI.Choices(writeBackKinds: Set(WriteBack.Kind.allCases))
    ) { api in
      for product in ["monthly", "quarterly"] {
        try await api.describe(ProductID(product), "premium")
      }
      try await api.describe("lifetime", "gold", type: .nonConsumable)
      try await api.describe("coins.100", "coins", type: .consumable)
      try api.addCustomer("phone")
      try api.apple.simulation.setNotificationTargets([
        NotificationTarget(.v2, url: "http://127.0.0.1/v1/appstore/notifications")
      ])
      func appStoreWriteBack(_ ledger: Ledger) -> AppStoreWriteBack {
        var services = api.intake.services
        services.ledger = ledger
        return AppStoreWriteBack(services)
      }
      try await test(
        Stage(
          api: api, appStoreWriteBack: appStoreWriteBack(api.ledger),
          silent: appStoreWriteBack(Ledger(database: api.database))))
    }
  }

  // MARK: Ownership

  @Test func `renewals carry the token of the account that owns the original transaction`()
    async throws
  {
    try await withStage { stage in
      let line = try await stage.annaThenBen()
      #expect(try await stage.waiting() == 1)
      #expect(try await stage.work() == [.finished(.accepted)])
      #expect(try await stage.waiting() == 0)
      stage.simulation.advance(by: .days(100))
      let ben = try await stage.token(of: "ben")
      let tokens = stage.simulation.truth(of: "phone").map(\.appAccountToken)
      #expect(tokens == [try await stage.token(of: "anna"), ben, ben])

      // Signed data with the token moves nothing and is not written back.
      _ = try await stage.api.submit("anna", from: "phone")
      _ = try await stage.api.poll.pollNow(line)
      let shown = try await stage.api.get("/v1/original-transactions/\(line.originalTransactionID)")
      #expect(shown["account_id"] == "ben")
      #expect(try await stage.waiting() == 0)
      #expect(try await stage.record() == ["ownership ben accepted"])
      #expect(try await stage.api.ledger.auditor.audit().differences == [])
    }
  }

  @Test func `the last accepted token counts where Apple's report is older`() async throws {
    try await withStage { stage in
      _ = try await stage.annaThenBen()
      let last = try #require(stage.simulation.truth(of: "phone").last).transactionID
      let ben = try await stage.token(of: "ben")
      _ = try await stage.work()
      // Apple's word, as it is known here, still has no token of ben's: it is written back each time.
      for (owner, count) in [("anna", 2), ("ben", 3)] {
        stage.simulation.advance(by: .minutes(5))
        try await stage.transfer(last, to: owner)
        #expect(try await stage.work() == [.finished(.accepted)])
        #expect(try await stage.record().count == count)
      }
      #expect(try stage.simulation.truth(of: last).appAccountToken == ben)
      // Twice before a worker comes is once; and once it is as it was, nothing.
      stage.simulation.advance(by: .minutes(5))
      try await stage.transfer(last, to: "anna")
      try await stage.transfer(last, to: "ben")
      #expect(try await stage.waiting() == 1)
      #expect(try await stage.work() == [.nothingToSend])
      #expect(try await stage.waiting() == 0)
      #expect(try await stage.record().count == 3)
    }
  }

  /// Apple's responses and the recorded outcomes.
  private static let faults: [(SimulatedFault, WriteBack.Outcome?)] = [
    (.unavailable, nil),
    (.serverError(4_040_002), nil),
    (.serverError(5_000_000), nil),
    (.serverError(5_000_001), nil),
    (.tooManyRequests(retryAfterSeconds: 3_000), nil),
    (.serverError(4_000_017), .refused(httpStatus: 400, code: 4_000_017)),
    (.serverError(4_040_007), .refused(httpStatus: 404, code: 4_040_007)),
  ]

  @Test(arguments: faults)
  func `a write-back is retried while Apple fails, and a refusal is final`(
    fault: SimulatedFault, outcome: WriteBack.Outcome?
  ) async throws {
    try await withStage { stage in
      _ = try await stage.annaThenBen()
      stage.simulation.setServerFaults { $0.next = [fault] }
      let outcomes = try await stage.work()
      if let outcome {
        #expect(outcomes == [.finished(outcome)])
        #expect(try await stage.waiting() == 0)
        return
      }
      guard case .postponed(_, let notBefore)? = outcomes.first else {
        Issue.record("\(outcomes)")
        return
      }
      if case .tooManyRequests(let seconds) = fault {
        #expect(notBefore == stage.simulation.now + .seconds(seconds))
      }
      #expect(try await stage.record() == [])
      #expect(try await stage.waiting() == 1)
      stage.simulation.advance(by: .hours(1))
      #expect(try await stage.work() == [.finished(.accepted)])
    }
  }

  @Test func `a key that Apple does not accept keeps it waiting`() async throws {
    try await withStage { stage in
      _ = try await stage.annaThenBen()
      stage.api.apple.answerServerAPI(with: 401, [])
      guard case .postponed(_, let notBefore)? = try await stage.work().first else {
        Issue.record("It was not postponed.")
        return
      }
      #expect(notBefore == stage.simulation.now + .hours(1))
      #expect(try await stage.waiting() == 1)
    }
  }

  @Test func `a setting that was turned off ends what waits`() async throws {
    try await withStage { stage in
      _ = try await stage.annaThenBen()
      #expect(try await stage.work(stage.silent) == [.finished(.skipped(.turnedOff))])
      #expect(try await stage.waiting() == 0)
      #expect(try await stage.record() == ["ownership skipped turned_off"])
      let last = try #require(stage.simulation.truth(of: "phone").last)
      #expect(last.appAccountToken == nil)
    }
  }

  @Test func `no token of an erased person is written`() async throws {
    try await withStage { stage in
      _ = try await stage.annaThenBen()
      let erased = try await stage.api.call(
        .delete, "/v1/accounts/ben?reason=r", as: .admin)
      #expect(erased.status == 200)
      #expect(try await stage.work() == [.finished(.skipped(.accountErased))])
      let name = try #require(erased["account_id"]?.string)
      #expect(try await stage.record() == ["ownership \(name) skipped account_erased"])
      #expect(try #require(stage.simulation.truth(of: "phone").last).appAccountToken == nil)
    }
  }

  @Test func `shared and consumed purchases are not written back to Apple`() async throws {
    try await withStage { stage in
      // Only the catalogue says that a receipt's coins are consumables.
      let coins = try stage.simulation.buy("coins.100", on: "phone")
      _ = try await stage.api.submit("anna", from: "phone")
      #expect(try await stage.work() == [.finished(.skipped(.consumable))])
      _ = try stage.simulation.buy("lifetime", on: "phone")
      try stage.api.addCustomer("child")
      try stage.simulation.addFamilyMember("child", of: "phone")
      let shared = try #require(stage.simulation.truth(of: "child").last)
      let signed = try stage.simulation.signedTransaction(of: shared.transactionID)
      _ = try await stage.api.submit("child", signed: [signed])
      #expect(try await stage.waiting() == 0)
      try await stage.api.ledger.jobs.seed(
        [.setAppAccountToken(OriginalTransactionKey(.production, shared.originalTransactionID))],
        at: stage.simulation.now)
      #expect(try await stage.work() == [.finished(.skipped(.familyShared))])
      #expect(try stage.simulation.truth(of: coins.transactionID).appAccountToken == nil)
    }
  }

  @Test func `a merge has the other account's token written`() async throws {
    try await withStage { stage in
      _ = try await stage.annaThenBen()
      _ = try await stage.work()
      let token = try await stage.token(of: "cora")
      let merged = try await stage.api.call(
        .post, "/v1/accounts/ben/merge", ["into": "cora", "reason": "r"], as: .admin)
      #expect(merged.status == 200)
      #expect(try await stage.work() == [.finished(.accepted)])
      #expect(try #require(stage.simulation.truth(of: "phone").last).appAccountToken == token)
    }
  }

  // MARK: Consumption

  /// A customer's purchase, consent and delivery, and the consumption sent to Apple.
  struct Story: Sendable, CustomTestStringConvertible {
    var product: ProductID
    var consented: Bool?
    var isSubmitted = true
    var isDelivered = false
    var wait: Duration = .zero
    var outcome: WriteBack.Outcome
    /// In the report to Apple.
    var status: String?

    var testDescription: String { "\(product), \(outcome), \(status ?? "nothing")" }
  }

  // swift-format-ignore
  private static let stories: [Story] = [
    Story(product: "monthly", consented: true, outcome: .accepted, status: "DELIVERED"),
    Story(product: "lifetime", consented: true, outcome: .accepted, status: "DELIVERED"),
    Story(product: "premium", consented: true, outcome: .accepted, status: "UNDELIVERED_OTHER"),
    Story(product: "coins.100", consented: true, isDelivered: true, outcome: .accepted, status: "DELIVERED"),
    Story(product: "coins.100", consented: true, outcome: .accepted, status: "UNDELIVERED_OTHER"),
    Story(product: "monthly", consented: true, wait: .hours(12) - .seconds(1), outcome: .accepted, status: "DELIVERED"),
    Story(product: "monthly", consented: true, wait: .hours(12), outcome: .skipped(.tooLate)),
    Story(product: "monthly", consented: false, outcome: .skipped(.noConsent)),
    Story(product: "monthly", outcome: .skipped(.noConsent)),
    Story(product: "monthly", consented: true, isSubmitted: false, outcome: .skipped(.unowned)),
  ]

  @Test(arguments: stories)
  func `a refund request is answered after the customer's consent`(story: Story) async throws {
    try await withStage { stage in
      let bought = try stage.simulation.buy(story.product, on: "phone").transactionID
      if story.isSubmitted { _ = try await stage.api.submit("anna", from: "phone") }
      _ = try await stage.work()
      if let consented = story.consented {
        let answer = try await stage.api.call(
          .put, "/v1/accounts/anna/consumption-consent", ["consented": .bool(consented)])
        #expect(answer.status == 200)
      }
      if story.isDelivered {
        let answer = try await stage.api.call(
          .post, "/v1/transactions/\(bought)/delivery", ["account_id": "anna"])
        #expect(answer.status == 200)
      }
      try await stage.askForMoney(of: bought)
      #expect(try await stage.waiting() == 1)
      stage.simulation.advance(by: story.wait)
      #expect(try await stage.work() == [.finished(story.outcome)])
      let reports = try stage.simulation.consumptionReports(of: bought)
      #expect(reports.map { $0["deliveryStatus"]?.string } == (story.status.map { [$0] } ?? []))
      #expect(reports.allSatisfy { $0["customerConsented"] == true })
      #expect(reports.allSatisfy { $0["sampleContentProvided"] == false })
      #expect(reports.allSatisfy { $0["refundPreference"] == nil })
    }
  }

  @Test func `Apple that is away is answered until it does not wait any more`() async throws {
    try await withStage { stage in
      let bought = try stage.simulation.buy("monthly", on: "phone").transactionID
      _ = try await stage.api.submit("anna", from: "phone")
      _ = try await stage.work()
      _ = try await stage.api.call(
        .put, "/v1/accounts/anna/consumption-consent", ["consented": true])
      try await stage.askForMoney(of: bought)
      stage.api.apple.setDown(true)
      guard case .postponed? = try await stage.work().first else {
        Issue.record("It was not postponed.")
        return
      }
      stage.simulation.advance(by: .hours(13))
      #expect(try await stage.work() == [.finished(.skipped(.tooLate))])
      // The next question is answered.
      stage.api.apple.setDown(false)
      try await stage.askForMoney(of: bought)
      #expect(try await stage.work() == [.finished(.accepted)])
      #expect(
        try await stage.record().suffix(2) == [
          "consumption anna skipped too_late", "consumption anna accepted DELIVERED",
        ])
    }
  }

  @Test func `a question is nothing to do where the setting is off`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("phone")
      try api.apple.simulation.setNotificationTargets([
        NotificationTarget(.v2, url: "http://127.0.0.1/v1/appstore/notifications")
      ])
      let bought = try api.apple.simulation.buy("monthly", on: "phone")
      _ = try await api.submit("anna", from: "phone")
      try api.apple.simulation.requestRefund(bought.transactionID)
      for notification in api.apple.simulation.notifications() {
        _ = try await api.send(
          .post, "/v1/appstore/notifications", notification.body, as: .anonymous)
      }
      #expect(
        try await api.count(
          "job", where: "kind IN ('set_app_account_token', 'send_consumption')") == 0)
    }
  }

  // MARK: Looking at it

  @Test func `pages, reports and exports show write-backs to Apple`() async throws {
    try await withStage { stage in
      let line = try await stage.annaThenBen()
      let last = try #require(stage.simulation.truth(of: "phone").last).transactionID
      let open = try await stage.api.get("/v1/reports/intake", as: .admin)
      let measures = open["rows"]?.array?.compactMap { $0["measure"]?.string } ?? []
      #expect(measures.contains("write_backs_open"))
      _ = try await stage.work()
      try await stage.askForMoney(of: last)
      _ = try await stage.work()

      let report = try await stage.api.get("/v1/reports/intake", as: .admin)
      let rows = (report["rows"]?.array ?? []).filter {
        $0["measure"]?.string?.hasPrefix("write_backs_") == true
      }
      #expect(
        rows.map { [$0["measure"], $0["cause"], $0["number"]] } == [
          ["write_backs_accepted", "ownership", 1],
          ["write_backs_skipped", "consumption no_consent", 1],
        ])
      let export = try await stage.api.get("/v1/accounts/ben/export", as: .admin)
      let shown = export["write_backs"]?.array ?? []
      #expect(shown.map { $0["outcome"] } == ["accepted", "skipped"])
      #expect(shown.map { $0["transaction_id"] } == [.null, .string(last.rawValue)])
      var browser = try await AdminBrowser.loggedIn(stage.api)
      let page = try await browser.get("/admin/original-transactions/\(line.originalTransactionID)")
      #expect(page.text.contains("Sent to Apple: the owner ben."))
      #expect(page.text.contains("Not sent to Apple: consumption data (no customer consent)."))
    }
  }
}
