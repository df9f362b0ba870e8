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
import tenure

/// Everything that a year is lived with in one process: an App Store, a server and a worker.
struct YearWorld: Sendable {
  let plan: YearPlan
  let logger: Logger

  /// Lives the year.
  ///
  /// - Parameters:
  ///   - database: With a schema, and nothing else.
  ///   - directory: For what is configured by files.
  ///   - beginning: Is told of each step in which Tenure has something to do.
  /// - Returns: What came out.
  /// - Throws: What kept anybody from living.
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

  /// Serves a year that was lived as it stands at its end, with nobody who works on it.
  ///
  /// - Parameters:
  ///   - database: In which it was lived.
  ///   - directory: As in ``live(in:directory:beginning:)``.
  ///   - keys: Who may look at it.
  ///   - body: What goes on meanwhile; it is told the address.
  /// - Throws: What `body` throws, or why it can't be served.
  func show(
    _ database: ConnectionPool, directory: URL, to keys: DemoKeys,
    _ body: (String) async throws -> Void
  ) async throws {
    let settings = try await DemoSettings(
      in: directory, simulation: try plan.openAppStore(), port: Self.nobodysPort
    ).read(keys: keys)
    let end = plan.end
    try await serve(database, with: settings, clock: .jumping { end }, isWorking: false) {
      try await body($0.url)
    }
  }

  /// A running server.
  private struct Served {
    /// Without a slash at its end.
    let url: String
    /// Through which it asks Apple, and may be asked itself.
    let client: HTTPClient
    let ledger: Ledger
  }

  /// Serves a database for as long as something goes on.
  private func serve<Value: Sendable>(
    _ database: ConnectionPool, with settings: Settings, clock: WorkClock, isWorking: Bool,
    _ body: (Served) async throws -> Value
  ) async throws -> Value {
    try await withHTTPClient { client in
      let assembly = try await Assembly(
        database: database, settings: settings, transport: HTTPClientTransport(client: client),
        logger: logger, clock: clock)
      let server = DemoServer(api: assembly.api(keys: try settings.apiKeys()), port: 0)
      let refresh = CatalogueRefresh(catalogue: assembly.catalogue)
      let worker = isWorking ? assembly.worker() : []
      return try await withServices([server, refresh] + worker, logger: logger) {
        try await body(
          Served(
            url: "http://\(DemoServer.host):\(try await server.port)", client: client,
            ledger: assembly.ledger))
      }
    }
  }

  /// The year's App Store is gone: "discard" (RFC 863), where nobody answers.
  private static let nobodysPort = 9
}

extension YearPlan {
  /// The App Store in which the year is lived, at its beginning.
  func openAppStore() throws -> AppStoreSimulation {
    try AppStoreSimulation(
      configuration: AppStoreSimulation.Configuration(
        seed: seed, start: start, apps: [DemoCatalogue.app]))
  }
}

/// Runs services for as long as the work takes that needs them.
///
/// - Parameters:
///   - services: In the order in which they depend on each other.
///   - logger: The program's.
///   - body: The work; the services stop gracefully however it ends.
/// - Returns: What the work came to.
/// - Throws: What the work throws, or why a service ended before it.
func withServices<Value: Sendable>(
  _ services: [any Service], logger: Logger, _ body: () async throws -> Value
) async throws -> Value {
  let group = ServiceGroup(services: services, logger: logger)
  return try await withThrowingTaskGroup(of: Void.self) { tasks in
    tasks.addTask { try await group.run() }
    do {
      let value = try await body()
      await group.triggerGracefulShutdown()
      try await tasks.waitForAll()
      return value
    } catch {
      await group.triggerGracefulShutdown()
      _ = await tasks.nextResult()
      throw error
    }
  }
}
