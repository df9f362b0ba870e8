package import JSONText
package import Subscriptions

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

  package init(_ name: String, _ kind: Kind) {
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

package struct ReportTable: Hashable, Sendable {
  package let report: Report
  package let asOf: Timestamp
  package let columns: [ReportColumn]
  /// Each with a value for each column.
  package var rows: [[ReportValue]]
  package let isCutShort: Bool
  package var reportingCurrency: String?
}

extension ReportTable {
  /// The currencies that were not converted, since no rate is known for them.
  package var unconverted: [String] {
    guard let reportingCurrency, let column = columns.firstIndex(where: { $0.name == "currency" })
    else { return [] }
    let currencies = rows.compactMap { row -> String? in
      if case .text(let currency) = row[column] { currency } else { nil }
    }
    return Set(currencies).subtracting([reportingCurrency]).sorted()
  }

  /// The sentence about ``unconverted``; nil: everything was converted.
  package var unconvertedNote: String? {
    guard let reportingCurrency, !unconverted.isEmpty else { return nil }
    let currencies = unconverted.joined(separator: ", ")
    if columns.contains(where: { $0.name == "cohort" }) {
      return "Cohorts that have days without an exchange rate to \(reportingCurrency) were not "
        + "converted: \(currencies)."
    }
    let rows = rows.indices.filter { value("currency", inRow: $0) != .text(reportingCurrency) }
    func days(_ column: String) -> [String] {
      rows.compactMap { index in
        if case .date(let day)? = value(column, inRow: index) { day } else { nil }
      }
    }
    // The opening of a row needs a rate of the day before.
    let span = days("from_day").min().flatMap { first in
      days("to_day").max().map { first == $0 ? " of \(first)" : " from \(first) to \($0)" }
    }
    return "Some amounts\(span ?? "") were not converted to \(reportingCurrency), as exchange "
      + "rates are missing: \(currencies)."
  }
}

package enum ReportFormat: String, CaseIterable, Sendable {
  /// For people: aligned columns.
  case table
  /// RFC 4180, with a header line.
  case csv
  case json
}

extension ReportTable {
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
    let notes =
      [
        isCutShort ? "There are more rows: ask for them with a higher limit." : nil,
        unconvertedNote.map { $0 + " Set rates on the page Rates or with `tenure rates`." },
      ]
    return text + notes.compactMap(\.self).map { $0 + "\n" }.joined()
  }

  // MARK: For programs

  private var csv: String { columns.csvHead + rows.map(columns.csv).joined() }

  private var json: String {
    var json = JSONWriter(capacity: 256 + rows.count * columns.count * 24)
    json.object { json in
      json.member("report", report.name)
      json.member("as_of", asOf)
      json.objects("rows", rows) { json, row in
        for (column, value) in zip(columns, row) { json.member(column.name, value) }
      }
      json.member("cut_short", isCutShort)
      if reportingCurrency != nil { json.member("unconverted", unconverted) }
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

/// CSV has each amount twice: in milliunits and, in a column named without that unit, as a decimal
/// number in the currency's own digits.
extension [ReportColumn] {
  package var csvHead: String {
    flatMap { $0.kind == .money ? [$0.name, $0.nameWithoutUnit] : [$0.name] }
      .joined(separator: ",") + "\r\n"
  }

  package func csv(_ row: [ReportValue]) -> String {
    zip(self, row).flatMap { column, value in
      column.kind == .money ? [value.csv, value.decimal] : [value.csv]
    }.joined(separator: ",") + "\r\n"
  }
}

extension ReportColumn {
  /// Its name as words, without the unit.
  package var title: String { nameWithoutUnit.replacing("_", with: " ") }

  fileprivate var nameWithoutUnit: String {
    let unit = ["_ms", "_milliunits"].first { name.hasSuffix($0) } ?? ""
    return String(name.dropLast(unit.count))
  }

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

  /// An amount with the currency's digits, rounded half away from zero: `9.99 EUR`, `1500 JPY`.
  package static func words(milliunits: Int64, _ currency: String?) -> String {
    let amount = decimal(milliunits: milliunits, currency)
    return currency.map { "\(amount) \($0)" } ?? amount
  }

  private static func decimal(milliunits: Int64, _ currency: String?) -> String {
    // Without a currency, all that there are.
    let digits = currency != nil || milliunits % 10 == 0 ? fractionDigits(of: currency) : 3
    let unit: UInt64 = [1000, 100, 10, 1][digits]
    let rounded = (milliunits.magnitude + unit / 2) / unit
    let (units, rest) = rounded.quotientAndRemainder(dividingBy: 1000 / unit)
    let fraction = String(repeating: "0", count: max(0, digits - "\(rest)".count)) + "\(rest)"
    let sign = milliunits < 0 && rounded > 0 ? "-" : ""
    return digits == 0 ? "\(sign)\(units)" : "\(sign)\(units).\(fraction)"
  }

  fileprivate var decimal: String {
    if case .money(let number, let currency) = self {
      Self.decimal(milliunits: number, currency)
    } else {
      ""
    }
  }

  /// The digits after the point in a currency's amounts (ISO 4217); two for an unknown currency.
  package static func fractionDigits(of currency: String?) -> Int {
    guard let currency else { return 2 }
    return wholeCurrencies.contains(currency) ? 0 : thousandthCurrencies.contains(currency) ? 3 : 2
  }

  private static let wholeCurrencies: Set<String> = [
    "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND",
    "VUV", "XAF", "XOF", "XPF",
  ]
  private static let thousandthCurrencies: Set<String> = [
    "BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND",
  ]

  /// A part of 1 as percent with two digits: `0.333333` is `33.33 %`; only the whole is `100.00 %`.
  private static func percent(_ decimal: String) -> String {
    guard let millionths = Int64(decimal.replacing(".", with: "")) else { return decimal }
    var rounded = (millionths.magnitude + 50) / 100
    if millionths.magnitude < 1_000_000 { rounded = min(rounded, 9999) }
    let (whole, rest) = rounded.quotientAndRemainder(dividingBy: 100)
    let sign = decimal.hasPrefix("-") && rounded > 0 ? "-" : ""
    return sign + "\(whole).\(rest < 10 ? "0" : "")\(rest) %"
  }

  fileprivate var csv: String {
    switch self {
    case .text(let text): text.csvField(guardsFormulas: true)
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
