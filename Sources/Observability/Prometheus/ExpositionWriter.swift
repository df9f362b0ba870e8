/// Writes metrics in Prometheus' text format, version 0.0.4.
///
/// https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
struct ExpositionWriter {
  private(set) var text = ""

  mutating func begin(_ declaration: MetricDeclaration) {
    let type =
      switch declaration.kind {
      case .counter: "counter"
      case .gauge: "gauge"
      case .histogram: "histogram"
      }
    text += "# HELP \(declaration.name) \(Self.escaped(declaration.help, inLabel: false))\n"
    text += "# TYPE \(declaration.name) \(type)\n"
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
      guard case .histogram(let bounds) = declaration.kind else { return }
      let snapshot = histogram.snapshot
      let names = bounds.map(Self.number) + ["+Inf"]
      for (bound, count) in zip(names, snapshot.cumulativeCounts) {
        line(name + "_bucket", labels + [("le", bound)], "\(count)")
      }
      line(name + "_sum", labels, Self.number(snapshot.seconds))
      line(name + "_count", labels, "\(snapshot.cumulativeCounts.last ?? 0)")
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
