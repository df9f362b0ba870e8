import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI
@testable import Reports

struct ChartPictureTests {
  /// The first days of November 2026.
  private func days(_ count: Int) -> [(at: Timestamp, label: String)] {
    let first = CalendarDate(year: 2026, month: 11, day: 1).daysSince1970
    return (0..<count).map {
      (
        at: Timestamp(CalendarDate(daysSince1970: first + $0)), label: "2026-11-0\($0 + 1)"
      )
    }
  }

  private func lines() -> Chart {
    Chart(
      linesOf: ChartData(
        id: "c", title: "Active", buckets: days(4),
        series: [
          (name: "Active", values: [10, 20, nil, 15]),
          (name: "Trials", values: [0, 5, 5, 4]),
        ],
        height: 100))
  }

  @Test func `a line has gaps where nothing is known, and a lonely value is a dot`() {
    let picture = lines()
    #expect(picture.lines.map(\.seriesClass) == ["series-1", "series-2"])
    #expect(
      picture.lines.map(\.data) == ["M125 50L375 0", "M125 100L375 75L625 75L875 80"])
    // Only the first series has an area.
    #expect(picture.areas.map(\.data) == ["M125 100L125 50L375 0L375 100Z"])
    #expect(picture.dots.map(\.x) == ["87.5"])
    #expect(picture.dots.map(\.y) == ["25"])
  }

  @Test func `axes and bands fit the values`() {
    let picture = lines()
    #expect(picture.yTicks.map(\.label) == ["0", "5", "10", "15", "20"])
    #expect(picture.yTicks.map(\.position) == ["100", "75", "50", "25", "0"])
    #expect(picture.xTicks.map(\.label) == ["1 Nov 2026", "2 Nov", "3 Nov", "4 Nov"])
    #expect(picture.xTicks.map(\.position) == ["12.5", "37.5", "62.5", "87.5"])
    #expect(picture.bands.map(\.x) == ["0", "25", "50", "75"])
    #expect(picture.bands.map(\.width) == ["25", "25", "25", "25"])
    #expect((picture.height, picture.fullHeight) == (100, 124))
  }

  @Test func `the text says the same as the chart`() {
    let picture = lines()
    #expect(
      picture.description
        == "Active: 15 (2026-11-04), 10 at first (2026-11-01), between 10 and 20. "
        + "Trials: 4 (2026-11-04), 0 at first (2026-11-01), between 0 and 5.")
    #expect(
      picture.bands.map(\.text) == [
        "2026-11-01\nActive 10\nTrials 0", "2026-11-02\nActive 20\nTrials 5",
        "2026-11-03\nTrials 5", "2026-11-04\nActive 15\nTrials 4",
      ])
    #expect(picture.legend.map(\.value) == ["15", "4"])
    #expect(
      picture.table.rows.map { $0.cells.map(\.text) } == [
        ["2026-11-01", "10", "0"], ["2026-11-02", "20", "5"], ["2026-11-03", "", "5"],
        ["2026-11-04", "15", "4"],
      ])
  }

  @Test func `gains are stacked up from zero, losses down, and a line has their sum`() {
    let picture = Chart(
      stacksOf: ChartData(
        id: "c", title: "Moves", buckets: days(4),
        series: [
          (name: "New", values: [5, 3, 0, nil]),
          (name: "Back", values: [5, 0, 2, nil]),
          (name: "Gone", values: [-4, -3, 0, nil]),
        ],
        net: (name: "Net", values: [6, 0, 2, 0]), height: 120))
    #expect(
      picture.bars.map { [$0.seriesClass, $0.x, $0.width, $0.y, $0.height] } == [
        ["series-1", "7.5", "10", "40", "40"], ["series-2", "7.5", "10", "0", "40"],
        ["series-3", "7.5", "10", "80", "32"], ["series-1", "32.5", "10", "56", "24"],
        ["series-3", "32.5", "10", "80", "24"], ["series-2", "57.5", "10", "64", "16"],
      ])
    #expect(picture.yTicks.map(\.label) == ["−5", "0", "5", "10"])
    #expect(picture.lines.map(\.data) == ["M125 32L375 80L625 64L875 80"])
    #expect(picture.dots.map(\.y) == ["32", "80", "64", "80"])
    #expect(picture.legend.map(\.label) == ["New", "Back", "Gone", "Net"])
    #expect(picture.legend.map(\.value) == [nil, nil, nil, "0"])
    #expect(
      picture.legend.map(\.seriesClass) == ["series-1", "series-2", "series-3", "series-net"])
    // In words and in the table, too.
    #expect(
      picture.table.rows.map { $0.cells.map(\.text) } == [
        ["2026-11-01", "5", "5", "−4", "6"], ["2026-11-02", "3", "0", "−3", "0"],
        ["2026-11-03", "0", "2", "0", "2"], ["2026-11-04", "", "", "", "0"],
      ])
    #expect(picture.table.columns.map(\.label) == ["Time", "New", "Back", "Gone", "Net"])
    #expect(picture.bands[0].text == "2026-11-01\nNew 5\nBack 5\nGone −4\nNet 6")
    #expect(
      picture.description.hasSuffix(
        "Net: 0 (2026-11-04), 6 at first (2026-11-01), between 0 and 6."))
  }

  @Test func `what is drawn below zero is a loss`() {
    let below = Report.all.flatMap(\.charts).flatMap(\.series).filter(\.added.isEmpty).map(\.name)
    #expect(below.count > 4)
    // What is recovered leaves the billing issues.
    #expect(Set(below).subtracting(ReportCharts.losses) == ["Recovered"])
  }

  @Test func `the same thing has one colour in all charts, and no two of a chart share one`() {
    func colours(_ names: [String]) -> [String] {
      let data = ChartData(
        id: "c", title: "t", buckets: days(1), series: names.map { ($0, [1]) },
        losses: ReportCharts.losses)
      return names.indices.map(data.seriesClass)
    }
    var known: [String: String] = [:]
    let charts = Report.all.flatMap(\.charts).filter { $0.series.count > 1 }
    #expect(charts.count > 6)
    for chart in charts {
      let names = chart.series.map(\.name)
      let found = colours(names)
      #expect(Set(found).count == names.count, "\(names): \(found)")
      for (name, colour) in zip(names, found) {
        #expect(known[name] ?? colour == colour, "\(chart.title): \(name)")
        known[name] = colour
      }
    }
  }

  @Test func `an unfinished period is marked, and left out of sums and of the net`() {
    var data = ChartData(
      id: "c", title: "Moves", buckets: days(3),
      series: [(name: "New", values: [5, 3, 1]), (name: "Gone", values: [-4, -3, 0])],
      net: (name: "Net", values: [1, 0, 1]), losses: ["Gone"], unfinished: [2], sumsUp: true)
    let picture = Chart(stacksOf: data)
    #expect(picture.legend.map(\.value) == ["8 (+1 so far)", "−7", "1 (+1 so far)"])
    #expect(picture.lines.map(\.data) == ["M166.67 100L500 120"])
    #expect(picture.unfinished.map(\.x) == ["66.67"])
    #expect(picture.bands[2].text == "2026-11-03 so far\nNew 1\nGone 0\nNet 1")
    #expect(picture.table.rows[2].cells[0].text == "2026-11-03 so far")
    #expect(picture.bars.count == 5)
    // Gains are cool and losses warm.
    #expect(picture.legend.map(\.seriesClass) == ["series-1", "series-7", "series-net"])
    // While all are unfinished, the sums are those so far.
    data.unfinished = [0, 1, 2]
    #expect(
      Chart(stacksOf: data).legend.map(\.value) == ["9 so far", "−7 so far", "2 so far"])
    // A loss is taken off, and the period before has ended.
    (data.series[1].values, data.unfinished) = ([-4, -3, -2], [2])
    data.previous = (name: "Net, previous period", values: [5, 6, nil])
    #expect(
      Chart(stacksOf: data).legend.map(\.value)
        == ["8 (+1 so far)", "−7 (−2 so far)", "1 (+1 so far)", "11"])
    // A part is not the sum.
    data.series[0].values = [nil, 3, 1]
    #expect(Chart(stacksOf: data).legend.map(\.value).prefix(2) == [nil, "−7 (−2 so far)"])
  }

  @Test func `a line that is 0 all the time is neither drawn nor in the legend, unless all are`() {
    var data = ChartData(
      id: "c", title: "Issues", buckets: days(2),
      series: [(name: "Grace", values: [0, 0]), (name: "Retry", values: [1, 2])])
    let picture = Chart(linesOf: data)
    #expect(picture.legend.map(\.label) == ["Retry"])
    #expect(picture.lines.map(\.seriesClass) == ["series-2"] && picture.areas.isEmpty)
    data.series[1].values = [0, 0]
    #expect(Chart(linesOf: data).legend.count == 2 && Chart(linesOf: data).lines.count == 2)
  }

  @Test(
    "Where nothing is known there is nothing to draw",
    arguments: [(0, []), (0, [nil]), (3, [nil, nil, nil])] as [(Int, [Int64?])])
  func empty(days: Int, values: [Int64?]) {
    let data = ChartData(
      id: "c", title: "Active", buckets: self.days(values.count),
      series: [(name: "Active", values: values)],
      net: (name: "Net", values: values))
    for picture in [Chart(linesOf: data), Chart(stacksOf: data)] {
      #expect(picture.isEmpty)
      #expect(picture.lines.isEmpty && picture.bars.isEmpty && picture.dots.isEmpty)
    }
  }

  @Test func `the largest numbers overflow nothing`() {
    let data = ChartData(
      id: "c", title: "Active", buckets: days(2),
      series: [
        (name: "A", values: [.max, .min]), (name: "B", values: [.max, .min]),
      ], net: (name: "Net", values: [.max, .min]))
    for picture in [Chart(linesOf: data), Chart(stacksOf: data)] {
      #expect(!picture.isEmpty)
    }
    #expect(Sparkline([.max, .min], name: "A")?.lastY == "33")
    // Nothing lies at the bottom, and what does not change in the middle.
    #expect(Sparkline([0, 0], name: "A")?.lastY == "33")
    #expect(Sparkline([5, 5], name: "A")?.lastY == "18")
  }

  @Test func `three years of days have no more places to point at than a screen`() {
    let picture = Chart(
      linesOf: ChartData(
        id: "c", title: "Active", buckets: days(1100),
        series: [(name: "Active", values: Array(repeating: 1, count: 1100))]))
    #expect(picture.bands.count == 367)
    #expect(picture.bands.first?.text.hasPrefix("2026-11-03") == true)
    #expect(picture.bands.last?.text.hasPrefix("2026-11-01100") == true)
  }

  // swift-format-ignore
  @Test(
    "A sparkline goes from its least value to its greatest",
    arguments: [
      ([1, 2, 3], "M0 33L50 18L100 3", "M0 36L0 33L50 18L100 3L100 36Z", "3"),
      ([5, 5], "M0 18L100 18", "M0 36L0 18L100 18L100 36Z", "18"),
      ([nil, 1, nil, 3], "M33.33 33L100 3", "M33.33 36L33.33 33L100 3L100 36Z", "3"),
      ([-1, 1], "M0 33L100 3", "M0 36L0 33L100 3L100 36Z", "3"),
    ] as [([Int64?], String, String, String)])
  func sparklines(values: [Int64?], line: String, area: String, lastY: String) throws {
    let sparkline = try #require(Sparkline(values, name: "Active"))
    #expect(sparkline.line == line)
    #expect(sparkline.area == area)
    #expect(sparkline.lastY == lastY)
  }

  @Test(
    "One value is no line", arguments: [[], [1], [nil, nil], [nil, 1, nil]] as [[Int64?]])
  func sparklinesWithoutLine(values: [Int64?]) {
    #expect(Sparkline(values, name: "Active") == nil)
  }

  @Test func `cohorts are a triangle of shares, of which only a whole is 100%, with their heat`() {
    let cohorts: [(String, size: Int64, retained: [Int64])] = [
      ("2026-10-01", 3, [3, 2, 1]), ("2026-11-01", 10_000, [10_000, 9_999]),
      ("2026-12-01", 0, [0]),
    ]
    let columns: [ReportColumn] = [
      ReportColumn("cohort", .date), ReportColumn("period", .number),
      ReportColumn("to_day", .date), ReportColumn("cohort_size", .number),
      ReportColumn("retained", .number),
    ]
    let report = ReportTable(
      report: .retention, asOf: Timestamp(CalendarDate(year: 2026, month: 12, day: 31)),
      columns: columns,
      rows: cohorts.enumerated().flatMap { offset, cohort in
        cohort.retained.enumerated().map { period, retained in
          [
            .date(cohort.0), .number(Int64(period)),
            .date(["2026-10-31", "2026-11-30", "2026-12-31"][offset + period]),
            .number(cohort.size), .number(retained),
          ]
        }
      }, isCutShort: false)
    let table = DataTable(
      cohortsOf: report, of: ReportRequest(.retention, query: nil, at: report.asOf))
    #expect(table.columns.map(\.label) == ["Cohort", "Cohort size", "Month 0", "1", "2"])
    #expect(
      table.rows.map { $0.cells.map(\.text) } == [
        ["Oct 2026", "3", "100.0%", "66.7%", "33.3%"],
        ["Nov 2026", "10,000", "100.0%", "99.9%", ""],
        ["Dec 2026", "0", "", "", ""],
      ])
    // December has not ended.
    #expect(table.rows[0].cells.map(\.heat) == [nil, nil, 10, 6, nil])
    #expect(table.rows[1].cells.map(\.heat) == [nil, nil, 10, nil, nil])
    // Of a product that customers change to and from.
    let product = DataTable(
      cohortsOf: ReportTable(
        report: .retention, asOf: report.asOf, columns: columns,
        rows: [(2, "2026-10-31"), (3, "2026-11-30"), (0, "2026-11-30")].enumerated().map {
          [
            .date("2026-10-01"), .number(Int64($0)), .date($1.1), .number(2), .number($1.0),
          ]
        }, isCutShort: false),
      of: ReportRequest(.retention, query: "product=month", at: report.asOf))
    #expect(product.rows[0].cells.map(\.text) == ["Oct 2026", "2", "100.0%", "150.0%", "0.0%"])
    #expect(product.rows[0].cells.map(\.heat) == [nil, nil, 10, 10, 0])
    #expect(product.note?.contains("a share can be above 100%") == true)
    #expect(table.note?.contains("100%") == false)
    // A cohort's share counts as much as the cohort is large.
    let curve = ReportCharts(
      table: report, request: ReportRequest(.retention, query: nil, at: report.asOf)
    ).pictures[0]
    #expect(
      curve.table.rows.map { $0.cells.map(\.text) } == [
        ["Month 0 (2 cohorts)", "100.00%"], ["Month 1 (1 cohort)", "66.67%"],
      ])
    let hrefs = table.rows[0].cells.map { $0.href ?? "" }
    #expect(hrefs[0].isEmpty)
    #expect(hrefs[1].contains("cell=cohort_size&from=2026-10-01&to=2026-10-01"), "\(hrefs)")
    for period in 0...2 {
      #expect(hrefs[period + 2].contains("cell=retained"), "\(hrefs)")
      #expect(hrefs[period + 2].contains("period=\(period)"), "\(hrefs)")
    }
  }
}
