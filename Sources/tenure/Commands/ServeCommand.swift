import AppStore
import ArgumentParser
import AsyncHTTPClient
import BackgroundJobs
import Bootstrap
import HTTPAPI
import Hummingbird
import Logging
import Observability
import ServiceLifecycle
import UnixSignals

/// `tenure serve`: the HTTP API.
struct ServeCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "serve", abstract: "Serves the HTTP API.",
    discussion: """
      Stops on SIGTERM or SIGINT after finishing the requests in flight. Without DATABASE_URL it \
      keeps a private PostgreSQL under TENURE_DATA_DIR (.tenure).
      """)

  @OptionGroup var options: SettingOptions

  @Option(help: "The address to listen on; instead of TENURE_HTTP_HOST.")
  var host: String?

  @Option(help: "The port to listen on, 0 for a free one; instead of TENURE_HTTP_PORT.")
  var port: Int?

  @Flag(help: "Also run the worker in this process.")
  var withWorker = false

  func run() async throws {
    let settings = try await options.settings(
      ["TENURE_HTTP_HOST": host, "TENURE_HTTP_PORT": port.map(String.init)],
      needing: [.apiKeys, .apps])
    let keys = try settings.apiKeys()
    let logger = Logger.bootstrapTenure(
      level: settings.logLevel, format: settings.logFormat)
    PrometheusRegistry.bootstrapTenure()
    let traces = SpanExporter.bootstrapTenure(settings.traces, from: "serve", logger: logger)
    let (host, port) = (settings.httpHost, settings.httpPort)
    do {
      try await withProgram(settings, logger: logger) { assembly in
        let application = assembly.api(keys: keys).application(
          host: host, port: port,
          limits: ConnectionLimits(connections: settings.httpMaxConnections)
        ) { port in
          logger.info("Serving", metadata: ["http.url": "http://\(host):\(port)"])
        }
        return traces + [
          application, CatalogueRefresh(catalogue: assembly.catalogue), assembly.heartbeat(),
          assembly.schemaWatch(ending: .nothing),
        ] + assembly.replicaWatch + (withWorker ? assembly.worker() : [])
      }
    } catch {
      throw SettingError(
        listeningOn: host, named: "TENURE_HTTP_HOST", port: port, named: "TENURE_HTTP_PORT",
        error) ?? error
    }
  }
}

/// Runs a program's services until it is told to stop, then lets go of everything in order.
///
/// - Parameters:
///   - settings: Checked.
///   - logger: The program's.
///   - services: Makes the services, in the order in which they depend on each other.
/// - Throws: What starting or running them throws.
func withProgram(
  _ settings: Settings, logger: Logger,
  _ services: @Sendable (Assembly) throws -> [any Service]
) async throws {
  try await withAssembly(settings, logger: logger) { assembly in
    var configuration = ServiceGroupConfiguration(
      services: try services(assembly), gracefulShutdownSignals: [.sigterm, .sigint],
      logger: logger)
    // Longer than anything takes that is begun; what is cut off comes again.
    configuration.maximumGracefulShutdownDuration = .seconds(60)
    try await ServiceGroup(configuration: configuration).run()
  }
}
