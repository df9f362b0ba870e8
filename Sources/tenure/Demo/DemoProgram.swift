import AppStore
import AppStoreSimulator
import AsyncHTTPClient
import BackgroundJobs
import Foundation
import HTTPAPI
import LedgerStorage
import Logging
import Postgres
import PrivatePostgres
import Secrets
import ServiceLifecycle
import Subscriptions
import UnixSignals

/// Everything that the demo is made of, started and stopped in order.
struct DemoProgram {
  /// The API's port; nil: the usual one or a free one.
  let port: Int?
  /// How many live through a year after the story; 0: nobody.
  let customers: Int
  /// Whether to end after the story.
  let exits: Bool
  let logger: Logger

  /// - Returns: Whether everything came out as it has to.
  func run() async throws -> Bool {
    StoryPrinter().line("Starting a private PostgreSQL, a simulated App Store and Tenure …")
    return try await withOwnServer { postgres, directory in
      try await withDatabase(await postgres.uri()) { database in
        try await withAppStore { simulation, simulatorPort in
          // The stories are about what nobody hears of, too: so nobody asks.
          let settings = try DemoSettings(
            in: directory, simulation: simulation, port: simulatorPort, pollsPerHour: 0)
          return try await withHTTPClient { client in
            try await tell(
              database, simulation, simulatorPort, settings, client,
              year: { try await liveThroughYear(in: postgres, directory) },
              showingYear: { try await showYear(in: postgres, directory, to: $0, $1) })
          }
        }
      }
    }
  }

  private func tell(
    _ database: ConnectionPool, _ simulation: AppStoreSimulation, _ simulatorPort: Int,
    _ files: DemoSettings, _ client: HTTPClient,
    year: @escaping @Sendable () async throws -> YearComparison?,
    showingYear: @escaping DemoStory.ShowingYear
  ) async throws -> Bool {
    let keys = DemoKeys()
    let settings = try await files.read(keys: keys)
    let transport = HTTPClientTransport(client: client)
    let network = DemoNetwork(transport: transport)
    let assembly = try await Assembly(
      database: database, settings: settings, transport: network, logger: logger,
      clock: .jumping { simulation.now })
    let server = DemoServer(api: assembly.api(keys: try settings.apiKeys()), port: port)
    guard let serverAPI = assembly.serverAPI else {
      preconditionFailure("The demo's settings have a key for the App Store Server API.")
    }
    let story = DemoStory(
      simulation: simulation, network: network, ledger: assembly.ledger, server: server,
      client: client, sender: NotificationSender(simulation: simulation, transport: transport),
      serverAPI: serverAPI, keys: keys, simulatorPort: simulatorPort, settingsPath: files.path,
      year: year, showingYear: showingYear, exits: exits)
    let services: [any Service] =
      [server, CatalogueRefresh(catalogue: assembly.catalogue)] + assembly.worker()
    // Stopped from the end: first the story, then what it is about.
    let group = ServiceGroup(
      configuration: ServiceGroupConfiguration(
        services: services.map { .init(service: $0) } + [
          .init(service: story, successTerminationBehavior: .gracefullyShutdownGroup)
        ],
        gracefulShutdownSignals: [.sigterm, .sigint], logger: logger))
    try await group.run()
    return story.isAsExpected
  }

  // MARK: What is started and stopped

  /// A PostgreSQL of this demo's own, which is gone afterwards, however the demo ends.
  private func withOwnServer(
    _ body: (PrivatePostgres, _ directory: URL) async throws -> Bool
  ) async throws -> Bool {
    let directory = FileManager.default.temporaryDirectory
      .appending(path: "tenure-demo-\(ProcessInfo.processInfo.processIdentifier)")
    let server = try await PrivatePostgres.start(
      in: directory, options: .temporary, logger: logger)
    do {
      let result = try await body(server, directory)
      await server.stop()
      return result
    } catch {
      await server.stop()
      throw error
    }
  }

  /// Works on an empty database with a schema.
  private func withDatabase<Value>(
    _ uri: String, _ body: (ConnectionPool) async throws -> Value
  ) async throws -> Value {
    let pool = ConnectionPool(configuration: .init(uri: Secret(uri)), logger: logger)
    return try await Database(pool: pool, server: nil).use { database in
      _ = try await SchemaMigrator(database: database, logger: logger).migrate()
      return try await body(database)
    }
  }

  /// Lets customers live through a year, with a database, an App Store and a server of their own.
  private func liveThroughYear(
    in postgres: PrivatePostgres, _ directory: URL
  ) async throws -> YearComparison? {
    guard customers > 0 else { return nil }
    try await withDatabase(await postgres.uri()) {
      try await SchemaMigrator.createDatabase(Self.yearName, on: $0)
    }
    let files = directory.appending(path: Self.yearName)
    try FileManager.default.createDirectory(at: files, withIntermediateDirectories: true)
    return try await withDatabase(await postgres.uri(database: Self.yearName)) { database in
      let diary = YearDiary(printer: StoryPrinter())
      let comparison = try await yearWorld.live(in: database, directory: files) { diary.note($0) }
      diary.close(comparison)
      return comparison
    }
  }

  /// Shows the year's pages, if there was one, while something goes on.
  private func showYear(
    in postgres: PrivatePostgres, _ directory: URL, to keys: DemoKeys,
    _ body: @escaping @Sendable (String?) async throws -> Void
  ) async throws {
    guard customers > 0 else { return try await body(nil) }
    let files = directory.appending(path: Self.yearName)
    try await withDatabase(await postgres.uri(database: Self.yearName)) { database in
      try await yearWorld.show(database, directory: files, to: keys) { try await body($0) }
    }
  }

  /// Of the year's database, and of the directory of its files.
  private static let yearName = "year"

  private var yearWorld: YearWorld {
    YearWorld(plan: YearPlan(seed: 1, customers: customers), logger: logger)
  }

  /// Apple, from some years ago on; it outlives the program, which may be asking it.
  private func withAppStore(
    _ body: (AppStoreSimulation, _ port: Int) async throws -> Bool
  ) async throws -> Bool {
    let (today, time) = Timestamp.now.dayAndTime
    let start = Timestamp(
      today.adding(months: -DemoStory.monthsBeforeNow), millisecondOfDay: time)
    let simulation = try AppStoreSimulation(
      configuration: AppStoreSimulation.Configuration(
        seed: 1, start: start, speed: 1, apps: [DemoCatalogue.app],
        renewalLead: .hours(22) ... .hours(22)))
    let server = AppStoreSimulatorServer(simulation: simulation, logger: logger)
    let group = ServiceGroup(services: [server], logger: logger)
    return try await withThrowingTaskGroup { tasks in
      tasks.addTask { try await group.run() }
      do {
        let result = try await body(simulation, server.port)
        await group.triggerGracefulShutdown()
        try await tasks.waitForAll()
        return result
      } catch {
        await group.triggerGracefulShutdown()
        _ = await tasks.nextResult()
        throw error
      }
    }
  }
}
