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
    case .intake where failures.isEmpty: []
    case .intake where request.bucket == nil: [Chart(stacksOf: failuresByEvent)]
    default:
      table.report.charts.enumerated().flatMap { number, chart in
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

  /// Counts have one chart, amounts one for each currency.
  private func currencies(of chart: ReportChart) -> [String?] {
    guard chart.series.contains(where: { $0.added.contains { $0.hasSuffix("_milliunits") } }) else {
      return [nil]
    }
    return table.records.currencies
  }

  private func data(_ chart: ReportChart, _ currency: String?, id: String) -> ChartData {
    let periods = ReportPeriods(table, of: request)
    // Charts of one column that show its parts: by the values of another column.
    let parts = Self.parts[table.report]
    let values =
      parts.map { column in
        Set((table.report == .intake ? failures : table.records).compactMap { $0[column]?.text })
          .sorted()
      } ?? []
    let drawn =
      parts == nil
      ? (chart.series + (chart.net.map { [$0] } ?? [])).map { Drawn($0) }
      : values.map { value in
        Drawn(chart.series[0], name: EnumText.label(value, in: parts ?? ""), value: value)
      }
    var series = drawn.map { drawn in
      (
        name: drawn.name,
        values: sums(
          of: drawn, part: parts, currency, table, periods.all.map(\.from),
          isKnown: currency != nil || !chart.isStock)
      )
    }
    let net = chart.net == nil ? nil : series.removeLast()
    if let previous, chart.isStock, let first = drawn.first, let range = request.range,
      let before = request.previousRange
    {
      let starts = Dictionary(
        zip(request.starts(of: range).map(\.text), request.starts(of: before).map(\.text))
      ) { first, _ in first }
      let sums = sums(
        of: first, part: nil, currency, previous, periods.all.map { starts[$0.from] ?? "" },
        isKnown: currency != nil)
      series.append((name: "\(first.name), previous period", values: sums))
    }
    return ChartData(
      id: id, title: currency.map { "\(chart.title), \($0)" } ?? chart.title,
      unit: currency.map { .money(currency: $0) } ?? .count,
      buckets: periods.all.map { (at: Timestamp($0.range.first), label: $0.range.text) },
      series: series, net: net,
      losses: table.report == .intake ? Set(series.map(\.name)) : Self.losses,
      unfinished: Set(periods.all.indices.filter { periods.all[$0].isUnfinished }),
      sumsUp: !chart.isStock)
  }

  /// The columns whose values are the series.
  private static let parts: [Report: String] = [
    .ownership: "measure", .audit: "action", .intake: "measure",
  ]

  private struct Drawn {
    let name: String
    let series: ReportChart.Series
    /// Of the column that tells the parts.
    var value: String?

    init(_ series: ReportChart.Series, name: String? = nil, value: String? = nil) {
      (self.series, self.name, self.value) = (series, name ?? series.name, value)
    }
  }

  /// A sum for each period; nil where a number is not known.
  ///
  /// - Parameter isKnown: Whether a period without a row has 0.
  private func sums(
    of drawn: Drawn, part: String?, _ currency: String?, _ table: ReportTable, _ periods: [String],
    isKnown: Bool
  ) -> [Int64?] {
    var sums: [String: Int64?] = [:]
    if isKnown { for period in periods { sums[period] = 0 } }
    for row in table.records {
      guard let day = row.periodStart, currency == nil || row["currency"]?.text == currency,
        part.map({ row[$0]?.text == drawn.value }) ?? true
      else { continue }
      let added = drawn.series.added.compactMap { row[$0]?.integer }
      let takenOff = drawn.series.takenOff.compactMap { row[$0]?.integer }
      for value in added + takenOff.map({ -$0 }) {
        let sum = ((sums[day] ?? nil) ?? 0).addingReportingOverflow(value)
        sums[day] = .some(sum.overflow ? nil : sum.partialValue)
      }
    }
    return periods.map { sums[$0] ?? nil }
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
        (at: table.asOf, label: $0.isEmpty ? "Granted" : $0)
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

  /// The failures of all days.
  private var failuresByEvent: ChartData {
    let events = Dictionary(grouping: failures) { $0["measure"]?.text ?? "" }
      .mapValues { $0.reduce(0) { $0 + $1.integer("number") } }.sorted { $0.key < $1.key }
    return ChartData(
      id: "chart-1-1", title: "Failures",
      buckets: events.map { (at: table.asOf, label: EnumText.label($0.key, in: "measure")) },
      series: [(name: "Failures", values: events.map { Optional($0.value) })], losses: Self.losses,
      categories: "Event", sumsUp: true)
  }

  /// The revenue per subscription up to a month, of all cohorts that have finished it.
  private var lifetimeValues: [ChartData] {
    table.records.currencies.enumerated()
      .map { place, currency in
        let rows = CohortTable.finished(table, of: request).filter {
          $0["currency"]?.text == currency
        }
        let months = Dictionary(grouping: rows) { $0.integer("period") }.sorted { $0.key < $1.key }
        var sum: Int64 = 0
        let values = months.map { _, rows in
          let size = rows.reduce(0) { $0 + $1.integer("cohort_size") }
          sum += rows.reduce(0) { $0 + $1.integer("revenue_milliunits") } / max(size, 1)
          return Int64?.some(sum)
        }
        return ChartData(
          id: "chart-1-\(place + 1)", title: "LTV after each month, all cohorts, \(currency)",
          unit: .money(currency: currency),
          buckets: months.map { (at: table.asOf, label: $0.key == 0 ? "Month 0" : "\($0.key)") },
          series: [(name: "LTV", values: values)], categories: "Month")
      }
  }

  /// The share of all cohorts that reached a month, by the number of months.
  private var retention: ChartData {
    var (parts, wholes) = ([Int64](), [Int64]())
    for row in CohortTable.finished(table, of: request) {
      guard let period = row["period"]?.integer.flatMap(Int.init(exactly:)), period >= 0,
        row.integer("cohort_size") > 0
      else { continue }
      while parts.count <= period { (parts, wholes) = (parts + [0], wholes + [0]) }
      parts[period] += row.integer("retained")
      wholes[period] += row.integer("cohort_size")
    }
    return ChartData(
      id: "chart-1-1", title: "Retained after each month, all cohorts", unit: .share,
      buckets: parts.indices.map { (at: table.asOf, label: $0 == 0 ? "Month 0" : "\($0)") },
      series: [
        (
          name: "Retained",
          values: zip(parts, wholes).map { ReportValue.hundredthsOfPercent(of: $0, in: $1) }
        )
      ], categories: "Month")
  }
}

/// The periods of a report's rows, in order.
struct ReportPeriods: Sendable {
  struct Period: Hashable, Sendable {
    /// As in the rows.
    let from: String
    let range: DayRange
    let isUnfinished: Bool
  }

  let all: [Period]

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
        isUnfinished: isUnfinished)
    }
    var sorted = all.values.sorted { $0.from < $1.from }
    // Periods without rows, between those that have some.
    if let first = sorted.first, let last = sorted.last {
      let starts = request.starts(of: DayRange(first: first.range.first, last: last.range.first))
      for (start, next) in zip(starts, starts.dropFirst()) where all[start.text] == nil {
        let range = DayRange(first: start, last: next.adding(days: -1))
        sorted.append(Period(from: start.text, range: range, isUnfinished: false))
      }
      sorted.sort { $0.from < $1.from }
    }
    self.all = sorted
  }
}

extension ReportRow {
  /// The first day that the row counts.
  var periodStart: String? { (self["from_day"] ?? self["day"])?.text }
}
