import AppStore
import AppStoreSimulator
import AsyncHTTPClient
import BackgroundJobs
import Bootstrap
import Foundation
import LedgerStorage
import Logging
import Postgres
import ServiceLifecycle
import Subscriptions

/// A year in one process: an App Store, a server and a worker.
struct YearEnvironment: Sendable {
  let plan: YearPlan
  let logger: Logger

  /// Runs the year and compares its result with the truth.
  ///
  /// Needs an empty database with a schema, and a directory for settings. `beginning` is called in
  /// each step in which Tenure has work to do.
  func live(
    in database: ConnectionPool, directory: URL,
    beginning: @escaping (Year) async throws -> Void = { _ in }
  ) async throws -> YearComparison {
    let simulation = try plan.openAppStore()
    let appStore = AppStoreSimulatorServer(simulation: simulation, logger: logger)
    return try await withServices([appStore], logger: logger) {
      let keys = DemoKeys()
      let settings = try await DemoSettings(
        in: directory, simulation: simulation, port: try await appStore.port
      ).read(keys: keys)
      return try await serve(
        database, with: settings, clock: .jumping { simulation.now }, isWorking: true
      ) { served in
        let tenure = TenureClient(client: served.client, baseURL: served.url, key: keys.admin)
        try await DemoCatalogue.describe(to: tenure)
        let year = try Year(
          plan, simulation: simulation, tenure: tenure,
          sender: NotificationSender(
            simulation: simulation, transport: HTTPClientTransport(client: served.client)),
          ledger: served.ledger)
        try await year.live(beginning: beginning)
        return try await year.compare(with: served.ledger)
      }
    }
  }

  /// Serves the database of a finished year, as of its end and without a worker, while a body runs
  /// with its address.
  func show(
    _ database: ConnectionPool, directory: URL, host: String = DemoServer.host, port: Int = 0,
    to keys: DemoKeys,
    _ body: (String) async throws -> Void
  ) async throws {
    // It knows nothing of the year, but the checks of the Health page reach it.
    let simulation = try plan.openAppStore()
    // The last day, whose month is shown.
    let end = plan.end + .seconds(-1)
    _ = simulation.advance(to: end)
    let appStore = AppStoreSimulatorServer(simulation: simulation, logger: logger)
    try await withServices([appStore], logger: logger) {
      let settings = try await DemoSettings(
        in: directory, simulation: simulation, port: try await appStore.port
      ).read(keys: keys)
      try await serve(
        database, with: settings, host: host, port: port, clock: .jumping { end }, isWorking: false
      ) { try await body($0.url) }
    }
  }

  private struct Served {
    /// Without a trailing slash.
    let url: String
    /// The client used for Apple, usable for the server as well.
    let client: HTTPClient
    let ledger: Ledger
  }

  private func serve<Value: Sendable>(
    _ database: ConnectionPool, with settings: Settings, host: String = DemoServer.host,
    port: Int = 0, clock: WorkerClock, isWorking: Bool,
    _ body: (Served) async throws -> Value
  ) async throws -> Value {
    try await withHTTPClient { client in
      let assembly = try await Assembly(
        database: database, settings: settings, transport: HTTPClientTransport(client: client),
        logger: logger, clock: clock)
      let server = DemoServer(
        api: assembly.api(keys: try settings.apiKeys()), host: host, port: port)
      let refresh = assembly.catalogueRefresh
      let worker = isWorking ? assembly.worker() : []
      return try await withServices([server, refresh] + worker, logger: logger) {
        try await body(
          Served(
            url: "http://\(DemoServer.host):\(try await server.port)", client: client,
            ledger: assembly.ledger))
      }
    }
  }
}

extension YearPlan {
  func openAppStore() throws -> AppStoreSimulation {
    try AppStoreSimulation(
      configuration: AppStoreSimulation.Configuration(
        seed: seed, start: start, apps: [DemoCatalogue.app]))
  }
}

/// Runs services while a body runs, then stops them gracefully.
///
/// The services are given in the order in which they depend on each other.
func withServices<Value: Sendable>(
  _ services: [any Service], logger: Logger, _ body: () async throws -> Value
) async throws -> Value {
  let group = ServiceGroup(services: services, logger: logger)
  // Not a child task: when this one is cancelled, the body ends first, with what it has started.
  // SwiftNIO would end the program if a connection came in while a server is being cancelled.
  let running = Task { try await group.run() }
  do {
    let value = try await body()
    await group.triggerGracefulShutdown()
    try await running.value
    return value
  } catch {
    await group.triggerGracefulShutdown()
    if Task.isCancelled { running.cancel() }
    _ = await running.result
    throw error
  }
}
