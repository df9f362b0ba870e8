import ArgumentParser
import HTTPAPI
import Observability

/// `tenure metrics`: what monitoring is set up with.
struct MetricsCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "metrics",
    abstract: "Prints a Grafana dashboard, alert rules for Prometheus, or the list of metrics.",
    discussion: """
      The metrics themselves are at /metrics of `serve`, and of `work` where it is told a port by \
      TENURE_METRICS_PORT.
      """)

  /// What can be printed.
  enum Subject: String, CaseIterable, ExpressibleByArgument {
    case dashboard
    case alerts
    case list
  }

  @Argument(help: "dashboard, alerts or list.")
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
