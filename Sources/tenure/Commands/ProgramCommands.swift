import ArgumentParser
import BackgroundJobs
import Bootstrap
import HTTPAPI
import Logging
import Observability
import ServiceLifecycle
import UnixSignals

struct ServeCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "serve", abstract: "Serves the HTTP API and the administrators' pages.",
    discussion: """
      On SIGTERM or SIGINT, finishes requests in flight and exits. Without DATABASE_URL, runs a \
      private PostgreSQL under TENURE_DATA_DIR (.tenure). Keeps answers to entitlement reads in \
      TENURE_READ_CACHE of memory (64MB; 0 for none); none is older than the database's.
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
    let (host, port) = (settings.httpHost, settings.httpPort)
    try await withProgram(
      "serve", settings, listeningOn: host, port: port, settings: "TENURE_HTTP"
    ) { assembly, _, logger in
      let application = assembly.api(keys: keys).application(
        host: host, port: port, limits: ConnectionLimits(connections: settings.httpMaxConnections)
      ) { port in
        logger.info(
          "Serving",
          metadata: [
            "http.url": "http://\(host):\(port)", "service.version": "\(TenureVersion.current)",
          ])
      }
      return [
        application, assembly.keyReload(of: keys), assembly.catalogueRefresh, assembly.heartbeat(),
        assembly.schemaWatch(ending: .nothing),
      ] + assembly.replicaWatch + (withWorker ? assembly.worker() : [])
    }
  }
}

struct WorkCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "work",
    abstract: "Runs the background worker (retries, polling, expirations, webhooks).",
    discussion: """
      Any number of workers can run. On SIGTERM or SIGINT, finishes running jobs and exits.
      """)

  @OptionGroup var options: SettingOptions

  func run() async throws {
    let settings = try await options.settings(needing: [.apps])
    let (host, port) = (settings.metricsHost, settings.metricsPort)
    try await withProgram(
      "work", settings, listeningOn: host, port: port ?? 0, settings: "TENURE_METRICS"
    ) { assembly, registry, logger in
      logger.info("Working", metadata: ["service.version": "\(TenureVersion.current)"])
      let metrics = port.map { port in
        assembly.metricsPage(of: registry).application(host: host, port: port) { port in
          logger.info("Serving metrics", metadata: ["http.url": "http://\(host):\(port)/metrics"])
        }
      }
      return (metrics.map { [$0] } ?? []) + [
        assembly.catalogueRefresh, assembly.schemaWatch(ending: .program),
      ] + assembly.worker()
    }
  }
}

/// Runs a program's services, each of which may depend on earlier ones, until SIGTERM or SIGINT,
/// then releases all resources in reverse order.
///
/// - Parameter prefix: The beginning of the names of the settings `_HOST` and `_PORT`, for errors.
func withProgram(
  _ name: String, _ settings: Settings, listeningOn host: String, port: Int,
  settings prefix: String,
  _ services: @Sendable (Assembly, PrometheusRegistry, Logger) throws -> [any Service]
) async throws {
  let logger = settings.bootstrapLogger()
  let registry = PrometheusRegistry.bootstrapTenure()
  let traces = SpanExporter.bootstrapTenure(settings.traces, from: name, logger: logger)
  do {
    try await withAssembly(settings, logger: logger) { assembly in
      var configuration = ServiceGroupConfiguration(
        services: traces + (try services(assembly, registry, logger)),
        gracefulShutdownSignals: [.sigterm, .sigint], logger: logger)
      // Longer than any request or job should take; cancelled jobs are retried.
      configuration.maximumGracefulShutdownDuration = .seconds(60)
      try await ServiceGroup(configuration: configuration).run()
    }
  } catch {
    throw SettingError(
      listeningOn: host, named: "\(prefix)_HOST", port: port, named: "\(prefix)_PORT", error)
      ?? error
  }
}
