import AppStore
import AppStoreSimulator
import BackgroundJobs
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

@Suite("tenure poll")
struct PollCommandTests {
  private static let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })

  /// Anna's month ended two weeks ago without any evidence since: the poll is due.
  private func withAnna(
    _ test: @Sendable (SimulatedApple, ConnectionPool, SimulatedEvent) async throws -> Void
  ) async throws {
    try await withScratchDatabase { database in
      try await SimulatedApple.serving(from: Timestamp.now - .days(45)) { apple in
        let simulation = apple.simulation
        try simulation.addAppleID("anna")
        try simulation.addDevice("phone", appleID: "anna", account: "anna")
        let bought = try simulation.buy("monthly", on: "phone")
        let settings = try Settings(
          await SettingSource(flags: apple.settings, environment: [:]))
        let assembly = try await Assembly(
          database: database, settings: settings, transport: PreparedAppStore(),
          logger: Self.quiet)
        let answer = try await assembly.intake.submit(
          SubmissionRequest(
            accountID: "anna",
            payload: .signedData(
              transactions: [try simulation.signedTransaction(of: bought.transactionID)],
              renewalInfo: [])))
        guard case .verified = answer else {
          Issue.record("\(answer)")
          return
        }
        simulation.advance(by: .days(45))
        try await database.execute("UPDATE tenure.job SET run_at = '2020-01-01'")
        try await test(apple, database, bought)
      }
    }
  }

  private func poll(
    _ apple: SimulatedApple, _ database: ConnectionPool, _ arguments: String...,
    changing settings: [String: String] = [:]
  ) async throws -> ChildProcess.Outcome {
    let environment = apple.settings.merging(settings) { $1 }
      .merging(["DATABASE_URL": database.uri]) { $1 }
    return try await withTemporaryDirectory { directory in
      try await ChildProcess.run(
        try TenureProgram.executable, ["poll"] + arguments, environment: environment,
        in: directory)
    }
  }

  private func row(_ name: String, in outcome: ChildProcess.Outcome) -> String? {
    outcome.output.split(separator: "\n").first { $0.hasPrefix(name + " ") }
      .map { $0.dropFirst(name.count).trimmingCharacters(in: .whitespaces) }
  }

  @Test("one pass polls what is due, and says what it came to")
  func once() async throws {
    try await withAnna { apple, database, bought in
      let first = try await poll(apple, database, "--once")
      #expect(first.status == 0, "\(first.errors)")
      #expect(row("due", in: first) == "1", "\(first.output)")
      #expect(row("polled", in: first) == "1")
      #expect(row("changed", in: first) == "1")
      #expect(row("failed", in: first) == "0")
      #expect(row("rate limited", in: first) == "0")
      let line = OriginalTransactionKey(.production, bought.originalTransactionID)
      let original = try #require(try await Ledger(database: database).ownership.original(of: line))
      #expect(original.rule.charges.count == 2)

      let second = try await poll(apple, database, "--once")
      #expect(second.status == 0)
      #expect(row("due", in: second) == "0")
      let named = try await poll(
        apple, database, "--original-transaction-id", bought.originalTransactionID.rawValue)
      #expect(named.status == 0, "\(named.errors)")
      #expect(named.output.contains("unchanged"))
    }
  }

  @Test("Apple away is no failure; a key that Apple refuses is")
  func trouble() async throws {
    try await withAnna { apple, database, bought in
      let away = try await poll(
        apple, database, "--once",
        changing: ["TENURE_APPSTORE_API_URL": "http://127.0.0.1:1"])
      #expect(away.status == 0, "\(away.errors)")
      #expect(row("postponed", in: away) == "1", "\(away.output)")
      try await database.execute("UPDATE tenure.job SET run_at = '2020-01-01'")
      let refused = try await poll(
        apple, database, "--once", changing: ["TENURE_APPSTORE_KEY_ID": "OTHERKEY00"])
      #expect(refused.status == 1, "\(refused.output)")
      #expect(row("failed", in: refused) == "1")
    }
  }

  @Test(
    "what cannot be meant is refused",
    arguments: [
      ([], "Specify --once"),
      (["--once", "--original-transaction-id", "1"], "Specify --once"),
      (["--once", "--environment", "sandbox"], "--environment requires"),
      (["--once", "--wait", "-1"], "--wait"),
    ] as [([String], String)])
  func arguments(_ arguments: [String], words: String) async throws {
    let outcome = try await withTemporaryDirectory { directory in
      try await ChildProcess.run(
        try TenureProgram.executable, ["poll"] + arguments,
        environment: ["TENURE_BUNDLE_IDS": "a.b"], in: directory)
    }
    #expect(outcome.status != 0)
    #expect(outcome.errors.contains(words), "\(outcome.errors)")
  }

  // swift-format-ignore
  @Test("the bar grows", arguments: [
    (0, 10, "[........................................] 0 of 10 polls"),
    (5, 10, "[####################....................] 5 of 10 polls"),
    (10, 10, "[########################################] 10 of 10 polls"),
    (12, 10, "[########################################] 12 of 10 polls"),
    (0, 0, "[########################################] 0 of 0 polls"),
  ])
  func bar(done: Int, all: Int, text: String) {
    #expect(ProgressBar.text(done, of: all, "polls") == text)
  }

  @Test("without a terminal there is a line every ten seconds")
  func lines() {
    let bar = ProgressBar("polls")
    let began = bar.began
    let due = [1, 10.5, 11, 20, 21, 21.1, 40].map { bar.isDue(at: began + .seconds($0)) }
    #expect(due == [false, true, false, false, true, false, true])
  }
}
