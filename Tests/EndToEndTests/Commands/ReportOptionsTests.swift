import ArgumentParser
import Reports
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("Options of tenure report")
struct ReportOptionsTests {
  private static let given: [ReportParameter: [String]] = [
    .from: ["--from", "2026-01-01"], .to: ["--to", "2026-01-31"], .bucket: ["--bucket", "day"],
    .timeZone: ["--time-zone", "Europe/Berlin"], .product: ["--product", "monthly"],
    .environment: ["--environment", "sandbox"],
    .includeFamilyShared: ["--include-family-shared"], .includeTrials: ["--include-trials"],
    .includeGrants: ["--include-grants"], .by: ["--by", "product"],
    .dateOf: ["--date-of", "charge"],
    .reportingCurrency: ["--reporting-currency", "EUR"],
    .knownAt: ["--known-at", "2026-01-31T00:00:00Z"], .asOf: ["--as-of", "2026-01-31T00:00:00Z"],
    .days: ["--days", "7"], .period: ["--period", "1"], .includeSandbox: ["--include-sandbox"],
    .column: ["--column", "new"],
  ]

  @Test("each is a choice of its own where the report has it, and is refused where not")
  func each() throws {
    #expect(Set(Self.given.keys) == Set(ReportParameter.allCases))
    let given = try Self.given.mapValues(ReportOptions.parse)
    for report in Report.all {
      var seen: Set<ReportChoices> = [ReportChoices()]
      for (parameter, options) in given {
        if report.parameters.contains(parameter) {
          let isNew = seen.insert(try options.choices(for: report)).inserted
          #expect(isNew, "\(report) \(parameter)")
        } else {
          #expect(throws: ReportFault.self) { try options.choices(for: report) }
        }
      }
    }
    let items = try ReportOptions.parse(["--items", "--limit", "5"]).choices(for: .churn)
    #expect(items.listsItems)
    #expect(items.limit == 5)
  }
}
