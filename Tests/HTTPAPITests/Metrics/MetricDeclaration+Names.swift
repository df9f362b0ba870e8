import Observability

extension MetricDeclaration {
  /// The sample names in the exposition.
  var sampleNames: [String] {
    switch kind {
    case .counter, .gauge: [name]
    case .histogram: ["_bucket", "_sum", "_count"].map { name + $0 }
    }
  }

  /// Whether Prometheus accepts the name and labels.
  ///
  /// https://prometheus.io/docs/concepts/data_model/
  var isWellFormed: Bool {
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
