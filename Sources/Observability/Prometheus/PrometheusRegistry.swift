package import CoreMetrics
import Synchronization

/// Stores swift-metrics' counters, meters and timers, and writes them for Prometheus.
///
/// Supports declared metrics with fixed buckets, in text format 0.0.4. Counting is an atomic
/// addition; names and labels are looked up once, when a handle is created.
package final class PrometheusRegistry: Sendable {
  /// The maximum number of series per metric; all routes with all methods and status classes stay
  /// below it.
  static let seriesLimit = 4000

  enum Series: Sendable {
    case counter(PrometheusCounter)
    case gauge(PrometheusGauge)
    case histogram(PrometheusHistogram)
  }

  private struct State {
    /// By metric name, then by label values.
    var series: [String: [[String]: Series]] = [:]
    var refused: Set<String> = []
  }

  package let declarations: [MetricDeclaration]
  private let declared: [String: MetricDeclaration]
  private let state = Mutex(State())

  /// Each declared name must be unique.
  package init(_ declarations: [MetricDeclaration] = MetricDeclaration.tenure) {
    self.declarations = declarations
    declared = Dictionary(uniqueKeysWithValues: declarations.map { ($0.name, $0) })
  }

  /// Names requested but not exported: undeclared, with different labels, or above the series
  /// limit.
  package var refused: Set<String> { state.withLock(\.refused) }

  fileprivate enum Wanted { case counter, gauge, histogram }

  /// The series for these labels, created if new; nil if not permitted.
  fileprivate func series(
    _ name: String, _ dimensions: [(String, String)], _ wanted: Wanted
  ) -> Series? {
    let declaration = declared[name].flatMap { $0.allows(wanted) ? $0 : nil }
    return state.withLock { state in
      guard let declaration, let values = declaration.values(of: dimensions) else {
        state.refused.insert(name)
        return nil
      }
      if let known = state.series[name]?[values] { return known }
      guard state.series[name, default: [:]].count < Self.seriesLimit else {
        state.refused.insert(name)
        return nil
      }
      let new: Series =
        switch declaration.kind {
        case .counter: .counter(PrometheusCounter())
        case .gauge: .gauge(PrometheusGauge())
        case .histogram(let bounds): .histogram(PrometheusHistogram(bounds: bounds))
        }
      state.series[name, default: [:]][values] = new
      return new
    }
  }

  // MARK: Reading

  /// The metrics in Prometheus' text format.
  ///
  /// - Parameter withReadings: Whether to include the values read from the database; false if the
  ///   read failed, because old values would be wrong.
  package func exposition(withReadings: Bool = true) -> String {
    let series = state.withLock(\.series)
    var writer = ExpositionWriter()
    for declaration in declarations where withReadings || !declaration.isReading {
      let lines = (series[declaration.name] ?? [:]).sorted {
        $0.key.lexicographicallyPrecedes($1.key)
      }
      guard !lines.isEmpty else { continue }
      writer.begin(declaration)
      for (values, series) in lines { writer.write(series, values, of: declaration) }
    }
    return writer.text
  }
}

extension PrometheusRegistry: MetricsFactory {
  package func makeCounter(
    label: String, dimensions: [(String, String)]
  ) -> any CounterHandler {
    if case .counter(let counter) = series(label, dimensions, .counter) { return counter }
    return NOOPMetricsHandler.instance
  }

  package func makeMeter(label: String, dimensions: [(String, String)]) -> any MeterHandler {
    if case .gauge(let gauge) = series(label, dimensions, .gauge) { return gauge }
    return NOOPMetricsHandler.instance
  }

  package func makeRecorder(
    label: String, dimensions: [(String, String)], aggregate: Bool
  ) -> any RecorderHandler {
    // Only durations are recorded as distributions.
    if !aggregate, case .gauge(let gauge) = series(label, dimensions, .gauge) { return gauge }
    return NOOPMetricsHandler.instance
  }

  package func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
    if case .histogram(let histogram) = series(label, dimensions, .histogram) { return histogram }
    return NOOPMetricsHandler.instance
  }

  // Kept, because a counter that disappears looks like a restart.
  package func destroyCounter(_ handler: any CounterHandler) {}
  package func destroyMeter(_ handler: any MeterHandler) {}
  package func destroyRecorder(_ handler: any RecorderHandler) {}
  package func destroyTimer(_ handler: any TimerHandler) {}
}

extension MetricDeclaration {
  fileprivate func allows(_ wanted: PrometheusRegistry.Wanted) -> Bool {
    switch (kind, wanted) {
    case (.counter, .counter), (.gauge, .gauge), (.histogram, .histogram): true
    case (.counter, _), (.gauge, _), (.histogram, _): false
    }
  }

  /// The label values in declared order; nil if the labels differ from those declared.
  fileprivate func values(of dimensions: [(String, String)]) -> [String]? {
    guard dimensions.count == labels.count else { return nil }
    let values = labels.compactMap { label in dimensions.first { $0.0 == label }?.1 }
    return values.count == labels.count ? values : nil
  }
}
