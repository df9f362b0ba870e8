import Reports
import Subscriptions

/// What of a report is drawn, and how.
struct ReportCharts: Sendable {
  /// A series: columns that are added up, and those of what is lost, which are taken off.
  private struct Series {
    var name: String
    var gained: [String]
    var lost: [String]

    init(_ name: String, _ gained: String..., lost: String...) {
      self.name = name
      self.gained = gained
      self.lost = lost
    }
  }

  /// A chart of a report: its rows by time.
  private struct Plan {
    var title: String
    var series: [Series]
    var isStock = false
    /// What each bar comes to; of a stock, by how much it is another one at the end.
    var net: Series?
  }

  let table: ReportTable

  /// Each row's time; rows of one time are summed up, but never across currencies.
  var pictures: [ChartPicture] {
    plans.enumerated().flatMap { number, plan in
      currencies(of: plan).enumerated().map { place, currency in
        let data = data(plan, currency, id: "chart-\(number + 1)-\(place + 1)")
        return plan.isStock ? ChartPicture(linesOf: data) : ChartPicture(stacksOf: data)
      }
    }
  }

  private var plans: [Plan] {
    switch table.report {
    case .active:
      [
        Plan(title: "Active at the end", series: [Series("Active", "active")], isStock: true),
        Plan(
          title: "Came and went",
          series: [
            Series("New", "new"), Series("Resubscribed", "resubscribed"),
            Series("Expired", lost: "expired"), Series("Changed in", "changed_in"),
            Series("Changed out", lost: "changed_out"),
          ], net: Series("Net", "active", lost: "opening")),
      ]
    case .trials:
      [
        Plan(title: "Open trials", series: [Series("Trials", "trials")], isStock: true),
        Plan(
          title: "Started and ended",
          series: [
            Series("Started", "started"), Series("Converted", lost: "converted"),
            Series("Expired", lost: "expired"),
          ], net: Series("Net", "trials", lost: "opening")),
      ]
    case .mrr:
      [
        Plan(title: "MRR at the end", series: [Series("MRR", "mrr_milliunits")], isStock: true),
        Plan(
          title: "How MRR came",
          series: [
            Series("New", "new_milliunits"), Series("Reactivated", "reactivated_milliunits"),
            Series("Expansion", "expansion_milliunits"),
            Series("Contraction", "contraction_milliunits"),
            Series("Churned", "churned_milliunits"),
            // There are six colours; either is about currencies, and most ledgers have neither.
            Series("Currencies", "currency_changed_milliunits", "exchange_milliunits"),
          ], net: Series("Net", "mrr_milliunits", lost: "opening_milliunits")),
      ]
    case .churn:
      [
        Plan(
          title: "Expired by cause",
          series: [
            Series("Voluntary", "voluntary"), Series("Involuntary", "involuntary"),
            Series("Product withdrawn", "product_withdrawn"), Series("Unknown", "unknown"),
          ])
      ]
    case .renewalsDue: [Plan(title: "Due by the day", series: [Series("Renewals", "number")])]
    case .billingIssues:
      [
        Plan(
          title: "In trouble at the end",
          series: [
            Series("In grace period", "in_grace_period"),
            Series("In billing retry", "in_billing_retry"),
          ], isStock: true),
        Plan(
          title: "Entered and left",
          series: [
            Series("Entered", "entered"), Series("Recovered", lost: "recovered"),
            Series("Lost", lost: "lost"),
          ], net: Series("Net", "entered", lost: "recovered", "lost")),
      ]
    case .revenue:
      [
        Plan(
          title: "Charged and refunded",
          series: [
            Series("Charged", "charged_milliunits"), Series("Refunded", "refunded_milliunits"),
          ], net: Series("Net", "net_by_refund_milliunits"))
      ]
    case .refunds:
      [Plan(title: "Refunded charges", series: [Series("Refunded", "refunded")])]
    case .reactivations:
      [
        Plan(
          title: "Switched and returned",
          series: [
            Series("Switched on", "switched_on"), Series("Resubscribed", "resubscribed"),
            Series("Switched off", lost: "switched_off"),
          ])
      ]
    case .orders:
      [
        Plan(
          title: "Orders",
          series: [Series("Paid", "paid"), Series("Open", "open"), Series("Expired", "expired")])
      ]
    case .ownership, .audit: [Plan(title: "Number", series: [Series("Number", "number")])]
    case .subscriptions, .retention, .unclaimed, .intake: []
    }
  }

  /// Of counts one chart, of amounts one for each currency.
  private func currencies(of plan: Plan) -> [String?] {
    guard plan.series.contains(where: { $0.gained.contains { $0.hasSuffix("_milliunits") } }) else {
      return [nil]
    }
    return Set(
      table.rows.indices.compactMap { table.value("currency", inRow: $0)?.text }
    ).sorted()
  }

  private func data(_ plan: Plan, _ currency: String?, id: String) -> ChartData {
    let drawn = plan.series + (plan.net.map { [$0] } ?? [])
    var days: [String] = []
    var sums: [String: [Int64?]] = [:]
    for index in table.rows.indices {
      guard
        let day = (table.value("from_day", inRow: index) ?? table.value("day", inRow: index))?.text
      else { continue }
      // A time without any row of the currency is one all the same.
      if sums[day] == nil {
        days.append(day)
        sums[day] = Array(repeating: currency == nil ? nil : 0, count: drawn.count)
      }
      guard currency == nil || table.value("currency", inRow: index)?.text == currency else {
        continue
      }
      for (place, series) in drawn.enumerated() {
        let gained = series.gained.compactMap { table.value($0, inRow: index)?.integer }
        let lost = series.lost.compactMap { table.value($0, inRow: index)?.integer }
        for value in gained + lost.map({ -$0 }) {
          let sum = (sums[day]?[place] ?? 0).addingReportingOverflow(value)
          sums[day]?[place] = sum.overflow ? nil : sum.partialValue
        }
      }
    }
    days.sort()
    let buckets = days.compactMap { day in
      CalendarDate(iso8601: day).map { ChartBucket(at: Timestamp($0), label: day) }
    }
    var series = drawn.enumerated().map { place, series in
      ChartSeries(name: series.name, values: days.map { sums[$0]?[place] ?? nil })
    }
    let net = plan.net == nil ? nil : series.removeLast()
    return ChartData(
      id: id, title: currency.map { "\(plan.title), \($0)" } ?? plan.title,
      unit: currency.map { .money(currency: $0) } ?? .count, buckets: buckets, series: series,
      net: net)
  }
}

/// Those who began in one time, and how many of them are still there after each following one.
struct Cohort: Sendable {
  /// For example `Nov 2025`.
  var label: String
  var size: Int64
  /// After 0, 1, 2 … times; nil: not yet over.
  var retained: [Int64?]
  /// Where the numbers lead to, one for each or none at all.
  var hrefs: [String] = []
  var sizeHref: String?
}

extension DataTable {
  /// Lays cohorts out as a triangle of shares, the deeper the colour the more remain.
  ///
  /// - Parameters:
  ///   - cohorts: In order of time.
  ///   - caption: What the table is about.
  ///   - period: What the columns count, for example `Month`; said once.
  init(cohorts: [Cohort], caption: String, period: String) {
    let count = cohorts.map(\.retained.count).max() ?? 0
    self.init(
      caption: caption,
      columns: [DataColumn(label: "Cohort"), DataColumn(label: "Size", isNumber: true)]
        + (0..<count).map {
          DataColumn(label: $0 == 0 ? "\(period) 0" : "\($0)", isNumber: true)
        },
      rows: cohorts.map { cohort in
        DataRow(
          cells: [
            DataCell(text: cohort.label, isHeading: true),
            DataCell(
              text: ChartUnit.count.text(cohort.size), href: cohort.sizeHref, isNumber: true),
          ] + (0..<count).map(cohort.cell))
      },
      emptyText: "No cohort has begun yet.")
  }
}

extension Cohort {
  /// A share with one decimal, rounded down so that only what is whole is said to be.
  fileprivate func cell(_ index: Int) -> DataCell {
    guard retained.indices.contains(index), let left = retained[index], size > 0 else {
      return DataCell(text: "", isNumber: true)
    }
    let part = min(max(Double(left) / Double(size), 0), 1)
    let share = Int64((part * 1000).rounded(.down)) * 10
    return DataCell(
      text: ChartUnit.share.text(share),
      href: hrefs.indices.contains(index) ? hrefs[index] : nil, isNumber: true,
      heat: Int(share / 1000))
  }
}
