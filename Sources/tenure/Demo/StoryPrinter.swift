import Foundation
import Subscriptions

/// Writes the story to standard output, line by line as it happens.
struct StoryPrinter: Sendable {
  /// Wide enough for a sentence with a transaction id, narrow enough for two windows side by side.
  private static let width = 100

  func line(_ text: String = "") {
    write(text + "\n")
  }

  /// Writes a text as it is.
  func write(_ text: String) {
    try? FileHandle.standardOutput.write(contentsOf: Data(text.utf8))
  }

  func heading(_ number: String, _ title: String) {
    let text = "── \(number) ── \(title) "
    line("\n" + text + String(repeating: "─", count: max(0, Self.width - text.count)))
  }

  /// Something that happened, with its date.
  func event(_ moment: Timestamp, _ text: String) {
    paragraph("  " + moment.description.prefix(10) + "  ", text)
  }

  /// Whether something is as it has to be.
  func check(_ isMet: Bool, _ text: String) {
    paragraph("          \(Self.mark(isMet))   ", text)
  }

  /// Something about the story as a whole.
  func remark(_ text: String) {
    paragraph("  ", text)
  }

  /// A table whose columns are as wide as their widest cell; all rows have as many cells.
  func table(_ rows: [[String]]) {
    let columns = rows.map(\.count).max() ?? 0
    let widths = (0..<columns).map { column in
      rows.map { column < $0.count ? $0[column].count : 0 }.max() ?? 0
    }
    for row in rows {
      let cells = zip(row, widths.dropLast()).map {
        $0 + String(repeating: " ", count: $1 - $0.count)
      }
      line("  " + (cells + row.suffix(1)).joined(separator: "  "))
    }
  }

  static func mark(_ isMet: Bool) -> String { isMet ? "✓" : "✗" }

  /// Breaks a text between words; further lines stand under the first one's text.
  private func paragraph(_ lead: String, _ text: String) {
    var current = lead
    var isEmpty = true
    for word in text.split(separator: " ") {
      if !isEmpty, current.count + 1 + word.count > Self.width {
        line(current)
        current = String(repeating: " ", count: lead.count)
        isEmpty = true
      }
      current += isEmpty ? "\(word)" : " \(word)"
      isEmpty = false
    }
    line(current)
  }
}

extension Timestamp {
  /// The day alone, as the story tells dates.
  var day: String { String(description.prefix(10)) }
}

/// What somebody pays.
struct SimulatedPrice {
  let milliunits: Int64
  let currency: String

  /// For example `9.99 USD`.
  var text: String {
    let cents = (milliunits + 5) / 10
    let (whole, rest) = (cents / 100, cents % 100)
    return "\(whole).\(rest < 10 ? "0" : "")\(rest) \(currency)"
  }
}
