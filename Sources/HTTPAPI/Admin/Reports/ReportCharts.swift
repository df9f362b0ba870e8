import Reports
import Subscriptions

/// What of a report is drawn, and how.
struct ReportCharts: Sendable {
  /// A series: a column, and whether what it counts is lost.
  typealias Series = (name: String, column: String, isLoss: Bool)

  /// A chart of a report: its rows by time.
  private struct Plan {
    var title: String
    var series: [Series]
    var isStock = false
    /// The name of the sum of each bar.
    var net: String?
  }

  let table: ReportTable

  /// Each row's time; rows of one time are summed up, but never across currencies.
  var pictures: [ChartPicture] {
    plans.enumerated().flatMap { number, plan in
      currencies(of: plan).enumerated().map { place, currency in
        let data = data(plan, currency, id: "chart-\(number + 1)-\(place + 1)")
        return plan.isStock
          ? ChartPicture(linesOf: data) : ChartPicture(stacksOf: data, net: plan.net)
      }
    }
  }

  private var plans: [Plan] {
    switch table.report {
    case .active:
      [
        Plan(title: "Active at the end", series: [("Active", "active", false)], isStock: true),
        Plan(
          title: "Came and went",
          series: [
            ("New", "new", false), ("Resubscribed", "resubscribed", false),
            ("Expired", "expired", true),
          ], net: "Net"),
      ]
    case .trials:
      [
        Plan(title: "Open trials", series: [("Trials", "trials", false)], isStock: true),
        Plan(
          title: "Started and ended",
          series: [
            ("Started", "started", false), ("Converted", "converted", true),
            ("Expired", "expired", true),
          ], net: "Net"),
      ]
    case .mrr:
      [
        Plan(title: "MRR at the end", series: [("MRR", "mrr_milliunits", false)], isStock: true),
        Plan(
          title: "How MRR came",
          series: [
            ("New", "new_milliunits", false), ("Reactivated", "reactivated_milliunits", false),
            ("Expansion", "expansion_milliunits", false),
            ("Contraction", "contraction_milliunits", false),
            ("Churned", "churned_milliunits", false),
            ("Currency changed", "currency_changed_milliunits", false),
          ], net: "Net"),
      ]
    case .churn:
      [
        Plan(
          title: "Expired by cause",
          series: [
            ("Voluntary", "voluntary", false), ("Involuntary", "involuntary", false),
            ("Product withdrawn", "product_withdrawn", false), ("Unknown", "unknown", false),
          ])
      ]
    case .renewalsDue: [Plan(title: "Due by the day", series: [("Renewals", "number", false)])]
    case .billingIssues:
      [
        Plan(
          title: "In trouble at the end",
          series: [
            ("In grace period", "in_grace_period", false),
            ("In billing retry", "in_billing_retry", false),
          ], isStock: true),
        Plan(
          title: "Entered and left",
          series: [
            ("Entered", "entered", false), ("Recovered", "recovered", true), ("Lost", "lost", true),
          ], net: "Net"),
      ]
    case .revenue:
      [
        Plan(
          title: "Charged and refunded",
          series: [
            ("Charged", "charged_milliunits", false), ("Refunded", "refunded_milliunits", false),
          ], net: "Net")
      ]
    case .refunds:
      [Plan(title: "Refunded charges", series: [("Refunded", "refunded", false)])]
    case .reactivations:
      [
        Plan(
          title: "Switched and returned",
          series: [
            ("Switched on", "switched_on", false), ("Resubscribed", "resubscribed", false),
            ("Switched off", "switched_off", true),
          ])
      ]
    case .orders:
      [
        Plan(
          title: "Orders",
          series: [("Paid", "paid", false), ("Open", "open", false), ("Expired", "expired", false)])
      ]
    case .ownership, .audit: [Plan(title: "Number", series: [("Number", "number", false)])]
    case .subscriptions, .retention, .unclaimed, .intake: []
    }
  }

  /// Of counts one chart, of amounts one for each currency.
  private func currencies(of plan: Plan) -> [String?] {
    guard plan.series.contains(where: { $0.column.hasSuffix("_milliunits") }) else { return [nil] }
    return Set(
      table.rows.indices.compactMap { table.value("currency", inRow: $0)?.text }
    ).sorted()
  }

  private func data(_ plan: Plan, _ currency: String?, id: String) -> ChartData {
    var days: [String] = []
    var sums: [String: [Int64?]] = [:]
    for index in table.rows.indices {
      guard
        let day = (table.value("from_day", inRow: index) ?? table.value("day", inRow: index))?.text
      else { continue }
      // A time without any row of the currency is one all the same.
      if sums[day] == nil {
        days.append(day)
        sums[day] = Array(repeating: currency == nil ? nil : 0, count: plan.series.count)
      }
      guard currency == nil || table.value("currency", inRow: index)?.text == currency else {
        continue
      }
      for (place, series) in plan.series.enumerated() {
        guard let value = table.value(series.column, inRow: index)?.integer else { continue }
        let sum = (sums[day]?[place] ?? 0).addingReportingOverflow(series.isLoss ? -value : value)
        sums[day]?[place] = sum.overflow ? nil : sum.partialValue
      }
    }
    days.sort()
    let buckets = days.compactMap { day in
      CalendarDate(iso8601: day).map { ChartBucket(at: Timestamp($0), label: day) }
    }
    return ChartData(
      id: id, title: currency.map { "\(plan.title), \($0)" } ?? plan.title,
      unit: currency.map { .money(currency: $0) } ?? .count, buckets: buckets,
      series: plan.series.enumerated().map { place, series in
        ChartSeries(name: series.name, values: days.map { sums[$0]?[place] ?? nil })
      })
  }
}
