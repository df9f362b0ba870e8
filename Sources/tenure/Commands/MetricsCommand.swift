import ArgumentParser
import HTTPAPI
import Observability

struct MetricsCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "metrics",
    abstract: "Prints a Grafana dashboard, alert rules for Prometheus, or the list of metrics.",
    discussion: """
      `serve` exposes the metrics at /metrics, and so does `work` if TENURE_METRICS_PORT is set.
      """)

  enum Subject: String, CaseIterable, ExpressibleByArgument { case dashboard, alerts, list }

  @Argument(help: "File to print: dashboard, alerts or list.")
  var subject: Subject

  func run() {
    switch subject {
    case .dashboard: print(MonitoringFiles.dashboard, terminator: "")
    case .alerts: print(MonitoringFiles.alerts, terminator: "")
    case .list:
      for metric in MetricDeclaration.tenure {
        let labels = metric.labels.isEmpty ? "" : "{\(metric.labels.joined(separator: ","))}"
        print("\(metric.name)\(labels): \(metric.help).")
      }
    }
  }
}
