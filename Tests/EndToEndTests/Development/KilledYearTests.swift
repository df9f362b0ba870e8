import AppStore
import AppStoreSimulator
import AsyncHTTPClient
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

/// `kill -9` of `tenure serve` and of two `tenure work`, again and again, while customers live
/// through a year: each of the three can die in the middle of anything.
@Suite("Programs that are killed")
struct KilledYearTests {
  static let customers = 10
  static let months = 6
  static let kills = 24

  @Test("come to the same result as programs that live")
  func sameResult() async throws {
    let seed = Seed.chosen()
    print("Programs that are killed: TENURE_TEST_SEED=\(seed)")
    // An app that gets no answer to an order opens another one, and never names the first.
    let plan = YearPlan(
      seed: seed, customers: Self.customers, length: CalendarPeriod(months: Self.months),
      opensOrders: false)
    let comparison = try await withScratchDatabase { database in
      try await withTemporaryDirectory { directory in
        try await KilledYear(plan: plan, kills: Self.kills).live(in: database, directory)
      }
    }
    #expect(comparison.differences == [], "TENURE_TEST_SEED=\(seed)")
    #expect(comparison.audit.isClean, "TENURE_TEST_SEED=\(seed)")
  }
}

/// A year during which programs are killed.
struct KilledYear: Sendable {
  let plan: YearPlan
  let kills: Int
  /// More settings of the programs.
  var settings: [String: String] = [:]
  /// Is called whenever Tenure has work to do, before that work.
  var disturb: @Sendable () async throws -> Void = {}
  /// Is called after the comparison with the truth, while the programs run.
  var afterwards: @Sendable (MortalPrograms) async throws -> Void = { _ in }

  func live(in database: ConnectionPool, _ directory: URL) async throws -> YearComparison {
    let logger = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
    let simulation = try plan.openAppStore()
    let appStore = AppStoreSimulatorServer(simulation: simulation, logger: logger)
    return try await withServices([appStore], logger: logger) {
      let hand = ClockHand(in: directory)
      try hand.move(to: plan.start)
      let programs = try await MortalPrograms(
        databaseURL: database.uri,
        settings: DemoSettings(
          in: directory, simulation: simulation, port: try await appStore.port
        ).values.merging(settings) { $1 },
        clockPath: hand.path, directory: directory)
      do {
        let comparison = try await live(simulation, programs, hand, database)
        try await afterwards(programs)
        await programs.stop()
        return comparison
      } catch {
        await programs.stop()
        throw error
      }
    }
  }

  private func live(
    _ simulation: AppStoreSimulation, _ programs: MortalPrograms,
    _ hand: ClockHand, _ database: ConnectionPool
  ) async throws -> YearComparison {
    try await withHTTPClient { client in
      var tenure = TenureClient(client: client, baseURL: programs.url, key: programs.secret)
      tenure.patience = .seconds(240)
      try await DemoCatalogue.describe(to: tenure)
      let ledger = Ledger(database: database)
      let year = try Year(
        plan, simulation: simulation, tenure: tenure,
        sender: NotificationSender(
          simulation: simulation, transport: HTTPClientTransport(client: client)),
        ledger: ledger, clockHand: hand.move, leaseStep: .minutes(1))
      let killer = Killer(of: programs, in: plan, kills: kills)
      do {
        try await year.live {
          try await killer.work(at: $0.now)
          try await disturb()
        }
      } catch {
        // No program is started again after the others have stopped.
        try? await killer.end()
        throw error
      }
      try await killer.end()
      // Some moments come when nothing is left to do.
      #expect(await programs.kills >= kills / 2)
      return try await year.compare(with: ledger)
    }
  }
}

/// A server and two workers, of which any can be killed and started again.
actor MortalPrograms {
  /// How many workers there are.
  static let workers = 2

  let url: String
  let secret: String
  private(set) var kills = 0
  private let server: RestartedServer
  private var workers: [ChildProcess] = []
  /// The settings of the workers.
  let environment: [String: String]
  private let directory: URL

  init(
    databaseURL: String, settings: [String: String], clockPath: String, directory: URL
  ) async throws {
    let settings = settings.merging([
      "TENURE_CLOCK_FILE": clockPath, "TENURE_LOG_LEVEL": "error",
    ]) { $1 }
    environment = settings.merging(["DATABASE_URL": databaseURL]) { $1 }
    server = try await RestartedServer(
      databaseURL: databaseURL, settings: settings, directory: directory)
    url = server.url
    secret = server.secret
    self.directory = directory
    for _ in 0..<Self.workers { workers.append(try startWorker()) }
  }

  private func startWorker() throws -> ChildProcess {
    try ChildProcess(
      try TenureProgram.executable, ["work"], environment: environment, in: directory)
  }

  /// Ends one of the programs as `kill -9` does, and starts another one in its place.
  ///
  /// - Parameter number: 0 is the server.
  /// - Throws: Errors that keep it from starting.
  func killAndStartAgain(_ number: Int) async throws {
    kills += 1
    guard number > 0 else { return try await server.killAndStartAgain() }
    await workers[number - 1].kill()
    workers[number - 1] = try startWorker()
  }

  func stop() async {
    await server.stop()
    for worker in workers { await worker.stop() }
  }
}

/// Kills programs at random moments of a year, one at a time, while Tenure has work to do.
private actor Killer {
  private let programs: MortalPrograms
  /// When in the year, after how much real time then, and whom.
  private var moments: ArraySlice<(at: Timestamp, delay: Duration, program: Int)>
  private var murder: Task<Void, any Error>?

  init(of programs: MortalPrograms, in plan: YearPlan, kills: Int) {
    self.programs = programs
    var random = SplitMix64(seed: plan.seed)
    let hours = Int((plan.rest - plan.start) / .hours(1))
    moments =
      (0..<kills).map { _ in
        (
          plan.start + .hours(random.number(in: 0...hours)),
          .milliseconds(random.number(in: 0...40)),
          random.number(in: 0...MortalPrograms.workers)
        )
      }.sorted { $0.0 < $1.0 }[...]
  }

  /// Lets the work of a moment begin, and perhaps kills a program in between.
  func work(at moment: Timestamp) async throws {
    try await end()
    guard let next = moments.first, next.at <= moment else { return }
    moments.removeFirst()
    murder = Task { [programs] in
      try await Task.sleep(for: next.delay)
      try await programs.killAndStartAgain(next.program)
    }
  }

  /// Waits until everybody lives.
  func end() async throws {
    try await murder?.value
    murder = nil
  }
}
