/// The files of `Resources/Monitoring`, embedded in the program.
package enum MonitoringFiles {
  /// A Grafana dashboard, in JSON.
  package static let dashboard = String(
    decoding: PackageResources.grafana_dashboard_json, as: UTF8.self)
  /// Prometheus alert rules, in YAML.
  package static let alerts = String(
    decoding: PackageResources.prometheus_alerts_yaml, as: UTF8.self)
}
