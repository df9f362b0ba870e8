import AppStore
import AppStoreSimulator
import AsyncHTTPClient
import Foundation
import HTTPAPI
import LedgerStorage
import Logging
import Postgres
import PrivatePostgres
import ServiceLifecycle
import Subscriptions
import UnixSignals

/// Everything that the demo is made of, started and stopped in order.
struct DemoProgram {
  /// The API's port; nil: the usual one or a free one.
  let port: Int?
  /// Whether to end after the story.
  let exits: Bool
  let logger: Logger

  /// - Returns: Whether everything came out as it has to.
  func run() async throws -> Bool {
    StoryPrinter().line("Starting a private PostgreSQL, a simulated App Store and Tenure …")
    return try await withOwnDatabase { database, directory in
      try await withAppStore { simulation, simulatorPort in
        let settings = try DemoSettings(
          in: directory, simulation: simulation, port: simulatorPort)
        return try await withHTTPClient { client in
          try await tell(database, simulation, simulatorPort, settings, client)
        }
      }
    }
  }

  private func tell(
    _ database: ConnectionPool, _ simulation: AppStoreSimulation, _ simulatorPort: Int,
    _ files: DemoSettings, _ client: HTTPClient
  ) async throws -> Bool {
    let keys = DemoKeys()
    let settings = try await files.read(keys: keys)
    let transport = HTTPClientTransport(client: client)
    let network = DemoNetwork(transport: transport)
    let assembly = try await Assembly(
      database: database, settings: settings, transport: network, logger: logger,
      now: { simulation.now })
    let server = DemoServer(api: assembly.api(keys: try settings.apiKeys()), port: port)
    guard let serverAPI = assembly.serverAPI else {
      preconditionFailure("The demo's settings have a key for the App Store Server API.")
    }
    let story = DemoStory(
      simulation: simulation, network: network, ledger: assembly.ledger, server: server,
      client: client, sender: NotificationSender(simulation: simulation, transport: transport),
      serverAPI: serverAPI, keys: keys, simulatorPort: simulatorPort, settingsPath: files.path,
      exits: exits)
    // Stopped from the end: first the story, then what it is about.
    let group = ServiceGroup(
      configuration: ServiceGroupConfiguration(
        services: [
          .init(service: server),
          .init(service: CatalogueRefresh(catalogue: assembly.catalogue)),
          .init(service: assembly.worker()),
          .init(service: story, successTerminationBehavior: .gracefullyShutdownGroup),
        ],
        gracefulShutdownSignals: [.sigterm, .sigint], logger: logger))
    try await group.run()
    return story.isAsExpected
  }

  // MARK: What is started and stopped

  /// A PostgreSQL of this demo's own, which is gone afterwards, however the demo ends.
  private func withOwnDatabase(
    _ body: (ConnectionPool, _ directory: URL) async throws -> Bool
  ) async throws -> Bool {
    let directory = FileManager.default.temporaryDirectory
      .appending(path: "tenure-demo-\(ProcessInfo.processInfo.processIdentifier)")
    let server = try await PrivatePostgres.start(
      in: directory, options: .temporary, logger: logger)
    let pool = ConnectionPool(
      configuration: ConnectionPool.Configuration(uri: await server.uri()), logger: logger)
    return try await Database(pool: pool, server: server).use { database in
      _ = try await SchemaMigrator(database: database, logger: logger).migrate()
      return try await body(database, directory)
    }
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
