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

/// Polls of a line without any submission or notification.
struct StatusPollTests {
  private static let bundleID = SimulatedApp.sample.bundleID

  private static func line(_ event: SimulatedEvent) -> OriginalTransactionKey {
    OriginalTransactionKey(.production, event.originalTransactionID)
  }

  /// The sources of a line's entries.
  private func sources(of line: OriginalTransactionKey, in api: TestAPI) async throws -> Set<
    EntrySource.Kind
  > {
    Set(try await api.ledger.ownership.history(of: [line]).map(\.source.kind))
  }

  @Test func `a renewal without a submission is found and decided`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      _ = try await api.submit("anna", from: "anna")
      api.apple.simulation.advance(by: .days(32))
      let polled = try #require(try await api.poll.poll(Self.line(bought), of: Self.bundleID))
      #expect(polled.recorded.isChanged)
      #expect(polled.refusals == [])
      let original = try #require(polled.recorded.originals[Self.line(bought)])
      #expect(original.changes.map(\.decision.rule) == [.activelyAutoRenewing])
      #expect(
        try await api.state(of: bought.originalTransactionID.rawValue)
          == "anna, active, on, until 59, access")
      #expect(try await sources(of: Self.line(bought), in: api) == [.receipt, .poll])
    }
  }

  @Test func `everything of the customer comes, on as many pages as it takes`() async throws {
    try await TestAPI.run { api in
      try await api.describe("coins.100", "coins", type: .consumable)
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("news.weekly", on: "anna")
      let coins = try api.apple.simulation.buy("coins.100", on: "anna")
      api.apple.simulation.advance(by: .days(7 * 50 + 1))
      let polled = try #require(try await api.poll.poll(Self.line(coins), of: Self.bundleID))
      #expect(
        Set(polled.recorded.originals.keys) == [Self.line(bought), Self.line(coins)])
      let original = try #require(try await api.ledger.ownership.original(of: Self.line(bought)))
      #expect(original.rule.charges.count == 51)
      #expect(original.rule.decisions.allSatisfy { $0.rule == .unclaimed })
      #expect(try await api.ledger.auditor.audit().differences.map(\.description) == [])
    }
  }

  @Test func `after the last revision only changes are requested`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("lifetime", on: "anna")
      let line = Self.line(bought)
      let first = try #require(try await api.poll.poll(line, of: Self.bundleID))
      #expect(first.recorded.isChanged)
      let revision = try #require(first.revision)
      // Nothing has happened: there is not even a line to look at.
      let second = try #require(
        try await api.poll.poll(line, of: Self.bundleID))
      #expect(!second.recorded.isChanged)
      #expect(second.recorded.originals.isEmpty)
      #expect(second.revision == revision)
      // A changed transaction is listed again.
      api.apple.simulation.advance(by: .days(1))
      try api.apple.simulation.refund(bought.transactionID)
      let third = try #require(
        try await api.poll.poll(line, of: Self.bundleID))
      #expect(third.recorded.isChanged)
      #expect(third.revision != revision)
      #expect(third.recorded.originals[line]?.revocationChanges.count == 1)
      #expect(try await api.ledger.polls.historyRevision(of: line) == third.revision)
      // One that Apple does not know any more costs a longer answer and nothing else.
      try await api.database.runScript("UPDATE tenure.history_revision SET revision = 'forgotten'")
      let fourth = try #require(try await api.poll.poll(line, of: Self.bundleID))
      #expect(fourth.recorded.originals[line] != nil)
      #expect(fourth.revision == third.revision)
    }
  }

  @Test func `a charge that names its account fulfils its order, and a refund follows`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("coins.100", "coins", type: .consumable)
      try api.addCustomer("anna")
      let order = try await api.call(
        .post, "/v1/orders", ["account_id": "4711", "product_id": "coins.100"])
      let id = try #require(order["order_id"]?.string)
      let token = try #require(
        order["app_account_token"]?.string.flatMap { UUID(uuidString: $0) })
      let bought = try api.apple.simulation.buy("coins.100", on: "anna", appAccountToken: token)
      _ = try await api.poll.poll(Self.line(bought), of: Self.bundleID)
      #expect(try await api.get("/v1/orders/\(id)")["status"] == "fulfilled")
      api.apple.simulation.advance(by: .days(1))
      try api.apple.simulation.refund(bought.transactionID)
      _ = try await api.poll.poll(Self.line(bought), of: Self.bundleID)
      #expect(try await api.get("/v1/orders/\(id)")["status"] == "refunded")
    }
  }

  @Test func `what Apple did not sign is left out, and asked for again`() async throws {
    try await TestAPI.run { api in
      api.live(until: 32)
      let stranger = try SimulatedSigner()
      let good = Payment(id: "1", from: 0, to: 30)
      let bad = Payment(id: "2", from: 30, to: 60, reason: "RENEWAL")
      func page(_ revision: String, _ signed: [String], hasMore: Bool) -> [UInt8] {
        let body: JSONValue = [
          "revision": .string(revision), "hasMore": .bool(hasMore),
          "bundleId": .string(Self.bundleID), "environment": "Production",
          "signedTransactions": .array(signed.map { .string($0) }),
        ]
        return body.bytes
      }
      let history = "/inApps/v2/history/1000?sort=ASCENDING"
      let statuses: JSONValue = [
        "bundleId": .string(Self.bundleID), "environment": "Production", "data": [],
      ]
      let signer = api.apple.signer
      api.apple.answerServerAPI(with: [
        history: page("r1", [signer.sign(good.json(signedOn: 31))], hasMore: true),
        history + "&revision=r1": page(
          "r2", [stranger.sign(bad.json(signedOn: 31))], hasMore: true),
        history + "&revision=r2": page("r3", [], hasMore: false),
        "/inApps/v1/subscriptions/1000": statuses.bytes,
      ])
      let polled = try #require(
        try await api.poll.poll(OriginalTransactionKey(.production, "1000"), of: Self.bundleID))
      #expect(polled.refusals.map(\.reason.rawValue) == ["untrusted_chain"])
      #expect(polled.revision == "r1")
      #expect(
        try await api.ledger.ownership.original(of: OriginalTransactionKey(.production, "1000"))?
          .rule
          .charges.count == 1)
    }
  }

  @Test func `where Apple does not answer everything, nothing is recorded`() async throws {
    try await TestAPI.run { api in
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      let line = Self.line(bought)
      let history = "/inApps/v2/history/\(line.originalTransactionID)?sort=ASCENDING"
      let page: JSONValue = [
        "revision": "r1", "hasMore": false, "bundleId": .string(Self.bundleID),
        "environment": "Production",
        "signedTransactions": [
          .string(try api.apple.simulation.signedTransaction(of: bought.transactionID))
        ],
      ]
      // The statuses fail.
      api.apple.answerServerAPI(with: [history: page.bytes])
      await #expect(throws: AppStoreServerAPIError.self) {
        try await api.poll.poll(line, of: Self.bundleID)
      }
      #expect(try await api.count("ledger_entry") == 0)
      // Nor does it know a line of another app, or none at all.
      api.apple.answerServerAPI(with: nil)
      await #expect(throws: AppStoreServerAPIError.self) {
        try await api.poll.poll(OriginalTransactionKey(.production, "666"), of: Self.bundleID)
      }
      #expect(try await api.count("ledger_entry") == 0)
    }
  }

  @Test func `without a key for the App Store Server API nothing is asked`() async throws {
    try await TestAPI.run { api in
      var services = api.intake.services
      services.serverAPI = nil
      let poll = StatusPoller(services)
      let polled = try await poll.poll(
        OriginalTransactionKey(.production, "1"), of: Self.bundleID)
      #expect(polled == nil)
    }
  }

  @Test func `a stored receipt is worth asking about, too`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      let receipt = try api.apple.simulation.receipt(on: "anna")
      _ = try await api.submit("anna", receipt: receipt)
      api.apple.simulation.advance(by: .days(32))
      let polled = try await api.poll.poll(receipt: receipt, of: Self.bundleID)
      #expect(polled.recorded?.isChanged == true)
      #expect(polled.verification.exchanges.count == 1)
      #expect(
        try await api.state(of: bought.originalTransactionID.rawValue)
          == "anna, active, on, until 59, access")
      #expect(try await sources(of: Self.line(bought), in: api) == [.receipt, .poll])
      let entries = try await api.count("ledger_entry")

      // A receipt that Apple does not vouch for, and Apple away.
      let rejected = try await api.poll.poll(receipt: "bm9uZQ==")
      #expect(rejected.recorded == nil)
      api.apple.setDown(true)
      let unanswered = try await api.poll.poll(receipt: receipt)
      #expect(unanswered.recorded == nil)
      guard case .retry = unanswered.verification.verdict else {
        Issue.record("\(unanswered.verification.verdict)")
        return
      }
      #expect(try await api.count("ledger_entry") == entries)
    }
  }
}
