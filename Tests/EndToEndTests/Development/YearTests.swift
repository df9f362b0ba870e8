import Foundation
import LedgerStorage
import Logging
import ScratchDatabases
import Subscriptions
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// The demo with two hundred customers, on a smaller scale.
@Suite("A year of subscriptions")
struct YearTests {
  @Test("ends with what is true, for every customer")
  func equalsTheTruth() async throws {
    let seed = Seed.chosen()
    print("A year of subscriptions: TENURE_TEST_SEED=\(seed)")
    let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
    let plan = YearPlan(seed: seed, customers: 6)
    let comparison = try await withScratchDatabase { database in
      try await withTemporaryDirectory { directory in
        let world = YearEnvironment(plan: plan, logger: quiet)
        let comparison = try await world.live(in: database, directory: directory)
        // The present rule gives every charge to its recorded owner.
        let ledger = Ledger(database: database)
        let (whatIf, _) = try await ledger.auditor.compare(
          with: .presentRule(.standard), in: .all, at: plan.end
        ) {
          Issue.record("TENURE_TEST_SEED=\(seed): \($0.rows)")
        }
        #expect(whatIf.charges == comparison.audit.charges)
        // And its pages can be looked at afterwards, as on its last day.
        let keys = DemoKeys()
        try await world.show(database, directory: directory, to: keys) { address in
          try await DemoVisit.logIn(to: address + "/admin", with: keys.admin)
          let active = try await DemoVisit.get(
            address + "/v1/reports/active?format=csv&bucket=month",
            ("Authorization", "Bearer \(keys.admin)"))
          let months = active.split(separator: "\r\n").dropFirst()
          #expect(
            months.last?.hasPrefix((plan.end + .seconds(-1)).description.prefix(7)) == true,
            "\(active)")
        }
        return comparison
      }
    }
    #expect(comparison.differences == [], "TENURE_TEST_SEED=\(seed)")
    #expect(comparison.audit.isClean, "TENURE_TEST_SEED=\(seed)")
    #expect(comparison.charges > plan.customers)
  }
}
