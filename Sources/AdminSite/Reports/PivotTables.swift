import Reports
import Subscriptions

/// The rows of reports by cohort.
enum CohortTable {
  /// Those whose month has ended: later facts only add to the others.
  static func finished(_ table: ReportTable, of request: ReportRequest) -> [ReportRow] {
    table.records.filter { request.hasEnded($0, of: table) }
  }

  /// The rows of each month after the first one, as far as a quarter of the cohorts have come; those in
  /// which no subscription began are left out.
  static func months(_ rows: [ReportRow]) -> [[ReportRow]] {
    let months = Dictionary(grouping: rows.filter { $0.integer("cohort_size") > 0 }) {
      $0.integer("period")
    }
    var reached: [[ReportRow]] = []
    while let rows = months[Int64(reached.count)],
      4 * count(rows) >= count(reached.first ?? rows)
    {
      reached.append(rows)
    }
    return reached
  }

  /// The number of cohorts.
  static func count(_ rows: [ReportRow]) -> Int { Set(rows.map { $0["cohort"]?.text }).count }

  /// As in `Feb 2026`.
  static func name(_ cohort: String) -> String {
    CalendarDate(iso8601: cohort).map { "\($0.monthName) \($0.year)" } ?? cohort
  }
}

extension DataTable {
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
      columns: [DataColumn(label: "Cohort"), DataColumn(label: "Cohort size", isNumber: true)]
        + (0..<count).map { DataColumn(label: $0 == 0 ? "Month 0" : "\($0)", isNumber: true) },
      rows: cohorts.map { cohort, periods in
        let size = periods[0].integer("cohort_size")
        let shares = periods.map { period in
          DataCell(
            retained: period["retained"]?.integer, of: size, href: href("retained", period),
            isUnfinished: !request.hasEnded(period, of: table))
        }
        return DataRow(
          cells: [
            DataCell(text: CohortTable.name(cohort), isHeading: true, identifier: cohort),
            DataCell(
              text: ChartUnit.count.text(size),
              href: size == 0 ? nil : href("cohort_size", periods[0]), isNumber: true,
              isNil: size == 0),
          ] + shares
            + Array(repeating: DataCell(text: "", isNumber: true), count: count - shares.count))
      },
      emptyText: "No cohorts yet.",
      note:
        "Each row is a cohort: the subscriptions first paid in that month. Month 3 is the share of "
        + "them that were paid at the end of the third month after it. The last month of each cohort "
        + "has not ended and is shown without colour."
        + (request.choices.product == nil
          ? ""
          : " Customers who changed to this product later are retained, but are not in the size: a "
            + "share can be above 100%."))
  }

  /// A triangle of amounts per subscription by cohort and month, with a row for each cohort.
  ///
  /// - Parameters:
  ///   - itemized: The column whose items a cell opens.
  ///   - totals: The columns whose sums a cohort has in front.
  ///   - meaning: What a cell says.
  init(
    of column: String, itemized: String? = nil, totals: [String] = [], _ caption: String,
    meaning: String, in table: ReportTable, currency: String, of request: ReportRequest
  ) {
    let unit = ChartUnit.money(currency: currency)
    let cohorts = Dictionary(grouping: table.records.filter { $0["currency"]?.text == currency }) {
      $0["cohort"]?.text ?? ""
    }.sorted { $0.key < $1.key }
    let count = cohorts.flatMap(\.value).map { $0.integer("period") }.max().map { $0 + 1 } ?? 0
    func href(_ column: String, _ row: ReportRow) -> String? {
      table.cell(column, inRow: row.index, of: request.choices).map(request.href)
    }
    self.init(
      caption: "\(caption), \(currency)",
      columns: [DataColumn(label: "Cohort"), DataColumn(label: "Cohort size", isNumber: true)]
        + table.columns.filter { totals.contains($0.name) }.map {
          DataColumn($0, of: table.report)
        }
        + (0..<count).map { DataColumn(label: $0 == 0 ? "Month 0" : "\($0)", isNumber: true) },
      rows: cohorts.map { cohort, rows in
        let months = Dictionary(rows.map { ($0.integer("period"), $0) }) { first, _ in first }
        let size = rows[0].integer("cohort_size")
        var cells = [
          DataCell(text: CohortTable.name(cohort), isHeading: true, identifier: cohort),
          DataCell(
            text: ChartUnit.count.text(size), href: href("cohort_size", rows[0]), isNumber: true),
        ]
        for total in totals {
          let sum = rows.reduce(Int64(0)) { $0 + $1.integer(total) }
          cells.append(DataCell(text: unit.number(sum), isNumber: true))
        }
        for month in 0..<count {
          var cell = DataCell(text: "", isNumber: true)
          if let row = months[month], let amount = row[column]?.integer {
            cell.text = unit.number(amount)
            cell.href = itemized.flatMap { amount == 0 ? nil : href($0, row) }
            cell.isUnfinished = !request.hasEnded(row, of: table)
          }
          cells.append(cell)
        }
        return DataRow(cells: cells)
      },
      emptyText: "No cohorts yet.",
      note: "Each row is a cohort: the subscriptions first paid in that month. \(meaning) The last "
        + "month of each cohort has not ended and is shown in grey.")
  }

  /// The states of subscriptions: those that count as active, then trials and the others.
  static let states =
    active + [
      "trial_renewing", "trial_cancelled", "in_billing_retry", "expired", "revoked", "granted",
    ]
  private static let active = ["active_renewing", "active_cancelled", "in_grace_period"]

  /// Subscriptions with a row for each product and a column for each state.
  init(statesOf table: ReportTable, of request: ReportRequest) {
    let found = Set(table.records.compactMap { $0["state"]?.text })
    let states = Self.states.filter(found.contains) + found.subtracting(Self.states).sorted()
    let products = Dictionary(grouping: table.records) { $0["product_id"]?.text ?? "" }
      .sorted { $0.key < $1.key }
    var columns = states.map { state in
      (
        column: DataColumn(
          label: EnumText.label(state, in: "state"), isNumber: true, identifier: state),
        states: [state]
      )
    }
    // As in the other reports.
    let active = states.prefix(while: Self.active.contains)
    if active.count > 1 {
      columns.insert(
        (DataColumn(label: "Active", isNumber: true), Array(active)), at: active.count)
    }
    func number(_ rows: [ReportRow]) -> DataCell {
      let sum = rows.reduce(0) { $0 + $1.integer("number") }
      return DataCell(
        text: ChartUnit.count.text(sum),
        href: sum == 0
          ? nil
          : table.cell("number", sumOf: rows, among: table.records, of: request.choices)
            .map(request.href), isNumber: true, isNil: sum == 0)
    }
    func row(_ name: DataCell, _ records: [ReportRow]) -> DataRow {
      let cells = columns.map { column in
        number(records.filter { column.states.contains($0["state"]?.text ?? "") })
      }
      return DataRow(cells: [name] + cells + [number(records)])
    }
    self.init(
      caption: request.report.label,
      columns: [DataColumn(label: "Product")]
        + columns.map(\.column) + [DataColumn(label: "Total", isNumber: true)],
      rows: products.map { product, records in
        var heading = DataCell(
          text: product.isEmpty ? "Granted" : product, isHeading: true, isCode: !product.isEmpty)
        heading.takeName(from: request.productNames)
        return row(heading, records)
      },
      emptyText: "No data for these filters.")
    if products.count > 1 {
      var total = row(DataCell(text: "Total", isHeading: true), table.records)
      total.rowClass = "total"
      rows.append(total)
    }
  }
}

extension DataTable {
  /// Decisions or changes of owners with a row for each period and a column for each rule.
  init(ownership measure: String?, of table: ReportTable, _ request: ReportRequest) {
    let rules = Set(
      table.records.filter { $0["measure"]?.text == measure }.map { $0["rule"]?.text ?? "" })
    self.init(
      periodsOf: table, measure.map { EnumText.label($0, in: "measure") } ?? request.report.label,
      columns: rules.sorted().map { rule in
        (
          DataColumn(
            label: rule.isEmpty ? "Unclaimed" : EnumText.label(rule, in: "rule"), isNumber: true,
            identifier: rule),
          { $0["measure"]?.text == measure && $0["rule"]?.text ?? "" == rule }
        )
      }, of: request)
    rows.removeAll { $0.cells.dropFirst().allSatisfy(\.isNil) }
    if !rows.isEmpty { note = "Periods without any are left out." }
  }

  /// The measure of a split report with a row for each period and a column for each segment.
  init(segmentsOf table: ReportTable, currency: String?, of request: ReportRequest) {
    let title = request.choices.by.flatMap(table.report.chart)?.title ?? request.report.label
    let segments = ReportSegments(table, of: request).all
    self.init(
      periodsOf: table, currency.map { "\(title), \($0)" } ?? title, currency: currency,
      columns: segments.map {
        (DataColumn(label: $0.name, isNumber: true, identifier: $0.identifier), $0.has)
      } + [(DataColumn(label: "Total", isNumber: true), \.isOfMeasure)], of: request)
  }

  /// The report's measure, of different rows in each column; below it the sums of the periods that have
  /// ended or, of a stock, the latest of them.
  private init(
    periodsOf table: ReportTable, _ caption: String, currency: String? = nil,
    columns: [(column: DataColumn, has: (ReportRow) -> Bool)], of request: ReportRequest
  ) {
    let measure = table.report.measure
    let unit = currency.map { ChartUnit.money(currency: $0) } ?? .count
    let records = Dictionary(
      grouping: table.records.filter { currency == nil || $0["currency"]?.text == currency }
    ) { $0.periodStart ?? "" }
    let periods = records.isEmpty ? [] : ReportPeriods(table, of: request).all
    func number(_ rows: [ReportRow], among all: [ReportRow]) -> DataCell {
      let sum = measure?.sum(of: rows) ?? 0
      var cell = DataCell(text: unit.number(sum), isNumber: true, isNil: sum == 0)
      // The items are those of one column.
      if sum != 0, measure?.added.count == 1, let name = measure?.added.first {
        cell.href = table.cell(name, sumOf: rows, among: all, of: request.choices)
          .map(request.href)
      }
      return cell
    }
    self.init(
      caption: caption, columns: [DataColumn(label: "Period")] + columns.map(\.column),
      rows: periods.map { period in
        var heading = DataCell(text: "", isHeading: true)
        heading.take(period)
        return DataRow(
          cells: [heading]
            + columns.map { column in
              let rows = records[period.from] ?? []
              return number(rows.filter(column.has), among: rows)
            }, rowClass: period.isUnfinished ? "unfinished" : nil)
      },
      emptyText: "No data for these filters.")
    let complete = periods.filter { !$0.isUnfinished }
    guard complete.count > 1 else { return }
    let isStock = measure?.added.contains(where: table.report.isStock) == true
    let counted = (isStock ? complete.suffix(1) : complete[...]).flatMap { records[$0.from] ?? [] }
    rows.append(
      DataRow(
        cells: [
          DataCell(
            text: isStock ? "Latest" : "Total", isHeading: true,
            note: request.openNote(table))
        ] + columns.map { column in number(counted.filter(column.has), among: counted) },
        rowClass: "total"))
  }
}

extension DataCell {
  /// A share with one decimal, rounded to the nearest, and 100% only for all.
  static func retained(_ retained: Int64, of size: Int64) -> String? {
    ReportValue.share(of: retained, in: size, parts: 1000).map { "\($0 / 10).\($0 % 10)%" }
  }

  fileprivate init(retained: Int64?, of size: Int64, href: String?, isUnfinished: Bool) {
    guard let retained, let text = Self.retained(retained, of: size),
      let share = ReportValue.share(of: retained, in: size, parts: 1000)
    else {
      self.init(text: "", isNumber: true)
      return
    }
    self.init(
      text: text, href: href, isNumber: true,
      heat: isUnfinished ? nil : Int(min(max(share / 100, 0), 10)))
  }
}
