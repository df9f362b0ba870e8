import Foundation
import HTTPAPI
import LedgerStorage
import Subscriptions

/// The charges on an account's page: all are counted, only those shown are read in full.
struct AccountCharges: Sendable {
  struct List: Sendable {
    /// Latest first.
    let all: [AccountCharge]
    fileprivate let shown: [AccountCharge]
    let paging: Paging?

    fileprivate init(_ all: [AccountCharge], part: PagePart) throws {
      self.all = all
      (shown, paging) = try part.slice(of: all) { $0.id.anchor }
    }
  }

  fileprivate struct Shown: Sendable {
    var report: ChargeReport
    /// The end of the paid period, or nil if there is none.
    var end: Timestamp?
    /// The administrator action that assigned or released it.
    var act: AdministratorAction?
  }

  let ties: RelatedAccounts
  let owned: List
  /// Submitted for this account and owned by others.
  let claimed: List
  /// Unowned charges of the account's original transactions.
  let unclaimed: List
  private let account: Account
  /// The latest original transactions with owned charges, shown in the timeline.
  private let lanes: [OriginalTransactionKey]
  private let laneCount: Int
  private let shown: [Charge.ID: Shown]

  private static let mostLanes = 12

  /// The requested page of each list.
  struct Parts: Sendable {
    var owned: PagePart
    var claimed: PagePart
    var unclaimed: PagePart
  }

  init(of account: Account, parts: Parts, in ledger: Ledger, _ catalogue: Catalogue) async throws {
    self.account = account
    ties = try await ledger.accounts.ties(of: account.key)
    owned = try List(ties.charges.filter { $0.owner == account.key }, part: parts.owned)
    claimed = try List(
      ties.charges.filter { $0.owner != nil && $0.owner != account.key }, part: parts.claimed)
    unclaimed = try List(ties.charges.filter { $0.owner == nil }, part: parts.unclaimed)
    var (lanes, seen): ([OriginalTransactionKey], Set<OriginalTransactionKey>) = ([], [])
    for charge in owned.all where seen.insert(charge.id.line).inserted {
      lanes.append(charge.id.line)
    }
    laneCount = lanes.count
    lanes = Array(lanes.prefix(Self.mostLanes))
    self.lanes = lanes
    let wanted =
      owned.shown + claimed.shown + unclaimed.shown
      + owned.all.filter { lanes.contains($0.id.line) }
    shown = try await Self.read(wanted.map(\.id), in: ledger, catalogue)
  }

  private static func read(_ charges: [Charge.ID], in ledger: Ledger, _ catalogue: Catalogue)
    async throws -> [Charge.ID: Shown]
  {
    var families: [OriginalTransactionKey: RecordedOriginalTransaction] = [:]
    for family in try await ledger.ownership.families(of: Set(charges.map(\.line))) {
      for line in family.line.heads.keys { families[line] = family }
    }
    var shown: [Charge.ID: Shown] = [:]
    for id in charges where shown[id] == nil {
      guard let family = families[id.line],
        let report = ChargeReport(of: id, in: family, catalogue: catalogue)
      else { continue }
      shown[id] = Shown(report: report, end: report.end(in: catalogue))
    }
    let placed = shown.values.filter { $0.report.recorded.decision.isByAdministrator }
      .map(\.report.charge.id)
    let placements = try await ledger.accounts.placements(on: Set(placed.map(\.line)))
    let acts = try await OverrideActions(of: placements, in: ledger)
    for id in placed {
      shown[id]?.act = placements.first { $0.entry.content.places(id) }
        .flatMap(acts.act(behind:))
    }
    return shown
  }

  func claimedSection(at now: Timestamp) -> ChargeSection? {
    section(
      "Submitted here, owned by another account", "The reason is shown with each.", claimed,
      at: now)
  }

  func unclaimedSection(at now: Timestamp) -> ChargeSection? {
    section(
      "Unclaimed charges",
      "Unowned charges of original transactions that this account owned or submitted. They grant "
        + "no access until an app submits them or an administrator assigns them.",
      unclaimed, at: now)
  }

  private func section(_ title: String, _ lead: String, _ list: List, at now: Timestamp)
    -> ChargeSection?
  {
    guard !list.all.isEmpty else { return nil }
    return ChargeSection(
      title: title, lead: lead, charges: rows(of: list, at: now), paging: list.paging)
  }

  func rows(of list: List, at now: Timestamp) -> [AccountChargeRow] {
    list.shown.compactMap { shown[$0.id] }.map {
      AccountChargeRow($0.report, end: $0.end, of: account, placedBy: $0.act, at: now)
    }
  }

  /// The charge that fulfils an order, or nil if the account does not own it.
  func charge(fulfilling order: UUID) -> AccountCharge? {
    owned.all.first { $0.orderID == order }
  }

  /// One lane per original transaction, latest first; nil without charges.
  func timeline(at now: Timestamp) -> TimelinePicture? {
    let charges = owned.all.filter { lanes.contains($0.id.line) }.compactMap { shown[$0.id] }
    guard let begin = charges.map(\.report.charge.date).min() else { return nil }
    let end = max(charges.compactMap(\.end).max() ?? now, now)
    let margin = Duration.milliseconds((end.milliseconds - begin.milliseconds) / 60)
    return TimelinePicture(
      TimelineLayout(
        id: "charges", title: "Charges of account \(account.id)",
        description: "\(Count.text(owned.all.count, "charge")) of "
          + Count.text(laneCount, "original transaction")
          + (laneCount > lanes.count ? " (latest \(lanes.count) shown)" : "")
          + ". The list below has the details.",
        from: begin - margin, until: end + margin, now: now,
        lanes: lanes.map { line in
          let charges = charges.filter { $0.report.charge.id.line == line }
          return TimelineLayout.Lane(
            label: Self.shortened(line.originalTransactionID.rawValue), height: 22,
            spans: charges.reversed().flatMap { $0.spans(until: end) },
            marks: charges.compactMap(\.refund))
        }))
  }

  /// Keeps the last characters, which differ between identifiers.
  private static func shortened(_ text: String) -> String {
    text.count > 10 ? "…\(text.suffix(9))" : text
  }
}

extension AccountCharges.Shown {
  private var href: String { report.charge.id.href }

  private var text: String {
    var text = report.charge.date.dayName
    if let end { text += " to \(end.dayName)" }
    text += ": \(report.charge.productID), \(Price.text(of: report.transaction))"
    return report.charge.revocation == nil ? text : text + ", refunded"
  }

  private var takenBackAt: Timestamp? {
    [report.charge.revocation?.at, report.charge.supersededAt].compactMap(\.self).min()
  }

  /// The paid period, and the part of it that was revoked.
  fileprivate func spans(until last: Timestamp) -> [TimelineLayout.Span] {
    let start = report.charge.date
    let end = max(end ?? last, start)
    let ended = max(min(takenBackAt ?? end, end), start)
    var names = "span-period owner-1"
    if report.transaction.periodType == .trial { names += " trial" }
    let span = TimelineLayout.Span(
      from: start, until: ended, classNames: names,
      pattern: report.charge.revocation == nil ? nil : .refunded,
      label: report.charge.productID.rawValue, text: text, href: href)
    guard ended < end else { return [span] }
    return [
      TimelineLayout.Span(
        from: ended, until: end, classNames: "span-lost", text: text, href: href, inset: 6),
      span,
    ]
  }

  fileprivate var refund: TimelineLayout.Mark? {
    report.charge.revocation.map {
      TimelineLayout.Mark(at: $0.at, symbol: .refund, text: text, href: href, offset: 11)
    }
  }
}

extension EntitlementRow {
  init(_ entitlement: Entitlement) {
    let line = entitlement.originalTransactionID.flatMap { id in
      entitlement.environment.map { OriginalTransactionKey($0, id) }
    }
    self.init(
      name: entitlement.name, state: Badge(entitlement.state), because: entitlement.inWords,
      until: entitlement.accessEndsAt.map(Moment.init),
      isEndless: entitlement.isActive && entitlement.accessEndsAt == nil,
      productID: entitlement.productID?.rawValue,
      source: entitlement.originalTransactionID?.rawValue ?? "grant", href: line?.href,
      isSandbox: entitlement.environment == .sandbox)
  }
}

extension Entitlement {
  /// Its source and next change, as a sentence.
  var inWords: String {
    switch source {
    case .grant: grantInWords
    case .provisional: "Provisional until Apple can verify the submission."
    case .appStore: purchaseInWords
    }
  }

  private var grantInWords: String {
    switch state {
    case .revoked: "Granted by an administrator; revoked\(on(accessEndsAt))."
    case .expired: "Granted by an administrator; expired\(on(accessEndsAt))."
    default: "Granted by an administrator."
    }
  }

  private var purchaseInWords: String {
    let product = productID?.rawValue ?? "The purchase"
    switch state {
    case .active where expiresAt == nil: return "\(product) does not expire."
    case .active where willRenew: return "\(product) renews\(on(expiresAt))."
    case .active: return "\(product) expires\(on(expiresAt)) and will not renew."
    case .inGracePeriod:
      return "\(product) could not be charged\(on(expiresAt)); access continues while Apple "
        + "retries."
    case .inBillingRetry:
      return "\(product) could not be charged\(on(expiresAt)); access is suspended while Apple "
        + "retries."
    case .revoked: return "\(product) was refunded\(on(accessEndsAt))."
    case .expired: return "\(product) expired\(on(accessEndsAt ?? expiresAt))."
    }
  }

  private func on(_ moment: Timestamp?) -> String { moment.map { " on \($0.dayName)" } ?? "" }
}
