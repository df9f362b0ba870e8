import Reports
import Subscriptions

/// Sums of what was counted in the periods that have ended, and the latest number of what is counted
/// at their end: the row below a report's table, and the comparison with as many periods before.
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

  /// - Parameters:
  ///   - end: Leaves out the periods from this day on; nil: unfinished ones.
  ///   - currency: Leaves out the rows of other currencies; nil: none.
  private init(
    _ table: ReportTable, of request: ReportRequest, before end: CalendarDate?,
    in currency: String? = nil
  ) {
    let periods = ReportPeriods(table, of: request).all
    let ended = periods.filter { end.map($0.isBefore) ?? !$0.isUnfinished }
    let names = Set(ended.map(\.from))
    let rows = table.records.filter { row in
      (row["from_day"] == nil || row.periodStart.map(names.contains) ?? false)
        && (currency == nil || row["currency"]?.text == currency)
    }
    let counted = Set(rows.compactMap(\.periodStart))
    self.init(
      table, of: request, rows: rows,
      latest: ended.last { counted.contains($0.from) }
        .map { last in rows.filter { $0.periodStart == last.from } } ?? [])
    // Without rows there is 0 of it.
    self.currency = currency ?? self.currency
  }

  /// The rows of a table, and after those of a period that has several their sum; or one row for each
  /// period.
  static func withSubtotals(
    _ shown: [DataRow], of records: [ReportRow], _ table: ReportTable, _ columns: [ReportColumn],
    of request: ReportRequest, alone: Bool
  ) -> [DataRow] {
    let counts = Dictionary(grouping: records, by: \.periodStart).mapValues(\.count)
    // Those that are not shown are counted, too.
    let periods = Dictionary(grouping: table.records, by: \.periodStart)
    return shown.indices.flatMap { place in
      let start = records[place].periodStart
      let isLast = place + 1 == records.count || records[place + 1].periodStart != start
      guard isLast, let part = periods[start], alone || counts[start, default: 0] > 1 else {
        return alone ? [] : [shown[place]]
      }
      let period = shown[place].cells[0]
      var sum = ReportTotals(table, of: request, rows: part)
        .row(alone ? period.text : "\(period.text), all", period.note, columns)
      sum.rowClass = alone ? shown[place].rowClass : "subtotal"
      return alone ? [sum] : [shown[place], sum]
    }
  }

  static func rows(
    _ table: ReportTable, _ columns: [ReportColumn], of request: ReportRequest
  ) -> [DataRow] {
    guard !table.isCutShort, table.report != .intake, !table.report.hasCohorts else { return [] }
    var totals = ReportTotals(table, of: request, before: nil)
    // All that there is, such as today's actions.
    let isSoFar = totals.rows.isEmpty
    if isSoFar, let last = request.range?.last {
      totals = ReportTotals(table, of: request, before: last.adding(days: 1))
    }
    guard totals.rows.count > 1, columns.contains(where: { totals.number($0) != nil }) else {
      return []
    }
    return [totals.row("Total", isSoFar ? "so far" : request.openNote(table), columns)]
  }

  /// The report's measure in the last period that has ended, and in the one before, as in `Churned,
  /// Dec 2025: 10, 9.62% (Nov 2025: 9, 9.38%)`; none for a part of the rows, or rows without periods.
  static func headlines(_ table: ReportTable, of request: ReportRequest) -> [String] {
    if table.report == .renewalsDue, !table.isCutShort {
      return renewals(table, of: request)
    }
    guard !table.isCutShort, request.bucket != nil, request.choices.by == nil,
      let measure = table.report.measure, ![.ownership, .intake].contains(table.report),
      !table.report.hasCohorts
    else { return [] }
    let ended = ReportPeriods(table, of: request).all.filter { !$0.isUnfinished }
    if request.bucket == .day, let first = ended.first, let last = ended.last,
      !measure.added.contains(where: table.report.isStock)
    {
      return headlines(
        measure, table, in: DayRange(first: first.range.first, last: last.range.last),
        rows: table.records.filter { row in ended.contains { $0.from == row.periodStart } })
    }
    let periods = ended.suffix(2)
    let rate = table.columns.first { table.report.shares[$0.name]?.part == measure.added.first }
    let currencies: [String?] = measure.isMoney ? table.records.currencies : [nil]
    return currencies.compactMap { currency in
      let unit = currency.map { ChartUnit.money(currency: $0) } ?? .count
      let numbers = periods.reversed().map { period in
        let rows = table.records.filter {
          $0.periodStart == period.from && (currency == nil || $0["currency"]?.text == currency)
        }
        let share = rate.flatMap { ReportTotals(table, of: request, rows: rows).share($0) }
        return (
          period: period.range.text,
          text:
            ([unit.text(measure.sum(of: rows) ?? 0)]
            + [share.map(ChartUnit.share.text)].compactMap(\.self)).joined(separator: ", ")
        )
      }
      guard let last = numbers.first else { return nil }
      let before = numbers.dropFirst().first.map { " (\($0.period): \($0.text))" } ?? ""
      return "\(measure.name), \(last.period): \(last.text)\(before)"
    }
  }

  /// As in `Due in the next 30 days: 38 renewals, 496.62 USD`.
  private static func renewals(_ table: ReportTable, of request: ReportRequest) -> [String] {
    let amounts = table.records.currencies.compactMap { currency in
      sum("amount_milliunits", table, in: currency, of: request)
        .map { ChartUnit.money(currency: currency).text($0) }
    }
    let count = Count.text(Int(table.records.sum(of: "number") ?? 0), "renewal")
    return [
      "Due in the next \(Count.text(request.choices.days, "day")): "
        + ([count] + amounts).joined(separator: ", ")
    ]
  }

  /// The report's measure in all days of a range, and its rate of those at its start.
  private static func headlines(
    _ measure: ReportChart.Series, _ table: ReportTable, in range: DayRange, rows: [ReportRow]
  ) -> [String] {
    let currencies: [String?] = measure.isMoney ? table.records.currencies : [nil]
    return currencies.map { currency in
      let rows = rows.filter { currency == nil || $0["currency"]?.text == currency }
      let sum = measure.sum(of: rows) ?? 0
      let whole = table.columns.lazy.compactMap { table.report.shares[$0.name] }
        .first { $0.part == measure.added.first }?.whole
      let share = whole.flatMap { whole in
        ReportValue.hundredthsOfPercent(
          of: sum,
          in: (isOpening(whole) ? rows.filter { $0.periodStart == rows.first?.periodStart } : rows)
            .sum(of: whole) ?? 0)
      }
      let number = (currency.map { ChartUnit.money(currency: $0) } ?? .count).text(sum)
      let text = [number, share.map(ChartUnit.share.text)].compactMap(\.self)
      return "\(measure.name), \(range.text): \(text.joined(separator: ", "))"
    }
  }

  /// The numbers of the periods that have ended beside those of as many before; nil unless it is
  /// asked for.
  static func comparison(
    _ table: ReportTable, with previous: ReportTable?, of request: ReportRequest
  ) -> DataTable? {
    guard let previous, !previous.isCutShort, !table.isCutShort, let range = request.range,
      let before = request.previousRange
    else { return nil }
    let (starts, ends) = (request.starts(of: range), request.starts(of: before))
    let ended = request.hasUnfinished(table) ? starts.count - 1 : starts.count
    func part(_ range: DayRange, _ starts: [CalendarDate]) -> DayRange {
      DayRange(
        first: range.first,
        last: ended < starts.count ? starts[ended].adding(days: -1) : range.last)
    }
    let ranges = ended > 0 ? [part(range, starts), part(before, ends)] : []
    var comparison = DataTable(
      caption: "Comparison",
      columns: [DataColumn(label: "Measure")]
        + (ranges.map(\.text) + ["Change", "Relative change"]).map {
          DataColumn(label: $0, isNumber: true)
        },
      rows: [], emptyText: "No period is complete yet.")
    guard ranges.count == 2 else { return comparison }
    if ended < starts.count, ended < ends.count {
      let bucket = request.bucket ?? .day
      let (open, other) = (starts[ended], ends[ended])
      func text(_ start: CalendarDate) -> String {
        DayRange(first: start, last: start.start(of: bucket).adding(1, bucket).adding(days: -1))
          .text
      }
      comparison.note =
        "\(text(open)) has not ended: it and its counterpart, \(text(other)), are left out."
    }
    let currencies = (table.records + previous.records).currencies
    // A difference of amounts that were converted and others that were not says nothing.
    let isConverted = table.unconverted.isEmpty && previous.unconverted.isEmpty
    let columns = DataTable.ordered(table.columns, in: table.report).filter {
      table.report != .revenue || !ReportRequest.secondary.contains($0.name)
    }
    for column in columns + [netChange(table.report)].compactMap(\.self) {
      for currency in column.kind == .money ? currencies.map(Optional.some) : [nil] {
        let sides = zip([table, previous], ranges).map { table, range in
          ReportTotals(table, of: request, before: range.last.adding(days: 1), in: currency)
        }
        if var row = sides[0].row(column, besides: sides[1], in: currency) {
          if !isConverted, column.kind == .money {
            for place in row.cells.indices.suffix(2) {
              row.cells[place] = DataCell(text: "", isNumber: true)
            }
          }
          comparison.rows.append(row)
        }
      }
    }
    return comparison
  }

  private static let netChangeName = "net_change"

  /// What the chart has as the net of a stock's movements; nil for a report without one.
  private static func netChange(_ report: Report) -> ReportColumn? {
    report.netChange.map { ReportColumn(netChangeName, $0.isMoney ? .money : .number) }
  }

  /// A number, the one before, and the change; nil for one that is not counted, or rare and 0.
  private func row(_ column: ReportColumn, besides before: ReportTotals, in currency: String?)
    -> DataRow?
  {
    var name = column.label(in: table.report) + (currency.map { ", \($0)" } ?? "")
    var cells = [self, before].map { $0.cell(column) }
    let shares = [self, before].map { $0.share(column) }
    if let whole = table.report.shares[column.name]?.whole {
      for place in cells.indices {
        cells[place].text = shares[place].map(ChartUnit.share.text) ?? ""
      }
      if Self.isOpening(whole), let bucket = request.bucket, Set(rows.map(\.periodStart)).count > 1
      {
        name += ", average of the \(bucket.rawValue)s"
      }
    }
    guard cells.contains(where: { !$0.text.isEmpty }) else { return nil }
    var change = DataCell(text: "", isNumber: true)
    var share = change
    if var new = number(column), var old = before.number(column) {
      if new == 0, old == 0, column.isRare(in: table.report) { return nil }
      if column.kind == .money, column.isMoreGood == false, new <= 0, old <= 0 {
        // More refunds are more, although their amounts are negative.
        (new, old) = (-new, -old)
        (cells[0].text, cells[1].text) = (text(new, column), before.text(old, column))
      }
      (change.text, share.text) = self.change(from: old, to: new, column)
      if let more = column.isMoreGood {
        change.tone = old == new ? nil : (new > old) == more ? Tone.good : Tone.bad
        share.tone = change.tone
      }
    }
    if let new = shares[0], let old = shares[1] {
      change.text =
        (new > old ? "+" : "") + ChartUnit.share.text(new - old).replacing("%", with: " points")
    }
    cells += [change, share]
    // The heading names it.
    if let currency {
      for place in cells.indices { cells[place].text.replace(" \(currency)", with: "") }
    }
    return DataRow(
      cells: [
        DataCell(
          text: name, isHeading: true,
          identifier: column.name == Self.netChangeName ? nil : column.name)
      ] + cells)
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
      cells: [DataCell(text: name, isHeading: true, note: note)] + columns.dropFirst().map(cell),
      rowClass: "total")
  }

  private func cell(_ column: ReportColumn) -> DataCell {
    let number = number(column)
    var cell = DataCell(
      text: number.map { text($0, column) } ?? "", isNumber: column.isNumber, isNil: number == 0,
      note: number != nil && table.report.isStock(column.name) ? "at the end" : nil)
    if number ?? 0 != 0 {
      cell.href = table.cell(column.name, sumOf: counted(column), among: rows, of: request.choices)
        .map(request.href)
    }
    if let share = table.report.shares[column.name] {
      cell.take(share) { name in table.columns.first { $0.name == name }.flatMap(self.number) }
      if cell.text.isEmpty, let average = self.share(column) {
        (cell.text, cell.note) = (ChartUnit.share.text(average), "average")
      }
    }
    return cell
  }

  /// A share of all periods, in hundredths of a percent; of the numbers at the start of each, their
  /// average.
  private func share(_ column: ReportColumn) -> Int64? {
    func sum(_ name: String) -> Int64? {
      Self.isOpening(name)
        ? rows.sum(of: name) : table.columns.first { $0.name == name }.flatMap(number)
    }
    guard let share = table.report.shares[column.name], let part = sum(share.part),
      let whole = sum(share.whole)
    else { return nil }
    let open = share.settled.isEmpty ? 0 : share.settled.reduce(whole) { $0 - (sum($1) ?? 0) }
    return ReportValue.hundredthsOfPercent(of: part, in: whole - open)
  }

  /// Nil for a column whose numbers can't be added up.
  private func number(_ column: ReportColumn) -> Int64? {
    guard column.kind == .number || column.kind == .money, !Self.isOpening(column.name) else {
      return nil
    }
    guard
      column.kind == .number
        || currency != nil && rows.currencies.allSatisfy({ $0 == currency })
    else { return nil }
    if column.name == Self.netChangeName { return table.report.netChange?.sum(of: rows) ?? 0 }
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
  private static func isOpening(_ column: String) -> Bool {
    ["opening", "opening_milliunits", "active_at_start"].contains(column)
  }

  private func text(_ number: Int64, _ column: ReportColumn) -> String {
    column.kind == .money
      ? currency.map { ChartUnit.money(currency: $0).text(number) } ?? ""
      : ChartUnit.count.text(number)
  }

  /// As in `+12` and `+25.00%`.
  private func change(from old: Int64, to new: Int64, _ column: ReportColumn)
    -> (text: String, share: String)
  {
    let difference = new.subtractingReportingOverflow(old)
    guard !difference.overflow else { return ("", "") }
    let sign = difference.partialValue > 0 ? "+" : ""
    // More of what is negative is a growth; from a loss to a gain there is no share.
    let share =
      old < 0 && new > 0
      ? nil
      : ReportValue.share(
        of: difference.partialValue, in: Int64(clamping: old.magnitude), parts: 10_000
      ).map { old < 0 ? -$0 : $0 }
    return (
      sign + text(difference.partialValue, column),
      share.map { ($0 > 0 ? "+" : "") + ChartUnit.share.text($0) } ?? ""
    )
  }
}

extension Report {
  /// The difference of a stock from its start, as its chart has it.
  fileprivate var netChange: ReportChart.Series? {
    charts.compactMap(\.net).first { $0.added.contains(where: isStock) && !$0.takenOff.isEmpty }
  }
}

extension ReportPeriods.Period {
  fileprivate func isBefore(_ day: CalendarDate) -> Bool {
    range.first.daysSince1970 < day.daysSince1970
  }
}
