import ArgumentParser
import BackgroundJobs
import Bootstrap
import HTTPAPI
import Logging
import Observability

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
