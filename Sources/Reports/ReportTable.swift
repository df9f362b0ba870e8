package import JSONText
package import Subscriptions

/// A column of a report.
package struct ReportColumn: Hashable, Sendable {
  package enum Kind: String, Sendable {
    case text
    case number
    case time
    /// In milliseconds.
    case duration
    /// A day without a time.
    case date
    /// Milliunits of the row's currency.
    case money
    /// An exact decimal fraction.
    case fraction
    /// A part of 1.
    case rate
    case flag
  }

  package let name: String
  package let kind: Kind

  init(_ name: String, _ kind: Kind) {
    self.name = name
    self.kind = kind
  }
}

package enum ReportValue: Hashable, Sendable {
  case text(String)
  case number(Int64)
  case time(Timestamp)
  case duration(milliseconds: Int64)
  case date(String)
  /// Thousandths of a unit of the currency (ISO 4217), which is nil if not known.
  case money(milliunits: Int64, currency: String?)
  /// As the database writes it, exactly.
  case fraction(String)
  /// A part of 1, as the database writes it.
  case rate(String)
  case flag(Bool)
  /// Not known, or without meaning in this row.
  case none
}

/// The answer to a report.
package struct ReportTable: Hashable, Sendable {
  package let report: Report
  package let asOf: Timestamp
  package let columns: [ReportColumn]
  /// Each with a value for each column.
  package let rows: [[ReportValue]]
  /// There are more rows than the limit.
  package let isCutShort: Bool
}

package enum ReportFormat: String, CaseIterable, Sendable {
  /// For people: aligned columns.
  case table
  /// RFC 4180, with a header line.
  case csv
  case json
}

extension ReportTable {
  /// The report in a format, with a final newline.
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
    // Columns without any value are left out.
    let shown = columns.indices.filter { column in cells.contains { !$0[column].isEmpty } }
    guard !shown.isEmpty else { return "Nothing to report.\n" }
    let lines = [shown.map { columns[$0].title }] + cells.map { row in shown.map { row[$0] } }
    let numbers = Set(shown.indices.filter { columns[shown[$0]].isNumber })
    let text = lines.aligned(right: numbers).map { $0 + "\n" }.joined()
    return isCutShort ? text + "There are more rows: ask for them with a higher limit.\n" : text
  }

  // MARK: For programs

  private var csv: String { columns.csv + rows.map(\.csv).joined() }

  private var json: String {
    var json = JSONWriter(capacity: 256 + rows.count * columns.count * 24)
    json.object { json in
      json.member("report", report.name)
      json.member("as_of", asOf)
      json.objects("rows", rows) { json, row in
        for (column, value) in zip(columns, row) { json.member(column.name, value) }
      }
      json.member("cut_short", isCutShort)
    }
    return json.text
  }
}

extension [[String]] {
  /// The rows with their cells aligned in columns: to the left, or to the right in some columns.
  package func aligned(right columns: Set<Int> = []) -> [String] {
    let count = map(\.count).max() ?? 0
    let widths = (0..<count).map { column in
      self.map { column < $0.count ? $0[column].count : 0 }.max() ?? 0
    }
    return self.map { row in
      let cells = row.enumerated().map { column, cell in
        let space = String(repeating: " ", count: widths[column] - cell.count)
        return columns.contains(column) ? space + cell : cell + space
      }
      return String(cells.joined(separator: "  ").reversed().drop { $0 == " " }.reversed())
    }
  }
}

extension [ReportColumn] {
  /// The header line.
  var csv: String { map(\.name).joined(separator: ",") + "\r\n" }
}

extension [ReportValue] {
  var csv: String { map(\.csv).joined(separator: ",") + "\r\n" }
}

extension ReportColumn {
  /// Its name as words, without the unit.
  package var title: String {
    let unit = ["_ms", "_milliunits"].first { name.hasSuffix($0) } ?? ""
    return String(name.dropLast(unit.count)).replacing("_", with: " ")
  }

  /// Whether its values are right-aligned.
  package var isNumber: Bool {
    switch kind {
    case .number, .duration, .money, .fraction, .rate: true
    case .text, .time, .date, .flag: false
    }
  }
}

extension ReportValue {
  fileprivate var words: String {
    switch self {
    case .text(let text):
      // A cell is one line.
      text.split(whereSeparator: \.isNewline).joined(separator: " ")
    case .number(let number): "\(number)"
    case .time(let moment): "\(moment)"
    case .duration(let milliseconds):
      (milliseconds < 0 ? "-" : "") + Duration.milliseconds(milliseconds).words()
    case .date(let day): day
    case .money(let milliunits, let currency): Self.words(milliunits: milliunits, currency)
    case .fraction(let decimal): decimal
    case .rate(let decimal): Self.percent(decimal)
    case .flag(let isSet): isSet ? "yes" : "no"
    case .none: ""
    }
  }

  /// An amount with two digits, or three if needed, as in `9.99 EUR`.
  package static func words(milliunits: Int64, _ currency: String?) -> String {
    let (units, rest) = milliunits.magnitude.quotientAndRemainder(dividingBy: 1000)
    let thousandths = String(repeating: "0", count: 3 - "\(rest)".count) + "\(rest)"
    let digits = thousandths.hasSuffix("0") ? thousandths.dropLast() : thousandths[...]
    let amount = (milliunits < 0 ? "-" : "") + "\(units).\(digits)"
    return currency.map { "\(amount) \($0)" } ?? amount
  }

  /// A part of 1 with six digits, as percent with two: `0.333333` is `33.33 %`.
  private static func percent(_ decimal: String) -> String {
    guard let millionths = Int64(decimal.replacing(".", with: "")) else { return decimal }
    let rounded = (millionths.magnitude + 50) / 100
    let (whole, rest) = rounded.quotientAndRemainder(dividingBy: 100)
    let sign = decimal.hasPrefix("-") && rounded > 0 ? "-" : ""
    return sign + "\(whole).\(rest < 10 ? "0" : "")\(rest) %"
  }

  fileprivate var csv: String {
    switch self {
    case .text(let text):
      text.csvField(guardsFormulas: true)
    case .number(let number), .duration(let number), .money(let number, _): "\(number)"
    case .time(let moment): "\(moment)"
    case .date(let text), .fraction(let text), .rate(let text): text
    case .flag(let isSet): "\(isSet)"
    case .none: ""
    }
  }
}

extension ReportValue: JSONWritable {
  package func write(to json: inout JSONWriter) {
    switch self {
    case .text(let text), .date(let text): json.write(text)
    case .number(let number), .duration(let number), .money(let number, _): json.write(number)
    case .time(let moment): json.write(moment)
    // PostgreSQL's decimals are valid JSON.
    case .fraction(let decimal), .rate(let decimal): json.write(json: decimal)
    case .flag(let isSet): json.write(isSet)
    case .none: json.null()
    }
  }
}
