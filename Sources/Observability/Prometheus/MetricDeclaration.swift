/// A metric that may be exported: its name and what it counts, and by which labels it is split.
///
/// What is not declared is not exported, so that neither a library's own metrics nor a label that
/// somebody thinks up at run time can make a Prometheus grow.
package struct MetricDeclaration: Hashable, Sendable {
  /// What a metric's numbers are.
  package enum Kind: Hashable, Sendable {
    /// Only ever grows.
    case counter
    /// How something stands.
    case gauge
    /// How long something took, counted below each of these bounds, in seconds.
    case histogram(bounds: [Double])
  }

  package var name: String
  package var kind: Kind
  /// In their order in the exposition.
  package var labels: [String]
  /// One sentence, without its full stop.
  package var help: String
  /// Whether the numbers are read from the database when they are asked for.
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

  /// The names under which samples of this metric stand in the exposition.
  package var sampleNames: [String] {
    switch kind {
    case .counter, .gauge: [name]
    case .histogram: ["_bucket", "_sum", "_count"].map { name + $0 }
    }
  }

  /// Whether Prometheus takes the name and the labels.
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
