import Foundation
import LedgerStorage
import Subscriptions

/// Tells the terminal how a year goes, and how it came out.
final class YearDiary {
  /// How many differences are told; their number always is.
  private static let toldDifferences = 20

  private let printer: StoryPrinter
  private let begin = ContinuousClock.now
  private let isTerminal = isatty(STDOUT_FILENO) == 1
  private var hasBegun = false
  private var month = ""

  init(printer: StoryPrinter) {
    self.printer = printer
  }

  /// Tells how far the year is: in one line of a terminal, or else a line for each month.
  func note(_ year: Year) {
    if !hasBegun { open(year.plan) }
    let day = year.now.day
    guard isTerminal || day.prefix(7) != month else { return }
    month = String(day.prefix(7))
    let text = "  \(day)  \(year.submissions) submissions, \(year.oracle.events) of Apple's deeds"
    printer.write((isTerminal ? "\r" : "") + text + (isTerminal ? "" : "\n"))
  }

  private func open(_ plan: YearPlan) {
    hasBegun = true
    printer.heading("∞", "\(plan.customers) customers live through \(plan.length.months) months")
    printer.line(
      """
      Cards fail, accounts switch, plans change, money is given back. Apple's notifications come
      late, twice and in the wrong order, and those of one week are lost; twice Apple is down, for
      hours and for more than a day.
      """)
  }

  /// Tells how it came out.
  func close(_ comparison: YearComparison) {
    printer.line()
    let seconds = (ContinuousClock.now - begin).components.seconds
    printer.remark(
      "\(comparison.submissions) submissions and \(comparison.notifications) notifications ("
        + "\(comparison.lost) lost, and found in Apple's history) about "
        + "\(comparison.charges) charges, \(comparison.refunds) of them refunded, in "
        + "\(seconds) seconds.")
    printer.check(
      comparison.differences.isEmpty,
      "What Tenure says of \(comparison.accounts) accounts of \(comparison.customers) customers - "
        + "what each may use until when, what it owns, \(comparison.orders) orders, what "
        + "\(comparison.events) events come to - has \(comparison.differences.count) differences "
        + "from what is true.")
    printer.check(
      comparison.audit.isClean,
      "The ledger, recomputed: \(comparison.audit.entries) entries, "
        + "\(comparison.audit.differences.count) differences.")
    for difference in comparison.differences.prefix(Self.toldDifferences) {
      printer.remark("✗ \(difference)")
    }
    for difference in comparison.audit.differences.prefix(Self.toldDifferences) {
      printer.remark("✗ \(difference)")
    }
  }
}
