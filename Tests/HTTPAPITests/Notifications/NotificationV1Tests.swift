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

/// Notifications of version 1: a doorbell, behind which Apple is asked.
struct NotificationV1Tests {
  private static let app = SimulatedApp.sample

  /// A body as Apple writes it since 2021.
  private static func body(
    _ type: String, receipt: String?, _ more: KeyValuePairs<String, JSONValue> = [:]
  ) -> JSONValue {
    let unified: JSONValue = .object([
      ("status", 0), ("environment", "Production"), ("latest_receipt", receipt.map { .string($0) }),
      ("latest_receipt_info", []),
    ])
    return .object(
      [
        ("notification_type", .string(type)), ("password", .string(app.sharedSecret)),
        ("environment", "PROD"), ("bid", .string(app.bundleID)), ("unified_receipt", unified),
      ].filter { member in !more.contains { $0.key == member.0 } }
        + more.map { ($0.key, $0.value == .null ? nil : $0.value) })
  }

  /// Runs due jobs as a worker does.
  ///
  /// - Returns: The problems that remain.
  @discardableResult
  private func work(_ api: TestAPI) async throws -> [String] {
    let jobs = try await api.ledger.claimJobs(
      limit: 10, worker: "w", at: api.apple.simulation.now, lease: .seconds(60))
    var problems: [String] = []
    for job in jobs {
      guard job.kind == .processNotification else { continue }
      if let problem = try await api.api.notifications.process(job.subject, worker: job.worker) {
        problems.append(problem)
      }
    }
    return problems
  }

  @Test func `it is stored without its password, and Apple is asked by a worker`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      let receipt = try api.apple.simulation.receipt(on: "anna")
      // The body's own claims are not trusted.
      let body = Self.body(
        "INITIAL_BUY", receipt: receipt,
        [
          "latest_receipt_info": [
            "original_transaction_id": "666", "product_id": "lifetime", "transaction_id": "666",
            "purchase_date_ms": "1767225600000",
          ]
        ])
      let answer = try await api.post(body)
      #expect(answer.status == 200)
      let id = try #require(answer["notification_id"]?.string)
      let stored = try #require(try await api.ledger.notifications.notification(id))
      #expect(stored.version == .one)
      #expect(stored.notificationType == "INITIAL_BUY")
      #expect(stored.bundleID == Self.app.bundleID)
      #expect(!stored.body.contains(Self.app.sharedSecret))
      #expect(stored.body.contains(receipt))
      #expect(try await api.count("ledger_entry") == 0)

      #expect(try await work(api) == [])
      #expect(try await api.ledger.notifications.notification(id)?.outcome == .recorded)
      #expect(
        try await api.state(of: bought.originalTransactionID.rawValue)
          == "unowned, active, on, until 31")
      #expect(try await api.state(of: "666") == "unknown")
      #expect(try await api.ledger.notifications.exchanges(ofNotification: id).count == 1)
      #expect(try await api.openJobs() == 0)
      // Receipts don't say why a charge was made, and the notification's type proves nothing.
      let seen = try await api.get("/v1/transactions/\(bought.transactionID)")
      #expect(seen["evidence"]?["kind"] == "unknown")

      // A repetition, with or without a second password, changes nothing.
      #expect(try await api.post(body).body == answer.body)
      #expect(try await api.count("notification") == 1)
      #expect(try await api.openJobs() == 0)
    }
  }

  @Test func `while Apple is away it waits, and then it is recorded`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      _ = try await api.submit("anna", from: "anna")
      let receipt = try api.apple.simulation.receipt(on: "anna")
      try api.apple.simulation.refund(bought.transactionID)
      api.apple.setDown(true)
      let answer = try await api.post(Self.body("CANCEL", receipt: receipt))
      #expect(answer.status == 200)
      let id = try #require(answer["notification_id"]?.string)
      #expect(try await work(api).count == 1)
      let waiting = try #require(try await api.ledger.notifications.notification(id))
      #expect(waiting.outcome == nil)
      #expect(waiting.attempts == 1)
      #expect(waiting.problem?.contains("the test said so") == true)
      #expect(
        try await api.count("job", where: "locked_by IS NULL AND queue = 'notifications'") == 1)
      // Apple not answering takes nothing away.
      let held = try await api.get("/v1/accounts/anna/entitlements?active=true")
      #expect(held["entitlements"]?.array?.count == 1)

      api.apple.setDown(false)
      api.apple.simulation.advance(by: .minutes(5))
      #expect(try await work(api) == [])
      #expect(try await api.ledger.notifications.notification(id)?.outcome == .recorded)
      #expect(try await api.ledger.notifications.notification(id)?.problem == nil)
      #expect(try await api.ledger.notifications.exchanges(ofNotification: id).count == 2)
      let ended = try await api.get("/v1/accounts/anna/entitlements?active=true")
      #expect(ended["entitlements"]?.array?.isEmpty == true)
    }
  }

  @Test func `a receipt that Apple refuses ends it, with the reason noted`() async throws {
    try await TestAPI.run { api in
      api.apple.answer("Zm9yZ2Vk", with: Array(#"{"status": 21003}"#.utf8))
      let answer = try await api.post(Self.body("DID_RENEW", receipt: "Zm9yZ2Vk"))
      #expect(answer.status == 200)
      #expect(try await work(api) == [])
      let id = try #require(answer["notification_id"]?.string)
      let stored = try #require(try await api.ledger.notifications.notification(id))
      #expect(stored.outcome == .rejected)
      #expect(stored.problem?.contains("21003") == true)
      #expect(try await api.openJobs() == 0)
      #expect(try await api.count("ledger_entry") == 0)
    }
  }

  @Test func `without a receipt there is nothing to ask about`() async throws {
    try await TestAPI.run { api in
      let answer = try await api.post(Self.body("CONSUMPTION_REQUEST", receipt: nil))
      #expect(answer.status == 200)
      let id = try #require(answer["notification_id"]?.string)
      #expect(try await api.ledger.notifications.notification(id)?.outcome == .nothingToRecord)
      #expect(try await api.openJobs() == 0)
    }
  }

  @Test func `the old shape is read as well`() async throws {
    try await TestAPI.run { api in
      try api.addCustomer("anna")
      _ = try api.apple.simulation.buy("monthly", on: "anna")
      let receipt = try api.apple.simulation.receipt(on: "anna")
      let answer = try await api.post(
        Self.body(
          "RENEWAL", receipt: nil,
          ["bid": .null, "unified_receipt": .null, "latest_receipt": .string(receipt)]))
      #expect(answer.status == 200)
      #expect(try await work(api) == [])
      let id = try #require(answer["notification_id"]?.string)
      #expect(try await api.ledger.notifications.notification(id)?.outcome == .recorded)
    }
  }

  // swift-format-ignore
  @Test(arguments: [
    // difference                            status  code
    (["password": "wrong"],                    401, "wrong_secret"),
    (["password": ""],                         401, "wrong_secret"),
    (["password": .null],                      401, "wrong_secret"),
    (["password": 7],                          401, "wrong_secret"),
    (["password": .null, "bid": .null],        401, "wrong_secret"),
    (["bid": "com.example.other"],             400, "wrong_bundle_id"),
    (["bid": "secret-content"],                400, "wrong_bundle_id"),
    (["notification_type": .null],             400, "invalid_request"),
  ] as [(KeyValuePairs<String, JSONValue>, Int, String)])
  func `a caller without the app's secret is refused`(
    change: KeyValuePairs<String, JSONValue>, status: Int, code: String
  ) async throws {
    let log = RecordedLog()
    try await TestAPI.run(logger: log.logger) { api in
      let answer = try await api.post(Self.body("DID_RENEW", receipt: "cmVjZWlwdA==", change))
      #expect(answer.status == status)
      #expect(answer.code == code)
      #expect((answer.headers[.wwwAuthenticate] != nil) == (status == 401))
      #expect(try await api.count("notification") == 0)
      #expect(try await api.openJobs() == 0)
      let trace = try await api.ledger.notifications.refusedNotifications(since: storyDay(0))
      #expect(trace.map(\.version) == [code == "invalid_request" ? nil : .one])
      #expect(trace.first?.lastDetail == answer["detail"]?.string)
      for text in [answer.text, trace.first?.lastDetail ?? "", log.text] {
        #expect(!text.contains("secret-content"))
        #expect(!text.contains(Self.app.sharedSecret))
        #expect(!text.contains("cmVjZWlwdA"))
      }
    }
  }

  // MARK: When auto-renew was switched

  // swift-format-ignore
  @Test(arguments: [
    // changed  asked   says off  then
    (10.0,       12.0,   true,     ["off 10.0", "off 12.0"]),
    (12.0,       12.0,   true,     ["off 12.0"]),
    (12.5,       12.0,   true,     ["off 12.0"]),
    (10.0,       12.0,   false,    ["off 12.0"]),
    (-1.0,       12.0,   true,     ["off 12.0"]),
    (10.0,       30.5,   true,     ["off 30.5"]),
  ])
  func `the date of the change counts where Apple says the same`(
    changed: Double, asked: Double, isOff: Bool, then: [String]
  ) async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      _ = try await api.submit("anna", from: "anna")
      let receipt = try api.apple.simulation.receipt(on: "anna")
      api.live(until: 10)
      try api.apple.simulation.setAutoRenew(false, bought.originalTransactionID)
      api.live(until: asked)
      let answer = try await api.post(
        Self.body(
          "DID_CHANGE_RENEWAL_STATUS", receipt: receipt,
          [
            "auto_renew_status": isOff ? "false" : "true",
            "auto_renew_status_change_date_ms": .string("\(storyDay(changed).milliseconds)"),
            "auto_renew_product_id": "monthly",
          ]))
      #expect(answer.status == 200)
      #expect(try await work(api) == [])
      let found = try await api.database.query(
        """
        SELECT as_of, auto_renews FROM tenure.renewal_status WHERE as_of <> \(storyDay(0))
        ORDER BY as_of
        """
      ).decode(Timestamp.self, Bool?.self).map { date, isOn in
        "\(isOn == true ? "on" : "off") \(Double((date - storyDay(0)).inMilliseconds) / 86_400_000)"
      }
      #expect(found == then)
    }
  }
}
