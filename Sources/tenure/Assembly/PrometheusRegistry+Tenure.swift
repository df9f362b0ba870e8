import CoreMetrics
import PrometheusMetrics

extension PrometheusRegistry {
  /// Counts whatever this process does from now on; once, before anything is made that counts.
  ///
  /// - Returns: Where it is counted.
  @discardableResult
  static func bootstrapTenure() -> PrometheusRegistry {
    let registry = PrometheusRegistry()
    MetricsSystem.bootstrap(registry)
    return registry
  }
}
