import Reports
import Subscriptions

/// The rows below a report's table: sums of what was counted in the periods that have ended, and the
/// latest number of what is counted at their end, compared with the period before.
struct ReportTotals: Sendable {
  private let table: ReportTable
  private let request: ReportRequest
  private let rows: [ReportRow]
  /// The rows of the last period that has ended.
  private let latest: [ReportRow]
  /// The one currency of the amounts; nil: they can't be added up.
  private var currency: String?

  /// - Parameter latest: The rows that stocks are taken from.
  private init(
    _ table: ReportTable, of request: ReportRequest, rows: [ReportRow], latest: [ReportRow] = []
  ) {
    (self.table, self.request, self.rows, self.latest) = (table, request, rows, latest)
    let currencies = rows.currencies
    currency = currencies.count == 1 ? currencies[0] : nil
  }

  /// - Parameter end: Leaves out the periods from this day on; nil: unfinished ones.
  private init(_ table: ReportTable, of request: ReportRequest, before end: CalendarDate?) {
    let periods = ReportPeriods(table, of: request).all
    let ended = periods.filter { end.map($0.isBefore) ?? !$0.isUnfinished }
    let names = Set(ended.map(\.from))
    let rows = table.records.filter { row in
      row["from_day"] == nil || row.periodStart.map(names.contains) ?? false
    }
    let counted = Set(rows.compactMap(\.periodStart))
    self.init(
      table, of: request, rows: rows,
      latest: ended.last { counted.contains($0.from) }
        .map { last in table.records.filter { $0.periodStart == last.from } } ?? [])
  }

  /// The rows of a table, and after those of a period that has several their sum.
  static func withSubtotals(
    _ shown: [DataRow], of records: [ReportRow], _ table: ReportTable, _ columns: [ReportColumn],
    of request: ReportRequest
  ) -> [DataRow] {
    let periods = Dictionary(grouping: records, by: \.periodStart)
    return shown.indices.flatMap { place in
      let start = records[place].periodStart
      let isLast = place + 1 == records.count || records[place + 1].periodStart != start
      guard isLast, let part = periods[start], part.count > 1 else { return [shown[place]] }
      let name = "\(shown[place].cells[0].text), all"
      var sum = ReportTotals(table, of: request, rows: part).row(name, nil, columns)
      sum.rowClass = "subtotal"
      return [shown[place], sum]
    }
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
    let hasUnfinished =
      request.bucket != nil
      && request.range.map { !request.hasEnded($0.last, of: table) } ?? false
    // As many periods as have ended.
    var before: ReportTotals?
    var compared: DayRange?
    if let previous, !previous.isCutShort, request.bucket != nil, let range = request.previousRange
    {
      let starts = request.starts(of: range)
      let ended = hasUnfinished ? (request.range.map(request.starts)?.count ?? 0) - 1 : starts.count
      if ended > 0 {
        let end = ended < starts.count ? starts[ended] : range.last.adding(days: 1)
        before = ReportTotals(previous, of: request, before: end)
        compared = DayRange(first: range.first, last: end.adding(days: -1))
      }
    }
    // Without rows there is 0 of the other one's currency.
    if totals.rows.isEmpty { totals.currency = before?.currency }
    before?.currency = totals.currency
    let numbers = columns.map(totals.number)
    guard totals.rows.count > 1 || previous != nil, numbers.contains(where: { $0 != nil }) else {
      return []
    }
    let hasStock = columns.contains { table.report.isStock($0.name) }
    var rows = [
      totals.row(
        hasStock ? "Total or latest" : "Total",
        isSoFar ? "so far" : hasUnfinished ? "of complete periods" : nil, columns)
    ]
    guard let before, let compared else { return rows }
    rows.append(before.row("Previous period", compared.text, columns))
    rows.append(
      DataRow(
        cells: zip(columns, numbers).enumerated().map { place, pair in
          let (column, number) = pair
          guard place > 0 else { return DataCell(text: "Change", isHeading: true) }
          var cell = DataCell(text: "", isNumber: column.isNumber)
          if let number, let old = before.number(column) {
            (cell.text, cell.note) = totals.change(from: old, to: number, column)
          }
          return cell
        }, rowClass: "total change"))
    return rows
  }

  /// The sum of a column in one currency over the periods that have ended; nil if it has too many
  /// digits.
  static func sum(
    _ column: String, _ table: ReportTable, in currency: String, of request: ReportRequest
  ) -> Int64? {
    ReportTotals(table, of: request, before: nil).rows
      .filter { $0["currency"]?.text == currency }.sum(of: column)
  }

  private func row(_ name: String, _ note: String?, _ columns: [ReportColumn]) -> DataRow {
    DataRow(
      cells: columns.enumerated().map { place, column in
        guard place > 0 else { return DataCell(text: name, isHeading: true, note: note) }
        let number = number(column)
        var cell = DataCell(
          text: number.map { text($0, column) } ?? "", isNumber: column.isNumber, isNil: number == 0
        )
        if number ?? 0 != 0 {
          cell.href = table.cell(
            column.name, sumOf: counted(column), among: rows, of: request.choices
          ).map(request.href)
        }
        if let share = table.report.shares[column.name] {
          cell.take(share) { name in
            table.columns.first { $0.name == name }.flatMap(self.number)
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
    guard
      column.kind == .number
        || currency != nil && rows.currencies.allSatisfy({ $0 == currency })
    else { return nil }
    var added = counted(column)
    if table.report == .refunds, column.name == "paid" {
      // Repeated in each row of a period and segment.
      var seen: Set<[String?]> = []
      added = added.filter { seen.insert([$0.periodStart, $0["segment"]?.text]).inserted }
    }
    return added.sum(of: column.name)
  }

  private func counted(_ column: ReportColumn) -> [ReportRow] {
    table.report.isStock(column.name) ? latest : rows
  }

  /// Whether a column has the number at the start of each period.
  private func isOpening(_ column: String) -> Bool {
    ["opening", "opening_milliunits", "active_at_start"].contains(column)
  }

  private func text(_ number: Int64, _ column: ReportColumn) -> String {
    column.kind == .money
      ? currency.map { ChartUnit.money(currency: $0).text(number) } ?? ""
      : ChartUnit.count.text(number)
  }

  /// As in `+12` and `+25.00%`.
  private func change(from old: Int64, to new: Int64, _ column: ReportColumn)
    -> (text: String, share: String?)
  {
    let difference = new.subtractingReportingOverflow(old)
    guard !difference.overflow else { return ("", nil) }
    let sign = difference.partialValue > 0 ? "+" : ""
    let share = ReportValue.share(
      of: difference.partialValue, in: Int64(clamping: old.magnitude), parts: 10_000)
    return (
      sign + text(difference.partialValue, column), share.map { sign + ChartUnit.share.text($0) }
    )
  }
}

extension ReportPeriods.Period {
  fileprivate func isBefore(_ day: CalendarDate) -> Bool {
    range.first.daysSince1970 < day.daysSince1970
  }
}
