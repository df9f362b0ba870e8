import LedgerStorage
import Reports
import Subscriptions

extension DataTable {
  /// The rows of a report, each number with a link to its items.
  init(_ table: ReportTable, of request: ReportRequest) {
    let most = table.columns.map { column in
      column.kind == .number && request.report.hasBars
        ? table.rows.indices.compactMap { table.value(column.name, inRow: $0)?.integer }.max() ?? 0
        : 0
    }
    // Columns without any value are left out.
    let shown = table.columns.indices.filter { place in
      table.rows.isEmpty || table.rows.contains { $0[place] != .none }
    }
    self.init(
      caption: request.report.label,
      columns: shown.map {
        DataColumn(label: table.columns[$0].label, isNumber: table.columns[$0].isNumber)
      },
      rows: table.rows.enumerated().map { index, row in
        DataRow(
          cells: shown.map { place in
            let (column, value) = (table.columns[place], row[place])
            var cell = DataCell(value, of: column)
            cell.isHeading = place == shown.first
            cell.href = table.cell(column.name, inRow: index, of: request.choices)
              .map(request.href)
            if let share = request.report.shares[column.name] {
              cell.take(share, table, index)
            }
            if most[place] > 0, let number = value.integer, number > 0 {
              cell.barWidth = Coordinate.text(Double(number) / Double(most[place]) * 100)
            }
            return cell
          })
      },
      emptyText: "No data for these filters.",
      note: table.isCutShort
        ? "Only the first \(table.rows.count) rows are shown, without a chart: choose fewer days, "
          + "or download the file."
        : nil)
  }

  /// The items of a number, with links.
  init(_ items: ReportTable, caption: String, environment: Subscriptions.Environment) {
    self.init(
      caption: caption,
      columns: items.columns.map { DataColumn(label: $0.label, isNumber: $0.isNumber) },
      rows: items.rows.indices.map { index in
        DataRow(
          cells: zip(items.columns, items.rows[index]).map { column, value in
            var cell = DataCell(value, of: column)
            guard let text = value.text, !text.isEmpty else { return cell }
            switch column.name {
            case "original_transaction_id":
              cell.href = AdminURL.originalTransaction(text, environment: environment.rawValue)
            case "account_id", "from_account_id", "previous_account_id":
              cell.href = AdminURL.account(text)
            case "order_id": cell.href = AdminURL.search(text)
            case "subject":
              cell.href = Self.line(named: text, byJob: items.value("cause", inRow: index)?.text)
            default: break
            }
            return cell
          })
      },
      emptyText: "No items.")
  }

  /// The page of the original transaction that a job's or an action's subject names, or nil.
  private static func line(named subject: String, byJob kind: String?) -> String? {
    if let kind {
      guard [Job.Kind.pollStatus, .setAppAccountToken].contains(where: { $0.rawValue == kind }),
        let line = OriginalTransactionKey(subject: subject)
      else { return nil }
      return AdminURL.originalTransaction(
        line.originalTransactionID.rawValue, environment: line.environment.rawValue)
    }
    let parts = subject.split(separator: "/", omittingEmptySubsequences: false).map(String.init)
    guard parts.count == 3, Subscriptions.Environment(rawValue: parts[0]) != nil,
      !parts[1].isEmpty
    else { return nil }
    return AdminURL.originalTransaction(parts[1], environment: parts[0])
  }

  /// A triangle of shares by cohort and month, in a deeper colour where more remain; the table has
  /// one row for each period of a cohort, in order.
  init(cohortsOf table: ReportTable, of request: ReportRequest) {
    let cohorts = Dictionary(grouping: table.records) { $0["cohort"]?.text ?? "" }
      .sorted { $0.key < $1.key }
    let count = cohorts.map(\.value.count).max() ?? 0
    func href(_ column: String, _ row: ReportRow) -> String? {
      table.cell(column, inRow: row.index, of: request.choices).map(request.href)
    }
    self.init(
      caption: request.report.label,
      columns: [DataColumn(label: "Cohort"), DataColumn(label: "Size", isNumber: true)]
        + (0..<count).map { DataColumn(label: $0 == 0 ? "Month 0" : "\($0)", isNumber: true) },
      rows: cohorts.map { cohort, periods in
        let size = periods[0].integer("cohort_size")
        let shares = periods.map { period in
          DataCell(
            retained: period["retained"]?.integer, of: size, href: href("retained", period))
        }
        return DataRow(
          cells: [
            DataCell(text: String(cohort.prefix(7)), isHeading: true),
            DataCell(
              text: ChartUnit.count.text(size), href: href("cohort_size", periods[0]),
              isNumber: true),
          ] + shares
            + Array(repeating: DataCell(text: "", isNumber: true), count: count - shares.count))
      },
      emptyText: "No cohorts yet.")
  }
}

extension DataCell {
  fileprivate init(_ value: ReportValue, of column: ReportColumn) {
    self.init(
      text: value.words, isNumber: column.isNumber,
      isCode: column.kind == .text && column.name.hasSuffix("_id"))
  }

  /// A share with one decimal; 100% means all, and a period that is not over yet has none.
  fileprivate init(retained: Int64?, of size: Int64, href: String?) {
    guard let retained, size > 0 else {
      self.init(text: "", isNumber: true)
      return
    }
    let part = min(max(Double(retained) / Double(size), 0), 1)
    let share = part == 1 ? 10_000 : min(Int64((part * 1000).rounded()) * 10, 9990)
    self.init(
      text: ChartUnit.share.text(share), href: href, isNumber: true, heat: Int(share / 1000))
  }

  /// Shows a share with the two numbers that it is made of.
  fileprivate mutating func take(_ share: Report.Share, _ table: ReportTable, _ index: Int) {
    guard let part = table.value(share.part, inRow: index)?.integer,
      let whole = table.value(share.whole, inRow: index)?.integer,
      let exact = ReportValue.hundredthsOfPercent(of: part, in: whole)
    else { return }
    text = ChartUnit.share.text(exact)
    note = "\(ChartUnit.count.text(part)) of \(ChartUnit.count.text(whole))"
  }
}

/// A row of a report, whose values are found by the names of their columns.
struct ReportRow: Sendable {
  let table: ReportTable
  let index: Int

  subscript(column: String) -> ReportValue? { table.value(column, inRow: index) }

  /// A number, or 0 if there is none.
  func integer(_ column: String) -> Int64 { self[column]?.integer ?? 0 }
}

extension ReportTable {
  var records: [ReportRow] { rows.indices.map { ReportRow(table: self, index: $0) } }
}

extension ReportColumn {
  /// As in `Refunded of charges`.
  var label: String {
    if name == "mrr_milliunits" { return "MRR" }
    if name == "mrr_twelfths" { return "MRR, twelfths of a milliunit" }
    return Self.sentence(title)
  }

  /// As in `In grace period`.
  static func sentence(_ name: String) -> String {
    let words = name.replacing("_", with: " ")
    return words.prefix(1).uppercased() + words.dropFirst()
  }
}

extension ReportValue {
  var words: String {
    switch self {
    case .text(let text): text
    case .number(let number): ChartUnit.count.text(number)
    case .time(let moment): Moment(moment).text
    case .duration(let milliseconds):
      (milliseconds < 0 ? "−" : "")
        + Age.text(.milliseconds(Int64(clamping: milliseconds.magnitude)))
    case .money(let milliunits, let currency?): ChartUnit.money(currency: currency).text(milliunits)
    case .money(let milliunits, nil):
      // Without the space before a missing currency.
      String(ChartUnit.money(currency: "").text(milliunits).dropLast())
    case .date(let text), .fraction(let text): text
    case .rate(let text): ChartUnit.share.text(Self.hundredthsOfPercent(text))
    case .flag(let isSet): isSet ? "yes" : "no"
    case .none: ""
    }
  }

  /// A count, or an amount in milliunits.
  var integer: Int64? {
    switch self {
    case .number(let number), .money(let number, _): number
    default: nil
    }
  }

  /// A text or a day; nil for other values.
  var text: String? {
    switch self {
    case .text(let text), .date(let text): text
    default: nil
    }
  }

  var time: Timestamp? {
    if case .time(let moment) = self { moment } else { nil }
  }

  /// A part of a whole in hundredths of a percent, rounded half away from zero.
  static func hundredthsOfPercent(of part: Int64, in whole: Int64) -> Int64? {
    guard whole > 0, !part.multipliedReportingOverflow(by: 20_000).overflow else { return nil }
    let doubled = part.magnitude * 20_000 / UInt64(whole)
    return Int64((doubled + 1) / 2) * (part < 0 ? -1 : 1)
  }

  /// Rounds the database's six digits of a share to the four that are shown.
  private static func hundredthsOfPercent(_ decimal: String) -> Int64 {
    let millionths = Int64(decimal.replacing(".", with: "")) ?? 0
    return Int64((millionths.magnitude + 50) / 100) * (millionths < 0 ? -1 : 1)
  }
}

/// Draws the charts of a report from its answer.
struct ReportCharts: Sendable {
  let table: ReportTable

  /// Sums up the rows of each day, but never across currencies.
  var pictures: [Chart] {
    table.report.charts.enumerated().flatMap { number, chart in
      currencies(of: chart).enumerated().map { place, currency in
        let data = data(chart, currency, id: "chart-\(number + 1)-\(place + 1)")
        return chart.isStock ? Chart(linesOf: data) : Chart(stacksOf: data)
      }
    }
  }

  /// Counts have one chart, amounts one for each currency.
  private func currencies(of chart: ReportChart) -> [String?] {
    guard chart.series.contains(where: { $0.added.contains { $0.hasSuffix("_milliunits") } }) else {
      return [nil]
    }
    return Set(table.records.compactMap { $0["currency"]?.text }).sorted()
  }

  private func data(_ chart: ReportChart, _ currency: String?, id: String) -> ChartData {
    let drawn = chart.series + (chart.net.map { [$0] } ?? [])
    var days: [String] = []
    var sums: [String: [Int64?]] = [:]
    for row in table.records {
      guard let day = (row["from_day"] ?? row["day"])?.text else { continue }
      // A day without a row of the currency is drawn, too.
      if sums[day] == nil {
        days.append(day)
        sums[day] = Array(repeating: currency == nil ? nil : 0, count: drawn.count)
      }
      guard currency == nil || row["currency"]?.text == currency else { continue }
      for (place, series) in drawn.enumerated() {
        let added = series.added.compactMap { row[$0]?.integer }
        let takenOff = series.takenOff.compactMap { row[$0]?.integer }
        for value in added + takenOff.map({ -$0 }) {
          let sum = (sums[day]?[place] ?? 0).addingReportingOverflow(value)
          sums[day]?[place] = sum.overflow ? nil : sum.partialValue
        }
      }
    }
    days.sort()
    let buckets = days.compactMap { day in
      CalendarDate(iso8601: day).map { (at: Timestamp($0), label: day) }
    }
    var series = drawn.enumerated().map { place, series in
      (name: series.name, values: days.map { sums[$0]?[place] ?? nil })
    }
    let net = chart.net == nil ? nil : series.removeLast()
    return ChartData(
      id: id, title: currency.map { "\(chart.title), \($0)" } ?? chart.title,
      unit: currency.map { .money(currency: $0) } ?? .count, buckets: buckets, series: series,
      net: net)
  }
}
