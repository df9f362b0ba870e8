import Reports
import Subscriptions

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
