import Foundation
import LedgerStorage
import Logging
import ScratchDatabases
import Testing

@testable import tenure

/// What the demo shows of two hundred customers, in small.
@Suite("A year of subscriptions")
struct YearTests {
  @Test("ends with what is true, for every customer")
  func equalsTheTruth() async throws {
    let seed = Seed.chosen()
    print("A year of subscriptions: TENURE_TEST_SEED=\(seed)")
    let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
    let plan = YearPlan(seed: seed, customers: 12)
    let comparison = try await withScratchDatabase { database in
      try await withTemporaryDirectory { directory in
        try await YearWorld(plan: plan, logger: quiet).live(in: database, directory: directory)
      }
    }
    #expect(comparison.differences == [], "TENURE_TEST_SEED=\(seed)")
    #expect(comparison.audit.isClean, "TENURE_TEST_SEED=\(seed)")
    #expect(comparison.charges > plan.customers)
  }
}
