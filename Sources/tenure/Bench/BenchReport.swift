import Foundation

/// Results as they are printed.
struct BenchReport: Sendable {
  var results: [BenchResult]
  var answers: [AnswerTime] = []

  /// What has a limit of its own and kept it, all of it.
  var isMet: Bool { answers.allSatisfy(\.isMet) }

  private enum Item: Encodable {
    case result(BenchResult)
    case answer(AnswerTime)

    func encode(to encoder: any Encoder) throws {
      switch self {
      case .result(let result): try result.encode(to: encoder)
      case .answer(let answer): try answer.encode(to: encoder)
      }
    }
  }

  /// For programs: an array of objects, each with its rounds, or with the times of its answers.
  ///
  /// - Throws: What the encoder throws for a figure that is no number.
  var json: String {
    get throws {
      let encoder = JSONEncoder()
      encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
      let items = results.map(Item.result) + answers.map(Item.answer)
      return String(decoding: try encoder.encode(items), as: UTF8.self)
    }
  }

  /// For people: a line for each result, and below, what the limits are.
  var table: String {
    [answers.isEmpty ? nil : answersTable, results.isEmpty ? nil : resultsTable]
      .compactMap(\.self).joined(separator: "\n\n")
  }

  private var answersTable: String {
    let header = ["", "cold ms", "warm ms", "there after ms", "", "limit"]
    let limit = Self.whole(AnswerTime.limit / .milliseconds(1))
    let rows = answers.map { answer in
      [
        answer.name, Self.whole(answer.cold / .milliseconds(1)),
        Self.whole(answer.warm / .milliseconds(1)),
        Self.whole(answer.answeredAfter / .milliseconds(1)), answer.outcome,
        answer.isMet ? "met" : "missed",
      ]
    }
    let missed = answers.count { !$0.isMet }
    return Self.lines([header] + rows)
      + "\n\n\(missed) of \(answers.count) missed: each is to be answered, or said to be worked "
      + "on, within \(limit) ms when it is asked for the first time."
  }

  private var resultsTable: String {
    let header = [
      "", "per second", "limit", "ratio", "goal", "", "p50 ms", "p99 ms", "memory MB",
      "database MB",
    ]
    let notes = results.map { "\($0.name): the limit is \($0.limitName)." }
    return ([Self.lines([header] + results.map(Self.cells)), ""] + notes).joined(separator: "\n")
  }

  /// Rows in columns, the first of them to the left.
  private static func lines(_ rows: [[String]]) -> String {
    let widths = (rows.first ?? []).indices.map { column in
      rows.map { $0[column].count }.max() ?? 0
    }
    return rows.map { row in
      zip(row, widths).enumerated().map { column, cell in
        let padding = String(repeating: " ", count: cell.1 - cell.0.count)
        return column == 0 ? cell.0 + padding : padding + cell.0
      }.joined(separator: "  ")
    }.joined(separator: "\n")
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
