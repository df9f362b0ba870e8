import AppStore
import AppStoreSimulator
import Crypto
import Foundation
import LedgerStorage
import Logging
import Postgres
import ScratchDatabases
import Subscriptions
import Synchronization
import Testing

@testable import BackgroundJobs
@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("Polls: one pass, and workers")
struct PollPassTests {
  private static let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
  private static let start = Timestamp(CalendarDate(year: 2026, month: 1, day: 1))

  /// An Apple without customers, which counts requests.
  private final class ForgetfulAppStore: AppStoreTransport {
    private let asked = Mutex<[String: Int]>([:])

    /// How often each line was asked about.
    var questions: [String: Int] { asked.withLock { $0 } }

    func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
      let path = request.url.split(separator: "?")[0].split(separator: "/")
      if let line = path.last { asked.withLock { $0[String(line), default: 0] += 1 } }
      return AppStoreResponse(
        status: 404,
        body: Array(#"{"errorCode": 4040001, "errorMessage": "Account not found."}"#.utf8))
    }
  }

  private struct Stage: Sendable {
    let assembly: Assembly
    let apple: ForgetfulAppStore
    let clock: SimulatedClock
    let database: ConnectionPool

    /// Records a month that began 40 days ago, without any evidence since.
    func addLine(_ number: Int, phase: RenewalStatus.Phase = .undisturbed) async throws {
      let line = OriginalTransactionKey(.production, OriginalTransactionID("\(1000 + number)"))
      let begin = PollPassTests.start
      let key = TransactionKey(
        line: line, transactionID: TransactionID("\(1000 + number)"), productID: "monthly")
      _ = try await assembly.ledger.polls.record(
        [
          .transaction(
            TransactionRecord(
              key: key, asOf: begin, purchaseDate: begin, expiresDate: begin + .days(30))),
          .renewalStatus(
            RenewalStatus(asOf: begin, autoRenews: true, phase: phase), line: line),
        ], polledAs: "before",
        about: PollStore.PolledOriginalTransaction(line, of: "com.example.app"),
        at: begin, terms: AccessTerms(catalogue: Catalogue([])))
    }

    func pass(patience: Duration = .zero) async throws -> PollPass.Summary {
      try await assembly.pollPass(patience: patience).run { _ in }
    }
  }

  private func withStage(
    perHour: Int, _ test: @Sendable (Stage) async throws -> Void
  ) async throws {
    let settings = try Settings(
      await SettingSource(
        flags: [
          "TENURE_BUNDLE_IDS": "com.example.app", "TENURE_APPSTORE_KEY_ID": "ABCDEFGHIJ",
          "TENURE_APPSTORE_ISSUER_ID": UUID().uuidString.lowercased(),
          "TENURE_APPSTORE_PRIVATE_KEY": P256.Signing.PrivateKey().pemRepresentation,
          "TENURE_POLLS_PER_HOUR": "\(perHour)",
        ], environment: [:]))
    try await withScratchDatabase { database in
      let (apple, clock) = (ForgetfulAppStore(), SimulatedClock(start: Self.start))
      let assembly = try await Assembly(
        database: database, settings: settings, transport: apple, logger: Self.quiet,
        clock: WorkerClock { clock.now })
      try await test(
        Stage(assembly: assembly, apple: apple, clock: clock, database: database))
    }
  }

  @Test("everything that is due is done once, however much it is, and nothing else")
  func whole() async throws {
    try await withStage(perHour: 1_000_000) { stage in
      for number in 0..<50 { try await stage.addLine(number) }
      #expect(try await stage.pass() == PollPass.Summary())
      stage.clock.advance(by: .days(31))
      async let one = stage.pass()
      async let other = stage.pass()
      let (first, second) = try await (one, other)
      #expect(first.passedOver + second.passedOver == 50)
      #expect(first.left == 0 && second.left == 0)
      #expect(stage.apple.questions.count == 50)
      #expect(stage.apple.questions.values.allSatisfy { $0 == 1 })
      #expect(try await stage.pass() == PollPass.Summary())
    }
  }

  @Test("however many passes there are, an hour has no more polls than the setting says")
  func budget() async throws {
    try await withStage(perHour: 600) { stage in
      for number in 0..<30 { try await stage.addLine(number) }
      stage.clock.advance(by: .days(31))
      let passes = try await withThrowingTaskGroup(of: PollPass.Summary.self) { group in
        for _ in 0..<4 { group.addTask { try await stage.pass() } }
        return try await group.reduce(into: [PollPass.Summary]()) { $0.append($1) }
      }
      // A minute's worth.
      #expect(passes.map(\.passedOver).reduce(0, +) == 10)
      #expect(stage.apple.questions.count == 10)
      #expect(try await stage.pass().left == 20)
      // Polls granted but not needed are left to the other passes.
      stage.clock.advance(by: .hours(1))
      #expect(try await stage.pass().passedOver == 10)
      stage.clock.advance(by: .hours(1))
      #expect(try await stage.pass().passedOver == 10)
      #expect(try await stage.pass().left == 0)
    }
  }

  @Test("the most urgent are the first")
  func urgency() async throws {
    try await withStage(perHour: 300) { stage in
      for number in 0..<10 { try await stage.addLine(number, phase: .expired) }
      for number in 10..<15 { try await stage.addLine(number) }
      // Expired lines are looked at a month after their end; the others are late by then.
      stage.clock.advance(by: .days(62))
      #expect(try await stage.pass().passedOver == 5)
      #expect(stage.apple.questions.keys.allSatisfy { (Int($0) ?? 0) >= 1010 })
    }
  }

  @Test("what a killed pass had claimed is done when its lease is over")
  func killed() async throws {
    try await withStage(perHour: 1_000_000) { stage in
      for number in 0..<3 { try await stage.addLine(number) }
      stage.clock.advance(by: .days(31))
      let held = try await stage.assembly.ledger.jobs.claimJobs(
        limits: [.polls: 2], worker: "dead", at: stage.clock.now, lease: .minutes(10))
      #expect(held.count == 2)
      #expect(try await stage.pass().passedOver == 1)
      stage.clock.advance(by: .minutes(11))
      #expect(try await stage.pass().passedOver == 2)
    }
  }

  @Test("an internal failure is reported, and the rest goes on")
  func ourFault() async throws {
    try await withStage(perHour: 1_000_000) { stage in
      for number in 0..<3 { try await stage.addLine(number) }
      stage.clock.advance(by: .days(31))
      try await stage.database.execute(
        """
        ALTER TABLE tenure.job ADD CHECK (subject <> 'production/1001' OR attempts > 0) NOT VALID
        """)
      let summary = try await stage.pass()
      #expect(summary.failed == 1)
      #expect(summary.passedOver == 2)
      #expect(summary.left == 0)
    }
  }
}
