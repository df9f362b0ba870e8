import ArgumentParser
import BackgroundJobs
import Bootstrap
import HTTPAPI
import Hummingbird
import Logging
import Observability
import ServiceLifecycle

/// `tenure work`: the worker.
struct WorkCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "work",
    abstract: "Does what is to be done later, again, or because time has passed.",
    discussion: """
      Any number of workers may run. Stops on SIGTERM or SIGINT after finishing the jobs that it \
      has begun.
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

  /// What Prometheus asks, if it is to be asked.
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
