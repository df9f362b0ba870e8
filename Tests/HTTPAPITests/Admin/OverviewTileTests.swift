import Subscriptions
import Testing

@testable import HTTPAPI
@testable import Reports

/// The numbers of the overview, from what the reports answered.
struct OverviewTileTests {
  private static let now = Timestamp(CalendarDate(year: 2026, month: 4, day: 15))

  private func table(_ report: Report, _ columns: [ReportColumn], _ rows: [[ReportValue]])
    -> ReportTable
  {
    ReportTable(report: report, asOf: Self.now, columns: columns, rows: rows, isCutShort: false)
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
    answers.tables[.refunds] = table(
      .revenue, [week, ReportColumn("refunds", .number)], [[.date("2026-03-30"), .number(2)]])
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
    #expect(try tile("Active").change == "−1 on last week")
    #expect(try tile("Refunds").value == "0")
    #expect(try tile("Refunds").change == "as many as last week")
    #expect(try tile("MRR").value == "0")
    // What is not answered is said, and not guessed.
    #expect(try tile("Trials").note == "Working")
    #expect(try tile("Churn").note == "Not available")
    #expect(try tile("Trials").value == "…")
  }
}
