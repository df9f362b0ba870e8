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

/// All notifications of the simulated App Store, in each version, late,
/// duplicated and out of order.
struct NotificationQueueTests {
  /// Half a year on one phone: bought, switched off and on, renewed, refunded, bought again.
  private func live(_ simulation: AppStoreSimulation) throws -> OriginalTransactionID {
    let bought = try simulation.buy("monthly", on: "anna")
    let line = bought.originalTransactionID
    simulation.advance(by: .days(10))
    try simulation.setAutoRenew(false, line)
    simulation.advance(by: .days(2))
    try simulation.setAutoRenew(true, line)
    simulation.advance(by: .days(60))
    try simulation.refund(bought.transactionID)
    _ = try simulation.buy("quarterly", on: "anna")
    _ = try simulation.buy("coins.100", on: "anna")
    simulation.advance(by: .days(100))
    return line
  }

  private func work(_ api: TestAPI) async throws {
    while true {
      let jobs = try await api.ledger.claimJobs(
        limit: 100, worker: "w", at: api.apple.simulation.now, lease: .seconds(60))
      guard !jobs.isEmpty else { return }
      for job in jobs {
        guard job.kind == .processNotification else { continue }
        #expect(try await api.api.notifications.process(job.subject, worker: job.worker) == nil)
      }
    }
  }

  @Test(arguments: SimulatedNotification.Version.allCases)
  func `all of it is understood, in any order`(version: SimulatedNotification.Version) async throws
  {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.describe("quarterly", "premium")
      try api.addCustomer("anna")
      let simulation = api.apple.simulation
      try simulation.setNotificationTargets([
        NotificationTarget(version, url: "http://127.0.0.1/v1/appstore/notifications")
      ])
      let line = try live(simulation)
      let mail = simulation.notifications()
      #expect(mail.count > 5)
      // The last first, and every other one twice.
      let sent = mail.reversed() + mail.enumerated().filter { $0.offset % 2 == 0 }.map(\.element)
      for notification in sent {
        let answer = try await api.send(
          .post, "/v1/appstore/notifications", notification.body, as: .anonymous)
        #expect(answer.status == 200, "\(notification.type): \(answer)")
      }
      try await work(api)
      #expect(try await api.count("notification", where: "outcome IS NULL") == 0)
      #expect(try await api.count("notification", where: "outcome = 'rejected'") == 0)
      #expect(try await api.count("notification_refusal") == 0)
      #expect(try await api.openJobs() == 0)
      #expect(try await api.count("ledger_entry", where: "source <> 'notification'") == 0)

      // The ledger has Apple's data of the line: the same charges, ends and revocations.
      let shown = try await api.get("/v1/original-transactions/\(line)")
      let asked = try await TestAPI.factsOfApplesReceipt(of: line, simulation: simulation, api)
      #expect(shown["transactions"]?.array?.map(Self.facts) == asked.map(Self.facts))
      #expect(shown["auto_renewing"] == true)
      #expect(shown["account_id"] == .null)
    }
  }

  /// The facts of a transaction common to both sources; receipts contain no price and no kind.
  private static func facts(_ transaction: JSONValue) -> [JSONValue?] {
    ["transaction_id", "product_id", "purchased_at", "expires_at", "revoked_at"].map {
      transaction[$0]
    }
  }
}

extension TestAPI {
  /// The line in a separate ledger that received only a receipt.
  fileprivate static func factsOfApplesReceipt(
    of line: OriginalTransactionID, simulation: AppStoreSimulation, _ api: TestAPI
  ) async throws -> [JSONValue] {
    let receipt = try simulation.receipt(on: "anna")
    let answer = simulation.verifyReceipt(
      JSONValue.object([
        ("receipt-data", .string(receipt)),
        ("password", .string(SimulatedApp.sample.sharedSecret)),
      ]).bytes, at: .production)
    let facts = TestFacts()
    try await TestAPI.run { other in
      other.apple.simulation.clock.advance(to: simulation.now)
      other.apple.answer(receipt, with: answer.body)
      _ = try await other.submit("anna", receipt: receipt, ["restore": true])
      let shown = try await other.get("/v1/original-transactions/\(line)")
      await facts.set(shown["transactions"]?.array ?? [])
    }
    return await facts.value
  }
}

private actor TestFacts {
  private(set) var value: [JSONValue] = []
  func set(_ value: [JSONValue]) { self.value = value }
}
