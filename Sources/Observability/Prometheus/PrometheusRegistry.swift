package import CoreMetrics
import Synchronization

/// Stores swift-metrics' counters, meters and timers, and writes the declared ones for Prometheus.
///
/// Names and labels are looked up once, when a handle is created; counting is an atomic addition.
package final class PrometheusRegistry: Sendable {
  /// The maximum number of series per metric; all routes, methods and status classes are fewer.
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

  package init(_ declarations: [MetricDeclaration] = MetricDeclaration.tenure) {
    self.declarations = declarations
    declared = Dictionary(uniqueKeysWithValues: declarations.map { ($0.name, $0) })
  }

  /// Names requested but not exported: undeclared, with different labels, or above the limit.
  package var refused: Set<String> { state.withLock(\.refused) }

  /// The series for these labels, created if new; nil if not permitted.
  fileprivate func series(
    _ name: String, _ dimensions: [(String, String)], _ kind: MetricDeclaration.Kind
  ) -> Series? {
    state.withLock { state in
      guard let declaration = declared[name], declaration.kind == kind,
        let values = declaration.values(of: dimensions)
      else {
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
        case .histogram: .histogram(PrometheusHistogram(bounds: declaration.bounds))
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
  package func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
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
  /// The label values in declared order; nil if the labels differ from those declared.
  fileprivate func values(of dimensions: [(String, String)]) -> [String]? {
    guard dimensions.count == labels.count else { return nil }
    let values = labels.compactMap { label in dimensions.first { $0.0 == label }?.1 }
    return values.count == labels.count ? values : nil
  }
}

/// Writes Prometheus' text format, version 0.0.4
/// (https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format).
struct ExpositionWriter {
  private(set) var text = ""

  mutating func begin(_ declaration: MetricDeclaration) {
    text += "# HELP \(declaration.name) \(Self.escaped(declaration.help, inLabel: false))\n"
    text += "# TYPE \(declaration.name) \(declaration.kind.rawValue)\n"
  }

  mutating func write(
    _ series: PrometheusRegistry.Series, _ values: [String], of declaration: MetricDeclaration
  ) {
    let name = declaration.name
    let labels = zip(declaration.labels, values).map { ($0, $1) }
    switch series {
    case .counter(let counter): line(name, labels, "\(counter.value)")
    case .gauge(let gauge): line(name, labels, Self.number(gauge.value))
    case .histogram(let histogram):
      let (counts, seconds) = histogram.snapshot
      let names = declaration.bounds.map(Self.number) + ["+Inf"]
      for (bound, count) in zip(names, counts) {
        line(name + "_bucket", labels + [("le", bound)], "\(count)")
      }
      line(name + "_sum", labels, Self.number(seconds))
      line(name + "_count", labels, "\(counts.last ?? 0)")
    }
  }

  private mutating func line(_ name: String, _ labels: [(String, String)], _ value: String) {
    text += name
    if !labels.isEmpty {
      let pairs = labels.map { "\($0)=\"\(Self.escaped($1, inLabel: true))\"" }
      text += "{\(pairs.joined(separator: ","))}"
    }
    text += " \(value)\n"
  }

  /// Escapes backslashes and newlines, and quotes in label values.
  private static func escaped(_ text: String, inLabel: Bool) -> String {
    var escaped = ""
    for character in text.unicodeScalars {
      switch character {
      case "\\": escaped += "\\\\"
      case "\n": escaped += "\\n"
      case "\"" where inLabel: escaped += "\\\""
      default: escaped.unicodeScalars.append(character)
      }
    }
    return escaped
  }

  /// A number with Go's spelling of NaN and infinity, and without a fraction if it is an integer.
  private static func number(_ value: Double) -> String {
    if value.isNaN { return "NaN" }
    if value.isInfinite { return value < 0 ? "-Inf" : "+Inf" }
    return Int64(exactly: value).map { "\($0)" } ?? "\(value)"
  }
}

final class PrometheusCounter: CounterHandler {
  private let count = Atomic<Int64>(0)

  var value: Int64 { count.load(ordering: .relaxed) }

  func increment(by amount: Int64) { count.wrappingAdd(amount, ordering: .relaxed) }

  func reset() { count.store(0, ordering: .relaxed) }
}

final class PrometheusGauge: MeterHandler, RecorderHandler {
  private let bits = Atomic<UInt64>(0)

  var value: Double { Double(bitPattern: bits.load(ordering: .relaxed)) }

  func set(_ value: Int64) { set(Double(value)) }
  func set(_ value: Double) { bits.store(value.bitPattern, ordering: .relaxed) }
  func record(_ value: Int64) { set(Double(value)) }
  func record(_ value: Double) { set(value) }

  func increment(by amount: Double) {
    var old = bits.load(ordering: .relaxed)
    while true {
      let new = (Double(bitPattern: old) + amount).bitPattern
      let (isDone, found) = bits.weakCompareExchange(
        expected: old, desired: new, ordering: .relaxed)
      if isDone { return }
      old = found
    }
  }

  func decrement(by amount: Double) { increment(by: -amount) }
}

/// A histogram of durations; recording takes a few comparisons and two atomic additions.
final class PrometheusHistogram: TimerHandler {
  /// The maximum number of bounds; one more bucket holds the rest.
  static let boundLimit = 19

  private let boundsInNanoseconds: [Int64]
  private let counts: InlineArray<20, Atomic<Int64>>
  private let nanoseconds = Atomic<Int64>(0)

  init(bounds: [Double]) {
    precondition(bounds.count <= Self.boundLimit, "A histogram has few bounds.")
    boundsInNanoseconds = bounds.map { Int64(($0 * 1e9).rounded()) }
    counts = InlineArray { _ in Atomic(0) }
  }

  func recordNanoseconds(_ duration: Int64) {
    var place = 0
    while place < boundsInNanoseconds.count, duration > boundsInNanoseconds[place] { place += 1 }
    counts[place].wrappingAdd(1, ordering: .relaxed)
    nanoseconds.wrappingAdd(duration, ordering: .relaxed)
  }

  /// The number of durations up to each bound, with the total last, which is the sum of the buckets
  /// so that the two always agree, and the sum of all durations.
  var snapshot: (cumulativeCounts: [Int64], seconds: Double) {
    var sum: Int64 = 0
    let counts = (0...boundsInNanoseconds.count).map { place in
      sum += self.counts[place].load(ordering: .relaxed)
      return sum
    }
    return (counts, Double(nanoseconds.load(ordering: .relaxed)) / 1e9)
  }
}
