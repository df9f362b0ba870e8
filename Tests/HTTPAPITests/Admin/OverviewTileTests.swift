import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI
@testable import Reports

/// The overview's numbers, from report results.
struct OverviewTileTests {
  private static let now = Timestamp(CalendarDate(year: 2026, month: 4, day: 15))

  private func table(_ report: Report, _ columns: [ReportColumn], _ rows: [[ReportValue]])
    -> ReportTable
  {
    ReportTable(report: report, asOf: Self.now, columns: columns, rows: rows, isCutShort: false)
  }

  private func pastWeeks(
    _ report: Report, _ numbers: [(weeksAgo: Int64, measure: String, number: Int64)]
  ) -> ReportTable {
    table(
      report, PastWeeks.columns,
      numbers.map { [.number($0.weeksAgo), .text($0.measure), .number($0.number)] })
  }

  @Test func `without actions the overview says why`() {
    var answers = OverviewAnswers()
    #expect(answers.noActions == "No manual changes.")
    answers.failed = [.recentActions]
    #expect(answers.noActions == "Not available: the query failed.")
    answers.working = [.recentActions]
    #expect(answers.noActions == "Not known yet: this page reloads.")
  }

  @Test func `a week without any charge is a week all the same`() throws {
    var answers = OverviewAnswers()
    let week = ReportColumn("from_day", .date)
    answers.tables[.active] = table(
      .active, [week, ReportColumn("active", .number)],
      [
        [.date("2026-03-30"), .number(3)], [.date("2026-04-06"), .number(1)],
        [.date("2026-04-13"), .number(0)],
      ])
    // A month without a row has no charges and no refunds.
    answers.tables[.revenue] = table(
      .revenue,
      [
        week, ReportColumn("currency", .text), ReportColumn("refunds", .number),
        ReportColumn("net_by_refund_milliunits", .money),
      ],
      [
        [
          .date("2026-02-01"), .text("EUR"), .number(1),
          .money(milliunits: 70_000, currency: "EUR"),
        ],
        [
          .date("2026-04-01"), .text("EUR"), .number(2),
          .money(milliunits: 50_005, currency: "EUR"),
        ],
        [
          .date("2026-04-01"), .text("USD"), .number(3),
          .money(milliunits: -1990, currency: "USD"),
        ],
      ])
    answers.tables[.mrr] = table(
      .mrr, [week, ReportColumn("currency", .text), ReportColumn("mrr_milliunits", .money)],
      [
        [
          .date("2026-03-30"), .text("EUR"), .money(milliunits: 5000, currency: "EUR"),
        ]
      ])
    answers.working = [.trials]
    let tiles = answers.groups.flatMap(\.tiles)
    func tile(_ label: String) throws -> Tile { try #require(tiles.first { $0.label == label }) }
    #expect(try tile("Active").value == "0")
    #expect(try tile("Active").change == "−1 since 12 Apr")
    #expect(try tile("Refunds this month").value == "5")
    #expect(try tile("Refunds this month").note == "Mar 2026: 0")
    #expect(
      try tile("Refunds this month").href
        == "/admin/reports/revenue/transactions?cell=refunds&from=2026-04-01&to=2026-04-30"
        + "&as_of=\("\(Self.now)".replacing(":", with: "%3A"))")
    #expect(try tile("Net revenue this month, EUR").value == "50.01 EUR")
    #expect(try tile("Net revenue this month, EUR").note == "Mar 2026: 0.00 EUR")
    #expect(
      try tile("Net revenue this month, EUR").sparkline?.description
        == "By month: from 0.00 EUR to 50.01 EUR so far, between 0.00 EUR and 70.00 EUR")
    // The month so far is a dot after the line.
    let months = try #require(tile("Refunds this month").sparkline)
    #expect(months.lastY == "3" && !months.line.contains("100"))
    #expect(try tile("Net revenue this month, USD").value == "−1.99 USD")
    #expect(try tile("MRR").value == "0")
    // Tiles without an answer say so.
    #expect(try tile("Open trials").note == "Loading")
    #expect(try tile("Weekly churn").note == "Not available")
    #expect(try tile("Open trials").value == "…")
  }

  @Test func `what is due is compared with what was due a week ago, once that is known`() throws {
    var answers = OverviewAnswers()
    answers.tables[.renewalsDue] = table(
      .renewalsDue,
      [
        ReportColumn("day", .date), ReportColumn("currency", .text),
        ReportColumn("number", .number), ReportColumn("amount_milliunits", .money),
      ],
      [
        [
          .date("2026-04-16"), .text("EUR"), .number(3),
          .money(milliunits: 5000, currency: "EUR"),
        ],
        [.date("2026-04-17"), .none, .number(1), .none],
      ])
    answers.working = [.renewalsDueBefore]
    func due() throws -> Tile {
      try #require(answers.groups.flatMap(\.tiles).first { $0.label == "Renewals due" })
    }
    #expect(try due().value == "4")
    #expect(try due().note == "next 7 days, 5.00 EUR")
    #expect(try due().change == nil && due().sparkline == nil)
    answers.tables[.renewalsDueBefore] = pastWeeks(
      .renewalsDue, [(1, "renewals_due", 6), (11, "renewals_due", 9)])
    #expect(try due().change == "−2 vs 7 days ago")
    #expect(try due().changeTone == Tone.warning)
    #expect(
      try due().sparkline?.description
        == "Renewals due within 7 days: from 9 to 4, between 0 and 9")
  }

  @Test func `intake problems link to the page that fixes them`() throws {
    var answers = OverviewAnswers()
    answers.tables[.intakeFailures] = pastWeeks(
      .intake,
      [
        (0, "submissions_rejected", 3), (1, "submissions_rejected", 1),
        (0, "notifications_rejected", 2), (0, "notifications_unbelievable", 1),
        (1, "notifications_rejected", 4), (0, "notifications_missed", 5),
        (1, "notifications_missed", 5), (0, "apple_failures", 7), (12, "apple_failures", 99),
        // Neither failures nor notifications from Apple.
        (0, "notifications_listed", 1000), (0, "notifications_refused", 1000),
      ])
    answers.tables[.intake] = table(
      .intake,
      [
        ReportColumn("measure", .text), ReportColumn("number", .number),
        ReportColumn("oldest_age_ms", .duration),
      ],
      [
        [.text("submissions_open"), .number(4), .duration(milliseconds: 60_000)],
        [.text("jobs_overdue"), .number(1), .duration(milliseconds: 7_200_000)],
        [.text("jobs_parked"), .number(2), .duration(milliseconds: 1000)],
        [.text("deliveries_parked"), .number(8), .duration(milliseconds: 1000)],
        [.text("deliveries_waiting"), .number(500), .duration(milliseconds: 1000)],
        [.text("notifications_refused"), .number(1000), .none],
      ])
    let tiles = try #require(answers.groups.first { $0.heading == "Processing" }).tiles
    #expect(
      tiles.map { [$0.label, $0.value, $0.change, $0.changeTone, $0.note, $0.href] } == [
        [
          "Processing backlog", "5", "oldest: 2 h", Tone.bad,
          "receipts, notifications, jobs", "/admin/reports/intake?days=7",
        ],
        [
          "Failed", "10", "oldest: 1 s", Tone.quiet, "jobs and webhook deliveries",
          "/admin/parked",
        ],
        [
          "Rejected receipts", "3", "+2 vs previous 7 days", Tone.warning, "last 7 days",
          "/admin/rejected",
        ],
        [
          "Unprocessable notifications", "3", "−1 vs previous 7 days", Tone.good,
          "last 7 days, 1,000 forged or malformed notifications refused",
          "/admin/reports/intake?days=7",
        ],
        [
          "Missed notifications", "5", nil, nil, "last 7 days",
          "/admin/reports/intake/transactions?cell=number&days=7&row_measure=notifications_missed&report_days=7",
        ],
        [
          "Failed requests to Apple", "7", "+7 vs previous 7 days", Tone.warning, "last 7 days",
          "/admin/reports/intake/transactions?cell=number&days=7&row_measure=apple_failures&report_days=7",
        ],
      ])
    // The refused posts are on another page than the notifications.
    #expect(tiles.compactMap(\.noteHref) == ["/admin/rejected"])
    #expect(
      tiles[5].sparkline?.description
        == "Failed requests to Apple per week: from 0 to 7, between 0 and 7")
    #expect(tiles[0].sparkline == nil)
    // Without a comparison, none is known.
    func missed() -> [String?] {
      answers.groups.flatMap(\.tiles).filter { $0.label == "Missed notifications" }
        .flatMap { [$0.value, $0.note] }
    }
    answers.isHistoryUnknown = true
    #expect(missed() == ["5", "last 7 days"])
    answers.tables[.intakeFailures] = pastWeeks(.intake, [(0, "apple_failures", 1)])
    #expect(missed() == ["–", "never compared"])
    answers.isHistoryUnknown = false
    #expect(missed() == ["0", "last 7 days"])
    answers.tables[.intakeFailures] = nil
    answers.working = [.intakeFailures]
    #expect(
      answers.groups.flatMap(\.tiles).filter { $0.note == "Loading" }.map(\.label) == [
        "Rejected receipts", "Unprocessable notifications", "Missed notifications",
        "Failed requests to Apple",
      ])
  }
}
