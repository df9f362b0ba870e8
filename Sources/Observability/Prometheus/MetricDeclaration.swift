/// The name, type and labels of an exported metric.
///
/// Undeclared metrics are not exported, so neither libraries nor label values made up at run time
/// can bloat Prometheus.
package struct MetricDeclaration: Hashable, Sendable {
  package enum Kind: Hashable, Sendable {
    case counter
    case gauge
    /// Durations, counted up to each of these bounds, in seconds.
    case histogram(bounds: [Double])
  }

  package var name: String
  package var kind: Kind
  /// In the order of the exposition.
  package var labels: [String]
  /// One sentence without its full stop.
  package var help: String
  /// Whether the value is read from the database for each exposition.
  package var isReading = false

  package init(
    _ name: String, _ kind: Kind, by labels: [String] = [], isReading: Bool = false,
    _ help: String
  ) {
    self.name = name
    self.kind = kind
    self.labels = labels
    self.isReading = isReading
    self.help = help
  }

  /// The sample names in the exposition.
  package var sampleNames: [String] {
    switch kind {
    case .counter, .gauge: [name]
    case .histogram: ["_bucket", "_sum", "_count"].map { name + $0 }
    }
  }

  /// Whether Prometheus accepts the name and labels.
  ///
  /// https://prometheus.io/docs/concepts/data_model/
  package var isWellFormed: Bool {
    ([name] + labels).allSatisfy { text in
      !text.isEmpty && !text.utf8.prefix(1).allSatisfy(Self.isDigit)
        && text.utf8.allSatisfy { $0 == UInt8(ascii: "_") || Self.isDigit($0) || Self.isLower($0) }
    } && Set(labels).count == labels.count && !labels.contains("le")
  }

  private static func isDigit(_ byte: UInt8) -> Bool {
    (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
  }

  private static func isLower(_ byte: UInt8) -> Bool {
    (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte)
  }
}
