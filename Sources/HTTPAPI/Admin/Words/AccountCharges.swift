import Foundation
import LedgerStorage
import Subscriptions

/// The charges that an account owns, with their lines.
struct AccountCharges: Sendable {
  /// A charge of the account.
  struct Owned: Sendable {
    var report: ChargeReport
    /// The end of what was paid for; nil: never, or nothing that lasts.
    var end: Timestamp?
  }

  /// The latest first.
  let owned: [Owned]

  /// More lanes than this are no picture.
  private static let mostLanes = 12

  init(of account: Account, in ledger: Ledger, _ catalogue: Catalogue) async throws {
    var owned: [Owned] = []
    var seen: Set<LineID> = []
    for line in try await ledger.lines(of: account.key) where !seen.contains(line) {
      guard let family = try await ledger.family(of: line) else { continue }
      // Lines that Apple links come as one.
      seen.formUnion(family.line.heads.keys)
      owned += family.rule.charges.compactMap { charge in
        ChargeReport(of: charge.id, in: family, catalogue: catalogue)
      }
      .filter { $0.recorded.decision.owner == account.key }
      .map { Owned(report: $0, end: $0.end(in: catalogue)) }
    }
    self.owned = owned.sorted {
      ($0.report.charge.date, $0.report.charge.id) > ($1.report.charge.date, $1.report.charge.id)
    }
  }

  /// The charge that fulfils an order; nil: the account does not own it.
  func charge(fulfilling order: UUID) -> ChargeReport? {
    owned.first { $0.report.orderID == order }?.report
  }

  /// A lane for each original transaction, the latest first; nil without charges.
  func timeline(of accountID: String, at now: Timestamp) -> TimelinePicture? {
    guard let begin = owned.map(\.report.charge.date).min() else { return nil }
    let end = max(owned.compactMap(\.end).max() ?? now, now)
    let margin = Duration.milliseconds((end.milliseconds - begin.milliseconds) / 60)
    var lines: [LineID] = []
    for charge in owned where !lines.contains(charge.report.charge.id.line) {
      lines.append(charge.report.charge.id.line)
    }
    let shown = lines.prefix(Self.mostLanes)
    let left = lines.count - shown.count
    return TimelinePicture(
      TimelineSketch(
        id: "charges", title: "The charges of account \(accountID)",
        description: "\(Count.text(owned.count, "charge")) of "
          + Count.text(lines.count, "original transaction")
          + (left > 0 ? ", of which the latest \(shown.count) are shown" : "")
          + ". The list below tells it in words.",
        from: begin - margin, until: end + margin, now: now,
        lanes: shown.map { line in
          let charges = owned.filter { $0.report.charge.id.line == line }
          return TimelineSketch.Lane(
            label: Self.shortened(line.originalTransactionID.rawValue), height: 22,
            spans: charges.reversed().flatMap { $0.spans(until: end) },
            marks: charges.compactMap(\.refund))
        }))
  }

  /// The last characters tell identifiers apart.
  private static func shortened(_ text: String) -> String {
    text.count > 10 ? "…\(text.suffix(9))" : text
  }
}

extension AccountCharges.Owned {
  private var href: String { report.charge.id.href }

  private var text: String {
    var text = report.charge.date.dayText
    if let end { text += " to \(end.dayText)" }
    text += ": \(report.charge.productID), \(Price.text(of: report.transaction))"
    return report.charge.revocation == nil ? text : text + ", refunded"
  }

  private var takenBackAt: Timestamp? {
    [report.charge.revocation?.at, report.charge.supersededAt].compactMap(\.self).min()
  }

  /// What was paid for, and what of it was taken back.
  fileprivate func spans(until last: Timestamp) -> [TimelineSketch.Span] {
    let start = report.charge.date
    let end = max(end ?? last, start)
    let ended = max(min(takenBackAt ?? end, end), start)
    var names = "span-period owner-1"
    if report.transaction.periodType == .trial { names += " trial" }
    let span = TimelineSketch.Span(
      from: start, until: ended, classNames: names,
      pattern: report.charge.revocation == nil ? nil : .refunded,
      label: report.charge.productID.rawValue, text: text, href: href)
    guard ended < end else { return [span] }
    return [
      TimelineSketch.Span(
        from: ended, until: end, classNames: "span-lost", text: text, href: href, inset: 6),
      span,
    ]
  }

  fileprivate var refund: TimelineSketch.Mark? {
    report.charge.revocation.map {
      TimelineSketch.Mark(at: $0.at, symbol: .refund, text: text, href: href, offset: 11)
    }
  }
}
