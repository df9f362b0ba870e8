import Testing

/// Each target imports only what lies below it.
struct ImportTests {
  @Test func everyImportIsInTheTable() {
    Repository.sources.flatMap(ImportTable.findings).report()
  }

  @Test func theTablePointsDownward() {
    var above: Set<String> = []
    for (target, mayImport) in ImportTable.rows {
      #expect(mayImport.isSubset(of: above), "\(target) imports what stands below it")
      #expect(above.insert(target).inserted, "\(target) stands there twice")
    }
  }

  @Test(arguments: [
    // file                               code                                    is a finding
    ("Sources/Intake/X.swift", "import LedgerStorage", false),
    ("Sources/Intake/X.swift", "import Logging", false),
    ("Sources/Intake/X.swift", "// import HTTPAPI", false),
    ("Sources/Intake/X.swift", "import HTTPAPI", true),
    ("Sources/Intake/X.swift", "import Postgres", true),
    ("Sources/HTTPAPI/X.swift", "package import BackgroundJobs", true),
    ("Sources/Subscriptions/X.swift", "import struct Foundation.UUID", false),
    ("Sources/Subscriptions/X.swift", "package import struct LedgerStorage.Ledger", true),
    ("Sources/Subscriptions/X.swift", "import FoundationNetworking", true),
    ("Sources/Subscriptions/X.swift", "@preconcurrency import NIOCore", true),
    ("Sources/tenure/X.swift", "import Reports", false),
    ("Sources/tenure/X.swift", "import CLibpq", true),
    ("Sources/Helpers/X.swift", "", true),
    ("Tests/IntakeTests/X.swift", "@testable import Intake", false),
    ("Tests/IntakeTests/X.swift", "import Postgres", false),
    ("Tests/IntakeTests/X.swift", "import ScratchDatabases", false),
    ("Tests/IntakeTests/X.swift", "@testable import HTTPAPI", true),
    ("Tests/SubscriptionsTests/X.swift", "import Intake", true),
    ("Tests/ConventionTests/X.swift", "import Subscriptions", true),
    ("Tests/EndToEndTests/X.swift", "import HTTPAPI", false),
    ("Tests/OtherTests/X.swift", "", true),
  ])
  func canFail(path: String, code: String, isFinding: Bool) {
    #expect(ImportTable.findings(in: SwiftSource(path: path, text: code)).isEmpty != isFinding)
  }
}
