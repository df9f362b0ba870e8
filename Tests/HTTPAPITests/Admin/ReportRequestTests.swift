import HummingbirdCore
import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI
@testable import Reports

/// URLs of reports, and the parameters read from them.
struct ReportRequestTests {
  private static let now = Timestamp(CalendarDate(year: 2026, month: 4, day: 15)) + .hours(12)

  private static func query(_ address: String) -> String? {
    address.split(separator: "?", maxSplits: 1).dropFirst().first.map(String.init)
  }

  @Test func `what is listed leads to where it is`() {
    let names = ["original_transaction_id", "account_id", "order_id", "subject", "rule"]
    func hrefs(_ values: String...) -> [String?] {
      DataTable(
        ReportTable(
          report: .audit, asOf: Self.now, columns: names.map { ReportColumn($0, .text) },
          rows: [values.map { .text($0) }], isCutShort: false),
        caption: "", environment: .sandbox
      ).rows[0].cells.map(\.href)
    }
    // The account comes first.
    #expect(
      hrefs("1000", "anna", "o-1", "production/2000/3000", "submitter") == [
        "/admin/accounts/anna", "/admin/original-transactions/1000?environment=sandbox",
        "/admin/search?q=o-1", "/admin/original-transactions/2000?environment=production", nil,
      ])
    for subject in ["all", "production/", "other/2000", "production/1/2/3", "version 2"] {
      #expect(hrefs("1000", "anna", "o-1", subject, "submitter")[3] == nil, "\(subject)")
    }
  }

  @Test func `what all items have in common is not in their table`() {
    func items(_ rows: [(String, String)], isCutShort: Bool = false) -> ReportTable {
      ReportTable(
        report: .active, asOf: Self.now,
        columns: ["account_id", "product_id", "storefront"].map { ReportColumn($0, .text) }
          + [ReportColumn("at", .time), ReportColumn("origin_at", .time)],
        rows: rows.map {
          [.text("anna"), .text($0.0), .text($0.1), .time(Self.now), .time(Self.now)]
        }, isCutShort: isCutShort)
    }
    let alike = items([("month", "USA"), ("year", "USA")])
    #expect(alike.commonColumns.map(\.name) == ["storefront"])
    let table = DataTable(
      alike, caption: "", environment: .production, without: alike.commonColumns)
    // Each started on its date.
    #expect(table.columns.map(\.label) == ["Date", "Account", "Product"])
    #expect(items([("month", "USA"), ("year", "DEU")]).commonColumns.isEmpty)
    #expect(items([("month", "USA")]).commonColumns.isEmpty)
    #expect(items([("month", "USA"), ("year", "USA")], isCutShort: true).commonColumns.isEmpty)
  }

  @Test func `an unknown parameter is a fault, and those of the pages are known`() {
    let known = "from=2026-01-01&to=2026-02-01&compare=true&format=csv&offset=0&row_null=a&cell=net"
    #expect(ReportRequest(.revenue, query: known, at: Self.now).faults.isEmpty)
    #expect(
      ReportRequest(.revenue, query: "form=2026", at: Self.now).faults
        == ["form": "is not a parameter of this report"])
  }

  @Test func `an item's part of the MRR is an amount`() {
    let table = DataTable(
      ReportTable(
        report: .mrr, asOf: Self.now,
        columns: [
          ReportColumn("account_id", .text), ReportColumn("mrr_twelfths", .number),
          ReportColumn("currency", .text),
        ],
        rows: [
          [.text("anna"), .number(-59_880), .text("USD")],
          [.text("ben"), .number(12_000_000), .text("JPY")],
        ], isCutShort: false), caption: "", environment: .production)
    #expect(table.columns.map(\.label) == ["Account", "MRR"])
    #expect(table.rows.map { $0.cells[1].text } == ["−4.99 USD", "1,000 JPY"])
  }

  @Test(arguments: [
    ("poll_status", "sandbox/2", AdminURL.originalTransaction("2", environment: "sandbox")),
    (
      "set_app_account_token", "sandbox/1",
      AdminURL.originalTransaction("1", environment: "sandbox")
    ),
    // These are of an app, a notification, a submission.
    ("compare_notifications", "production/com.example.app", nil),
    ("send_consumption", "production/2c3b5a1e-0000-4000-8000-000000000001", nil),
    ("http_503", "2c3b5a1e-0000-4000-8000-000000000001", nil),
  ])
  func `a job leads to the original transaction that it is about`(
    kind: String, subject: String, href: String?
  ) {
    let table = DataTable(
      ReportTable(
        report: .intake, asOf: Self.now,
        columns: [ReportColumn("cause", .text), ReportColumn("subject", .text)],
        rows: [[.text(kind), .text(subject)]], isCutShort: false),
      caption: "", environment: .production)
    #expect(table.rows[0].cells.map(\.href) == [nil, href])
  }

  @Test func `a number leads back to the days of its report`() throws {
    let churn = ReportRequest(.churn, query: "from=2026-01-01&bucket=week", at: Self.now)
    var row = churn.choices
    (row.from, row.to) = (
      CalendarDate(iso8601: "2026-02-02"), CalendarDate(iso8601: "2026-02-08")
    )
    let link = churn.href(try ReportCell(of: .churn, row, column: "churned", row: [:]))
    let query = try #require(link.split(separator: "?").last)
    let items = ReportRequest(.churn, query: "\(query)&report_x=1&offset=50", at: Self.now)
    #expect(items.faults.isEmpty)
    #expect(
      items.origin(of: try items.cell())
        == "/admin/reports/churn?from=2026-01-01&bucket=week")
    #expect(items.originRange.map(\.name) == ["report_from", "report_bucket"])
  }

  @Test func `a failed request leads to the account of its submission`() {
    let id = "2c3b5a1e-0000-4000-8000-000000000001"
    func cell(_ measure: String, _ subject: String) -> DataCell? {
      DataTable(
        ReportTable(
          report: .intake, asOf: Self.now,
          columns: [ReportColumn("measure", .text), ReportColumn("subject", .text)],
          rows: [[.text(measure), .text(subject)]], isCutShort: false),
        caption: "", environment: .production
      ).rows[0].cells.last
    }
    let measures = [
      "apple_failures", "submissions_open", "submissions_rejected", "notifications_missed",
    ]
    for measure in measures {
      #expect(cell(measure, id)?.href == AdminURL.search(id), "\(measure)")
    }
    #expect(cell("jobs_overdue", id)?.href == nil)
    let notification = cell("apple_failures", "v1:b773")
    #expect(notification?.text == "Notification (version 1)" && notification?.href == nil)
    #expect(notification?.identifier == "v1:b773")
  }

  @Test func `a total has the average of rates whose whole can't be added up`() throws {
    let table = ReportTable(
      report: .churn, asOf: Self.now,
      columns: [
        ReportColumn("from_day", .date), ReportColumn("active_at_start", .number),
        ReportColumn("churned", .number), ReportColumn("churn_rate", .rate),
      ],
      rows: [("2026-02-01", 10, 1), ("2026-03-01", 30, 5)].map { month, active, churned in
        [.date(month), .number(active), .number(churned), .rate("0.100000")]
      }, isCutShort: false)
    let asked = ReportRequest(.churn, query: "from=2026-02-01&to=2026-03-31", at: Self.now)
    let total = try #require(asked.tables(table, previous: nil)[0].rows.last)
    #expect(total.cells.map(\.text) == ["Total", "", "6", "15.00%"])
    #expect(total.cells.last?.note == "average")
    #expect(
      ReportTotals.headlines(table, of: asked) == [
        "Churned, Mar 2026: 5, 16.67% (Feb 2026: 1, 10.00%)"
      ])
  }

  @Test func `an address has every choice of a report, and gives it back`() {
    var choices = ReportChoices()
    choices.from = CalendarDate(year: 2026, month: 1, day: 1)
    choices.to = CalendarDate(year: 2026, month: 2, day: 28)
    choices.bucket = .week
    choices.timeZone = "Europe/Berlin"
    choices.product = "a,b&c=%"
    choices.environment = .sandbox
    choices.includesFamilyShared = true
    choices.includesTrials = true
    choices.includesGrants = true
    choices.by = .product
    choices.dateOf = .charge
    choices.reportingCurrency = "EUR"
    choices.knownAt = Timestamp(CalendarDate(year: 2026, month: 3, day: 1)) + .milliseconds(7)
    choices.asOf = Timestamp(CalendarDate(year: 2026, month: 3, day: 2))
    choices.days = 7
    choices.period = 3
    choices.includesSandbox = true
    for report in Report.all {
      let address = AdminURL.report(report.name, choices: choices.query(of: report))
      let read = ReportRequest(report, query: Self.query(address), at: Self.now)
      #expect(read.faults.isEmpty, "\(address): \(read.faults)")
      for parameter in report.parameters where parameter != .column {
        let text = choices.text(of: parameter)
        #expect(text != nil)
        #expect(read.choices.text(of: parameter) == text, "\(report) \(parameter)")
      }
    }
  }

  @Test func `a row without a value is another row than one with an empty one`() throws {
    for row: [String: String?] in [
      ["reason": "", "currency": nil, "days_after": "a,b:&=c"],
      ["reason": nil, "currency": "EUR"], ["reason": "row_without", "days_after": ""], [:],
    ] {
      let cell = try ReportCell(of: .refunds, ReportChoices(), column: "refunds", row: row)
      let asked = ReportRequest(.refunds, query: nil, at: Self.now)
      let again = ReportRequest(.refunds, query: Self.query(asked.href(cell)), at: Self.now)
      #expect(try again.cell() == cell, "\(asked.href(cell))")
    }
  }

  // swift-format-ignore
  @Test(
    "A day stands for its end, where it is, and today for what is usual",
    arguments: [
      // time zone             day           known at
      ("UTC",                  "2026-03-31", "2026-03-31T23:59:59.999Z"),
      ("Europe/Berlin",        "2026-03-31", "2026-03-31T21:59:59.999Z"),
      ("Europe/Berlin",        "2026-03-28", "2026-03-28T22:59:59.999Z"),
      ("America/Los_Angeles",  "2026-03-31", "2026-04-01T06:59:59.999Z"),
      ("Mars/Phobos",          "2026-03-31", "2026-03-31T23:59:59.999Z"),
      ("UTC",                  "2026-04-14", "2026-04-14T23:59:59.999Z"),
      ("UTC",                  "2026-04-15", nil),
      ("Pacific/Kiritimati",   "2026-04-15", "2026-04-15T09:59:59.999Z"),
      ("Pacific/Kiritimati",   "2026-04-16", nil),
    ] as [(String, String, String?)])
  func days(timeZone: String, day: String, moment: String?) {
    let request = ReportRequest(
      .active, query: "known_at=\(day)&time_zone=\(timeZone.replacing("/", with: "%2F"))",
      at: Self.now)
    #expect(request.choices.knownAt?.description == moment)
  }

  // swift-format-ignore
  @Test(
    "Shares are rounded half away from zero",
    arguments: [
      (1, 3, 3333), (2, 3, 6667), (-1, 3, -3333), (-2, 3, -6667), (1, 8, 1250), (1, 20_000, 1),
      (1, 20_001, 0), (-1, 20_000, -1), (0, 5, 0), (5, 0, nil), (.max, 1, nil),
      // Only a whole is 100%.
      (99_999, 100_000, 9999), (-99_999, 100_000, -9999), (100_000, 100_000, 10_000),
      (100_001, 100_000, 10_000), (3, 2, 15_000),
    ] as [(Int64, Int64, Int64?)])
  func shares(part: Int64, whole: Int64, hundredths: Int64?) {
    #expect(ReportValue.hundredthsOfPercent(of: part, in: whole) == hundredths)
  }
}

struct ReportChartTests {
  private static let now = Timestamp(CalendarDate(year: 2026, month: 4, day: 15))

  private static func request(_ table: ReportTable, _ query: String? = nil) -> ReportRequest {
    ReportRequest(table.report, query: query, at: now)
  }

  private func texts(_ picture: Chart) -> [[String]] {
    picture.table.rows.map { $0.cells.map(\.text) }
  }

  @Test func `rows of one time are one bar, and what is lost is below zero`() {
    let numbers = [
      "opening", "new", "resubscribed", "expired", "refunded", "changed_in", "changed_out",
      "active",
    ]
    func row(_ day: String, _ product: String, _ values: Int64...) -> [ReportValue] {
      [.date(day), .text(product)] + values.map { .number($0) }
    }
    let table = ReportTable(
      report: .active, asOf: Self.now,
      columns: [ReportColumn("from_day", .date), ReportColumn("product_id", .text)]
        + numbers.map { ReportColumn($0, .number) },
      rows: [
        row("2026-02-01", "a", 0, 5, 0, 0, 0, 0, 0, 5),
        row("2026-03-01", "a", 5, 1, 0, 2, 0, 0, 1, 3),
        row("2026-03-01", "b", 0, 2, 1, 1, 1, 2, 0, 3),
      ], isCutShort: false)
    let pictures = ReportCharts(
      table: table, request: Self.request(table, "from=2026-02-01&to=2026-03-31")
    ).pictures
    #expect(pictures.map(\.title) == ["Active subscriptions", "Subscriber movement"])
    #expect(texts(pictures[0]) == [["Feb 2026", "5"], ["Mar 2026", "6"]])
    #expect(
      pictures[1].table.columns.map(\.label)
        == [
          "Time", "New", "Returned", "Expired", "Refunded", "Changed in", "Changed out",
          "Net change",
        ])
    #expect(
      texts(pictures[1]) == [
        ["Feb 2026", "5", "0", "0", "0", "0", "0", "5"],
        ["Mar 2026", "3", "1", "−3", "−1", "2", "−1", "1"],
      ])
  }

  @Test func `split rows are a series and a column for each of the largest segments`() throws {
    let segments: [(String?, Int64)] = [
      ("a", 1), ("b", 2), ("c", 3), ("d", 40), ("e", 50), ("f", 60), (nil, 70),
    ]
    func rows(_ day: String, _ last: String, _ factor: Int64) -> [[ReportValue]] {
      segments.map { name, number in
        [.date(day), .date(last), name.map { .text($0) } ?? .none, .number(number * factor)]
      }
    }
    let table = ReportTable(
      report: .churn, asOf: Self.now,
      columns: [
        ReportColumn("from_day", .date), ReportColumn("to_day", .date),
        ReportColumn("segment", .text), ReportColumn("churned", .number),
      ],
      rows: rows("2026-02-01", "2026-02-28", 1) + rows("2026-03-01", "2026-03-31", 2)
        + rows("2026-04-01", "2026-04-15", 100), isCutShort: false)
    let request = ReportRequest(.churn, query: "by=offer_type&from=2026-02-01", at: Self.now)
    let picture = ReportCharts(table: table, request: request).pictures
    #expect(picture.map(\.title) == ["Churned by offer type"])
    #expect(
      picture[0].legend.map { "\($0.label) \($0.value ?? "")" } == [
        "Not reported 210 (+7,000 so far)", "F 180 (+6,000 so far)", "E 150 (+5,000 so far)",
        "D 120 (+4,000 so far)", "C 9 (+300 so far)", "2 others 9 (+300 so far)",
      ])
    #expect(
      picture[0].note
        == "Through 15 Apr 2026. Apr 2026 so far is hatched and not in the totals.")
    let tables = request.tables(table, previous: nil)
    #expect(tables.map(\.isFolded) == [false, true])
    #expect(
      tables[0].columns.map(\.label) == [
        "Period", "Not reported", "F", "E", "D", "C", "2 others", "Total",
      ])
    #expect(
      tables[0].rows.map { $0.cells.map(\.text) } == [
        ["Feb 2026", "70", "60", "50", "40", "3", "3", "226"],
        ["Mar 2026", "140", "120", "100", "80", "6", "6", "452"],
        ["Apr 2026", "7,000", "6,000", "5,000", "4,000", "300", "300", "22,600"],
        ["Total", "210", "180", "150", "120", "9", "9", "678"],
      ])
    // April has no row of its own, and is not in the total either.
    let ended = ReportTable(
      report: .churn, asOf: Self.now, columns: table.columns, rows: Array(table.rows.dropLast(7)),
      isCutShort: false)
    #expect(
      request.tables(ended, previous: nil)[0].rows.last?.cells[0].note == "without the open month")
    // No list has the items of some segments alone.
    for row in [tables[0].rows[0], tables[0].rows[3]] {
      #expect(
        row.cells.map { $0.href != nil } == [false, true, true, true, true, true, false, true])
    }
    #expect(tables[0].rows[0].cells[2].href?.contains("row_offer_type=f") == true)
    let total = try #require(tables[0].rows[3].cells.last?.href)
    #expect(total.contains("from=2026-02-01&to=2026-03-31") && !total.contains("row_"))
  }

  @Test func `what is open is no failure yet`() {
    let names = ["entered", "cohort_recovered", "cohort_lost"]
    func rate(_ numbers: Int64...) -> DataCell? {
      let table = ReportTable(
        report: .billingIssues, asOf: Self.now,
        columns: [ReportColumn("from_day", .date)] + names.map { ReportColumn($0, .number) }
          + [ReportColumn("recovery_rate", .rate)],
        rows: [[.date("2026-03-01")] + numbers.map { .number($0) } + [.rate("0.000000")]],
        isCutShort: false)
      return DataTable(table, of: Self.request(table)).rows
        .first { $0.cells[0].text == "Mar 2026" }?.cells.last
    }
    #expect(rate(2, 0, 0)?.text == "")
    #expect(rate(2, 0, 0)?.note == "2 open")
    #expect(rate(4, 1, 2)?.text == "33.33%")
    #expect(rate(4, 1, 2)?.note == "1 of 3 settled, 1 open")
    #expect(rate(2, 0, 2)?.text == "0.00%")
    #expect(rate(2, 0, 2)?.note == "0 of 2")
  }

  private static func table(
    _ report: Report, _ columns: [(String, ReportColumn.Kind)], _ rows: [[ReportValue]]
  ) -> ReportTable {
    ReportTable(
      report: report, asOf: now, columns: columns.map { ReportColumn($0.0, $0.1) }, rows: rows,
      isCutShort: false)
  }

  @Test func `active subscriptions are summed up, whether they renew or not`() {
    func rows(_ states: (String, Int64)...) -> [[String]] {
      let table = Self.table(
        .subscriptions, [("product_id", .text), ("state", .text), ("number", .number)],
        states.map { [.text("a"), .text($0.0), .number($0.1)] })
      let shown = DataTable(statesOf: table, of: Self.request(table))
      return [shown.columns.map(\.label)] + shown.rows.map { $0.cells.map(\.text) }
    }
    #expect(
      rows(("expired", 9), ("active_cancelled", 2), ("active_renewing", 5)) == [
        ["Product", "Active, renews", "Active, cancelled", "Active", "Expired", "Total"],
        ["a", "5", "2", "7", "9", "16"],
      ])
    // As in the other reports, with those in grace.
    #expect(
      rows(("trial_renewing", 3), ("in_grace_period", 8), ("active_renewing", 5)) == [
        ["Product", "Active, renews", "Grace period", "Active", "Trial, renews", "Total"],
        ["a", "5", "8", "13", "3", "16"],
      ])
    #expect(
      rows(("expired", 9), ("active_renewing", 5)) == [
        ["Product", "Active, renews", "Expired", "Total"], ["a", "5", "9", "14"],
      ])
  }

  @Test func `each table of unclaimed charges has its own total`() {
    func tables(_ rows: (wasOver: Bool, hasEnded: Bool, product: String)...) -> [DataTable] {
      let table = Self.table(
        .unclaimed,
        [("was_over", .flag), ("has_ended", .flag), ("product_id", .text), ("number", .number)],
        rows.map { [.flag($0.wasOver), .flag($0.hasEnded), .text($0.product), .number(1)] })
      return Self.request(table).tables(table, previous: nil)
    }
    let waiting = tables((false, false, "a"), (false, false, "b"))
    #expect(waiting.map(\.caption) == ["Waiting for an account"])
    let all = tables(
      (false, false, "a"), (false, false, "b"), (false, true, "a"), (true, true, "a"),
      (true, true, "b"), (true, true, "c"))
    #expect(all.map { $0.rows.last?.cells.last?.text } == ["2", "1", "3"])
  }

  @Test func `while nothing has ended, all is counted`() {
    func table(_ report: Report, _ column: String) -> ReportTable {
      Self.table(
        report, [("from_day", .date), (column, .text), ("number", .number)],
        [
          [.date("2026-04-15"), .text("decided"), .number(1)],
          [.date("2026-04-15"), .text("moved"), .number(2)],
        ])
    }
    let ownership = table(.ownership, "measure")
    let chart = ReportCharts(table: ownership, request: Self.request(ownership)).pictures[0]
    // What moved was decided, too.
    #expect(chart.legend.map(\.value) == ["1 so far"])
    #expect(chart.note?.hasSuffix("so far is hatched.") == true)
    let audit = table(.audit, "action")
    let total = Self.request(audit).tables(audit, previous: nil)[0].rows.last?.cells
    #expect(total?.map(\.text) == ["Total", "", "3"])
    #expect(total?.first?.note == "so far")
  }

  @Test func `a split of charges has no charge twice`() {
    let columns: [(String, ReportColumn.Kind)] = [
      ("from_day", .date), ("to_day", .date), ("segment", .text), ("measure", .text),
      ("rule", .text), ("number", .number),
    ]
    let table = Self.table(
      .ownership, columns,
      [("decided", "a", 5), ("moved", "a", 2), ("shared", "b", 9), ("decided", "b", 3)].map {
        [
          .date("2026-04-01"), .date("2026-04-01"), .text($0.1), .text($0.0), .text("submitter"),
          .number($0.2),
        ]
      })
    let request = Self.request(table, "by=product")
    let shown = request.tables(table, previous: nil)[0]
    let rows = shown.rows.map { $0.cells.map(\.text) }
    #expect(rows.contains(["1 Apr 2026", "5", "3", "8"]) && rows.last == ["Total", "5", "3", "8"])
    // A period without numbers has a row of 0.
    #expect(rows.count > 2 && rows[0].dropFirst().allSatisfy { $0 == "0" })
    #expect(
      ReportCharts(table: table, request: request).pictures[0].legend.map(\.value) == ["5", "3"])
  }

  @Test func `columns are in the order in which they are read, without causes that there are not`()
  {
    let churn = Self.table(
      .churn,
      [
        ("from_day", .date), ("to_day", .date), ("active_at_start", .number),
        ("voluntary", .number), ("involuntary", .number), ("churned", .number),
      ],
      [[.date("2026-03-01"), .date("2026-03-31"), .number(5), .number(0), .number(0), .number(0)]])
    #expect(
      DataTable(churn, of: Self.request(churn)).columns.map(\.label)
        == ["Period", "Active at start", "Churned"])
    let before = Self.table(
      .churn, churn.columns.map { ($0.name, $0.kind) },
      [[.date("2026-02-01"), .date("2026-02-28"), .number(5), .number(1), .number(0), .number(1)]])
    let march = Self.request(churn, "from=2026-03-01&to=2026-03-31&compare=true")
    #expect(
      march.tables(churn, previous: before)[0].rows.map { $0.cells.map(\.text) } == [
        ["Churned", "0", "1", "−1", "−100.00%"], ["Voluntary", "0", "1", "−1", "−100.00%"],
      ])
    let due = Self.table(
      .renewalsDue,
      [
        ("day", .date), ("product_id", .text), ("renews_as", .text), ("currency", .text),
        ("number", .number), ("amount_milliunits", .money), ("from_catalogue_milliunits", .money),
      ],
      [
        [
          .date("2026-04-16"), .text("a"), .text("b"), .text("EUR"), .number(1),
          .money(milliunits: 1000, currency: "EUR"), .money(milliunits: 0, currency: "EUR"),
        ]
      ])
    let shown = DataTable(due, of: Self.request(due))
    #expect(shown.columns.map(\.label) == ["Day", "Product", "Count", "Amount"])
    #expect(shown.rows[0].cells.map(\.note) == [nil, "renews as b", nil, nil])
  }

  @Test func `a curve counts the cohorts that have come so far, while there are enough of them`() {
    let cohorts = (1...6).map { "2025-0\($0)-01" }
    let table = ReportTable(
      report: .retention, asOf: Self.now,
      columns: [
        ReportColumn("cohort", .date), ReportColumn("period", .number),
        ReportColumn("to_day", .date), ReportColumn("cohort_size", .number),
        ReportColumn("retained", .number),
      ],
      rows: cohorts.enumerated().flatMap { place, cohort in
        // The oldest cohort has six months.
        (0..<6 - place).map { period in
          [
            .date(cohort), .number(Int64(period)), .date("2025-12-31"), .number(10),
            .number(Int64(10 - period - place)),
          ]
        }
      }, isCutShort: false)
    let picture = ReportCharts(table: table, request: Self.request(table)).pictures[0]
    #expect(
      texts(picture) == [
        ["Month 0 (6 cohorts)", "75.00%"], ["Month 1 (5 cohorts)", "70.00%"],
        ["Month 2 (4 cohorts)", "65.00%"], ["Month 3 (3 cohorts)", "60.00%"],
        ["Month 4 (2 cohorts)", "55.00%"],
      ])
    #expect(picture.note?.contains("6 at month 0, 2 at month 4.") == true)
  }

  @Test func `charges that are repeated in the rows of refunds count once`() {
    func row(_ month: String, _ delay: String?) -> [ReportValue] {
      let currency: String? = delay == nil ? nil : "EUR"
      let money = ReportValue.money(milliunits: delay == nil ? 0 : -1000, currency: currency)
      let texts: [ReportValue] = [delay, currency].map { text in text.map { .text($0) } ?? .none }
      let days: [ReportValue] = [.date("\(month)-01"), .date("\(month)-28")]
      return days + texts + [.number(delay == nil ? 0 : 1), money, .number(10), .rate("0.100000")]
    }
    let columns: [(String, ReportColumn.Kind)] = [
      ("from_day", .date), ("to_day", .date), ("days_after", .text), ("currency", .text),
      ("refunds", .number), ("refunded_milliunits", .money), ("paid", .number),
      ("refund_rate", .rate),
    ]
    let table = ReportTable(
      report: .refunds, asOf: Self.now, columns: columns.map { ReportColumn($0.0, $0.1) },
      rows: [
        row("2026-02", "000"), row("2026-02", "001"), row("2026-03", "000"), row("2026-01", nil),
      ], isCutShort: false)
    func charged(_ day: String) -> [ReportValue] {
      [.date(day), .text("EUR"), .money(milliunits: 30_000, currency: "EUR")]
    }
    let revenue = ReportTable(
      report: .revenue, asOf: Self.now,
      columns: [
        ReportColumn("from_day", .date), ReportColumn("currency", .text),
        ReportColumn("charged_milliunits", .money),
      ], rows: [charged("2026-01-01"), charged("2026-02-01"), charged("2026-04-01")],
      isCutShort: false)
    let shown = Self.request(table).tables(table, previous: nil, revenue: revenue)
    #expect(
      shown[0].rows.map { $0.cells.map(\.text) } == [
        ["Feb 2026", "2", "−2.00", "10", "20.00%"],
        ["1–28 Mar 2026", "1", "−1.00", "10", "10.00%"],
        ["Total", "3", "−3.00", "30", "10.00%"],
      ])
    #expect(shown[0].rows.last?.cells.last?.note == "3 of 30")
    // By days, February has two rows, and their sum.
    #expect(shown[1].isFolded && shown[1].rows.count == 5)
    #expect(
      shown[1].rows[2].cells.map(\.text)
        == ["Feb 2026, all", "", "2", "−2.00", "10", "20.00%"])
    // April has not ended.
    #expect(shown[0].note?.hasPrefix("Refunded 3.00 of 60.00 EUR charged: 5.00%.") == true)
    // Amounts of two currencies have no sum.
    var two = table.rows
    two[1][3] = .text("USD")
    let mixed = ReportTable(
      report: .refunds, asOf: Self.now, columns: table.columns, rows: two, isCutShort: false)
    #expect(Self.request(mixed).tables(mixed, previous: nil).map(\.rows.count) == [5])
    // One reason has no column; two have.
    for (reasons, isColumn) in [(["1", "1", "1", nil], false), (["1", "0", "1", nil], true)] {
      let other = ReportTable(
        report: .refunds, asOf: Self.now, columns: table.columns + [ReportColumn("reason", .text)],
        rows: zip(table.rows, reasons).map { $0 + [$1.map { .text($0) } ?? .none] },
        isCutShort: false)
      let refunds = Self.request(other).tables(other, previous: nil)
      #expect(refunds[1].columns.contains { $0.label == "Reason" } == isColumn)
      #expect(refunds[0].note?.contains("Reason of all: Problem with the app.") == !isColumn)
    }
  }

  @Test func `a return counted in two ways has two names`() {
    let column = ReportColumn("resubscribed", .number)
    #expect(column.label(in: .active) == "Returned" && column.label(in: .churn) == "Returned")
    #expect(column.label(in: .reactivations) == "Resubscribed")
    #expect(ReportColumn("reactivated_milliunits", .money).label(in: .mrr) == "Returned")
  }

  @Test func `a net is exact, though each of the amounts was rounded on its own`() throws {
    let names = [
      "opening", "new", "reactivated", "expansion", "contraction", "churned", "currency_changed",
      "exchange", "mrr",
    ]
    func picture(_ amounts: Int64...) throws -> Chart {
      let table = ReportTable(
        report: .mrr, asOf: Self.now,
        columns: [ReportColumn("from_day", .date), ReportColumn("currency", .text)]
          + names.map { ReportColumn("\($0)_milliunits", .money) },
        rows: [
          [.date("2026-03-01"), .text("EUR")]
            + amounts.map { .money(milliunits: $0, currency: "EUR") }
        ], isCutShort: false)
      return try #require(
        ReportCharts(table: table, request: Self.request(table, "from=2026-03-01&to=2026-03-31"))
          .pictures.last)
    }
    // Three halves: of those that came each is rounded up.
    let halves = try picture(1000, 10, 0, 0, 0, 0, 10, 10, 1020)
    #expect(
      texts(halves) == [
        [
          "Mar 2026", "0.01 EUR", "0.00 EUR", "0.00 EUR", "0.00 EUR", "0.00 EUR", "0.01 EUR",
          "0.01 EUR", "0.02 EUR",
        ]
      ])
    // Only those that have a number are in the legend, and each has a different colour.
    #expect(halves.legend.count == 4)
    let colours = try picture(1000, 10, 20, 30, -40, -50, 60, 10, 1040).legend.map(\.seriesClass)
    #expect(colours.count == 8 && Set(colours).count == 8)
  }

  @Test func `lifetime values are a row for each cohort, and a curve of the finished months`() {
    let columns =
      [ReportColumn("cohort", .date), ReportColumn("period", .number)]
      + [ReportColumn("to_day", .date), ReportColumn("currency", .text)]
      + [ReportColumn("cohort_size", .number)]
      + ["revenue", "proceeds", "arpu", "ltv"].map { ReportColumn("\($0)_milliunits", .money) }
    func row(_ cohort: String, _ period: Int64, _ last: String, _ size: Int64, _ amounts: Int64...)
      -> [ReportValue]
    {
      [.date(cohort), .number(period), .date(last), .text("EUR"), .number(size)]
        + amounts.map { .money(milliunits: $0, currency: "EUR") }
    }
    let table = ReportTable(
      report: .lifetimeValue, asOf: Self.now, columns: columns,
      rows: [
        row("2026-01-01", 0, "2026-01-31", 2, 10_000, 7000, 5000, 5000),
        row("2026-01-01", 1, "2026-02-28", 2, 4000, 2800, 2000, 7000),
        row("2026-03-01", 0, "2026-03-31", 1, 5000, 3500, 5000, 5000),
        // April has not ended.
        row("2026-03-01", 1, "2026-04-30", 1, 1000, 700, 1000, 6000),
      ], isCutShort: false)
    let request = Self.request(table)
    let values = DataTable(
      of: "ltv_milliunits", totals: ["revenue_milliunits", "proceeds_milliunits"], "LTV",
      meaning: "A sum.", in: table, currency: "EUR", of: request)
    #expect(values.note?.contains("A sum.") == true)
    #expect(values.caption == "LTV, EUR")
    #expect(
      values.rows.map { $0.cells.map(\.text) } == [
        ["Jan 2026", "2", "14.00", "9.80", "5.00", "7.00"],
        ["Mar 2026", "1", "6.00", "4.20", "5.00", "6.00"],
      ])
    // April still grows.
    #expect(
      values.rows.map { $0.cells.map(\.isUnfinished) } == [
        [false, false, false, false, false, false], [false, false, false, false, false, true],
      ])
    #expect(
      DataTable(
        of: "ltv_milliunits", "LTV", meaning: "", in: table, currency: "USD", of: request
      ).rows.isEmpty)
    let split = Self.request(table, "by=product").tables(table, previous: nil)
    #expect(split[0].caption.hasSuffix(", EUR"))
    #expect(split[0].rows.map { $0.cells.last?.text } == ["5.00", "7.00"])
    let curve = ReportCharts(table: table, request: request).pictures
    #expect(
      curve.map { texts($0) } == [
        [["Month 0 (2 cohorts)", "5.00 EUR"], ["Month 1 (1 cohort)", "7.00 EUR"]]
      ])
  }

  @Test func `segments of lifetime value are in the order of their revenue`() {
    let table = Self.table(
      .lifetimeValue,
      [
        ("cohort", .date), ("segment", .text), ("currency", .text),
        ("revenue_milliunits", .money),
      ],
      [("a", 1), ("b", 3), ("c", 2)].map {
        [
          .date("2026-01-01"), .text($0.0), .text("EUR"),
          .money(milliunits: $0.1, currency: "EUR"),
        ]
      })
    #expect(
      ReportSegments(table, of: Self.request(table, "by=product")).all.map(\.name)
        == ["b", "c", "a"])
  }

  @Test func `of intake only failures are drawn`() {
    func pictures(_ numbers: (measure: String, number: Int64)...) -> [Chart] {
      let table = Self.table(
        .intake, [("from_day", .date), ("measure", .text), ("number", .number)],
        numbers.map { [.date("2026-04-15"), .text($0.measure), .number($0.number)] })
      return ReportCharts(table: table, request: Self.request(table, "bucket=day")).pictures
    }
    let drawn = pictures(
      ("submissions_rejected", 3), ("submissions_pending", 9), ("apple_failures", 2),
      ("submissions_rejected", 1))
    #expect(drawn.map { $0.legend.map(\.value) } == [["2 so far", "4 so far"]])
    #expect(pictures(("submissions_pending", 9)).isEmpty)
  }

  @Test(arguments: [
    ("at 2026-01-04T05:06:07Z, and 2026-02-01T00:00:00.000Z.", "at 4 Jan 2026, 05:06"),
    ("“2026-01-04T05:06:07Z” submitted it first", "“2026-01-04T05:06:07Z” submitted it first"),
    ("2026-99-04T05:06:07Z", "2026-99-04T05:06:07Z"),
  ])
  func `times in a sentence are for people, and names are as they are`(text: String, begin: String)
  {
    #expect(text.withTimesForPeople.hasPrefix(begin))
    #expect(!text.withTimesForPeople.contains("T00:00:00.000Z"))
  }

  @Test(arguments: [
    (
      #"{"entitlement":"pro","expires_at":"2026-12-23T00:00:00.000Z","note":null,"days":3}"#,
      "Entitlement: pro; expires at: 23 Dec 2026, 00:00; days: 3"
    ),
    ("{}", ""), ("no JSON", "no JSON"),
  ])
  func `an action's details are words`(json: String, words: String) {
    #expect(EnumText.details(json) == words)
  }

  @Test func `each currency has its own charts, with every time in them`() {
    let table = ReportTable(
      report: .revenue, asOf: Self.now,
      columns: [
        ReportColumn("from_day", .date), ReportColumn("currency", .text),
        ReportColumn("charged_milliunits", .money), ReportColumn("refunded_milliunits", .money),
        ReportColumn("net_by_refund_milliunits", .money),
      ],
      rows: [
        [
          .date("2026-02-01"), .text("EUR"), .money(milliunits: 5000, currency: "EUR"),
          .money(milliunits: -1000, currency: "EUR"), .money(milliunits: 4000, currency: "EUR"),
        ],
        [
          .date("2026-03-01"), .text("USD"), .money(milliunits: 2000, currency: "USD"),
          .money(milliunits: 0, currency: "USD"), .money(milliunits: 2000, currency: "USD"),
        ],
      ], isCutShort: false)
    let pictures = ReportCharts(table: table, request: Self.request(table, "from=2026-01-01"))
      .pictures
    #expect(
      pictures.map(\.title) == ["Charged and refunded, EUR", "Charged and refunded, USD"])
    #expect(
      texts(pictures[0]) == [
        // Months without rows are drawn, too.
        ["Jan 2026", "0.00 EUR", "0.00 EUR", "0.00 EUR"],
        ["Feb 2026", "5.00 EUR", "−1.00 EUR", "4.00 EUR"],
        ["Mar 2026", "0.00 EUR", "0.00 EUR", "0.00 EUR"],
        ["Apr 2026 so far", "0.00 EUR", "0.00 EUR", "0.00 EUR"],
      ])
    // What stayed in dollars is not 0 euros.
    let converted = ReportCharts(
      table: table, request: Self.request(table, "from=2026-01-01&reporting_currency=EUR"))
    #expect(texts(converted.pictures[0])[2] == ["Mar 2026", "", "", ""])
    #expect(texts(converted.pictures[0])[0] == texts(pictures[0])[0])
  }

  @Test func `products have their names, unless two share one`() {
    func product(_ id: String, _ name: String?) -> Product {
      Product(
        id: ProductID(id), validFrom: Timestamp(milliseconds: 0), type: .autoRenewable,
        entitlements: [], displayName: name)
    }
    let table = Self.table(
      .churn, [("from_day", .date), ("to_day", .date), ("segment", .text), ("churned", .number)],
      ["a", "b", "c", "d"].enumerated().map {
        [.date("2026-03-01"), .date("2026-03-31"), .text($1), .number(Int64(9 - $0))]
      })
    var request = Self.request(table, "by=product&from=2026-03-01&to=2026-03-31")
    request.take(
      Catalogue([
        product("a", "Gold"), product("b", "Silver"), product("c", "Silver"),
        product("d", nil),
      ]))
    let tables = request.tables(table, previous: nil)
    #expect(
      tables[0].columns.map(\.label) == ["Period", "Gold", "b", "c", "d", "Total"])
    #expect(tables[0].columns[1].identifier == "a")
    #expect(tables[1].rows.prefix(4).map { $0.cells[1].text } == ["Gold", "b", "c", "d"])
    #expect(tables[1].rows[0].cells[1].identifier == "a")
  }
}
