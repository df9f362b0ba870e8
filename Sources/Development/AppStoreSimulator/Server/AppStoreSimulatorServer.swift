import HTTPTypes
import Hummingbird
package import Logging
import NIOCore
import ServiceLifecycle
import Subscriptions

/// The simulated App Store over HTTP.
///
/// ```swift
/// let simulation = try AppStoreSimulation(configuration: .init(seed: 1, speed: 86_400))
/// let server = AppStoreSimulatorServer(
///   simulation: simulation, configuration: .init(port: 8081), logger: logger)
/// try await server.run()
/// ```
/// - `POST /verifyReceipt` and `POST /sandbox/verifyReceipt` are Apple's two verifyReceipt
///   endpoints.
/// - `/inApps/…` and `/sandbox/inApps/…` are the App Store Server API.
/// - `/simulator` is the control interface; `GET /simulator` lists its actions.
package struct AppStoreSimulatorServer: Service {
  package struct Configuration: Sendable {
    package var host: String
    package var port: Int  // 0: a free port; see `AppStoreSimulatorServer.port`
    /// How long a request without a response keeps its connection.
    package var longestSilence: Duration

    package init(
      host: String = "127.0.0.1", port: Int = 0, longestSilence: Duration = .seconds(300)
    ) {
      self.host = host
      self.port = port
      self.longestSilence = longestSilence
    }
  }

  /// The simulation, which can be used directly at the same time.
  package let simulation: AppStoreSimulation
  private let configuration: Configuration
  private let logger: Logger
  /// Delivers notifications while the server runs; nil if the caller delivers them step by step.
  private let sender: NotificationSender?
  private let boundPort = BoundPort()

  package init(
    simulation: AppStoreSimulation, configuration: Configuration = Configuration(),
    sender: NotificationSender? = nil, logger: Logger
  ) {
    self.simulation = simulation
    self.configuration = configuration
    self.sender = sender
    self.logger = logger
  }

  package var port: Int {
    get async throws { try await boundPort.value }
  }

  /// Serves until graceful shutdown or cancellation; must be called only once.
  package func run() async throws {
    let boundPort = boundPort
    let application = Application(
      router: router(),
      configuration: ApplicationConfiguration(
        address: .hostname(configuration.host, port: configuration.port), serverName: nil),
      onServerRunning: { boundPort.settle(.success($0.localAddress?.port ?? 0)) },
      logger: logger)
    defer { boundPort.settle(.failure(CancellationError())) }
    do {
      guard let sender else { return try await application.run() }
      try await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask { try await sender.run() }
        defer { group.cancelAll() }
        try await application.run()
      }
    } catch {
      boundPort.settle(.failure(error))
      throw error
    }
  }

  private func router() -> Router<SimulatorContext> {
    let router = Router(context: SimulatorContext.self)
    let delivery = AnswerDelivery(longestSilence: configuration.longestSilence)
    let verifyReceipt = VerifyReceiptRoutes(simulation: simulation, delivery: delivery)
    router.addRoutes(verifyReceipt.endpoints(.production), atPath: "/verifyReceipt")
    router.addRoutes(verifyReceipt.endpoints(.sandbox), atPath: "/sandbox/verifyReceipt")
    let serverAPI = ServerAPIRoutes(simulation: simulation, delivery: delivery)
    router.addRoutes(serverAPI.endpoints(.production, below: ""), atPath: "/inApps")
    router.addRoutes(serverAPI.endpoints(.sandbox, below: "/sandbox"), atPath: "/sandbox/inApps")
    router.addRoutes(ControlRoutes(simulation: simulation).endpoints, atPath: "/simulator")
    return router
  }
}

/// A request's context, which includes the connection for faults that affect it.
struct SimulatorContext: RequestContext {
  var coreContext: CoreRequestContextStorage
  let channel: any Channel

  init(source: ApplicationRequestContextSource) {
    coreContext = CoreRequestContextStorage(source: source)
    channel = source.channel
  }
}
