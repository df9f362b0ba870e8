import Reports
import Subscriptions

/// The rows below a report's table: sums of what was counted in the periods that have ended, and the
/// latest number of what is counted at their end, compared with the period before.
struct ReportTotals: Sendable {
  private let table: ReportTable
  private let rows: [ReportRow]
  /// The rows of the last period that has ended.
  private let latest: [ReportRow]

  /// - Parameter end: Leaves out the periods from this day on; nil: unfinished ones.
  private init(_ table: ReportTable, of request: ReportRequest, before end: CalendarDate?) {
    self.table = table
    let periods = ReportPeriods(table, of: request).all
    let ended = periods.filter { end.map($0.isBefore) ?? !$0.isUnfinished }
    let names = Set(ended.map(\.from))
    rows = table.records.filter { row in
      row["from_day"] == nil || row.periodStart.map(names.contains) ?? false
    }
    let counted = Set(rows.compactMap(\.periodStart))
    latest =
      ended.last { counted.contains($0.from) }
      .map { last in table.records.filter { $0.periodStart == last.from } } ?? []
  }

  static func rows(
    _ table: ReportTable, _ columns: [ReportColumn], previous: ReportTable?,
    of request: ReportRequest
  ) -> [DataRow] {
    guard !table.isCutShort, table.report != .intake, !table.report.hasCohorts else { return [] }
    var totals = ReportTotals(table, of: request, before: nil)
    // All that there is, such as today's actions.
    let isSoFar = previous == nil && totals.rows.isEmpty
    if isSoFar, let last = request.range?.last {
      totals = ReportTotals(table, of: request, before: last.adding(days: 1))
    }
    let numbers = columns.map(totals.number)
    guard totals.rows.count > 1 || previous != nil, numbers.contains(where: { $0 != nil }) else {
      return []
    }
    let hasUnfinished =
      request.bucket != nil
      && request.range.map { !request.hasEnded($0.last, of: table) } ?? false
    let hasStock = columns.contains { table.report.isStock($0.name) }
    var rows = [
      totals.row(
        hasStock ? "Total or latest" : "Total",
        isSoFar ? "so far" : hasUnfinished ? "of complete periods" : nil, columns)
    ]
    guard let previous, !previous.isCutShort, request.bucket != nil,
      let range = request.previousRange
    else { return rows }
    // As many periods as have ended.
    let (starts, count) = (request.starts(of: range), request.range.map(request.starts)?.count ?? 0)
    let ended = hasUnfinished ? count - 1 : starts.count
    guard ended > 0 else { return rows }
    let end = ended < starts.count ? starts[ended] : range.last.adding(days: 1)
    let before = ReportTotals(previous, of: request, before: end)
    let compared = DayRange(first: range.first, last: end.adding(days: -1))
    rows.append(before.row("Previous period", compared.text, columns))
    rows.append(
      DataRow(
        cells: zip(columns, numbers).enumerated().map { place, pair in
          let (column, number) = pair
          guard place > 0 else { return DataCell(text: "Change", isHeading: true) }
          let change = before.number(column).flatMap { old in
            number.map { totals.change(from: old, to: $0, column) }
          }
          return DataCell(text: change ?? "", isNumber: column.isNumber)
        }, rowClass: "total"))
    return rows
  }

  /// The sums of a column over the periods that have ended, by currency.
  static func sums(_ column: String, _ table: ReportTable, of request: ReportRequest)
    -> [String: Int64]
  {
    Dictionary(
      ReportTotals(table, of: request, before: nil).rows.compactMap { row in
        row["currency"]?.text.map { ($0, row.integer(column)) }
      }, uniquingKeysWith: &+)
  }

  private func row(_ name: String, _ note: String?, _ columns: [ReportColumn]) -> DataRow {
    DataRow(
      cells: columns.enumerated().map { place, column in
        guard place > 0 else { return DataCell(text: name, isHeading: true, note: note) }
        var cell = DataCell(
          text: number(column).map { text($0, column) } ?? "", isNumber: column.isNumber)
        if let share = table.report.shares[column.name] {
          cell.take(share) { name in
            table.columns.first { $0.name == name }.flatMap(number)
          }
        }
        return cell
      }, rowClass: "total")
  }

  /// Nil for a column whose numbers can't be added up.
  private func number(_ column: ReportColumn) -> Int64? {
    guard column.kind == .number || column.kind == .money, !isOpening(column.name) else {
      return nil
    }
    guard column.kind == .number || rows.currencies.count < 2 else { return nil }
    var added = table.report.isStock(column.name) ? latest : rows
    if table.report == .refunds, column.name == "paid" {
      // Repeated in each row of a period and segment.
      var seen: Set<[String?]> = []
      added = added.filter { seen.insert([$0.periodStart, $0["segment"]?.text]).inserted }
    }
    return added.reduce(Int64?.some(0)) { sum, row in
      guard let sum = sum?.addingReportingOverflow(row.integer(column.name)), !sum.overflow else {
        return nil
      }
      return sum.partialValue
    }
  }

  /// Whether a column has the number at the start of each period.
  private func isOpening(_ column: String) -> Bool {
    ["opening", "opening_milliunits", "active_at_start"].contains(column)
  }

  private func text(_ number: Int64, _ column: ReportColumn) -> String {
    let currency = rows.lazy.compactMap { $0["currency"]?.text }.first
    return column.kind == .money
      ? currency.map { ChartUnit.money(currency: $0).text(number) } ?? ""
      : ChartUnit.count.text(number)
  }

  /// As in `+12 (+25.00%)`.
  private func change(from old: Int64, to new: Int64, _ column: ReportColumn) -> String {
    let difference = new.subtractingReportingOverflow(old)
    guard !difference.overflow else { return "" }
    let sign = difference.partialValue > 0 ? "+" : ""
    let share = ReportValue.share(
      of: difference.partialValue, in: Int64(clamping: old.magnitude), parts: 10_000)
    return sign + text(difference.partialValue, column)
      + (share.map { " (\(sign)\(ChartUnit.share.text($0)))" } ?? "")
  }
}

extension ReportPeriods.Period {
  fileprivate func isBefore(_ day: CalendarDate) -> Bool {
    range.first.daysSince1970 < day.daysSince1970
  }
}
