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

struct ServeCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "serve", abstract: "Serves the HTTP API and the administrators' pages.",
    discussion: """
      On SIGTERM or SIGINT, finishes requests in flight and exits. Without DATABASE_URL, runs a \
      private PostgreSQL under TENURE_DATA_DIR (.tenure).
      """)

  @OptionGroup var options: SettingOptions

  @Option(help: "Address to listen on; overrides TENURE_HTTP_HOST.")
  var host: String?

  @Option(help: "Port to listen on, 0 for a free one; overrides TENURE_HTTP_PORT.")
  var port: Int?

  @Flag(help: "Also run a worker in this process.")
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

/// Runs services until SIGTERM or SIGINT, then releases all resources in reverse order.
///
/// - Parameter services: Makes the services; each may depend on earlier ones.
func withProgram(
  _ settings: Settings, logger: Logger,
  _ services: @Sendable (Assembly) throws -> [any Service]
) async throws {
  try await withAssembly(settings, logger: logger) { assembly in
    var configuration = ServiceGroupConfiguration(
      services: try services(assembly), gracefulShutdownSignals: [.sigterm, .sigint],
      logger: logger)
    // Longer than any request or job should take; cancelled jobs are retried.
    configuration.maximumGracefulShutdownDuration = .seconds(60)
    try await ServiceGroup(configuration: configuration).run()
  }
}
