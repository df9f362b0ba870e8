/// A dashboard and alert rules over what `/metrics` tells, built in: `Resources/Monitoring`.
package enum MonitoringFiles {
  /// For Grafana, in JSON.
  package static let dashboard = String(
    decoding: PackageResources.grafana_dashboard_json, as: UTF8.self)
  /// For Prometheus, in YAML.
  package static let alerts = String(
    decoding: PackageResources.prometheus_alerts_yaml, as: UTF8.self)
}
