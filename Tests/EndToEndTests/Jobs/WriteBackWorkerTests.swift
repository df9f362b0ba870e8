import AppStoreSimulator
import LedgerStorage
import Postgres
import Subscriptions
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("A worker that writes back to Apple")
struct WriteBackWorkerTests {
  /// Anna buys, and after a lapse ben buys on the same phone.
  ///
  /// - Parameter settled: Returns when the worker has finished the jobs of a purchase. The clock
  ///   jumps afterwards: a write-back in flight would put anna's token on ben's purchase.
  private func annaThenBen(
    _ assembly: Assembly, _ simulation: AppStoreSimulation,
    settled: (String) async throws -> Void = { _ in }
  ) async throws {
    try simulation.addAppleID("phone")
    try simulation.addDevice("phone", appleID: "phone")
    for account in ["anna", "ben"] {
      let bought = try simulation.buy("monthly", on: "phone")
      _ = try await assembly.intake.submit(
        SubmissionRequest(
          accountID: account,
          payload: .signedData(
            transactions: [try simulation.signedTransaction(of: bought.transactionID)],
            renewalInfo: [])))
      try await settled(account)
      try simulation.setAutoRenew(false, bought.originalTransactionID)
      simulation.advance(by: .days(40))
    }
  }

  /// Waits for a condition, at most two minutes.
  private func until(_ isSo: () async throws -> Bool) async throws {
    for _ in 0..<1200 {
      if try await isSo() { return }
      try await Task.sleep(for: .milliseconds(100))
    }
    Issue.record("It did not happen.")
  }

  @Test("writes the token of the latest buyer, and records the answer")
  func tells() async throws {
    let settings = [
      "TENURE_APPSTORE_WRITE_OWNERSHIP": "on", "TENURE_APPSTORE_ANSWER_CONSUMPTION": "on",
    ]
    try await SimulatedNetwork.withWorker(settings: settings) { assembly, simulation, database in
      try await annaThenBen(assembly, simulation) { account in
        try await until {
          try await database.query(
            """
            WITH account AS MATERIALIZED (
              SELECT account_key FROM tenure.account_by_key WHERE account_id = \(account))
            SELECT count(*) > 0 FROM tenure.app_store_write_back AS t
            JOIN account USING (account_key)
            WHERE t.kind = 'ownership' AND t.outcome = 'accepted'
            """
          ).decodeOnly(Bool.self)
        }
      }
      let ben = try #require(try await assembly.ledger.accounts.account("ben"))
      #expect(simulation.truth().last?.appAccountToken == ben.appAccountToken)
      let bought = try #require(simulation.truth().last).transactionID
      _ = try await assembly.ledger.writeBacks.setConsumptionConsent(
        true, of: "ben", at: simulation.now)
      let mail = simulation.notifications().count
      try simulation.requestRefund(bought)
      for notification in simulation.notifications().dropFirst(mail) {
        _ = try await assembly.notifications.receive(notification.body)
      }
      try await until {
        try await database.query(
          """
          SELECT count(*) > 0 FROM tenure.app_store_write_back
          WHERE kind = 'consumption' AND outcome = 'accepted'
          """
        ).decodeOnly(Bool.self)
      }
      #expect(try simulation.consumptionReports(of: bought).count == 1)
    }
  }

  @Test("sends nothing unless it is enabled")
  func silence() async throws {
    try await SimulatedNetwork.withWorker { assembly, simulation, database in
      try await annaThenBen(assembly, simulation)
      let jobs = try await database.query(
        "SELECT count(*) FROM tenure.job WHERE queue IN ('write_back', 'sandbox_write_back')"
      ).decodeOnly(Int.self)
      #expect(jobs == 0)
    }
  }
}
