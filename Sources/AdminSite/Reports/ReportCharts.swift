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

/// Subscriptions that began in one month, and how many of them remain after each following one.
struct Cohort: Sendable {
  /// For example `Nov 2025`.
  var label: String
  var size: Int64
  /// After 0, 1, 2 … months; nil: not over yet.
  var retained: [Int64?]
  /// Links of the numbers, one for each or none at all.
  var hrefs: [String?] = []
  var sizeHref: String?

  /// A share with one decimal, rounded down so that 100% means all.
  fileprivate func cell(_ index: Int) -> DataCell {
    guard retained.indices.contains(index), let left = retained[index], size > 0 else {
      return DataCell(text: "", isNumber: true)
    }
    let part = min(max(Double(left) / Double(size), 0), 1)
    let share = Int64((part * 1000).rounded(.down)) * 10
    return DataCell(
      text: ChartUnit.share.text(share), href: hrefs.indices.contains(index) ? hrefs[index] : nil,
      isNumber: true, heat: Int(share / 1000))
  }
}

extension DataTable {
  /// A triangle of shares by month, in a deeper colour where more remain.
  init(cohorts: [Cohort], caption: String) {
    let count = cohorts.map(\.retained.count).max() ?? 0
    self.init(
      caption: caption,
      columns: [DataColumn(label: "Cohort"), DataColumn(label: "Size", isNumber: true)]
        + (0..<count).map { DataColumn(label: $0 == 0 ? "Month 0" : "\($0)", isNumber: true) },
      rows: cohorts.map { cohort in
        DataRow(
          cells: [
            DataCell(text: cohort.label, isHeading: true),
            DataCell(
              text: ChartUnit.count.text(cohort.size), href: cohort.sizeHref, isNumber: true),
          ] + (0..<count).map(cohort.cell))
      },
      emptyText: "No cohorts yet.")
  }
}
