package import CoreMetrics
import Synchronization

/// What swift-metrics' counters, meters and timers are kept in, and Prometheus reads.
///
/// There is no exporter for Prometheus among the libraries at hand, so this is the smallest one
/// that does what is needed: what is declared, with fixed buckets, in the text format of version
/// 0.0.4. To count something takes an atomic addition; names and labels are looked up once, when a
/// handle is made.
package final class PrometheusRegistry: Sendable {
  /// How many series a metric may have: every route with every method and every class of status
  /// stays below it.
  static let seriesLimit = 4000

  /// One line of a metric, or one histogram.
  enum Series: Sendable {
    case counter(PrometheusCounter)
    case gauge(PrometheusGauge)
    case histogram(PrometheusHistogram)
  }

  private struct State {
    /// By the metric's name, then by the labels' values.
    var series: [String: [[String]: Series]] = [:]
    var refused: Set<String> = []
  }

  package let declarations: [MetricDeclaration]
  private let declared: [String: MetricDeclaration]
  private let state = Mutex(State())

  /// - Parameter declarations: What may be counted, each name once.
  package init(_ declarations: [MetricDeclaration] = MetricDeclaration.tenure) {
    self.declarations = declarations
    declared = Dictionary(uniqueKeysWithValues: declarations.map { ($0.name, $0) })
  }

  /// What was asked for and is not exported: names that are not declared, or with other labels, or
  /// with more of them than a metric may have.
  package var refused: Set<String> { state.withLock(\.refused) }

  fileprivate enum Wanted { case counter, gauge, histogram }

  /// The series of these labels, made if it is new; nil if it may not be.
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

  /// Everything as Prometheus reads it.
  ///
  /// - Parameter withReadings: Whether what is read from the database is to be told, too: not when
  ///   it could not be read, for old numbers are wrong ones.
  /// - Returns: The exposition.
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
    // Nothing of ours records a distribution of anything but time.
    if !aggregate, case .gauge(let gauge) = series(label, dimensions, .gauge) { return gauge }
    return NOOPMetricsHandler.instance
  }

  package func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
    if case .histogram(let histogram) = series(label, dimensions, .histogram) { return histogram }
    return NOOPMetricsHandler.instance
  }

  // What was counted stays: a counter that vanishes looks like a restart.
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

  /// The labels' values in their order; nil for other labels than are declared.
  fileprivate func values(of dimensions: [(String, String)]) -> [String]? {
    guard dimensions.count == labels.count else { return nil }
    let values = labels.compactMap { label in dimensions.first { $0.0 == label }?.1 }
    return values.count == labels.count ? values : nil
  }
}
