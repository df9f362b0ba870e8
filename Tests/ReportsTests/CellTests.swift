import Foundation
import LedgerStorage
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import Reports

/// The items behind a number add up to it.
struct CellTests {
  @Test func `every number of every report is the sum of what is counted in it`() async throws {
    let seed = UInt64.random(in: .min ... .max)
    print("numbers and what is counted in them: seed \(seed)")
    try await withScratchDatabase { database in
      var story = RandomLedger(seed)
      let now = try await story.happen(in: Ledger(database: database), database)
      let reports = ReportReader(database: database)
      var seen: [Report: Int] = [:]
      for report in Report.all {
        for choices in story.choices(of: report, at: now) {
          let table = try await reports.table(of: report, choices, at: now)
          for index in table.rows.indices {
            for column in table.columns {
              guard let cell = table.cell(column.name, inRow: index, of: choices),
                let value = table.value(column.name, inRow: index)
              else { continue }
              let found = try await reports.items(of: cell, at: now)
              #expect(
                found.sum.digits == value.digits,
                "\(report) \(column.name) of row \(table.rows[index]), \(cell), seed \(seed)")
              #expect(found.items.rows.count == Int(found.count))
              if found.count > 0 { seen[report, default: 0] += 1 }
            }
          }
        }
      }
      // A test of empty rows would say nothing. Something rare may not happen in one life.
      #expect(seen.count >= Report.all.count - 1, "\(seen), seed \(seed)")
    }
  }

  @Test func `every number leads to what is counted in it`() {
    let sums: [ReportColumn.Kind] = [.number, .money, .fraction]
    var without: Set<String> = []
    for report in Report.all {
      for column in report.columns
      where sums.contains(column.kind) && report.rule(column.name) == nil {
        without.insert("\(report.name).\(column.name)")
      }
    }
    #expect(
      without == [
        "mrr.exchange_milliunits", "retention.period", "revenue.proceeds_milliunits",
        "lifetime-value.period", "lifetime-value.proceeds_milliunits",
        "lifetime-value.arpu_milliunits", "lifetime-value.ltv_milliunits",
      ])
  }

  @Test func `a number is that of its row and its moment, whenever it is looked into`() throws {
    let now = Timestamp(CalendarDate(year: 2026, month: 4, day: 15))
    let table = ReportTable(
      report: .active, asOf: now,
      columns: [
        ReportColumn("from_day", .date), ReportColumn("to_day", .date),
        ReportColumn("segment", .text), ReportColumn("opening", .number),
        ReportColumn("new", .number),
      ],
      rows: [
        [.date("2026-03-01"), .date("2026-03-31"), .text("month"), .number(2), .number(1)]
      ], isCutShort: false)
    var choices = ReportChoices()
    choices.by = .product
    choices.timeZone = "Europe/Berlin"
    for (column, from, to) in [
      ("new", "2026-03-01", "2026-03-31"), ("opening", "2026-02-28", "2026-02-28"),
    ] {
      let cell = try #require(table.cell(column, inRow: 0, of: choices))
      #expect(cell.choices.asOf == now)
      #expect(cell.choices.timeZone == "Europe/Berlin")
      #expect(cell.choices.from == CalendarDate(iso8601: from))
      #expect(cell.choices.to == CalendarDate(iso8601: to))
      #expect(cell.row == ["product_id": "month"])
    }
    // The items of converted amounts are in other currencies.
    choices.reportingCurrency = "EUR"
    #expect(table.cell("new", inRow: 0, of: choices) == nil)
  }

  @Test func `a number that the report does not have is refused`() {
    let choices = ReportChoices()
    #expect(throws: ReportFault.self) {
      try ReportCell(of: .churn, choices, column: "churn_rate", row: [:])
    }
    #expect(throws: ReportFault.self) {
      try ReportCell(of: .churn, choices, column: "1; DROP TABLE movement", row: [:])
    }
    #expect(throws: ReportFault.self) {
      try ReportCell(of: .churn, choices, column: "expired", row: ["1 OR true": nil])
    }
  }
}

extension ReportValue {
  /// A number without its unit.
  fileprivate var digits: String {
    switch self {
    case .number(let number), .money(let number, _): "\(number)"
    // The database writes a rate of 1 with or without zeros behind it.
    case .fraction(let text):
      text.contains(".") ? String(text.prefix { $0 != "." }) : text
    default: "\(self)"
    }
  }
}
