import Reports
import Subscriptions

/// Draws the charts of a report from its answer.
struct ReportCharts: Sendable {
  let table: ReportTable
  let request: ReportRequest
  /// The answer for the period before, whose stocks are drawn as well.
  var previous: ReportTable?
  /// Whether charts without any number but 0 are drawn.
  var showsZeros = true

  /// Sums up the rows of each period, but never across currencies.
  var pictures: [Chart] {
    switch table.report {
    case .subscriptions: [Chart(stacksOf: states)]
    case .retention: [Chart(linesOf: retention)]
    case .lifetimeValue: lifetimeValues.map { Chart(linesOf: $0) }
    // The table says as much of all days together.
    case .intake where failures.isEmpty || request.bucket == nil: []
    default:
      charts.enumerated().flatMap { number, chart in
        currencies(of: chart).enumerated().compactMap { place, currency in
          let data = data(chart, currency, id: "chart-\(number + 1)-\(place + 1)")
          guard showsZeros || data.series.contains(where: { $0.values.contains { $0 ?? 0 != 0 } })
          else { return nil }
          return chart.isStock ? Chart(linesOf: data) : Chart(stacksOf: data)
        }
      }
    }
  }

  /// The series whose growth is bad news, by their names in the reports.
  static let losses: Set<String> = [
    "Expired", "Churned", "Contraction", "Changed out", "Lost", "Refunded", "Refunds",
    "Switched off",
    "Entered", "Voluntary", "Involuntary", "Product withdrawn", "Unknown", "In grace period",
    "In billing retry", "Failures",
  ]

  /// The measures of the report of intake that its chart has.
  private static let failureMeasures: Set<String> = [
    "submissions_rejected", "apple_failures", "notifications_refused", "notifications_rejected",
    "notifications_missed", "notifications_unbelievable", "write_backs_refused",
  ]

  private var failures: [ReportRow] {
    table.records.filter { Self.failureMeasures.contains($0["measure"]?.text ?? "") }
  }

  private var charts: [ReportChart] {
    request.choices.by.map { [table.report.chart(by: $0)].compactMap(\.self) }
      ?? table.report.charts
  }

  /// Counts have one chart, amounts one for each currency.
  private func currencies(of chart: ReportChart) -> [String?] {
    chart.series.contains(where: \.isMoney) ? table.records.currencies : [nil]
  }

  private func data(_ chart: ReportChart, _ currency: String?, id: String) -> ChartData {
    let periods = ReportPeriods(table, of: request)
    let drawn = drawn(chart)
    func values(_ drawn: Drawn, _ table: ReportTable, _ periods: [String?]) -> [Int64?] {
      let rows = Dictionary(
        grouping: table.records.filter {
          (currency == nil || $0["currency"]?.text == currency) && drawn.has($0)
        }, by: \.periodStart)
      // Without a row there is nothing, or nothing is known of a stock.
      let nothing: Int64? = currency != nil || !chart.isStock ? 0 : nil
      // What was converted, or was not, is not 0 in the other currency: that is not known.
      let reportingCurrency = request.choices.reportingCurrency
      let elsewhere = Set(
        table.records.filter { row in
          guard let reportingCurrency, let other = row["currency"]?.text else { return false }
          return other != currency && [currency, other].contains(reportingCurrency)
        }.map(\.periodStart))
      return periods.map { period in
        period.flatMap { start in
          rows[start].map(drawn.series.sum) ?? (elsewhere.contains(start) ? nil : nothing)
        }
      }
    }
    var series = drawn.map { (name: $0.name, values: values($0, table, periods.all.map(\.from))) }
    let net = chart.net == nil ? nil : series.removeLast()
    var last: ChartData.Series?
    // Of a stack only its total.
    if let previous, chart.isStock || net != nil || drawn.count == 1,
      let compared = chart.isStock ? drawn.first : drawn.last,
      let range = request.range, let before = request.previousRange
    {
      let starts = Dictionary(
        zip(request.starts(of: range).map(\.text), request.starts(of: before).map(\.text))
      ) { first, _ in first }
      last = (
        name: "\(compared.name), previous period",
        // As in the table, without what the unfinished period is compared with.
        values: values(
          compared, previous,
          periods.all.map { !chart.isStock && $0.isUnfinished ? nil : starts[$0.from] })
      )
    }
    if chart.isStock, let compared = last {
      series.append(compared)
      last = nil
    }
    let unfinished = periods.all.last { $0.isUnfinished }
    var data = ChartData(
      id: id, title: currency.map { "\(chart.title), \($0)" } ?? chart.title,
      unit: currency.map { .money(currency: $0) } ?? .count,
      buckets: periods.all.map { (at: Timestamp($0.range.first), label: $0.range.text) },
      series: series, net: net, previous: last, losses: losses(of: series.map(\.name)),
      unfinished: Set(periods.all.indices.filter { periods.all[$0].isUnfinished }),
      remarks: Dictionary(
        uniqueKeysWithValues: periods.all.enumerated().compactMap { index, period in
          period.part.map { (index, $0) }
        }),
      sumsUp: !chart.isStock)
    if let unfinished, let last = request.range?.last {
      data.note =
        "Through \(last.name). \(unfinished.range.text) so far is hatched"
        + (chart.isStock || data.isAllUnfinished ? "." : " and not in the totals.")
    }
    return data
  }

  private func losses(of names: [String]) -> Set<String> {
    if request.choices.by != nil { return [] }
    return table.report == .intake ? Set(names) : Self.losses
  }

  /// The columns whose values are the series.
  private static let parts: [Report: String] = [
    .ownership: "measure", .intake: "measure",
  ]

  /// A series, of some rows only.
  private struct Drawn {
    var name: String
    let series: ReportChart.Series
    var has: (ReportRow) -> Bool = { _ in true }
  }

  /// The segments or parts of the one series of a chart, or its series with the net in the end.
  private func drawn(_ chart: ReportChart) -> [Drawn] {
    if request.choices.by != nil {
      return ReportSegments(table, of: request).all.map {
        Drawn(name: $0.name, series: chart.series[0], has: $0.has)
      }
    }
    guard let column = Self.parts[table.report] else {
      return (chart.series + (chart.net.map { [$0] } ?? [])).map {
        Drawn(name: $0.name, series: $0)
      }
    }
    // What moved or is shared was decided, too.
    let rows =
      table.report == .intake
      ? failures : table.records.filter { !["moved", "shared"].contains($0["measure"]?.text) }
    return Set(rows.compactMap { $0[column]?.text }).sorted().map { value in
      Drawn(name: EnumText.label(value, in: column), series: chart.series[0]) {
        $0[column]?.text == value
      }
    }
  }

  // MARK: Charts without periods

  /// The subscriptions of each product, without those that have ended.
  private var states: ChartData {
    let rows = table.records.filter { !["expired", "revoked"].contains($0["state"]?.text) }
    let products = Set(rows.map { $0["product_id"]?.text ?? "" }).sorted()
    let order = DataTable.states.filter { state in rows.contains { $0["state"]?.text == state } }
    return ChartData(
      id: "chart-1-1", title: "Current subscriptions by product and state",
      buckets: products.map {
        (at: table.asOf, label: $0.isEmpty ? "Granted" : request.productNames[$0] ?? $0)
      },
      series: order.map { state in
        (
          name: EnumText.label(state, in: "state"),
          values: products.map { product in
            rows.filter { $0["state"]?.text == state && ($0["product_id"]?.text ?? "") == product }
              .reduce(0) { $0 + $1.integer("number") }
          }
        )
      },
      losses: Set(
        ["in_grace_period", "in_billing_retry"].map { EnumText.label($0, in: "state") }),
      categories: "Product", sumsUp: true)
  }

  /// The revenue per subscription up to a month, of the cohorts that have finished it.
  private var lifetimeValues: [ChartData] {
    let segments = request.choices.by == nil ? nil : ReportSegments(table, of: request).all
    return table.records.currencies.enumerated()
      .map { place, currency in
        let rows = CohortTable.finished(table, of: request).filter {
          $0["currency"]?.text == currency
        }
        let months = CohortTable.months(rows)
        let drawn: [ReportSegments.Segment?] = segments ?? [nil]
        let series = drawn.map { segment in
          var sum: Int64 = 0
          let reached = rows.filter { segment?.has($0) ?? true }
          var values = CohortTable.months(reached).map { rows in
            let size = rows.reduce(0) { $0 + $1.integer("cohort_size") }
            sum += rows.reduce(0) { $0 + $1.integer("revenue_milliunits") } / size
            return Int64?.some(sum)
          }
          values = Array(values.prefix(months.count))
          values += Array(repeating: nil, count: months.count - values.count)
          return (name: segment?.name ?? "LTV", values: values)
        }
        return cohortCurve(
          "LTV after each month, \(segments == nil ? "all cohorts" : "by \(request.splitName)"), "
            + currency,
          id: "chart-1-\(place + 1)", unit: .money(currency: currency), months, series,
          note:
            "A month adds what its cohorts brought in during it, for each of their subscriptions.")
      }
  }

  /// The share of the cohorts that have finished a month that reached its end.
  private var retention: ChartData {
    let months = CohortTable.months(CohortTable.finished(table, of: request))
    let values = months.map { rows in
      ReportValue.hundredthsOfPercent(
        of: rows.reduce(0) { $0 + $1.integer("retained") },
        in: rows.reduce(0) { $0 + $1.integer("cohort_size") })
    }
    return cohortCurve(
      "Retained after each month, all cohorts", id: "chart-1-1", unit: .share, months,
      [(name: "Retained", values: values)],
      note: "The curve rises where a cohort no longer counts, and where customers returned.")
  }

  private func cohortCurve(
    _ title: String, id: String, unit: ChartUnit, _ months: [[ReportRow]],
    _ series: [ChartData.Series], note: String? = nil
  ) -> ChartData {
    let counts = months.map(CohortTable.count)
    var notes: [String] = []
    if let first = counts.first, let last = counts.last, first > 1 {
      notes.append(
        "Months that fewer than a quarter of the cohorts have finished are left out. Each month "
          + "counts the cohorts that have finished it: \(first) at month 0, \(last) at month "
          + "\(counts.count - 1)."
      )
    }
    return ChartData(
      id: id, title: title, unit: unit,
      buckets: months.indices.map { (at: table.asOf, label: $0 == 0 ? "Month 0" : "\($0)") },
      series: series, categories: "Month",
      remarks: Dictionary(
        uniqueKeysWithValues: counts.enumerated().map {
          ($0.offset, Count.text($0.element, "cohort", "cohorts"))
        }), note: (notes + [note].compactMap(\.self)).joined(separator: " "))
  }
}

/// The segments of a split report, the largest first; those that get no colour of their own are one.
struct ReportSegments: Sendable {
  struct Segment: Sendable {
    let name: String
    /// The value that the name stands for, if it differs.
    let identifier: String?
    fileprivate let values: Set<String?>

    func has(_ row: ReportRow) -> Bool {
      row.isOfMeasure && values.contains(row["segment"]?.text)
    }
  }

  let all: [Segment]

  /// As many as there are colours.
  private static let most = 6

  init(_ table: ReportTable, of request: ReportRequest) {
    let sizes = Dictionary(grouping: table.records.filter(\.isOfMeasure)) { $0["segment"]?.text }
      .mapValues { rows in
        // Lifetime value has no chart of periods.
        (table.report.measure?.sum(of: rows) ?? rows.sum(of: "revenue_milliunits") ?? 0).magnitude
      }
    let sorted = sizes.sorted { ($1.value, $0.key ?? "") < ($0.value, $1.key ?? "") }.map(\.key)
    let named = sorted.count > Self.most ? Self.most - 1 : sorted.count
    let segments = sorted.prefix(named).map { value in
      let label = value.map { value -> (text: String, identifier: String?) in
        request.choices.by == .product
          ? request.productNames[value].map { ($0, value) } ?? (value, nil)
          : ReportValue.text(value).label(in: request.choices.by?.rawValue ?? "", of: table.report)
      }
      return Segment(
        name: label?.text ?? "Not reported", identifier: label?.identifier, values: [value])
    }
    let others = sorted.dropFirst(named)
    all =
      segments
      + (others.isEmpty
        ? [] : [Segment(name: "\(others.count) others", identifier: nil, values: Set(others))])
  }
}

extension ReportChart.Series {
  var isMoney: Bool { added.contains { $0.hasSuffix("_milliunits") } }

  /// The sum of its columns in some rows; nil if none has a number, or if it has too many digits.
  func sum(of rows: [ReportRow]) -> Int64? {
    let values = rows.flatMap { row in
      added.compactMap { row[$0]?.integer } + takenOff.compactMap { row[$0]?.integer }.map { -$0 }
    }
    return values.reduce(values.isEmpty ? nil : 0) { sum, value in
      guard let sum = sum?.addingReportingOverflow(value), !sum.overflow else { return nil }
      return sum.partialValue
    }
  }
}

/// The periods of a report's rows, in order.
struct ReportPeriods: Sendable {
  struct Period: Hashable, Sendable {
    /// As in the rows.
    let from: String
    let range: DayRange
    let isUnfinished: Bool
    /// For example `part of a week`, at the edge of a range.
    let part: String?

    init(from: String, range: DayRange, isUnfinished: Bool, of bucket: ReportChoices.Bucket?) {
      (self.from, self.range, self.isUnfinished) = (from, range, isUnfinished)
      part = bucket.flatMap { bucket in
        let start = range.first.start(of: bucket)
        let end = start.adding(1, bucket).adding(days: -1)
        return isUnfinished || range == DayRange(first: start, last: end)
          ? nil : "part of a \(bucket.rawValue)"
      }
    }
  }

  let all: [Period]

  /// A longer range has only the periods from its first to its last row.
  private static let most = 400

  init(_ table: ReportTable, of request: ReportRequest) {
    var all: [String: Period] = [:]
    for row in table.records {
      guard let from = row.periodStart, let first = CalendarDate(iso8601: from), all[from] == nil
      else { continue }
      let bucket = row["day"] == nil ? request.bucket : .day
      let last = row["to_day"]?.text.flatMap { CalendarDate(iso8601: $0) } ?? first
      let end = bucket.map { first.start(of: $0).adding(1, $0).adding(days: -1) } ?? last
      let isUnfinished =
        row["day"] == nil && bucket != nil && !request.hasEnded(row, of: table)
      all[from] = Period(
        from: from,
        // While a month lasts, it has its whole name; and some reports don't tell the last day.
        range: DayRange(
          first: first, last: isUnfinished || row["to_day"] == nil ? end : last),
        isUnfinished: isUnfinished, of: bucket)
    }
    var sorted = all.values.sorted { $0.from < $1.from }
    // Periods without rows.
    let found = sorted.first.map {
      DayRange(first: $0.range.first, last: sorted.last?.range.first ?? $0.range.first)
    }
    if let days = found ?? request.charted {
      var starts = request.starts(of: days)
      if let charted = request.charted, starts.count <= Self.most {
        let wider = request.starts(of: charted.joined(to: days))
        if wider.count <= Self.most { starts = wider }
      }
      // Of a longer range without rows, the latest.
      starts = found == nil ? starts.suffix(Self.most) : starts
      let bucket = request.bucket ?? .day
      for start in starts where all[start.text] == nil {
        let end = start.start(of: bucket).adding(1, bucket).adding(days: -1)
        // A range that is over can end within a period.
        let over = request.range.flatMap { request.hasEnded($0.last, of: table) ? $0.last : nil }
        let isCut = over.map { $0.daysSince1970 < end.daysSince1970 } ?? false
        let range = DayRange(first: start, last: isCut ? over ?? end : end)
        sorted.append(
          Period(
            from: start.text, range: range,
            isUnfinished: request.range != nil && !request.hasEnded(range.last, of: table),
            of: request.bucket))
      }
      sorted.sort { $0.from < $1.from }
    }
    self.all = sorted
  }
}

extension ReportRow {
  /// Whether a split adds it up: renewals that moved and shared subscriptions are no further charges.
  var isOfMeasure: Bool { table.report != .ownership || self["measure"]?.text == "decided" }

  /// The first day that the row counts.
  var periodStart: String? { (self["from_day"] ?? self["day"])?.text }
}
