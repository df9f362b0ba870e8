import Reports
import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI
@testable import Reports

/// Ranges, comparisons and totals of report pages.
struct ReportRangeTests {
  private static let now = Timestamp(CalendarDate(year: 2026, month: 4, day: 15)) + .hours(12)

  private static func request(_ report: Report = .active, _ query: String? = nil)
    -> ReportRequest
  {
    ReportRequest(report, query: query, at: now)
  }

  // swift-format-ignore
  @Test(
    "Days in words",
    arguments: [
      ("2026-04-15", "2026-04-15", "15 Apr 2026"),
      ("2026-04-01", "2026-04-30", "Apr 2026"),
      ("2026-02-01", "2026-02-28", "Feb 2026"),
      ("2026-04-01", "2026-04-15", "1–15 Apr 2026"),
      ("2026-03-30", "2026-04-05", "30 Mar – 5 Apr 2026"),
      ("2025-12-29", "2026-01-04", "29 Dec 2025 – 4 Jan 2026"),
      ("2025-04-01", "2026-04-30", "1 Apr 2025 – 30 Apr 2026"),
    ])
  func words(first: String, last: String, text: String) throws {
    let range = DayRange(
      first: try #require(CalendarDate(iso8601: first)),
      last: try #require(CalendarDate(iso8601: last)))
    #expect(range.text == text)
  }

  // swift-format-ignore
  @Test(
    "The range in force, and the one before it",
    arguments: [
      (.active, "", "1 May 2025 – 15 Apr 2026, by month, UTC", "1 May 2024 – 30 Apr 2025"),
      (.active, "bucket=week", "26 Jan – 15 Apr 2026, by week, UTC", "3 Nov 2025 – 25 Jan 2026"),
      (.active, "bucket=day", "19 Mar – 15 Apr 2026, by day, UTC", "19 Feb – 18 Mar 2026"),
      (.active, "to=2026-03-31", "1 Apr 2025 – 31 Mar 2026, by month, UTC",
        "1 Apr 2024 – 31 Mar 2025"),
      (.active, "from=2026-02-10", "10 Feb – 15 Apr 2026, by month, UTC",
        "10 Nov 2025 – 9 Feb 2026"),
      (.active, "to=2030-01-01", "1 May 2025 – 15 Apr 2026, by month, UTC",
        "1 May 2024 – 30 Apr 2025"),
      (.active, "time_zone=Pacific%2FKiritimati", "1 May 2025 – 16 Apr 2026, by month, "
        + "Pacific/Kiritimati", "1 May 2024 – 30 Apr 2025"),
      (.audit, "", "19 Mar – 15 Apr 2026, by day, UTC", "19 Feb – 18 Mar 2026"),
      (.active, "by=product", "1 May 2025 – 15 Apr 2026, by month, UTC, by product", nil),
      (.intake, "days=7", "9–15 Apr 2026, UTC", nil),
      (.retention, "", "Subscriptions first paid May 2025 – Apr 2026, UTC", nil),
      (.renewalsDue, "days=7", "The next 7 days, as of 15 Apr 2026, 12:00 UTC", nil),
      (.subscriptions, "", "As of 15 Apr 2026, 12:00 UTC", nil),
      (.active, "to=2026-03-31&known_at=2026-03-31&environment=sandbox",
        "1 Apr 2025 – 31 Mar 2026, by month, UTC, as known at 31 Mar 2026, 23:59 UTC, "
        + "sandbox (no real payments)", "1 Apr 2024 – 31 Mar 2025"),
    ] as [(Report, String, String, String?)])
  func ranges(report: Report, query: String, text: String, previous: String?) {
    let asked = Self.request(report, query + "&compare=true")
    #expect(asked.rangeText == text)
    #expect(asked.previousRange?.text == previous)
    #expect(Self.request(report, query).previousRange == nil)
  }

  @Test func `presets replace the range and keep the other choices`() {
    let asked = Self.request(.active, "from=2026-04-09&bucket=day&product=a&compare=true")
    #expect(
      asked.presets.map(\.label)
        == ["Last 7 days", "Last 28 days", "Last 3 months", "Last 12 months", "Year to date"])
    #expect(asked.presets.map(\.isCurrent) == [true, false, false, false, false])
    #expect(
      asked.presets[3].href
        == "/admin/reports/active?from=2025-05-01&bucket=month&product=a&compare=true")
    #expect(
      Self.request(.renewalsDue).presets.map(\.isCurrent) == [false, true, false])
    #expect(Self.request(.unclaimed).presets.isEmpty)
    // The days of a report without a choice are those of a preset.
    for report in [Report.ownership, .audit, .active, .intake] {
      #expect(Self.request(report).presets.count(where: \.isCurrent) == 1, "\(report)")
    }
  }

  private static func months(_ rows: [(String, String, new: Int64, active: Int64)]) -> ReportTable {
    ReportTable(
      report: .active, asOf: now,
      columns: [
        ReportColumn("from_day", .date), ReportColumn("to_day", .date),
        ReportColumn("opening", .number), ReportColumn("new", .number),
        ReportColumn("active", .number),
      ],
      rows: rows.map {
        [.date($0.0), .date($0.1), .number(1), .number($0.new), .number($0.active)]
      }, isCutShort: false)
  }

  @Test func `totals leave out the unfinished month, and compare as many before`() {
    let asked = Self.request(.active, "from=2026-02-01&compare=true")
    let months = Self.months([
      ("2026-02-01", "2026-02-28", 5, 10), ("2026-03-01", "2026-03-31", 7, 12),
      ("2026-04-01", "2026-04-15", 100, 200),
    ])
    let tables = asked.tables(
      months,
      previous: Self.months([
        ("2025-11-01", "2025-11-30", 3, 8), ("2025-12-01", "2025-12-31", 5, 16),
        ("2026-01-01", "2026-01-31", 1000, 2000),
      ]))
    #expect(tables.map(\.caption) == ["Comparison", "Active subscriptions"])
    let (comparison, table) = (tables[0], tables[1])
    #expect(table.columns.map(\.label) == ["Period", "Active", "At start", "New"])
    #expect(table.columns.map(\.identifier) == ["from_day", "active", "opening", "new"])
    #expect(
      table.rows.map { $0.cells.map(\.text) } == [
        ["Feb 2026", "10", "1", "5"], ["Mar 2026", "12", "1", "7"],
        ["Apr 2026", "200", "1", "100"], ["Total", "12", "", "12"],
      ])
    #expect(ReportTotals.headlines(months, of: asked) == ["Active, Mar 2026: 12 (Feb 2026: 10)"])
    #expect(table.rows[3].cells.map(\.note) == ["without the open month", "at the end", nil, nil])
    #expect(table.rows.map(\.rowClass) == [nil, nil, "unfinished", "total"])
    #expect(
      table.rows.map { $0.cells[0].note } == [nil, nil, "so far", "without the open month"])
    #expect(
      comparison.columns.map(\.label)
        == ["Measure", "1 Feb – 31 Mar 2026", "1 Nov – 31 Dec 2025", "Change", "Relative change"])
    #expect(
      comparison.rows.map { $0.cells.map(\.text) } == [
        ["Active", "12", "16", "−4", "−25.00%"], ["New", "12", "8", "+4", "+50.00%"],
        ["Net change", "20", "22", "−2", "−9.09%"],
      ])
    #expect(
      comparison.note
        == "Apr 2026 has not ended: it and its counterpart, Jan 2026, are left out.")
    // February and March, of both periods.
    let items = comparison.rows[1].cells[1...2].map { $0.href ?? "" }
    #expect(items[0].contains("from=2026-02-01&to=2026-03-31"), "\(items)")
    #expect(items[1].contains("from=2025-11-01&to=2025-12-31"), "\(items)")
  }

  private static func revenue(_ rows: (String, String, currency: String, Int64)...) -> ReportTable {
    ReportTable(
      report: .revenue, asOf: now,
      columns: [
        ReportColumn("from_day", .date), ReportColumn("to_day", .date),
        ReportColumn("currency", .text), ReportColumn("charges", .number),
        ReportColumn("charged_milliunits", .money),
        ReportColumn("net_by_refund_milliunits", .money),
      ],
      rows: rows.map { first, last, currency, amount in
        let money = ReportValue.money(milliunits: amount, currency: currency)
        return [.date(first), .date(last), .text(currency), .number(1), money, money]
      }, isCutShort: false)
  }

  @Test func `amounts that are rounded are said to be`() {
    func note(_ amount: Int64) -> String? {
      let march = Self.revenue(("2026-03-01", "2026-03-31", "EUR", amount))
      let asked = Self.request(.revenue, "from=2026-03-01&to=2026-03-31")
      return asked.tables(march, previous: nil)[0].note
    }
    #expect(note(5000) == nil)
    #expect(note(5004)?.hasPrefix("Amounts are rounded") == true)
  }

  @Test func `a rate is compared in points, and averages the numbers at the start of periods`() {
    func table(_ rows: (String, String, active: Int64, churned: Int64)...) -> ReportTable {
      ReportTable(
        report: .churn, asOf: Self.now,
        columns: [
          ReportColumn("from_day", .date), ReportColumn("to_day", .date),
          ReportColumn("active_at_start", .number), ReportColumn("churned", .number),
          ReportColumn("churn_rate", .rate),
        ],
        rows: rows.map {
          [.date($0.0), .date($0.1), .number($0.active), .number($0.churned), .rate("0.1")]
        }, isCutShort: false)
    }
    func rows(_ query: String, _ new: ReportTable, _ old: ReportTable) -> [[String]] {
      Self.request(.churn, query + "&compare=true").tables(new, previous: old)[0].rows.map {
        $0.cells.map(\.text)
      }
    }
    let march = ("2026-03-01", "2026-03-31", active: Int64(40), churned: Int64(4))
    let february = ("2026-02-01", "2026-02-28", active: Int64(40), churned: Int64(2))
    #expect(
      rows("from=2026-03-01&to=2026-03-31", table(march), table(february)) == [
        ["Churned", "4", "2", "+2", "+100.00%"],
        ["Churn rate", "10.00%", "5.00%", "+5.00 points", ""],
      ])
    #expect(
      rows(
        "from=2026-02-01&to=2026-03-31", table(february, march),
        table(("2025-12-01", "2025-12-31", active: 20, churned: 4))
      ).last == ["Churn rate, average of the months", "7.50%", "20.00%", "−12.50 points", ""])
  }

  @Test func `a period at the edge of the range is a part of its week`() {
    let table = ReportTable(
      report: .churn, asOf: Self.now,
      columns: [
        ReportColumn("from_day", .date), ReportColumn("to_day", .date),
        ReportColumn("churned", .number),
      ],
      rows: [
        ("2026-04-01", "2026-04-05"), ("2026-04-06", "2026-04-12"), ("2026-04-13", "2026-04-14"),
      ].map { [.date($0.0), .date($0.1), .number(1)] }, isCutShort: false)
    let asked = Self.request(.churn, "from=2026-04-01&to=2026-04-14&bucket=week&by=product")
    let notes = asked.tables(table, previous: nil)[1].rows.map { $0.cells[0].note }
    #expect(notes.prefix(3) == ["part of a week", nil, "part of a week"])
    let chart = ReportCharts(table: table, request: asked).pictures[0]
    #expect(
      chart.table.rows.map { $0.cells[0].text } == [
        "1–5 Apr 2026 (part of a week)", "6–12 Apr 2026", "13–14 Apr 2026 (part of a week)",
      ])
  }

  @Test func `a range that begins after its last day is refused`() {
    for query in ["from=2026-06-01", "from=2026-04-03&to=2026-04-02"] {
      let last = query.contains("to=") ? "2 Apr 2026" : "15 Apr 2026"
      #expect(
        Self.request(.active, query).faults == ["from": "is after the last day, \(last)"])
    }
    #expect(Self.request(.active, "from=2026-04-15").faults.isEmpty)
  }

  @Test func `a file has its days in its name`() {
    #expect(
      Self.request(.revenue, "from=2026-03-01&to=2026-03-31").fileName("revenue")
        == "revenue-2026-03-01-to-2026-03-31.csv")
    #expect(Self.request(.subscriptions).fileName("states") == "states-2026-04-15.csv")
  }

  @Test func `a comparison is not offered where counts are of different things`() {
    #expect(!Self.request(.ownership).isComparable)
    #expect(Self.request(.active, "by=product").isComparable)
    #expect(!Self.request(.active, "by=product&compare=true").comparesPrevious)
  }

  @Test func `more refunds are more, and bad news`() {
    func table(_ first: String, _ last: String, _ refunded: Int64, _ charged: Int64) -> ReportTable
    {
      ReportTable(
        report: .revenue, asOf: Self.now,
        columns: [
          ReportColumn("from_day", .date), ReportColumn("to_day", .date),
          ReportColumn("currency", .text), ReportColumn("charged_milliunits", .money),
          ReportColumn("refunded_milliunits", .money),
        ],
        rows: [
          [.date(first), .date(last), .text("EUR")]
            + [charged, refunded].map { .money(milliunits: $0, currency: "EUR") }
        ], isCutShort: false)
    }
    let comparison = Self.request(.revenue, "from=2026-03-01&to=2026-03-31&compare=true").tables(
      table("2026-03-01", "2026-03-31", -6000, 9000),
      previous: table("2026-02-01", "2026-02-28", -4000, 8000))[0]
    #expect(
      comparison.rows.map { $0.cells.map(\.text) } == [
        ["Charged, EUR", "9.00", "8.00", "+1.00", "+12.50%"],
        ["Refunded amount, EUR", "6.00", "4.00", "+2.00", "+50.00%"],
      ])
    #expect(
      comparison.rows.map { $0.cells.map(\.tone) } == [
        [nil, nil, nil, Tone.good, Tone.good], [nil, nil, nil, Tone.bad, Tone.bad],
      ])
  }

  @Test func `the unfinished period is shown while it is empty`() {
    let march = Self.revenue(("2026-03-01", "2026-03-31", "EUR", 5000))
    let table = Self.request(.revenue, "from=2026-03-01").tables(march, previous: nil)[0]
    #expect(
      table.rows.map { $0.cells.map(\.text) } == [
        ["Mar 2026", "1", "5.00", "5.00"], ["Apr 2026", "0", "0.00", "0.00"],
      ])
    #expect(table.rows.map(\.rowClass) == [nil, "unfinished"])
    let ended = Self.request(.revenue, "from=2026-03-01&to=2026-03-31")
    #expect(ended.tables(march, previous: nil)[0].rows.count == 1)
    // Nothing at all is said once.
    let first = Self.request(.revenue, "from=2026-04-01").tables(Self.revenue(), previous: nil)[0]
    #expect(first.rows.isEmpty && first.emptyText == "None in this period.")
    // Ended periods without numbers have rows, too.
    let gap = Self.request(.revenue, "from=2026-01-01").tables(
      Self.revenue(
        ("2026-01-01", "2026-01-31", "EUR", 1000), ("2026-03-01", "2026-03-31", "EUR", 5000)),
      previous: nil)[0]
    #expect(
      gap.rows.map { $0.cells.prefix(2).map(\.text) } == [
        ["Jan 2026", "1"], ["Feb 2026", "0"], ["Mar 2026", "1"], ["Apr 2026", "0"], ["Total", "2"],
      ])
    #expect(ended.tables(Self.revenue(), previous: nil)[0].rows.isEmpty)
  }

  @Test func `a period without rows has 0 of the other one's currency`() {
    let asked = Self.request(.revenue, "from=2026-03-01&to=2026-03-31&compare=true")
    let march = Self.revenue(("2026-03-01", "2026-03-31", "EUR", 5000))
    func rows(_ table: ReportTable, _ previous: ReportTable) -> [[String]] {
      asked.tables(table, previous: previous)[0].rows.map { $0.cells.map(\.text) }
    }
    #expect(
      rows(march, Self.revenue()) == [
        ["Charges", "1", "0", "+1", ""], ["Charged, EUR", "5.00", "0.00", "+5.00", ""],
        ["Net revenue, EUR", "5.00", "0.00", "+5.00", ""],
      ])
    // Each currency is compared on its own.
    let february = Self.revenue(("2026-02-01", "2026-02-28", "USD", 4000))
    #expect(
      rows(march, february) == [
        ["Charges", "1", "1", "0", "0.00%"], ["Charged, EUR", "5.00", "0.00", "+5.00", ""],
        ["Charged, USD", "0.00", "4.00", "−4.00", "−100.00%"],
        ["Net revenue, EUR", "5.00", "0.00", "+5.00", ""],
        ["Net revenue, USD", "0.00", "4.00", "−4.00", "−100.00%"],
      ])
    // The chart has the net of both.
    let chart = ReportCharts(table: march, request: asked, previous: Self.revenue()).pictures
    #expect(
      chart.map { $0.table.rows.map { $0.cells.map(\.text) } }
        == [[["Mar 2026", "5.00 EUR", "", "5.00 EUR", "0.00 EUR"]]])
    #expect(chart[0].table.columns.last?.label == "Net revenue, previous period")
    #expect(chart[0].lines.map(\.seriesClass) == ["series-net", "series-previous"])
  }

  // swift-format-ignore
  @Test(
    "The relative change has its own sign where the numbers are negative",
    arguments: [
      (-6000, -4000, "−2.00", "+50.00%"), (-72_930, -306_820, "+233.89", "−76.23%"),
      (-1000, 2000, "−3.00", "−150.00%"), (1000, -2000, "+3.00", ""),
    ] as [(Int64, Int64, String, String)])
  func relative(new: Int64, old: Int64, change: String, share: String) {
    let comparison = Self.request(.revenue, "from=2026-03-01&to=2026-03-31&compare=true").tables(
      Self.revenue(("2026-03-01", "2026-03-31", "EUR", new)),
      previous: Self.revenue(("2026-02-01", "2026-02-28", "EUR", old)))[0]
    #expect(comparison.rows.last?.cells.suffix(2).map(\.text) == [change, share])
  }

  @Test func `what a rate covers in part has gaps, and neither a sum nor a change`() {
    let query = "from=2026-02-01&to=2026-03-31&reporting_currency=EUR"
    var months = Self.revenue(
      ("2026-02-01", "2026-02-28", "USD", 4000), ("2026-03-01", "2026-03-31", "EUR", 3000))
    months.reportingCurrency = "EUR"
    let pictures = ReportCharts(table: months, request: Self.request(.revenue, query)).pictures
    #expect(
      pictures.map { $0.table.rows.map { $0.cells[1].text } }
        == [["", "3.00 EUR"], ["4.00 USD", ""]])
    #expect(pictures.allSatisfy { $0.legend.allSatisfy { $0.value == nil } })
    #expect(
      months.unconvertedNote
        == "Some amounts from 2026-02-01 to 2026-02-28 were not converted to EUR, as exchange rates "
        + "are missing: USD.")
    // Where nothing is converted, there was nothing in the other month.
    let both = ReportCharts(
      table: months, request: Self.request(.revenue, "from=2026-02-01&to=2026-03-31")
    ).pictures
    #expect(both.map { $0.table.rows.map { $0.cells[1].text } }[0] == ["0.00 EUR", "3.00 EUR"])

    var before = Self.revenue(("2026-01-01", "2026-01-31", "EUR", 2000))
    before.reportingCurrency = "EUR"
    let rows = Self.request(.revenue, query + "&compare=true")
      .tables(months, previous: before)[0].rows.map { $0.cells.map(\.text) }
    #expect(rows[0] == ["Charges", "2", "1", "+1", "+100.00%"])
    #expect(rows[1] == ["Charged, EUR", "3.00", "2.00", "", ""])
  }

  @Test func `rare columns of items share one, and long identifiers are shown by their ends`() {
    let items = ReportTable(
      report: .revenue, asOf: Self.now,
      columns: [
        ReportColumn("at", .time), ReportColumn("original_transaction_id", .text),
        ReportColumn("transaction_id", .text), ReportColumn("storefront", .text),
        ReportColumn("period_type", .text), ReportColumn("decided_at", .time),
      ],
      rows: [
        [
          .time(Self.now), .text("430001000000001"), .text("430001000663465"), .text("USA"),
          .text("trial"), .time(Self.now),
        ],
        [.time(Self.now), .text("7"), .text("7"), .none, .text("normal"), .time(Self.now)],
      ], isCutShort: false)
    let table = DataTable(items, caption: "Items", environment: .production)
    // A decision of the same moment has no column of its own.
    #expect(table.columns.map(\.label) == ["Date", "Transaction", "Details"])
    var later = items
    later.rows[0][5] = .time(Self.now + .days(1))
    #expect(
      DataTable(later, caption: "Items", environment: .production).columns.map(\.label)
        == ["Date", "Transaction", "Decided", "Details"])
    #expect(
      table.rows.map { $0.cells.dropFirst().map(\.text) }
        == [["…1000663465", "USA · Trial"], ["7", ""]])
    #expect(
      table.rows[0].cells.dropFirst().map(\.identifier)
        == [
          "430001000663465, original transaction 430001000000001",
          "Storefront: USA, Period type: Trial",
        ])
    #expect(
      table.rows.map { $0.cells[1].href }
        == ["430001000000001", "7"].map {
          "/admin/original-transactions/\($0)?environment=production"
        })
  }

  @Test func `a sum with too many digits is left out`() {
    let table = Self.revenue(
      ("2026-02-01", "2026-02-28", "EUR", .max), ("2026-03-01", "2026-03-31", "EUR", 1))
    let asked = Self.request(.revenue, "from=2026-02-01&to=2026-03-31")
    #expect(ReportTotals.sum("charged_milliunits", table, in: "EUR", of: asked) == nil)
    #expect(ReportTotals.sum("charged_milliunits", table, in: "USD", of: asked) == 0)
  }

  // swift-format-ignore
  @Test(
    "A definition is a list of terms in the page's words",
    arguments: [
      (.churn, "expired: ended; it has a cause. voluntary: the customer cancelled; involuntary: billing.",
        ["Expired:|ended; it has a cause.", "Voluntary:|the customer cancelled.", "Involuntary:|billing."]),
      (.churn, "churn_rate = churned / active_at_start, rounded to 6 digits; null if none was.",
        ["Churn rate|= “Churned” / “Active at start”."]),
      (.active, "Paid at as_of (as in report_churn). by splits the rows (segment; null: none): the product.",
        ["|Paid at the moment of the report (as in Churn).", "|“Split by” splits the rows: the product."]),
      (.revenue, "refunds and refunded: from that day. Amounts are milliunits, rounded last.",
        ["Refunds, Refunded amount:|from that day."]),
      (.mrr, "How it came from that at its start (opening).",
        ["|How it came from that at its start (“At start”)."]),
      (.active, "new is then its start, and resubscribed that Apple charged for it later.",
        ["|new is then its start, and “Returned” that Apple charged for it later."]),
      (.retention, "Paid at the end of that month (period 0) and of each following one.",
        ["|Paid at the end of that month (month 0) and of each following one."]),
      (.intake, "jobs_parked: failed. With by => 'product' it is null.",
        ["Failed jobs:|failed.", "|With “Product” it is empty."]),
    ] as [(Report, String, [String])])
  func definitions(report: Report, text: String, lines: [String]) {
    #expect(
      DefinitionText(text, of: report).lines.map {
        "\($0.term ?? "")|\($0.pieces.map(\.text).joined())"
      } == lines)
  }

  @Test(arguments: [
    // No month has ended.
    ("2026-04-01", []), ("2026-04-10", []),
    // One has, in part: as of the first one before.
    ("2026-03-10", ["10–31 Mar 2026", "10–31 Jan 2026"]),
  ])
  func `as many parts of periods are compared as have ended`(from: String, compared: [String]) {
    let asked = Self.request(.active, "from=\(from)&compare=true")
    let april = ("2026-04-01", "2026-04-15", new: Int64(100), active: Int64(200))
    let tables = asked.tables(
      Self.months(
        [("2026-03-10", "2026-03-31", 7, 12), april].filter { $0.0 >= from || $0.0 == "2026-04-01" }
      ),
      previous: Self.months([("2026-01-10", "2026-01-31", 3, 8)]))
    #expect(
      tables[0].columns.dropFirst().dropLast(2).map(\.label) == compared,
      "\(asked.previousRange?.text ?? "")")
    #expect(tables[0].rows.isEmpty == compared.isEmpty)
  }

  @Test func `the report's own flag marks an unfinished period`() {
    var table = Self.months([("2026-03-01", "2026-03-31", 7, 12)])
    table = ReportTable(
      report: .active, asOf: Self.now,
      columns: table.columns + [ReportColumn("is_partial", .flag)],
      rows: table.rows.map { $0 + [.flag(true)] }, isCutShort: false)
    let march = Self.request(.active, "from=2026-03-01&to=2026-03-31")
    #expect(DataTable(table, of: march).rows.map(\.rowClass) == ["unfinished"])
  }

  // swift-format-ignore
  @Test(
    "Values for people",
    arguments: [
      (.subscriptions, "state", .text("in_billing_retry"), "Billing retry", "in_billing_retry"),
      (.refunds, "reason", .text("1"), "Problem with the app", "1"),
      (.refunds, "reason", .text(""), "No reason given", nil),
      (.audit, "reason", .text("it_is_his"), "it_is_his", nil),
      (.refunds, "days_after", .text("002-003"), "2–3 days", "002-003"),
      (.unclaimed, "age", .text("3: under 7 days"), "Under 7 days", "3: under 7 days"),
      (.intake, "measure", .text("jobs_overdue"), "Overdue jobs", "jobs_overdue"),
      (.intake, "cause", .text("DID_RENEW"), "Renewed", "DID_RENEW"),
      (.intake, "last_detail", .text("INITIAL_BUY"), "Initial buy", "INITIAL_BUY"),
      (.intake, "cause", .text("HTTP 503"), "HTTP 503", nil),
      (.intake, "cause", .text("receipt_rejected 21003"), "Receipt rejected 21003",
        "receipt_rejected 21003"),
      (.intake, "cause", .text("Apple answered with HTTP 503."), "Apple answered with HTTP 503.",
        nil),
      (.mrr, "product_id", .text("a_b"), "a_b", nil),
      (.mrr, "mrr_milliunits", .money(milliunits: 962_457, currency: "USD"), "962.46 USD",
        "962.457 USD"),
      (.mrr, "mrr_milliunits", .money(milliunits: 962_450, currency: "USD"), "962.45 USD", nil),
      (.revenue, "charged_milliunits", .money(milliunits: 0, currency: nil), "", nil),
      (.orders, "longest_wait_ms", .duration(milliseconds: 300), "under 1 s", nil),
      (.renewalsDue, "day", .date("2026-04-15"), "15 Apr 2026", nil),
    ] as [(Report, String, ReportValue, String, String?)])
  func labels(
    report: Report, column: String, value: ReportValue, text: String, identifier: String?
  ) {
    let label = value.label(in: column, of: report)
    #expect(label.text == text)
    #expect(label.identifier == identifier)
  }
}
