import AppStoreSimulator
import Foundation
import HTTPTypes
import HummingbirdCore
import Postgres
import Reports
import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI

/// The reports as pages, on the ledger whose right answers the reports' own tests work out by hand.
struct ReportPageTests {
  private static let moment = "2026-04-15T12:00:00Z"

  /// The sample ledger of the reports' tests.
  private static func ledger() throws -> String {
    let tests = (0..<3).reduce(URL(filePath: #filePath)) { url, _ in
      url.deletingLastPathComponent()
    }
    return try String(
      contentsOf: tests.appending(path: "ReportsTests/Samples/ledger.sql"), encoding: .utf8)
  }

  private func withSamples(
    _ test: @escaping @Sendable (TestAPI, inout AdminBrowser) async throws -> Void
  ) async throws {
    try await TestAPI.run { api in
      try await api.database.runScript(try Self.ledger())
      var browser = try await AdminBrowser.loggedIn(api)
      try await test(api, &browser)
    }
  }

  /// Reloads automatically, as a browser does, until the report is ready.
  private func get(_ path: String, _ browser: inout AdminBrowser) async throws -> AdminBrowser.Page
  {
    var page = try await browser.get(path)
    var tries = 0
    while page.contains(#"http-equiv="refresh""#), tries < 100 {
      page = try await browser.get(path)
      tries += 1
    }
    return page
  }

  private static func choices(_ report: Report) throws -> ReportChoices {
    var choices = ReportChoices()
    if report.parameters.contains(.asOf) {
      choices.asOf = Timestamp(rfc3339: moment)
    }
    return choices
  }

  private static func address(_ report: Report, _ more: [(name: String, value: String)] = [])
    throws -> String
  {
    AdminURL.report(
      report.name,
      choices: (report.parameters.contains(.asOf) ? [("as_of", moment)] : []) + more)
  }

  private static func query(_ address: String) -> String? {
    address.split(separator: "?", maxSplits: 1).dropFirst().first.map(String.init)
  }

  @Test func `the overview has the numbers of the reports, and the accounts of actions`()
    async throws
  {
    try await withSamples { api, browser in
      // The moment of the samples.
      api.apple.simulation.advance(by: .days(104) + .hours(12))
      browser = try await AdminBrowser.loggedIn(api)
      let overview = try await get("/admin", &browser)
      for (label, value) in [
        ("Active", "3"), ("Open trials", "1"), ("Weekly churn", "25.00%"), ("MRR, EUR", "5.00 EUR"),
        ("MRR, USD", "18.45 USD"), ("Renewals due", "2"), ("Billing issues", "1"),
        ("Refunds this month", "1"), ("Net revenue this month, EUR", "0.00 EUR"),
      ] {
        #expect(
          overview.contains(">\(label)</a></h3>\n<p class=\"tile-value\">\(value)</p>"), "\(label)")
      }
      for words in [
        "1 / 4, 6–12 Apr 2026", "next 7 days, 10.99 EUR, 10.49 USD", "unchanged since 12 Apr",
        "1 unclaimed charge",
        // None was due then. In March two were refunded.
        "+2 vs 7 days ago", "Mar 2026: 2<",
        // By the name, where the record has a key.
        "<q>b wrote that a paid.</q>", #"<a class="code" href="/admin/accounts/b">b</a>"#,
        "The week that began on 13 Apr has not ended",
      ] {
        #expect(overview.contains(words), "\(words)")
      }
      #expect(!overview.contains("{account:") && !overview.contains("so far is hatched"))
      // The tile's number is the page's last one.
      let page = try await get(OverviewQuestion.churn.href, &browser)
      #expect(page.contains("25.00%") && page.contains("1 / 4"))
      // The refunds of this month are one click away.
      let tile = try #require(
        overview.text.split(separator: "<li class=\"tile\">").first {
          $0.contains(">Refunds this month</a>")
        })
      let href = String(try #require(tile.firstMatch(of: /href="([^"]+)"/)).1)
      let refunds = try await get(href.replacing("&amp;", with: "&"), &browser)
      #expect(refunds.contains("<p class=\"number-of\">1</p>") && refunds.contains("Apr 2026"))
    }
  }

  @Test func `the overview says what is wrong with intake, and leads to it`() async throws {
    try await withSamples { api, browser in
      api.apple.simulation.advance(by: .days(104) + .hours(12))
      browser = try await AdminBrowser.loggedIn(api)
      // Two were missed in these seven days, one in the seven before, and one between them; a
      // receipt was rejected four weeks ago, and a post is not a notification.
      try await api.database.runScript(
        """
        INSERT INTO tenure.notification (notification_id, version, received_at, body_sha256,
          processed_at, outcome, notification_type, environment, bundle_id, signed_at, arrival, attempts)
        SELECT 'n' || n, 2, at, sha256('b'), at, 'recorded', 'DID_RENEW', 'production', 'com.a', at,
          'history', 1
        FROM (VALUES (1, timestamptz '2026-04-15 11:00Z'), (2, '2026-04-09 00:00Z'),
          (3, '2026-04-08 13:00Z'), (4, '2026-04-08 11:00Z')) AS t (n, at);
        INSERT INTO tenure.notification (notification_id, version, received_at, body_sha256,
          processed_at, outcome, problem, notification_type, environment, bundle_id, arrival, attempts)
        VALUES ('v1:1', 1, '2026-04-10Z', sha256('b'), '2026-04-10Z', 'rejected', 'No.', 'CANCEL',
          'production', 'com.a', 'delivered', 1);
        INSERT INTO tenure.submission (submission_id, account_key, received_at, restore, status,
          decided_at, attempts, problem, problem_detail, apple_status, bundle_id)
        VALUES (gen_random_uuid(), gen_random_uuid(), '2026-03-17Z', false, 'rejected',
          '2026-03-17Z', 1, 'receipt_rejected', 'No.', 21003, 'com.a');
        INSERT INTO tenure.notification_refusal
        VALUES ('2026-04-14 08:00Z', 2, 'wrong_signature', 40, '2026-04-14 08:30Z', 'Forged.', 9);
        INSERT INTO tenure.job (kind, subject, queue, run_at, created_at, discarded_at, last_error)
        VALUES ('poll_status', 'production/s1', 'polls', '2026-04-15Z', '2026-04-15Z',
          '2026-04-15 10:00Z', 'Gave up.')
        """)
      let overview = try await get("/admin", &browser)
      for (label, href, value, words) in [
        ("Failed", "/admin/parked", "1", "oldest: 2 h"),
        ("Rejected receipts", "/admin/rejected", "0", "last 7 days"),
        (
          "Unprocessable notifications", "/admin/reports/intake?days=7", "1",
          "+1 vs previous 7 days"
        ),
        (
          "Missed notifications",
          "/admin/reports/intake/transactions?cell=number&days=7&row_measure=notifications_missed&report_days=7",
          "2", "+1 vs previous 7 days"
        ),
      ] {
        let tile = try #require(
          overview.text.split(separator: "<li class=\"tile\">").dropFirst().first {
            $0.contains(">\(label)</a>")
          }
        )
        #expect(tile.contains("href=\"\(PageText.escaped(href))\""), "\(label)")
        #expect(tile.contains("<p class=\"tile-value\">\(value)</p>"), "\(label)")
        #expect(tile.contains(words), "\(label)")
        #expect(try await get(href, &browser).status == 200, "\(label)")
      }
      #expect(
        overview.contains(
          #"<a href="/admin/rejected">last 7 days, 40 forged or malformed notifications refused</a>"#
        ))
      #expect(
        try await get("/admin/rejected", &browser).contains(">Forged or malformed notification<"))
      #expect(overview.contains("Rejected receipts per week: from 0 to 0, between 0 and 1"))
      let missed = try await get(
        "/admin/reports/intake/transactions?cell=number&days=7&row_measure=notifications_missed&report_days=7",
        &browser)
      #expect(missed.contains("<p class=\"number-of\">2</p>"))
      // As cells: a token of the page may have any two letters in it.
      #expect(missed.contains(">n1<") && missed.contains(">n2<") && !missed.contains(">n4<"))
    }
  }

  /// The rows of a table in a page.
  private static func rows(_ caption: String, in page: AdminBrowser.Page) throws -> [[String]] {
    let table = try #require(
      page.text.components(separatedBy: "<table>").first {
        $0.contains(">\(caption)</caption>")
      }?.components(separatedBy: "</table>").first)
    return table.components(separatedBy: "<tr").dropFirst(2).map { row in
      row.components(separatedBy: "<t").dropFirst().compactMap { cell in
        cell.split(separator: ">", maxSplits: 1).last?.split(separator: "<").first.map(String.init)
      }
    }
  }

  @Test func `a movement's net is by how much the stock is another one`() async throws {
    try await withSamples { _, browser in
      // The week in which s2 went from months to a year, of months alone.
      let weeks = try await get(
        try Self.address(
          .active,
          [
            ("from", "2026-03-18"), ("to", "2026-03-31"), ("bucket", "week"), ("product", "month"),
          ]), &browser)
      #expect(
        try Self.rows("Active subscriptions", in: weeks)
          == [
            ["18–22 Mar 2026 (part of a week)", "3"], ["23–29 Mar 2026", "2"],
            ["30–31 Mar 2026 (part of a week)", "2"],
          ])
      #expect(
        try Self.rows("Subscriber movement", in: weeks) == [
          // New, resubscribed, expired, refunded, changed in, changed out, net.
          ["18–22 Mar 2026 (part of a week)", "0", "0", "0", "0", "0", "0", "0"],
          ["23–29 Mar 2026", "0", "0", "0", "0", "0", "−1", "−1"],
          ["30–31 Mar 2026 (part of a week)", "0", "0", "0", "0", "0", "0", "0"],
        ])
      // A dollar is 0.90 EUR, and 0.95 EUR from April on.
      let months = try await get(
        try Self.address(
          .mrr,
          [("from", "2026-01-01"), ("to", "2026-04-30"), ("reporting_currency", "EUR")]),
        &browser)
      #expect(
        try Self.rows("MRR, EUR", in: months) == [
          ["Jan 2026", "39.96 EUR"], ["Feb 2026", "44.52 EUR"], ["Mar 2026", "24.43 EUR"],
          ["Apr 2026 so far", "22.53 EUR"],
        ])
      let none = "0.00 EUR"
      #expect(
        try Self.rows("MRR movement, EUR", in: months) == [
          // New, reactivated, expansion, contraction, churned, currency changed, exchange rates, net.
          ["Jan 2026", "39.96 EUR", none, none, none, none, none, none, "39.96 EUR"],
          ["Feb 2026", "3.56 EUR", none, "1.00 EUR", none, none, none, none, "4.56 EUR"],
          [
            "Mar 2026", none, none, "3.60 EUR", "−5.99 EUR", "−17.15 EUR", "−0.55 EUR",
            none, "−20.09 EUR",
          ],
          [
            "Apr 2026 so far", none, "7.56 EUR", none, none, "−9.99 EUR", none, "0.53 EUR",
            "−1.90 EUR",
          ],
        ])
    }
  }

  @Test func `the overview and the list lead to every report`() async throws {
    try await withSamples { _, browser in
      let overview = try await get("/admin", &browser)
      #expect(overview.status == 200)
      for label in [
        "Active", "Open trials", "MRR", "Weekly churn", "Renewals due", "Billing issues",
      ] {
        #expect(overview.contains(">\(label)"), "\(label)")
      }
      #expect(!overview.contains("Not available"))
      let list = try await browser.get("/admin/reports")
      for report in Report.all {
        #expect(list.contains("href=\"\(AdminURL.report(report.name))\""))
      }
      #expect(Set(Report.all.map(\.group)) == Set(Report.Group.allCases))
    }
  }

  @Test func `each page has the report's numbers, its definition and its file`() async throws {
    try await withSamples { api, browser in
      for report in Report.all {
        let path = try Self.address(report)
        let page = try await get(path, &browser)
        #expect(page.status == 200, "\(report)")
        let definition = try #require(page.text.components(separatedBy: "definition").last)
        #expect(definition.components(separatedBy: "<li>").count > 1, "\(report)")
        for word in ["null", "milliunits", "=&gt;", "segment;", "report_"] {
          #expect(!definition.contains(word), "\(report): \(word)")
        }
        let table = try await api.api.reports.table(
          of: report, try Self.choices(report), at: api.api.now())
        let cohortColumns = ["cohort_size", "arpu_milliunits", "ltv_milliunits"]
        let currencies = table.records.currencies
        for row in table.records where report != .retention && report != .intake {
          // A row without refunds, and what a column says of its row alone.
          if report == .refunds, row["days_after"]?.text == nil { continue }
          for column in table.columns
          where report.hasCohorts
            ? cohortColumns.contains(column.name)
            : ![
              "from_day", "to_day", "is_partial", "mrr_twelfths",
              // They have tables of their own.
              "was_over", "has_ended",
            ].contains(column.name)
          {
            // A note of the amount says it.
            if report == .renewalsDue, column.name == "from_catalogue_milliunits" { continue }
            var text = row[column.name]?.label(in: column.name, of: report).text ?? ""
            // One currency stands in the heading, and each triangle has its own.
            if column.kind == .money, currencies.count == 1 || report.hasCohorts {
              text.replace(/\ [A-Z]{3}$/, with: "")
            }
            #expect(page.contains(PageText.escaped(text)), "\(report): \(column.name)")
          }
        }
        // Names of columns and values are in tooltips only.
        let visible = page.text.replacing(/<code>[^<]*<\/code>/, with: "")
          .replacing(/<[^>]*>/, with: " ")
        let names = visible.matches(of: /\b[a-z]+(?:_[a-z]+)+\b/).map { String($0.output) }
        #expect(names == [], "\(report)")
        #expect(page.contains("<p class=\"range\">"), "\(report)")
        let file = try await browser.get(try Self.address(report, [("format", "csv")]))
        #expect(file.headers[.contentType] == "text/csv; charset=utf-8")
        #expect(file.headers[.contentDisposition]?.hasPrefix("attachment") == true)
        if report != .intake { #expect(file.text == table.text(.csv), "\(report)") }
      }
    }
  }

  @Test func `ownership has a table for each measure, and loses no number`() async throws {
    try await withSamples { api, browser in
      let table = try await api.api.reports.table(
        of: .ownership, try Self.choices(.ownership), at: api.api.now())
      let page = try await get(try Self.address(.ownership), &browser)
      // One for each measure.
      let sections = page.text.components(separatedBy: "<section class=\"report\">").dropFirst()
      #expect(
        Set(table.records.compactMap { $0["measure"]?.text }).count == sections.count)
      #expect(sections.contains { $0.contains(">Submitted first</th>") })
      let rows = sections.flatMap { section in
        section.components(separatedBy: "<tr").dropFirst(2).filter { !$0.contains(">Total") }
      }
      // Without the days that have none.
      #expect(rows.count >= sections.count && rows.count < 28 * sections.count)
      let shown = rows.flatMap { row in
        row.matches(of: /<td class=\x22number [^>]*>(?:<a[^>]*>)?([0-9]+)/)
          .compactMap { Int64($0.1) }
      }
      #expect(shown.reduce(0, +) == table.records.reduce(0) { $0 + $1.integer("number") })
      #expect(shown.count >= rows.count)
    }
  }

  @Test func `money is exact, and shares say of what`() async throws {
    try await withSamples { _, browser in
      let march = [("from", "2026-03-01"), ("to", "2026-03-31")]
      let revenue = try await get(try Self.address(.revenue, march), &browser)
      #expect(revenue.contains("80.97 EUR"))
      #expect(revenue.contains("12.48 USD"))
      // What is read first has the width of the page; the rest is folded.
      let tables = revenue.text.components(separatedBy: "<section class=\"report\">").dropFirst()
      #expect(
        tables.map { table in
          table.matches(of: /<th scope=\x22col\x22[^>]*>([^<]+)/).map { String($0.1) }
        } == [
          [
            "Period", "Charges", "Charged", "Refunds", "Refunded amount", "Net revenue", "Proceeds",
          ],
          [
            "Period", "Offers", "Trials", "Refunded later", "Amount refunded later",
            "Net revenue (refunds by purchase date)",
          ],
        ])
      #expect(tables.last?.contains("<details>\n<summary>") == true)
      // Amounts can be converted to what is sold in, and nothing else is offered.
      #expect(revenue.contains(#"<option value="EUR""#))
      #expect(!revenue.contains(#"<option value="AED""#))
      let churn = try await get(try Self.address(.churn, march), &browser)
      #expect(churn.contains("20.00%") && churn.contains("1 / 5"))
      // A chart without the latest days would be wrong.
      #expect(churn.contains("<figure class=\"chart\""))
      let days = try await get(
        try Self.address(.churn, [("from", "2023-01-01"), ("bucket", "day")]), &browser)
      #expect(days.contains("Only the first 1000 rows are shown"))
      #expect(!days.contains("<figure class=\"chart\""))
    }
  }

  @Test func `sums and split numbers lead to what is counted in them`() async throws {
    try await withSamples { _, browser in
      for (report, more) in [
        (.subscriptions, []), (.refunds, [("from", "2026-01-01")]), (.orders, []), (.ownership, []),
        (.active, [("by", "product")]), (.churn, [("by", "product"), ("from", "2026-01-01")]),
        (.revenue, [("by", "storefront")]), (.trials, [("by", "period_type")]), (.renewalsDue, []),
      ] as [(Report, [(name: String, value: String)])] {
        let page = try await get(try Self.address(report, more), &browser)
        // Totals, and all numbers of split reports.
        let rows = page.text.components(separatedBy: "<tr").filter {
          $0.contains(" class=\"total\"") || $0.contains(" class=\"subtotal\"")
            || report == .subscriptions || !more.isEmpty
        }
        let cells = try rows.flatMap { row in
          row.matches(
            of: try Regex(
              #"<td class="number [^>]*><a href="([^"]+)"[^>]*>([^<]+)</a>"#,
              as: (Substring, Substring, Substring).self)
          )
          .map { (href: String($0.1), number: String($0.2)) }
        }
        #expect(cells.count > 0, "\(report)")
        for cell in cells.prefix(40) {
          let items = try await get(cell.href.replacing("&amp;", with: "&"), &browser)
          let number = items.text.firstMatch(
            of: try Regex(#"<p class="number-of">([^<]+)"#, as: (Substring, Substring).self))
          #expect(
            number?.1.hasPrefix(cell.number) == true,
            "\(report) \(cell.href): \(cell.number), not \(number?.1 ?? "")")
        }
      }
    }
  }

  @Test func `each number leads to what is counted in it`() async throws {
    try await withSamples { api, browser in
      for report in Report.all {
        let table = try await api.api.reports.table(
          of: report, try Self.choices(report), at: api.api.now())
        let request = ReportRequest(
          report, query: Self.query(try Self.address(report)), at: api.api.now())
        var followed = 0
        for index in table.rows.indices {
          for column in table.columns {
            guard let cell = table.cell(column.name, inRow: index, of: request.choices),
              let number = table.value(column.name, inRow: index), (number.integer ?? 0) != 0,
              followed < 12
            else { continue }
            followed += 1
            let page = try await get(request.href(cell), &browser)
            #expect(page.status == 200, "\(report) \(column.name)")
            #expect(
              page.contains("<p class=\"number-of\">\(PageText.escaped(number.words))</p>"),
              "\(report) \(column.name): \(number)")
            // The address says of the number all that there is to say.
            let again = ReportRequest(
              report, query: Self.query(request.href(cell)), at: api.api.now())
            let named = try again.cell()
            #expect(named == cell)
          }
        }
        #expect(followed > 0 || report == .intake, "\(report)")
      }
      var march = try Self.choices(.churn)
      march.from = CalendarDate(year: 2026, month: 3, day: 1)
      march.to = CalendarDate(year: 2026, month: 3, day: 31)
      let cell = try ReportCell(of: .churn, march, column: "expired", row: [:])
      let request = ReportRequest(.churn, query: nil, at: api.api.now())
      let page = try await get(request.href(cell), &browser)
      #expect(page.contains("/admin/original-transactions/s4?environment=production"))
      #expect(!page.contains("<p class=\"lead\">"))
      let state = try ReportCell(
        of: .subscriptions, try Self.choices(.subscriptions), column: "number",
        row: ["state": "in_billing_retry"])
      #expect(
        try await get(
          ReportRequest(.subscriptions, query: nil, at: api.api.now()).href(state), &browser
        ).contains(">Subscriptions by state: Billing retry</h1>"))
      let file = try await browser.get(request.href(cell) + "&format=csv")
      #expect(file.text.contains("s4"))
      #expect(file.text.split(separator: "\r\n").count == 2)
    }
  }

  @Test(arguments: [
    ("from=2026-02-30", "must be an ISO 8601 date"), ("bucket=year", "must be day, week or month"),
    ("from=2026-03-02&to=2026-03-01", "is after the last day"),
    ("time_zone=Mars/Phobos", "must be a name of the IANA database"),
    ("known_at=yesterday", "must be an RFC 3339 time"),
    ("product=%22%3E%3Cscript%3E&from=never", "must be an ISO 8601 date"),
    ("reporting_currency=eur", "must be a code of ISO 4217"),
  ])
  func `a wrong choice gives the form back`(query: String, message: String) async throws {
    try await TestAPI.run { api in
      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get("/admin/reports/mrr?\(query)")
      #expect(page.status == 400)
      // Once, at its field.
      #expect(page.text.components(separatedBy: message).count == 2)
      #expect(page.contains("<form class=\"choices\""))
      #expect(!page.contains("\"><script>"))
      // A number's list is refused with the report's form, too.
      let list = try await browser.get(
        "/admin/reports/mrr/transactions?cell=new_milliunits&\(query)")
      #expect(list.status == 400)
      #expect(list.contains(message) && list.contains("<form class=\"choices\""))
    }
  }

  @Test func `products are chosen from the catalogue, and rare choices are folded`() async throws {
    try await withSamples { _, browser in
      let page = try await get(
        try Self.address(.mrr, [("product", "gone"), ("reporting_currency", "EUR")]), &browser)
      for option in [
        #"<option value="">All products</option>"#,
        #"<option value="production" selected>Production</option>"#,
        #"<option value="gone" selected>gone</option>"#,
        #"<option value="EUR" selected>EUR</option>"#, #"<option value="Europe/Berlin">"#,
        #"<option value="month" selected>Month</option>"#,
      ] {
        #expect(page.contains(option), "\(option)")
      }
      // The range in force, and the choices that are not as usual: the currency and the moment.
      #expect(page.contains(#"name="from" type="date" value="2025-05-01""#))
      #expect(page.contains(#"<details class="rare"><summary>More filters (2 set)</summary>"#))
      let wrong = try await get("/admin/reports/mrr?time_zone=Mars", &browser)
      #expect(wrong.contains(#"<details class="rare" open>"#))
      let before = try await get(
        try Self.address(
          .active, [("from", "2026-02-01"), ("to", "2026-03-31"), ("compare", "true")]), &browser)
      #expect(before.text.components(separatedBy: "1 Dec 2025 – 31 Jan 2026").count == 2)
      #expect(before.contains("Active, previous period"))
      #expect(before.contains(">Change</th>"))
    }
  }

  @Test func `a list of charges has their sum in each currency, and names those without an owner`()
    async throws
  {
    try await withSamples { _, browser in
      let march = [("from", "2026-03-01"), ("to", "2026-03-31")]
      let list = try Self.address(.revenue, march).replacing(
        "/revenue?", with: "/revenue/transactions?cell=charges&")
      let page = try await get(list, &browser)
      #expect(page.contains("<dt>Amount</dt><dd>80.97 EUR, 12.48 USD<"))
      // The charge of February without an owner is among those that have one.
      let february = list.replacing("from=2026-03-01", with: "from=2026-02-01")
      let all = try await get(february, &browser)
      #expect(all.contains(">unclaimed<") && !page.contains(">unclaimed<"))
    }
  }

  @Test func `what there is not is said`() async throws {
    try await TestAPI.run { api in
      var browser = try await AdminBrowser.loggedIn(api)
      #expect(try await browser.get("/admin/reports/weather").status == 404)
      for query in [
        "", "cell=churn_rate", "cell=expired&row_a;b=1", "cell=expired&row_without=1%3D1",
        "cell=expired&from=never",
      ] {
        #expect(
          try await browser.get("/admin/reports/churn/transactions?\(query)").status == 400,
          "\(query)")
      }
      // No page is before the first one.
      for offset in ["-5", "x", "99999999999999999999", "5000"] {
        let path = "/admin/reports/churn/transactions?cell=expired&offset=\(offset)"
        #expect(try await browser.get(path).status == 200, "\(offset)")
      }
      #expect(
        try await browser.get("/admin/reports/unclaimed").contains(
          "<p class=\"verdict good\">Nothing to do"))
      #expect(try await browser.get("/admin/reports/retention?from=0001-01-01").status == 400)
      // Empty form fields are ignored.
      #expect(try await browser.get("/admin/reports/churn?from=&to=&product=").status == 200)
    }
  }

  @Test func `unclaimed charges say what is to be done, and orders by which date they count`()
    async throws
  {
    try await withSamples { _, browser in
      let waiting = try await get(try Self.address(.unclaimed), &browser)
      #expect(waiting.contains("<p class=\"verdict warning\">1 paid charge ("))
      #expect(waiting.contains("<a href=\"/admin/unclaimed\">Assign charges</a>"))
      #expect(waiting.contains(">Waiting for an account"))
      let none = try await get(
        try Self.address(.unclaimed, [("environment", "sandbox")]), &browser)
      // No advice on a part of the charges.
      #expect(!none.contains("class=\"verdict") && !none.contains("Assign charges"))
      let orders = try await get(try Self.address(.orders), &browser)
      let tables = orders.text.components(separatedBy: "<section class=\"report\">").dropFirst()
      #expect(
        tables.map { $0.contains("title=\"not_delivered\"") } == [false, true])
      #expect(
        tables.map { $0.contains("title=\"opened\"") } == [true, false])
    }
  }

  @Test func `a number of a cohort is shown as the share that led to it`() async throws {
    try await withSamples { api, browser in
      for (report, column, row, words) in [
        (Report.retention, "retained", [:], "Retention|4 of 4 = 100.0%"),
        (
          .lifetimeValue, "revenue_milliunits", ["currency": "EUR"],
          "Revenue per subscription|40.96 / 4 = 10.24 EUR"
        ),
      ] as [(Report, String, [String: String?], String)] {
        var choices = try Self.choices(report)
        let january = CalendarDate(year: 2026, month: 1, day: 1)
        (choices.from, choices.to, choices.period) = (january, january, 1)
        var shared = row
        for name in ["cohort"] { shared[name] = january.text }
        let cell = try ReportCell(of: report, choices, column: column, row: shared)
        let page = try await get(
          ReportRequest(report, query: nil, at: api.api.now()).href(cell), &browser)
        let parts = words.split(separator: "|")
        #expect(page.contains("<dt>\(parts[0])</dt><dd>\(parts[1])"), "\(report): \(page.text)")
      }
      // The beginning of a subscription has no amount.
      let page = try await get(
        try Self.address(.lifetimeValue).replacing(
          "lifetime-value?",
          with: "lifetime-value/transactions?cell=cohort_size&from=2026-01-01&to=2026-01-01&"
            + "row_cohort=2026-01-01&row_currency=EUR&"), &browser)
      #expect(page.contains("<p class=\"number-of\">4</p>"))
      #expect(!page.contains("Amount"))
    }
  }

  @Test func `the file beside the list of actions is that list`() async throws {
    try await withSamples { api, browser in
      api.apple.simulation.advance(by: .days(104) + .hours(12))
      browser = try await AdminBrowser.loggedIn(api)
      let page = try await get("/admin/reports/audit?from=2026-01-01", &browser)
      let link = try #require(
        page.text.firstMatch(
          of: try Regex(#"href="([^"]+)">CSV<"#, as: (Substring, Substring).self))?.1)
      let file = try await browser.get(String(link).replacing("&amp;", with: "&"))
      #expect(file.text.contains("b wrote that a paid."))
    }
  }

  @Test func `without an administrator action nothing is counted`() async throws {
    try await TestAPI.run { api in
      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await get("/admin/reports/audit", &browser)
      #expect(page.contains("No actions.") && !page.contains("Counts"))
      // An action is never changed later.
      #expect(!page.contains("As known now"))
      #expect(try await get("/admin/reports/ownership", &browser).contains("As known now"))
    }
  }

  @Test func `they are not shown without a session`() async throws {
    try await TestAPI.run { api in
      var browser = AdminBrowser(api)
      for path in [
        "/admin", "/admin/reports", "/admin/reports/mrr", "/admin/reports/mrr?format=csv",
      ] {
        let page = try await browser.get(path)
        #expect(page.status == 303, "\(path)")
      }
    }
  }

  @Test func `as known then is another report, which never changes`() async throws {
    try await withSamples { api, browser in
      // March is over.
      api.apple.simulation.advance(by: .days(104))
      browser = try await AdminBrowser.loggedIn(api)
      let march = [("from", "2026-03-01"), ("to", "2026-03-31")]
      let now = try await get(AdminURL.report("active", choices: march), &browser)
      let then = AdminURL.report(
        "active", choices: march + [("known_at", "2026-03-31T23:59:59.999Z")])
      #expect(now.contains("As known on"))
      // Its last period has ended, and a comparison stays one.
      #expect(
        try await get(
          AdminURL.report("active", choices: march + [("compare", "true")]), &browser
        ).contains("known_at=2026-03-31T23%3A59%3A59.999Z&amp;compare=true"))
      #expect(now.contains(PageText.escaped(then)))
      let page = try await get(then, &browser)
      #expect(page.contains(">Mar 2026<") && !page.contains("so far"))
      #expect(page.contains("this never changes") && page.contains("As known now"))
      // Some is not known as it was, and that is said.
      for (report, more, words) in [
        ("ownership", "", "as far as the definition says"),
        ("mrr", "&reporting_currency=EUR", "exchange rates that are in the table now"),
      ] {
        let path = "/admin/reports/\(report)?known_at=2026-03-31T00:00:00Z\(more)"
        let page = try await get(path, &browser)
        #expect(page.contains(words) && !page.contains("this never changes"), "\(report)")
      }
      let future = try await get("/admin/reports/active?known_at=2030-01-01", &browser)
      #expect(future.contains("which is in the future"))
    }
  }
}
