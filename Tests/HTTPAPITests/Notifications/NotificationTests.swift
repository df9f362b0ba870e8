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

/// Notifications of version 2, from arrival to recorded evidence.
struct NotificationTests {
  private static let month = Payment(id: "1", from: 0, to: 30)
  private static let on = Future(isOn: true, end: 30)
  private static let bought = Notice("SUBSCRIBED", "INITIAL_BUY", month, on, on: 0.1, id: "n1")

  // MARK: Arrival

  @Test func `it is answered when it is recorded, with its name`() async throws {
    try await TestAPI.run { api in
      let answer = try await api.deliver(Self.bought)
      #expect(answer.status == 200)
      #expect(answer["notification_id"] == "n1")
      let stored = try #require(try await api.ledger.notifications.notification("n1"))
      #expect(stored.version == .two)
      #expect(stored.outcome == .recorded)
      #expect(stored.bundleID == SimulatedApp.sample.bundleID)
      #expect(stored.body.split(separator: ".").count == 3)
      #expect(stored.receivedAt == storyDay(0.1))
      let shown = try await api.database.query(
        """
        SELECT notification_type, subtype, environment, original_transaction_id, transaction_id,
          signed_at FROM tenure.notification
        """
      ).decodeOnly(String.self, String.self, String.self, String.self, String.self, Timestamp.self)
      #expect(shown.0 == "SUBSCRIBED")
      #expect(shown.1 == "INITIAL_BUY")
      #expect(shown.2 == "production")
      #expect(shown.3 == "1000")
      #expect(shown.4 == "1")
      #expect(shown.5 == storyDay(0.1))
      #expect(try await api.openJobs() == 0)
      let seen = try await api.get("/v1/transactions/1")
      let sources = seen["history"]?.array?.compactMap { $0["source"] } ?? []
      #expect(!sources.isEmpty)
      #expect(sources.allSatisfy { $0["kind"] == "notification" && $0["id"] == "n1" })
    }
  }

  @Test func `a first purchase that is reported before it is submitted belongs to the claimant`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.deliver(Self.bought)
      #expect(try await api.state() == "unowned, active, on, until 30")
      let answer = try await api.claim(Self.month, Self.on, by: "anna", on: 0.2)
      #expect(answer["transactions"]?[0]["newly_owned"] == true)
      #expect(answer["transactions"]?[0]["decision"]?["rule"] == "submitter")
      #expect(try await api.state() == "anna, active, on, until 30, access")
    }
  }

  @Test func `a purchase with a token belongs to its account, whichever account submits it`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      let account = try await api.call(.put, "/v1/accounts/anna", [:])
      let order = try await api.call(
        .post, "/v1/orders", ["account_id": "anna", "product_id": "monthly"])
      var month = Self.month
      month.token = account["app_account_token"]?.string
      try await api.deliver(Notice("SUBSCRIBED", "INITIAL_BUY", month, Self.on, on: 0.1))
      #expect(try await api.state() == "anna, active, on, until 30, access")
      let id = try #require(order["order_id"]?.string)
      let fulfilled = try await api.get("/v1/orders/\(id)")
      #expect(fulfilled["status"] == "fulfilled")
      #expect(fulfilled["transaction_id"] == "1")
      let claimed = try await api.claim(month, Self.on, by: "ben", on: 0.2)
      #expect(
        claimed["warnings"] == ["owned_by_another_account", "app_account_token_of_another_account"])
      #expect(claimed["transactions"]?[0]["owner_account_id"] == "anna")
      #expect(claimed["entitlements"] == [])
      #expect(try await api.state() == "anna, active, on, until 30, access")
    }
  }

  @Test func `a consumable that Apple reported first is newly owned by its submitter`() async throws
  {
    try await TestAPI.run { api in
      try await api.describe("coins.100", "coins", type: .consumable)
      let account = try await api.call(.put, "/v1/accounts/anna", [:])
      let coins = Payment(
        id: "1", product: "coins.100", type: "Consumable", from: 0,
        token: account["app_account_token"]?.string)
      try await api.deliver(Notice("ONE_TIME_CHARGE", nil, coins, on: 0.1))
      let shown = try await api.get("/v1/transactions/1")
      #expect(shown["owner_account_id"] == "anna")
      #expect(shown["decision"]?["rule"] == "app_account_token")
      let first = try await api.claim(coins, by: "anna", on: 0.2)
      #expect(first["transactions"]?[0]["newly_owned"] == true)
      let second = try await api.claim(coins, by: "anna", on: 0.3)
      #expect(second["transactions"]?[0]["newly_owned"] == false)
    }
  }

  @Test func `a charge that late evidence gives to another is corrected`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.claim(Self.month, Self.on, by: "anna", on: 0.1)
      // The retry was not reported: 20 days later it looks like a new purchase.
      let late = Payment(id: "2", from: 50, to: 80, reason: nil)
      let claimed = try await api.claim(late, by: "ben", on: 50.1)
      #expect(claimed["transactions"]?[0]["owner_account_id"] == "ben")
      let recovered = Notice(
        "DID_RENEW", "BILLING_RECOVERY", Payment(id: "2", from: 50, to: 80, reason: "RENEWAL"),
        Future(isOn: true, end: 80), on: 50.05)
      try await api.deliver(recovered, on: 52)
      let transaction = try await api.get("/v1/transactions/2")
      #expect(transaction["owner_account_id"] == "anna")
      #expect(transaction["decision"]?["corrected_at"] != nil)
      #expect(
        transaction["history"]?.array?.contains { $0["kind"] == "corrected" } == true)
      #expect(try await api.state() == "anna, active, on, until 80, access")
    }
  }

  @Test func `a sandbox notification says nothing of production`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.claim(Self.month, Self.on, by: "anna", on: 0.1)
      var (payment, future) = (Self.month, Self.on)
      payment.environment = "Sandbox"
      payment.revokedOn = 1
      future.environment = "Sandbox"
      #expect(try await api.deliver(Notice("REFUND", nil, payment, future, on: 1.1)).status == 200)
      #expect(try await api.state() == "anna, active, on, until 30, access")
      #expect(
        try await api.state(environment: "sandbox") == "unowned, revoked, off, until 30")
    }
  }

  // MARK: Repetitions

  @Test func `a repetition is answered the same and does nothing`() async throws {
    try await TestAPI.run { api in
      let first = try await api.deliver(Self.bought)
      let entries = try await api.count("ledger_entry")
      for day in [0.2, 1, 3] {
        let again = try await api.deliver(Self.bought, on: day)
        #expect(again.status == 200)
        #expect(again.body == first.body)
      }
      #expect(try await api.count("ledger_entry") == entries)
      #expect(try await api.count("notification") == 1)
      #expect(try await api.openJobs() == 0)
      #expect(try await api.ledger.notifications.notification("n1")?.attempts == 1)
      #expect(try await api.ledger.notifications.notification("n1")?.receivedAt == storyDay(0.1))
    }
  }

  @Test func `many deliveries at once are one`() async throws {
    try await TestAPI.run { api in
      api.live(until: 1)
      let body: JSONValue = ["signedPayload": .string(Self.bought.signed(by: api.apple.signer))]
      let statuses = try await withThrowingTaskGroup(of: Int.self) { group in
        for _ in 1...12 { group.addTask { try await api.post(body).status } }
        return try await group.reduce(into: []) { $0.append($1) }
      }
      #expect(statuses == Array(repeating: 200, count: 12))
      #expect(try await api.count("notification") == 1)
      #expect(try await api.count("notification", where: "outcome = 'recorded'") == 1)
      #expect(try await api.ledger.notifications.notification("n1")?.attempts == 1)
      // The transaction, the status, and the decision.
      #expect(try await api.count("ledger_entry") == 1)
      #expect(try await api.openJobs() == 0)
    }
  }

  // MARK: Trouble

  /// Lets nothing be recorded until it is taken back.
  private func breakLedger(_ api: TestAPI) async throws {
    try await api.database.execute(
      "ALTER TABLE tenure.ledger_entry ADD CONSTRAINT broken CHECK (number < 0) NOT VALID")
  }

  private func repairLedger(_ api: TestAPI) async throws {
    try await api.database.execute("ALTER TABLE tenure.ledger_entry DROP CONSTRAINT broken")
  }

  @Test func `what can't be recorded now is stored, and a job does it later`() async throws {
    try await TestAPI.run { api in
      try await breakLedger(api)
      #expect(try await api.deliver(Self.bought).status == 200)
      #expect(try await api.ledger.notifications.notification("n1")?.outcome == nil)
      #expect(try await api.count("ledger_entry") == 0)
      // Not before the request could be at it no more.
      let soon = try await api.ledger.claimJobs(
        limit: 10, worker: "w", at: storyDay(0.1) + .seconds(29), lease: .seconds(60))
      #expect(soon.isEmpty)
      let due = try await api.ledger.claimJobs(
        limit: 10, worker: "w", at: storyDay(0.1) + .seconds(30), lease: .seconds(60))
      #expect(due.map(\.key) == [.processNotification("n1")])
      await #expect(throws: (any Error).self) {
        try await api.api.notifications.process("n1", worker: "w")
      }
      // A repetition stores nothing and records nothing: it is the job's.
      #expect(try await api.deliver(Self.bought, on: 0.2).status == 200)
      #expect(try await api.count("ledger_entry") == 0)
      #expect(try await api.openJobs() == 1)

      try await repairLedger(api)
      #expect(try await api.api.notifications.process("n1", worker: "w") == nil)
      #expect(try await api.ledger.notifications.notification("n1")?.outcome == .recorded)
      #expect(try await api.count("ledger_entry") == 1)
      #expect(try await api.openJobs() == 0)
      #expect(try await api.api.notifications.process("n1") == nil)
      #expect(try await api.count("ledger_entry") == 1)
    }
  }

  @Test func `several workers and a request at once record it once`() async throws {
    try await TestAPI.run { api in
      try await breakLedger(api)
      try await api.deliver(Self.bought)
      try await repairLedger(api)
      try await withThrowingTaskGroup(of: Void.self) { group in
        for number in 1...6 {
          group.addTask {
            _ = try await api.api.notifications.process("n1", worker: "w\(number)")
          }
        }
        group.addTask { try await api.deliver(Self.bought, on: 0.2) }
        try await group.waitForAll()
      }
      #expect(try await api.count("ledger_entry") == 1)
      #expect(try await api.ledger.notifications.notification("n1")?.attempts == 1)
      #expect(try await api.openJobs() == 0)
    }
  }

  @Test func `what can't be stored is not answered as if it were`() async throws {
    try await TestAPI.run { api in
      try await api.database.execute(
        "ALTER TABLE tenure.notification ADD CONSTRAINT broken CHECK (version < 0) NOT VALID")
      let answer = try await api.deliver(Self.bought)
      #expect(answer.status == 500)
      #expect(try await api.openJobs() == 0)
    }
  }

  // MARK: Refusals

  struct Bad: Sendable, CustomTestStringConvertible {
    var name: String
    var code: String
    var reason: String
    var version: NotificationVersion?
    var body: @Sendable (TestAPI) throws -> [UInt8]
    var testDescription: String { name }
  }

  private static func signed(_ payload: String) -> [UInt8] {
    JSONValue.object([("signedPayload", .string(payload))]).bytes
  }

  static let bad: [Bad] = [
    Bad(name: "no JSON", code: "invalid_request", reason: "unreadable", version: nil) { _ in
      Array("signedPayload=a.b.c".utf8)
    },
    Bad(name: "nothing", code: "invalid_request", reason: "unreadable", version: nil) { _ in [] },
    Bad(name: "something else", code: "invalid_request", reason: "unreadable", version: nil) { _ in
      Array(#"{"event": "paid", "secret-content": 1}"#.utf8)
    },
    Bad(name: "too many values", code: "invalid_request", reason: "unreadable", version: nil) { _ in
      let values = String(repeating: "1,", count: NotificationBody.mostValues)
      return Array(#"{"signedPayload":"a.b.c","a":[\#(values)1]}"#.utf8)
    },
    Bad(name: "too long", code: "invalid_request", reason: "too_long", version: nil) { _ in
      Array(repeating: UInt8(ascii: " "), count: NotificationIntake.longestBody + 1)
    },
    Bad(
      name: "no JWS", code: "invalid_signature", reason: "not_three_segments", version: .two
    ) { _ in signed("secret-content") },
    Bad(
      name: "another signer", code: "invalid_signature", reason: "untrusted_chain", version: .two
    ) { _ in signed(bought.signed(by: try SimulatedSigner())) },
    Bad(
      name: "a changed payload", code: "invalid_signature", reason: "wrong_signature",
      version: .two
    ) { api in
      var parts = bought.signed(by: api.apple.signer).split(separator: ".").map(String.init)
      parts[1] =
        Notice("TEST", on: 0.1).signed(by: api.apple.signer).split(separator: ".")
        .map(String.init)[1]
      return signed(parts.joined(separator: "."))
    },
    Bad(
      name: "another app", code: "wrong_bundle_id", reason: "wrong_bundle_id", version: .two
    ) { api in
      var payment = month
      payment.bundleID = "com.example.other"
      return signed(
        Notice("SUBSCRIBED", nil, payment, nil, on: 0.1).signed(by: api.apple.signer))
    },
    Bad(
      name: "another app inside", code: "invalid_signature", reason: "other_app", version: .two
    ) { api in
      var payment = month
      payment.bundleID = "com.example.other"
      let transaction = api.apple.signer.sign(payment.json(signedOn: 0.1))
      return signed(
        Notice(
          "SUBSCRIBED", on: 0.1,
          contents: [
            (
              "data",
              [
                "bundleId": .string(SimulatedApp.sample.bundleID), "environment": "Production",
                "signedTransactionInfo": .string(transaction),
              ]
            )
          ]
        ).signed(by: api.apple.signer))
    },
    Bad(
      name: "another line inside", code: "invalid_signature", reason: "other_line", version: .two
    ) { api in
      var future = on
      future.line = "2000"
      return signed(
        Notice("SUBSCRIBED", nil, month, future, on: 0.1).signed(by: api.apple.signer))
    },
    Bad(
      name: "an inner part of another signer", code: "invalid_signature",
      reason: "untrusted_chain", version: .two
    ) { api in
      let forged = try SimulatedSigner().sign(month.json(signedOn: 0.1))
      return signed(
        Notice(
          "SUBSCRIBED", on: 0.1,
          contents: [
            (
              "data",
              [
                "bundleId": .string(SimulatedApp.sample.bundleID), "environment": "Production",
                "signedTransactionInfo": .string(forged),
              ]
            )
          ]
        ).signed(by: api.apple.signer))
    },
    Bad(
      name: "Xcode", code: "invalid_signature", reason: "not_signed_by_apple", version: .two
    ) { api in
      var payment = month
      payment.environment = "Xcode"
      return signed(
        Notice("SUBSCRIBED", nil, payment, nil, on: 0.1).signed(by: api.apple.signer))
    },
  ]

  @Test(arguments: bad)
  func `a bad one is 400, applied in nothing, and leaves a trace without its content`(
    bad: Bad
  ) async throws {
    let log = RecordedLog()
    try await TestAPI.run(logger: log.logger) { api in
      api.live(until: 0.2)
      let body = try bad.body(api)
      let answer = try await api.send(.post, "/v1/appstore/notifications", body, as: .anonymous)
      #expect(answer.status == 400, "\(answer)")
      #expect(answer.code == bad.code, "\(answer)")
      #expect(answer["detail"]?.string?.isEmpty == false)
      #expect(try await api.count("notification") == 0)
      #expect(try await api.count("ledger_entry") == 0)
      #expect(try await api.openJobs() == 0)

      let trace = try await api.ledger.notifications.refusedNotifications(since: storyDay(0))
      #expect(trace.count == 1)
      let refused = try #require(trace.first)
      #expect(refused.reason == bad.reason)
      #expect(refused.version == bad.version)
      #expect(refused.count == 1)
      #expect(refused.lastAt == storyDay(0.2))
      #expect(refused.lastDetail == answer["detail"]?.string)
      #expect(refused.lastBodyBytes >= body.count)
      #expect((refused.lastBodySHA256 == nil) == (bad.reason == "too_long"))
      let shown = log.text
      #expect(shown.contains(bad.reason))
      for text in [answer.text, refused.lastDetail, shown] {
        #expect(!text.contains("secret-content"))
        #expect(!text.contains("eyJ"))
      }
    }
  }

  @Test func `the first refusal of each reason in a minute is logged`() async throws {
    let log = RecordedLog()
    @Sendable func logged() -> Int {
      log.lines.count { $0.message.hasPrefix("Notification refused") }
    }
    try await TestAPI.run(logger: log.logger) { api async throws in
      for _ in 0..<3 { #expect(try await api.post(["a": 1]).status == 400) }
      #expect(logged() == 1)
      #expect(try await api.post(["signedPayload": "a"]).status == 400)
      #expect(logged() == 2)
      api.apple.simulation.advance(by: .minutes(1))
      #expect(try await api.post(["a": 1]).status == 400)
      #expect(logged() == 3)
    }
  }

  @Test func `a flood of bad ones makes one row`() async throws {
    try await TestAPI.run { api in
      try await withThrowingTaskGroup(of: Void.self) { group in
        for number in 1...40 {
          group.addTask {
            let answer = try await api.post(["signedPayload": .string("a.\(number)")])
            #expect(answer.status == 400)
          }
        }
        try await group.waitForAll()
      }
      // The last writer has written for all.
      let trace = try await api.ledger.notifications.refusedNotifications(since: storyDay(0))
      #expect(trace.map(\.count) == [40])
    }
  }

  @Test func `a refused one does not depend on its trace`() async throws {
    try await TestAPI.run { api in
      try await api.database.execute("DROP TABLE tenure.notification_refusal CASCADE")
      #expect(try await api.post(["a": 1]).status == 400)
    }
  }

  @Test func `no Content-Type is asked for, and none is in the way`() async throws {
    try await TestAPI.run { api in
      api.live(until: 0.2)
      let body = JSONValue.object([
        ("signedPayload", .string(Self.bought.signed(by: api.apple.signer)))
      ]).bytes
      for type in ["application/json; charset=utf-8", "text/plain", ""] {
        var headers: HTTPFields = [:]
        if !type.isEmpty { headers[.contentType] = type }
        let answer = try await api.send(
          .post, "/v1/appstore/notifications", body, as: .anonymous, headers: headers)
        #expect(answer.status == 200, "\(type)")
      }
    }
  }
}
