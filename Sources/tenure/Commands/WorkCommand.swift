import ArgumentParser
import BackgroundJobs
import Bootstrap
import HTTPAPI
import Hummingbird
import Logging
import Observability
import ServiceLifecycle

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
    let logger = Logger.bootstrapTenure(
      level: settings.logLevel, format: settings.logFormat)
    let registry = PrometheusRegistry.bootstrapTenure()
    let traces = SpanExporter.bootstrapTenure(settings.traces, from: "work", logger: logger)
    do {
      try await withProgram(settings, logger: logger) { assembly in
        logger.info("Working")
        return traces + metricsServer(assembly.metricsPage(of: registry), settings, logger)
          + [
            CatalogueRefresh(catalogue: assembly.catalogue),
            assembly.schemaWatch(ending: .program),
          ] + assembly.worker()
      }
    } catch {
      throw SettingError(
        listeningOn: settings.metricsHost, named: "TENURE_METRICS_HOST",
        port: settings.metricsPort ?? 0, named: "TENURE_METRICS_PORT", error) ?? error
    }
  }

  /// The server of `/metrics`, if a port is set.
  private func metricsServer(
    _ page: MetricsPage, _ settings: Settings, _ logger: Logger
  ) -> [any Service] {
    guard let port = settings.metricsPort else { return [] }
    let host = settings.metricsHost
    return [
      page.application(host: host, port: port) { port in
        logger.info("Serving metrics", metadata: ["http.url": "http://\(host):\(port)/metrics"])
      }
    ]
  }
}
