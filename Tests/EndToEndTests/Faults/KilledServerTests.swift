import AppStoreSimulator
import Foundation
import LedgerStorage
import Logging
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// `kill -9` of `tenure serve` at random moments, while a crowd of customers submits receipts and
/// signed transactions.
@Suite("A server that is killed")
struct KilledServerTests {
  static let submissions = 1000
  static let kills = 10

  @Test("loses no submission, gives no charge two owners and fulfils no order twice")
  func losesNothing() async throws {
    let seed = Seed.chosen()
    print("A server that is killed: TENURE_TEST_SEED=\(seed)")
    try await withScratchDatabase { database in
      try await withTemporaryDirectory { directory in
        try await withShop(seed: seed, database, directory) { shop in
          let answers = try await shop.liveThroughKills(
            submissions: Self.submissions, kills: Self.kills)
          #expect(answers.count == Self.submissions)
          try await shop.catchUp()
          let proof = Proof(database: database, simulation: shop.simulation)
          try await proof.everyAnsweredReceiptIsStored(answers)
          try await proof.everyStoredReceiptIsDecided()
          try await proof.noChargeHasTwoOwners()
          try await proof.noOrderIsFulfilledTwice()
        }
      }
      let audit = try await TenureProgram.run(
        "audit", environment: ["DATABASE_URL": database.uri])
      #expect(audit.status == 0, "TENURE_TEST_SEED=\(seed): \(audit.output)")
    }
  }

  /// Runs a simulated App Store and a shop that sells through it.
  private func withShop(
    seed: UInt64, _ database: ConnectionPool, _ directory: URL,
    _ body: @escaping @Sendable (Shop) async throws -> Void
  ) async throws {
    let logger = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
    let crowd = try Crowd(seed: seed)
    let appStore = AppStoreSimulatorServer(simulation: crowd.simulation, logger: logger)
    try await Crowd.describeProducts(to: Ledger(database: database))
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { try await appStore.run() }
      let shop = try await Shop.open(
        seed: seed, crowd: crowd, appStorePort: try await appStore.port, database: database,
        directory: directory)
      do {
        try await body(shop)
        await shop.close()
      } catch {
        await shop.close()
        throw error
      }
      group.cancelAll()
      // It ends by being cancelled.
      try? await group.waitForAll()
    }
  }
}
