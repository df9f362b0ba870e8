import AppStoreSimulator
import Intake
import LedgerStorage
import Postgres
import Subscriptions
import Testing

@testable import tenure

@Suite("A worker that tells Apple")
struct AppleTellingWorkerTests {
  /// Anna buys, and the same phone is ben's when it is bought again after a lapse.
  ///
  /// - Parameters:
  ///   - assembly: What the purchases are submitted to.
  ///   - simulation: Where they are bought.
  ///   - settled: Returns when the worker has done what follows from an account's purchase. The
  ///     clock leaps afterwards: a telling that is under way then would arrive weeks late, and put
  ///     anna's token on ben's purchase.
  /// - Throws: What the database says.
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

  /// Waits until something is so, two minutes at the most.
  private func until(_ isSo: () async throws -> Bool) async throws {
    for _ in 0..<1200 {
      if try await isSo() { return }
      try await Task.sleep(for: .milliseconds(100))
    }
    Issue.record("It did not happen.")
  }

  @Test("writes the token of whoever bought last, and answers what became of it")
  func tells() async throws {
    let settings = [
      "TENURE_APPSTORE_WRITE_OWNERSHIP": "on", "TENURE_APPSTORE_ANSWER_CONSUMPTION": "on",
    ]
    try await SimulatedNetwork.withWorker(settings: settings) { assembly, simulation, database in
      try await annaThenBen(assembly, simulation) { account in
        try await until {
          try await database.query(
            """
            SELECT EXISTS (SELECT FROM tenure.apple_telling AS t
            JOIN tenure.account_by_key USING (account_key)
            WHERE account_id = \(account) AND t.kind = 'ownership' AND t.outcome = 'accepted')
            """
          ).decodeOnly(Bool.self)
        }
      }
      let ben = try #require(try await assembly.ledger.account("ben"))
      #expect(simulation.truth().last?.appAccountToken == ben.appAccountToken)
      let bought = try #require(simulation.truth().last).transactionID
      _ = try await assembly.ledger.setConsumptionConsent(true, of: "ben", at: simulation.now)
      let mail = simulation.notifications().count
      try simulation.requestRefund(bought)
      for notification in simulation.notifications().dropFirst(mail) {
        _ = try await assembly.notifications.receive(notification.body)
      }
      try await until {
        try await database.query(
          """
          SELECT EXISTS (SELECT FROM tenure.apple_telling
          WHERE kind = 'consumption' AND outcome = 'accepted')
          """
        ).decodeOnly(Bool.self)
      }
      #expect(try simulation.consumptionReports(of: bought).count == 1)
    }
  }

  @Test("tells nothing where nobody wants it")
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
