import Crypto
import Foundation
import LedgerStorage
import Logging
import Postgres
import ScratchDatabases
import Secrets
import Subscriptions
import Testing

@testable import Bootstrap
@testable import Development
@testable import HTTPAPI
@testable import Intake
@testable import tenure

@Suite("The doctor")
struct DoctorTests {
  private struct Report: Decodable {
    struct Finding: Decodable {
      var check: String
      var verdict: String
      var found: String
      var remedy: String?
    }

    var isHealthy: Bool
    var findings: [Finding]

    func verdicts(of check: String) -> Set<String> {
      Set(findings.filter { $0.check == check }.map(\.verdict))
    }
  }

  /// The settings of a healthy installation that uses the simulated Apple.
  private static func settings(
    _ apple: SimulatedApple, _ database: ConnectionPool
  ) -> [String: String] {
    let appStore = apple.settings["TENURE_APPSTORE_API_URL"] ?? ""
    return apple.settings.merging([
      "DATABASE_URL": database.uri, "TENURE_API_KEYS": "ops:admin:secret-for-trying",
      "TENURE_APPSTORE_SHARED_SECRET": "0123456789abcdef0123456789abcdef",
      "TENURE_APPSTORE_VERIFY_RECEIPT_URL": "\(appStore)/verifyReceipt",
      "TENURE_APPSTORE_SANDBOX_VERIFY_RECEIPT_URL": "\(appStore)/sandbox/verifyReceipt",
    ]) { $1 }
  }

  private static func examine(
    _ settings: [String: String]
  ) async throws -> (report: Report, status: Int32) {
    let outcome = try await TenureProgram.run(
      "doctor", "--format", "json", environment: settings)
    let decoder = JSONDecoder()
    decoder.keyDecodingStrategy = .convertFromSnakeCase
    let report = try decoder.decode(Report.self, from: Data(outcome.output.utf8))
    for finding in report.findings where finding.verdict != "ok" {
      #expect(finding.remedy?.isEmpty == false, "\(finding.check)")
    }
    return (report, Int32(outcome.status))
  }

  @Test("what is well is said to be, with exit status 0")
  func healthy() async throws {
    try await withScratchDatabase { database in
      try await SimulatedApple.serving(from: .now) { apple in
        let (report, status) = try await Self.examine(Self.settings(apple, database))
        #expect(status == 0, "\(report.findings.filter { $0.verdict == "fault" })")
        #expect(report.isHealthy)
        for check in [
          "settings.api_keys", "settings.apps", "settings.shared_secret",
          "settings.root_certificates", "database.version", "database.clock",
          "database.prepared_statements", "database.autovacuum", "database.jit", "database.schema",
          "database.reports", "work.backlog", "work.parked", "apple.verify_receipt.production",
          "apple.verify_receipt.sandbox", "apple.server_api.production",
          "apple.server_api.sandbox",
        ] {
          #expect(report.verdicts(of: check) == ["ok"], "\(check)")
        }
        // No server has run and no notification has arrived.
        #expect(report.verdicts(of: "work.server") == ["warning"])
        #expect(report.verdicts(of: "work.notifications") == ["warning"])
        let text = try await TenureProgram.run(
          "doctor", environment: Self.settings(apple, database))
        #expect(text.output.contains("ok       database.schema"))
        for secret in ["secret-for-trying", "0123456789abcdef0123456789abcdef"] {
          #expect(!text.output.contains(secret))
        }
        // What has failed is said with the date of the first.
        try await database.execute(
          """
          INSERT INTO tenure.job (kind, subject, queue, run_at, discarded_at, last_error, created_at)
          SELECT 'reconcile', n::text, 'maintenance', now(), '2026-11-01Z'::timestamptz + n * interval '1 day',
            'down', now()
          FROM generate_series(0, 1) AS n
          """)
        let failed = try await Self.examine(Self.settings(apple, database)).report.findings
        #expect(
          failed.first { $0.check == "work.parked" }?.found
            == "Parked jobs, since 2026-11-01T00:00:00.000Z: 2 reconcile.")
      }
    }
  }

  @Test("a running program's private database, which has no URL, is checked for late work")
  func privateDatabase() async throws {
    try await withScratchDatabase { database in
      let settings = try Settings(await SettingSource(environment: [:]))
      let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
      let alone = Doctor(settings: settings, logger: logger)
      #expect(await alone.databaseFindings().isEmpty)
      let doctor = Doctor(settings: settings, logger: logger, ledger: Ledger(database: database))
      #expect(
        Set(await doctor.databaseFindings().map(\.check)) == [
          "work.backlog", "work.parked", "work.notifications", "database.vacuum",
        ])
      // Nobody knows of missed notifications before the first comparison.
      try await database.execute(
        """
        INSERT INTO tenure.notification (notification_id, version, received_at, body_sha256,
          processed_at, outcome, notification_type, environment, bundle_id, signed_at, arrival,
          attempts)
        VALUES ('n1', 2, now(), sha256('b'), now(), 'recorded', 'DID_RENEW', 'production', 'com.a',
          now(), 'delivered', 1)
        """)
      let history = await doctor.databaseFindings().first { $0.check == "work.notifications" }
      #expect(history?.verdict == .warning && history?.remedy != nil)
      #expect(history?.found.contains("never compared") == true)
      try await database.execute("DROP TABLE tenure.notification CASCADE")
      let fault = await doctor.databaseFindings()
      #expect(fault.map(\.check) == ["database"] && fault[0].verdict == .fault)
    }
  }

  // swift-format-ignore
  @Test("what is amiss is a fault, with exit status 1", arguments: [
    // settings                                                                               check
    (["TENURE_HTTP_PORT": "many"],                                                            "settings"),
    (["TENURE_API_KEYS": ""],                                                                 "settings.api_keys"),
    (["DATABASE_URL": "postgresql://unknown@127.0.0.1:1/none"],                                "database"),
    (["TENURE_APPSTORE_VERIFY_RECEIPT_URL": "http://127.0.0.1:1/verifyReceipt"],              "apple.verify_receipt.production"),
    (["TENURE_APPSTORE_SANDBOX_API_URL": "http://127.0.0.1:1"],                               "apple.server_api.sandbox"),
    (["TENURE_WEBHOOK_URL": "http://127.0.0.1:1/", "TENURE_WEBHOOK_SECRET": "0123456789abcdef",
      "TENURE_WEBHOOK_ALLOW_PRIVATE": "on"],                                                  "webhook.receiver"),
  ])
  func broken(change: [String: String], check: String) async throws {
    try await withScratchDatabase { database in
      try await SimulatedApple.serving(from: .now) { apple in
        let settings = Self.settings(apple, database).merging(change) { $1 }
        let (report, status) = try await Self.examine(settings)
        #expect(status == 1)
        #expect(!report.isHealthy)
        #expect(report.verdicts(of: check) == ["fault"], "\(report.findings)")
      }
    }
  }

  @Test("a shared secret is not tried, and one that looks like none is warned of")
  func sharedSecret() async throws {
    for (secret, verdict, word) in [
      ("0123456789abcdef0123456789abcdef", "ok", "not tried"),
      ("REPLACE-ME", "warning", "does not look like one"),
    ] {
      let settings = try Settings(
        await SettingSource(environment: [
          "TENURE_BUNDLE_IDS": "com.example.app", "TENURE_APPSTORE_SHARED_SECRET": secret,
        ]))
      let doctor = Doctor(
        settings: settings,
        logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
      let finding = try #require(
        doctor.settingFindings().first { $0.check == "settings.shared_secret" })
      #expect(finding.verdict.rawValue == verdict)
      #expect(finding.found.contains(word))
      #expect(!finding.found.contains(secret))
    }
  }

  @Test("all wrong settings are findings")
  func severalFaults() async throws {
    let (report, status) = try await Self.examine([
      "TENURE_HTTP_PORT": "many", "TENURE_LOG_LEVEL": "loud", "TENURE_BUNDLE_IDS": "a,a",
    ])
    #expect(status == 1)
    #expect(report.findings.allSatisfy { $0.check == "settings" && $0.verdict == "fault" })
    for name in [
      "TENURE_HTTP_PORT", "TENURE_LOG_LEVEL", "TENURE_BUNDLE_IDS", "TENURE_API_KEYS",
    ] {
      #expect(report.findings.contains { $0.found.hasPrefix("\(name): ") }, "\(name)")
    }
    #expect(report.findings.count == 4)
  }

  @Test("a key that Apple does not know, and a file that everybody can read")
  func strangeKey() async throws {
    try await withScratchDatabase { database in
      try await SimulatedApple.serving(from: .now) { apple in
        try await withTemporaryDirectory { directory in
          let file = directory.appending(path: "strange.p8")
          try P256.Signing.PrivateKey().pemRepresentation.write(
            to: file, atomically: true, encoding: .utf8)
          let path = file.path(percentEncoded: false)
          try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: path)
          let settings = Self.settings(apple, database).merging([
            "TENURE_APPSTORE_PRIVATE_KEY": path
          ]) { $1 }
          let (report, status) = try await Self.examine(settings)
          #expect(status == 1)
          #expect(report.verdicts(of: "apple.server_api.sandbox") == ["fault"])
          #expect(report.verdicts(of: "settings.app_store_key") == ["warning"])
        }
      }
    }
  }

  @Test("a database with another schema must be migrated")
  func otherSchema() async throws {
    try await withScratchDatabase { database in
      try await SimulatedApple.serving(from: .now) { apple in
        try await database.execute(
          "INSERT INTO tenure.schema_version VALUES (1000, now(), 1000)")
        let (report, status) = try await Self.examine(Self.settings(apple, database))
        #expect(status == 1)
        let fault = report.findings.first { $0.check == "database.schema" }
        #expect(fault?.verdict == "fault")
        #expect(fault?.remedy?.hasPrefix("Update Tenure") == true)
      }
    }
  }

  // On a Citus the tests are no superuser, and may not take that role.
  @Test(
    "a role that is not a member is asked to become one",
    .disabled(if: ScratchPlace.environment.isDistributed))
  func stranger() async throws {
    try await withScratchDatabase { database in
      try await SimulatedApple.serving(from: .now) { apple in
        // A role that every server has, and that has no right here.
        let uri = database.uri + "&options=-c%20role%3Dpg_signal_backend"
        let settings = Self.settings(apple, database).merging(["DATABASE_URL": uri]) { $1 }
        let (report, status) = try await Self.examine(settings)
        #expect(status == 1)
        let fault = report.findings.first { $0.check == "database.role" }
        #expect(fault?.verdict == "fault", "\(report.findings)")
        #expect(fault?.remedy?.contains("GRANT tenure_program TO") == true)
      }
    }
  }

  @Test("a database that compiles statements is warned about")
  func compiling() async throws {
    try await withScratchDatabase { database in
      // Not every PostgreSQL is built with a compiler.
      let isAvailable = try await database.withTransaction { transaction in
        try await transaction.execute("SET LOCAL jit = on")
        return try await transaction.query("SELECT pg_jit_available()").decodeOnly(Bool.self)
      }
      try await SimulatedApple.serving(from: .now) { apple in
        let uri = database.uri + "&options=-c%20jit%3Don"
        let settings = Self.settings(apple, database).merging(["DATABASE_URL": uri]) { $1 }
        let (report, status) = try await Self.examine(settings)
        #expect(status == 0)
        #expect(report.verdicts(of: "database.jit") == [isAvailable ? "warning" : "ok"])
      }
    }
  }

  // swift-format-ignore
  @Test("the hosts of a connection URI", arguments: [
    // URI                                                                     hosts
    ("postgresql://a@h/db",                                                    [:]),
    ("host=a,b dbname=db",                                                     [:]),
    ("postgresql://u@a,b:5433/db?target_session_attrs=read-write",             ["a": "postgresql://u@a/db", "b:5433": "postgresql://u@b:5433/db"]),
    ("postgres://u:p@a,b/db?sslmode=require&target_session_attrs=any",         ["a": "postgres://u:p@a/db?sslmode=require", "b": "postgres://u:p@b/db?sslmode=require"]),
  ] as [(String, [String: String])])
  func hosts(uri: String, hosts: [String: String]) {
    let found = DatabaseHost.hosts(in: Secret(uri))
    #expect(Dictionary(uniqueKeysWithValues: found.map { ($0.name, $0.uri.revealed) }) == hosts)
  }

  @Test(
    "clocks may differ a little",
    arguments: [
      // ahead by, known to, verdict
      (Duration.milliseconds(900), Duration.zero, DoctorFinding.Verdict.ok),
      (.seconds(3), .zero, .warning), (.seconds(-3), .zero, .warning),
      (.seconds(3), .seconds(2), .ok), (.seconds(61), .zero, .fault),
      (.seconds(-300), .seconds(1), .fault),
    ])
  func clocks(skew: Duration, precision: Duration, verdict: DoctorFinding.Verdict) {
    let finding = Doctor.clockFinding("clock", of: "It", skew: skew, precision: precision)
    #expect(finding.verdict == verdict)
  }
}
