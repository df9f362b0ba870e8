import AppStore
import AppStoreSimulator
import BackgroundJobs
import Foundation
import LedgerStorage
import Logging
import Postgres
import ScratchDatabases
import ServiceLifecycle
import Subscriptions
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("Missed notifications")
struct MissedNotificationTests {
  /// Runs a worker on a separate ledger and the simulation's clock.
  private func withWorker(
    hasKey: Bool = true,
    _ test: @Sendable (Assembly, AppStoreSimulation, ConnectionPool) async throws -> Void
  ) async throws {
    try await SimulatedNetwork.withWorker(hasKey: hasKey, test)
  }

  private typealias Comparison = (
    environment: Subscriptions.Environment, comparedAt: Timestamp, missing: Int,
    delayInMilliseconds: Int?
  )

  /// The recorded comparisons, latest first.
  private func comparisons(_ database: ConnectionPool) async throws -> [Comparison] {
    try await database.query(
      """
      SELECT environment, compared_at, missing, longest_delay_ms::int
      FROM tenure.notification_history_check ORDER BY comparison_id DESC
      """
    ).decode(Subscriptions.Environment.self, Timestamp.self, Int.self, Int?.self).map { $0 }
  }

  /// Waits until no comparison is due, two minutes at the most.
  private func untilCompared(
    _ simulation: AppStoreSimulation, _ database: ConnectionPool
  ) async throws {
    for _ in 0..<1200 {
      let due = try await database.query(
        """
        SELECT count(*) FROM tenure.job WHERE kind = 'compare_notifications'
          AND (run_at <= \(simulation.now) OR locked_until IS NOT NULL)
        """
      ).decodeOnly(Int.self)
      if due == 0 { return }
      try await Task.sleep(for: .milliseconds(100))
    }
    Issue.record("It was not compared.")
  }

  @Test("after a downtime the worker finds the notifications that were missed")
  func downtime() async throws {
    try await withWorker { assembly, simulation, database in
      let heartbeat = assembly.heartbeat()
      try await heartbeat.beat()
      try await untilCompared(simulation, database)
      // Production has 180 days, and the sandbox 30: each a row for seven days of them.
      let first = try await comparisons(database)
      #expect(Set(first.map(\.environment)) == [.production, .sandbox])
      #expect(first.count == 26 + 5)

      // The server is down during a purchase.
      try simulation.addAppleID("anna")
      try simulation.addDevice("anna", appleID: "anna")
      let bought = try simulation.buy("monthly", on: "anna")
      simulation.advance(by: .hours(2))
      try await heartbeat.beat()
      try await untilCompared(simulation, database)
      let found = try await comparisons(database).prefix(2).filter { $0.missing > 0 }
      #expect(found.map(\.missing) == [1])
      #expect(found.map(\.delayInMilliseconds) == [2 * 3_600_000])
      let line = OriginalTransactionKey(.production, bought.originalTransactionID)
      #expect(try await assembly.ledger.ownership.original(of: line)?.rule.charges.count == 1)

      // It beats on, and nothing is compared before a day is over.
      simulation.advance(by: .minutes(4))
      try await heartbeat.beat()
      let jobs = try await database.query(
        "SELECT run_at FROM tenure.job WHERE kind = 'compare_notifications'"
      ).decode(Timestamp.self)
      #expect(jobs.count == 2)
      #expect(jobs.allSatisfy { $0 > simulation.now + .hours(23) })
      // Then it is.
      simulation.advance(by: .hours(24))
      try await untilCompared(simulation, database)
      #expect(try await comparisons(database).count == 26 + 5 + 4)
    }
  }

  @Test("while Apple is away the comparison waits, and comes to its end")
  func appleAway() async throws {
    try await withWorker { assembly, simulation, database in
      simulation.setServerFaults { $0.outageEnd = simulation.now + .hours(3) }
      try await assembly.heartbeat().beat()
      for _ in 0..<8 {
        try await untilCompared(simulation, database)
        simulation.advance(by: .minutes(61))
      }
      try await untilCompared(simulation, database)
      let compared = try await comparisons(database)
      #expect(compared.count == 26 + 5)
      #expect(compared.allSatisfy { $0.comparedAt > simulation.now - .hours(7) })
    }
  }

  @Test("without a key nothing is compared, and nothing waits for ever")
  func noKey() async throws {
    try await withWorker(hasKey: false) { assembly, simulation, database in
      try await assembly.heartbeat().beat()
      try await assembly.ledger.notifications.scheduleComparison(
        bundleID: SimulatedApp.sample.bundleID, environment: .production, at: simulation.now)
      try await untilCompared(simulation, database)
      let jobs = try await database.query(
        "SELECT count(*) FROM tenure.job WHERE kind = 'compare_notifications'"
      ).decodeOnly(Int.self)
      #expect(jobs == 0)
    }
  }
}
