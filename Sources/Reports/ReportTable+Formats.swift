import Subscriptions

/// In which form a report is given.
package enum ReportFormat: String, CaseIterable, Sendable {
  /// For people: aligned columns.
  case table
  /// RFC 4180, with a line of names.
  case csv
  case json
}

extension ReportTable {
  /// The report in a form, with its last line's end.
  package func text(_ format: ReportFormat) -> String {
    switch format {
    case .table: aligned
    case .csv: csv
    case .json: json + "\n"
    }
  }

  // MARK: For people

  private var aligned: String {
    let cells = rows.map { $0.map(\.words) }
    // A column without a value says nothing.
    let shown = columns.indices.filter { column in cells.contains { !$0[column].isEmpty } }
    guard !shown.isEmpty else { return "Nothing to report.\n" }
    let lines = [shown.map { columns[$0].title }] + cells.map { row in shown.map { row[$0] } }
    let widths = shown.indices.map { column in lines.map { $0[column].count }.max() ?? 0 }
    var text = ""
    for line in lines {
      let padded = line.indices.map { index in
        let space = String(repeating: " ", count: widths[index] - line[index].count)
        return columns[shown[index]].isRightAligned ? space + line[index] : line[index] + space
      }
      text += String(padded.joined(separator: "  ").reversed().drop { $0 == " " }.reversed()) + "\n"
    }
    return isCutShort ? text + "There are more rows: ask for them with a higher limit.\n" : text
  }

  // MARK: For programs

  private var csv: String {
    let names = columns.map(\.name).joined(separator: ",")
    return ([names] + rows.map { $0.map(\.csv).joined(separator: ",") })
      .map { $0 + "\r\n" }.joined()
  }

  private var json: String {
    let rows = rows.map { row in
      "{" + zip(columns, row).map { "\"\($0.name)\":\($1.json)" }.joined(separator: ",") + "}"
    }
    return """
      {"report":"\(report.rawValue)","as_of":"\(asOf)","rows":[\(rows.joined(separator: ","))],\
      "cut_short":\(isCutShort)}
      """
  }
}

extension ReportColumn {
  fileprivate var title: String {
    (name.hasSuffix("_ms") ? String(name.dropLast(3)) : name).replacing("_", with: " ")
  }

  fileprivate var isRightAligned: Bool { kind == .number || kind == .duration }
}

extension ReportValue {
  /// For a table.
  fileprivate var words: String {
    switch self {
    case .text(let text):
      // One line, whatever is in it.
      text.split(whereSeparator: \.isNewline).joined(separator: " ")
    case .number(let number): "\(number)"
    case .time(let moment): "\(moment)"
    case .duration(let milliseconds): Self.words(milliseconds: milliseconds)
    case .none: ""
    }
  }

  /// The two largest units of a duration, as in `6 d 3 h`.
  private static func words(milliseconds: Int64) -> String {
    let seconds = milliseconds.magnitude / 1000
    let units: [(name: String, seconds: UInt64)] = [("d", 86_400), ("h", 3600), ("min", 60)]
    let sign = milliseconds < 0 ? "-" : ""
    guard let first = units.firstIndex(where: { seconds >= $0.seconds }) else {
      return sign + "\(seconds) s"
    }
    let (whole, rest) = seconds.quotientAndRemainder(dividingBy: units[first].seconds)
    let next = first + 1 < units.count ? units[first + 1] : (name: "s", seconds: 1)
    let more = rest / next.seconds
    return sign + "\(whole) \(units[first].name)" + (more > 0 ? " \(more) \(next.name)" : "")
  }

  fileprivate var csv: String {
    switch self {
    case .text(let text):
      text.contains { $0 == "," || $0 == "\"" || $0.isNewline }
        ? "\"" + text.replacing("\"", with: "\"\"") + "\"" : text
    case .number(let number), .duration(let number): "\(number)"
    case .time(let moment): "\(moment)"
    case .none: ""
    }
  }

  fileprivate var json: String {
    switch self {
    case .text(let text): Self.json(text)
    case .number(let number), .duration(let number): "\(number)"
    case .time(let moment): "\"\(moment)\""
    case .none: "null"
    }
  }

  /// A string with the escapes that RFC 8259 asks for.
  private static func json(_ text: String) -> String {
    var json = "\""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\"", "\\": json += "\\\(scalar)"
      case _ where scalar.value < 0x20:
        let digits = String(scalar.value, radix: 16)
        json += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
      default: json.unicodeScalars.append(scalar)
      }
    }
    return json + "\""
  }
}
