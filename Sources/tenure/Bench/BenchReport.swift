import Foundation

/// Results as they are printed.
struct BenchReport: Sendable {
  let results: [BenchResult]

  /// For programs: an array of objects, each with its rounds.
  ///
  /// - Throws: What the encoder throws for a figure that is no number.
  var json: String {
    get throws {
      let encoder = JSONEncoder()
      encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
      return String(decoding: try encoder.encode(results), as: UTF8.self)
    }
  }

  /// For people: a line for each result, and below, what the limits are.
  var table: String {
    let header = [
      "", "per second", "limit", "ratio", "goal", "", "p50 ms", "p99 ms", "memory MB",
      "database MB",
    ]
    let rows = [header] + results.map(Self.cells)
    let widths = header.indices.map { column in rows.map { $0[column].count }.max() ?? 0 }
    let lines = rows.map { row in
      zip(row, widths).enumerated().map { column, cell in
        let padding = String(repeating: " ", count: cell.1 - cell.0.count)
        return column == 0 ? cell.0 + padding : padding + cell.0
      }.joined(separator: "  ")
    }
    let notes = results.map { "\($0.name): the limit is \($0.limitName)." }
    return (lines + [""] + notes).joined(separator: "\n")
  }

  private static func cells(_ result: BenchResult) -> [String] {
    [
      result.name, whole(result.perSecond), whole(result.limitPerSecond),
      decimal(result.ratio, digits: 2), result.goal.map { "≥ " + decimal($0, digits: 2) } ?? "–",
      result.isMet.map { $0 ? "met" : "missed" } ?? "",
      result.p50Milliseconds.map { decimal($0, digits: 2) } ?? "–",
      result.p99Milliseconds.map { decimal($0, digits: 2) } ?? "–",
      result.memory.map { whole(Double($0) / 1_000_000) } ?? "–",
      result.database.map { whole(Double($0) / 1_000_000) } ?? "–",
    ]
  }

  private static func whole(_ value: Double) -> String {
    let digits = String(Int(value.rounded()))
    var grouped = ""
    for (index, digit) in digits.enumerated() {
      if index > 0, (digits.count - index).isMultiple(of: 3) { grouped.append(",") }
      grouped.append(digit)
    }
    return grouped
  }

  private static func decimal(_ value: Double, digits: Int) -> String {
    value.formatted(
      .number.precision(.fractionLength(digits)).grouping(.never)
        .locale(Locale(identifier: "en_US_POSIX")))
  }
}
