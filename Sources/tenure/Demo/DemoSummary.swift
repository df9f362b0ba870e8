import LedgerStorage
import Subscriptions

/// How the story came out, as a table.
struct DemoSummary {
  let checks: [DemoCheck]
  let audit: LedgerAudit

  func print(with printer: StoryPrinter) {
    printer.heading("∑", "What came out")
    printer.table(
      [["", "scenario", "charge", "expected owner", "owner", "rule"]]
        + checks.compactMap { check in
          check.ownership.map {
            [
              StoryPrinter.mark(check.isMet), check.scenario, $0.what, $0.expected ?? "nobody",
              $0.owner ?? "nobody", $0.rule.rawValue,
            ]
          }
        })
    let met = checks.count(where: \.isMet)
    let scenarios = Set(checks.map(\.scenario)).count
    printer.line()
    printer.remark("\(scenarios) scenarios: \(met) of \(checks.count) outcomes as expected.")
    for check in checks where !check.isMet {
      printer.remark("✗ scenario \(check.scenario): \(check.sentence)")
    }
    printer.remark(
      "The ledger, recomputed: \(audit.lines) original transactions, \(audit.charges) charges, "
        + "\(audit.entries) entries, \(audit.holdings) holdings, \(audit.orders) orders; "
        + "\(audit.differences.count) differences.")
    for difference in audit.differences { printer.remark("✗ \(difference)") }
  }
}
