import Foundation
import HTTPAPI
import JSONText
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
    /// Whether it is the latest charge of a subscription: its transfer takes the renewals along.
    var isLatest: Bool
    /// The administrator action or import that assigned or released it.
    var ownerOverride: ChargeOverride?

    /// The account that owned it before, and when that lost it.
    var gain: OriginalTransaction.RecordedDecision.Loss? { report.recorded.losses.last }

    /// Whether its paid period lasts.
    func isActive(at now: Timestamp) -> Bool {
      let charge = report.charge
      let ends = [charge.revocation?.at, charge.supersededAt, end].compactMap(\.self)
      return end != nil && ends.allSatisfy { $0 > now }
    }
  }

  let ties: RelatedAccounts
  let owned: List
  /// Owned by others now, and by this account before.
  let moved: List
  /// Submitted for this account and owned by others, without those that moved.
  let claimed: List
  /// Unowned charges of the account's original transactions.
  let unclaimed: List
  private let account: Account
  /// The latest original transactions with owned charges, shown in the timeline.
  private let lanes: [OriginalTransactionKey]
  private let laneCount: Int
  private let shown: [Charge.ID: Shown]
  /// The present state of subscriptions whose latest charge the account owns, latest first.
  let current: [Entitlement]
  /// The state of the latest subscription by the account's own charges alone.
  let latest: Entitlement?
  /// The grace periods and billing retries after the account's charges.
  private let troubles: [OriginalTransactionKey: [TimelineLayout.Span]]
  /// The owned and lost charges of products with entitlements.
  private let access: [AccessPeriods.Holding]

  private static let mostLanes = 12
  private static let mostRefunds = 3
  private static let mostTransfers = 3

  /// Reads the requested page of each list.
  init(
    of account: Account, part: (_ prefix: String) throws -> PagePart, in ledger: Ledger,
    _ terms: AccessTerms, at now: Timestamp
  ) async throws {
    self.account = account
    let catalogue = terms.catalogue
    let parts = try (
      owned: part(""), moved: part("moved_"), claimed: part("claimed_"),
      unclaimed: part("unclaimed_")
    )
    ties = try await ledger.accounts.ties(of: account.key)
    owned = try List(ties.charges.filter { $0.owner == account.key }, part: parts.owned)
    let others = ties.charges.filter { $0.owner != nil && $0.owner != account.key }
    moved = try List(others.filter { $0.lostAt != nil }, part: parts.moved)
    claimed = try List(others.filter { $0.lostAt == nil }, part: parts.claimed)
    unclaimed = try List(ties.charges.filter { $0.owner == nil }, part: parts.unclaimed)
    var (lanes, seen): ([OriginalTransactionKey], Set<OriginalTransactionKey>) = ([], [])
    let drawn = ties.charges.filter { [account.key, nil].contains($0.owner) || $0.lostAt != nil }
    for charge in drawn where seen.insert(charge.id.line).inserted {
      lanes.append(charge.id.line)
    }
    laneCount = lanes.count
    lanes = Array(lanes.prefix(Self.mostLanes))
    self.lanes = lanes
    let wanted =
      owned.shown + moved.shown + claimed.shown + claimed.all.prefix(1) + unclaimed.shown
      + drawn.filter { lanes.contains($0.id.line) }
    let originals = try await ledger.ownership.originals(of: Set(wanted.map(\.id.line)))
    shown = try await Self.read(wanted.map(\.id), in: originals, ledger, catalogue)
    current = lanes.compactMap { line in
      guard let original = originals[line], let latest = original.rule.charges.latestCharge,
        latest.isSubscription, original.line.decisions[latest.id]?.decision.owner == account.key
      else { return nil }
      return original.current(in: catalogue, at: now)
    }
    latest =
      lanes.lazy.compactMap { originals[$0] }.compactMap { original in
        let own = original.rule.charges.filter {
          $0.isSubscription && original.line.decisions[$0.id]?.decision.owner == account.key
        }
        return own.isEmpty
          ? nil : original.current(of: Set(own.map(\.id)), in: catalogue, at: now)
      }.first
    var troubles: [OriginalTransactionKey: [TimelineLayout.Span]] = [:]
    var access: [AccessPeriods.Holding] = []
    for line in lanes {
      guard let original = originals[line] else { continue }
      let all = SubscriptionTimeline(of: original.line, rule: original.rule, in: catalogue).troubles
      troubles[line] = all.filter {
        $0.charge.line == line
          && original.line.decisions[$0.charge]?.decision.owner == account.key
      }.map { $0.span }
      if terms.sandboxAccess.grants(line.environment, to: account.id) {
        access += AccessPeriods.holdings(
          of: account.key, on: line, in: original, unpaid: Set(all.map { $0.charge }))
      }
    }
    (self.troubles, self.access) = (troubles, access)
  }

  /// Original transactions of shown charges that this account lost or got from another one.
  var movedLines: Set<OriginalTransactionKey> {
    Set(
      ties.lost.filter { shown[$0.id] != nil }.map(\.id.line)
        + owned.all.map(\.id).filter { shown[$0]?.gain != nil }.map(\.line))
  }

  private static func read(
    _ charges: [Charge.ID], in originals: [OriginalTransactionKey: RecordedOriginalTransaction],
    _ ledger: Ledger, _ catalogue: Catalogue
  ) async throws -> [Charge.ID: Shown] {
    var shown: [Charge.ID: Shown] = [:]
    for id in charges where shown[id] == nil {
      guard let original = originals[id.line],
        let report = ChargeReport(of: id, in: original, catalogue: catalogue)
      else { continue }
      shown[id] = Shown(
        report: report, end: report.end(in: catalogue),
        isLatest: LocatedCharge(report: report, original: original).isLatestOfSubscription)
    }
    let placed = shown.values.filter { $0.report.recorded.decision.isByAdministrator }
      .map(\.report.charge.id)
    let ownerOverrides = try await ledger.accounts.ownerOverrides(on: Set(placed.map(\.line)))
    let actions = try await OverrideActions(of: ownerOverrides, in: ledger)
    for id in placed {
      shown[id]?.ownerOverride = ChargeOverride(of: id, latestFirst: ownerOverrides, actions)
    }
    return shown
  }

  /// The related charges that the account does not own, in three sections.
  func sections(_ causes: AccessCauses, at now: Timestamp) -> [some Sendable] {
    [
      (title: "Moved to another account", lead: nil as String?, list: moved),
      (title: "Submitted here, owned by another account", lead: nil, list: claimed),
      (
        title: "Unclaimed charges",
        lead: "Of original transactions that this account owned or submitted. They grant no access "
          + "until an app submits them or an administrator assigns them.",
        list: unclaimed
      ),
    ].filter { !$0.list.all.isEmpty }.map {
      (
        title: $0.title, lead: $0.lead, subscriptions: subscriptions(in: $0.list, causes, at: now),
        paging: $0.list.paging
      )
    }
  }

  /// The shown charges by original transaction: the latest one, and those before it to unfold.
  func subscriptions(in list: List, _ causes: AccessCauses, at now: Timestamp) -> [some Sendable] {
    var (lines, charges): ([OriginalTransactionKey], [OriginalTransactionKey: [Shown]]) = ([], [:])
    for charge in list.shown {
      guard let shown = shown[charge.id] else { continue }
      if charges[charge.id.line] == nil { lines.append(charge.id.line) }
      charges[charge.id.line, default: []].append(shown)
    }
    return lines.compactMap { charges[$0] }.map { charges in
      let earlier = charges.dropFirst()
      return (
        latest: row(charges[0], causes, at: now), earlier: earlier.map { row($0, causes, at: now) },
        fold: earlier.last.map { first in
          Count.text(earlier.count, "earlier charge")
            + " since \(first.report.charge.date.dayName)"
        }
      )
    }
  }

  private func row(_ shown: Shown, _ causes: AccessCauses, at now: Timestamp) -> some Sendable {
    let report = shown.report
    let charge = report.charge
    let (ownerOverride, move) = (shown.ownerOverride, move(of: shown, causes))
    let isOwned = report.recorded.decision.owner == account.key
    // A move by an administrator says as much as the decision.
    let isSaid = ownerOverride != nil && move?.decision == report.recorded.decision
    let isReleased = report.recorded.decision.owner == nil
    return (
      transactionID: charge.id.transactionID.rawValue, href: charge.id.href,
      productID: charge.productID.rawValue, chargedAt: Moment(charge.date),
      until: shown.end.map(Moment.init), price: Price.text(of: report),
      badges: Badge.states(of: report, end: shown.end, at: now)
        + [charge.id.line.environment == .sandbox ? .sandbox : nil, ownerOverride?.badge]
        .compactMap(\.self),
      move: isSaid && isReleased ? [] : move?.pieces(isExplained: isSaid) ?? [],
      because: isSaid && !isReleased ? [] : report.reason(on: account.key),
      // The administrator who assigned or released it.
      placed: ownerOverride?.action.map {
        ($0.administrator, isReleased ? Moment($0.actedAt) : nil, $0.reason) as AdministratorNote
      },
      ending: shown.isLatest && isOwned && !isLive(shown, at: now)
        ? "The subscription has ended: a transfer would give no access." : nil,
      transferHref: charge.id.href(form: "transfer"),
      transferLabel: report.transferTitle(isLatest: shown.isLatest) + "…",
      releaseHref: isOwned && report.recorded.decision.rule == .administrator
        ? charge.id.href(form: "release") : nil
    )
  }

  /// How a charge left this account, or came to it from another one; nil if it did neither.
  private func move(of shown: Shown, _ causes: AccessCauses) -> ChargeMove? {
    let recorded = shown.report.recorded
    let loss =
      recorded.decision.owner == account.key
      ? shown.gain : recorded.losses.first { $0.account == account.key }
    return loss.map { causes.move(of: shown.report.charge.id, from: $0.account, at: $0.at) }
  }

  /// Whether access or renewals can be transferred: the paid period lasts, or Apple still tries to
  /// charge.
  private func isLive(_ shown: Shown, at now: Timestamp) -> Bool {
    shown.isActive(at: now)
      || current.contains {
        $0.line == shown.report.charge.id.line
          && [.inGracePeriod, .inBillingRetry].contains($0.state)
      }
  }

  /// The forms that transfer the subscriptions whose renewals the account gets or, without one,
  /// assign the latest unclaimed one.
  func transferLinks(at now: Timestamp) -> [PageLink] {
    let latest = (owned.all + unclaimed.all).compactMap { shown[$0.id] }.filter(\.isLatest)
    let live = latest.filter { $0.report.ownerAccountID != nil && isLive($0, at: now) }
    let linked =
      live.isEmpty
      ? latest.filter { $0.report.ownerAccountID == nil }.prefix(1)
      : live.prefix(Self.mostTransfers)
    return linked.map { shown in
      let charge = shown.report.charge
      let isOneOfSeveral =
        linked.count { $0.report.charge.productID == charge.productID } > 1
      let end = isOneOfSeveral ? shown.end.map { " (until \($0.dayName))" } ?? "" : ""
      return PageLink(
        label: "\(shown.report.transferVerb) \(charge.productID)\(end)…",
        href: charge.id.href(form: "transfer"))
    }
  }

  /// The latest charge of each unclaimed subscription whose paid period lasts.
  func unclaimedInWords(at now: Timestamp, besides line: OriginalTransactionKey?) -> [String] {
    unclaimed.shown.compactMap { charge in
      guard charge.id.line != line, let shown = shown[charge.id], shown.isLatest,
        shown.isActive(at: now)
      else { return nil }
      let end = shown.end.map { " (paid through \($0.dayName))" } ?? ""
      return "\(shown.report.charge.productID), charged \(charge.chargedAt.dayName), is unclaimed"
        + "\(end)."
    }
  }

  /// That all charges are of consumables; nil if they are not, or if there are none.
  var consumablesInWords: String? {
    let charges = owned.all.compactMap { shown[$0.id]?.report }
    guard let latest = charges.first, charges.count == owned.all.count,
      charges.allSatisfy({ $0.productType == .consumable })
    else { return nil }
    let (number, day) = (charges.count, latest.charge.date.dayName)
    let product = latest.charge.productID
    guard charges.allSatisfy({ $0.charge.productID == product }) else {
      return "Bought \(Count.text(number, "consumable")) (latest: \(product), \(day)); they grant "
        + "no entitlement."
    }
    return
      "Bought \(product) \(number == 1 ? "once (\(day))" : "\(number) times (latest: \(day))"); "
      + "it grants no entitlement."
  }

  /// The refunded charges of the account; none while not all charges are loaded.
  private var refunds: [(charge: Charge, at: Timestamp)] {
    let charges = owned.all.compactMap { shown[$0.id]?.report.charge }
    guard charges.count == owned.all.count else { return [] }
    return charges.compactMap { charge in
      charge.revocation.flatMap { $0.isRefund ? (charge, $0.at) : nil }
    }
  }

  /// The number of refunds; nil without one.
  var refundBadge: (badge: Badge, count: Int)? {
    let count = refunds.count
    return count == 0
      ? nil : (Badge(text: Count.text(count, "refund"), tone: Tone.warning), count)
  }

  /// The refunds of owned charges as a sentence, latest first; nil without one.
  ///
  /// - Parameter said: What other sentences say of refunds.
  func refundsInWords(besides said: [Entitlement]) -> String? {
    let all = refunds.latestFirst { $0.at }
    let refunds = all.filter { refund in
      !said.contains {
        $0.line == refund.charge.id.line
          && $0.transactionID == refund.charge.id.transactionID
      }
    }
    guard let (charge, at) = refunds.first else { return nil }
    guard all.count > 1 else {
      return "\(charge.productID), charged \(charge.date.dayName), was refunded on \(at.dayName)."
    }
    let rest = refunds.count - Self.mostRefunds
    let named =
      refunds.prefix(Self.mostRefunds).map {
        "\($0.charge.productID) of \($0.charge.date.dayName) on \($0.at.dayName)"
      } + (rest > 0 ? ["\(rest) earlier"] : [])
    let lead =
      refunds.count < all.count
      ? "Also refunded" : "\(Count.text(refunds.count, "charge")) were refunded"
    return "\(lead): \(named.joined(separator: "; "))."
  }

  /// The account that owns the latest charge that was submitted here, why it does, and how many there
  /// are; nil without one.
  var claimInWords: AccessCauses.Cause? {
    guard let report = claimed.all.first.flatMap({ shown[$0.id]?.report }),
      let owner = report.ownerAccountID
    else { return nil }
    let name = "\(report.charge.productID) of \(report.charge.date.dayName)"
    let why = Explanation(report.recorded.decision) { _ in owner }.clause.map { ", \($0)" } ?? ""
    let number = claimed.all.count
    let subject =
      number == 1
      ? "\(name) was submitted here, but"
      : "\(number) charges were submitted here that others own; the latest, \(name),"
    return AccessCauses.Cause(
      sentence: "\(subject) belongs to \(owner)\(why).", counterpart: owner)
  }

  /// The charge that fulfils an order, or nil if the account does not own it.
  func charge(fulfilling order: UUID) -> AccountCharge? {
    owned.all.first { $0.orderID == order }
  }

  /// One lane per entitlement, original transaction, latest first, and entitlement that was granted;
  /// nil without any that lasted.
  func timeline(
    with grants: [Grant], _ causes: AccessCauses, in catalogue: Catalogue, at now: Timestamp
  )
    -> TimelinePicture?
  {
    let periods = ties.charges.filter { lanes.contains($0.id.line) }.compactMap { charge in
      shown[charge.id].flatMap { shown in
        period(of: shown, lostAt: charge.lostAt, causes).map { (line: charge.id.line, period: $0) }
      }
    }
    let granted = grants.map { grant in
      TimelineChart.Period(
        from: grant.startsAt, until: grant.endsAt, endedAt: grant.revokedAt,
        productID: grant.entitlement, owner: 2,
        text: "\(grant.startsAt.dayName): \(grant.entitlement) granted"
          + (grant.accessEnd.map { ", \($0.lastDayName)" } ?? ", no end date"),
        href: "#grant-\(grant.id.text)")
    }
    let all = periods.map { $0.period } + granted
    // Consumables are points, which need no axis.
    guard all.contains(where: { $0.until != $0.from }) else { return nil }
    let (begin, end, margin) = all.extent(
      at: now,
      showing: (troubles.values.joined().map(\.until) + all.compactMap { $0.move?.at }).max())
    let access = AccessPeriods.all(
      access, grants: grants, in: catalogue, owning: causes.times(owning:)
    ) {
      causes.move(of: $0, from: account.key, at: $1).inWords
    }
    let notes =
      access.compactMap { $0.gapsInWords(at: now) } + AccessPeriods.lateInWords(access)
    return TimelinePicture(
      TimelineLayout(
        id: "charges", title: "Timeline of account \(account.id)",
        description: ([
          "\(Count.text(owned.all.count, "charge")) of "
            + Count.text(laneCount, "original transaction")
            + (laneCount > lanes.count ? " (latest \(lanes.count) shown)" : "") + "."
        ] + notes
          + ["The list below has the details."]).joined(separator: " "),
        note: notes.isEmpty ? nil : notes.joined(separator: " "),
        from: begin - margin, until: end + margin, now: now,
        lanes: access.prefix(Self.mostLanes).map { $0.lane(until: end, at: now) }
          + lanes.map { line in
            let periods = periods.filter { $0.line == line }.map { $0.period }
            return TimelineLayout.Lane(
              label: periods.first?.productID ?? line.originalTransactionID.rawValue, height: 22,
              spans: periods.reversed().flatMap { $0.spans(label: nil) } + periods.captions
                + (troubles[line] ?? []),
              marks: periods.flatMap { [$0.refundMark(offset: 11), $0.moveMark(offset: 22)] }
                .compactMap(\.self))
          }
          + granted.lanes.prefix(Self.mostLanes).map { granted in
            TimelineLayout.Lane(
              label: "\(granted[0].productID) (grant)", height: 22,
              spans: granted.flatMap { $0.spans(label: $0.productID) })
          }))
  }

  /// The period of a charge that the account owns or lost; nil for any other.
  private func period(of shown: Shown, lostAt: Timestamp?, _ causes: AccessCauses)
    -> TimelineChart.Period?
  {
    let report = shown.report
    let owner = report.recorded.decision.owner
    let isUnclaimed = owner == nil && lostAt == nil
    guard lostAt != nil || owner == account.key || isUnclaimed else { return nil }
    let move = move(of: shown, causes)
    var period = TimelineChart.Period(
      report, of: isUnclaimed ? " (unclaimed)" : "", owner: isUnclaimed ? 0 : 1, end: shown.end,
      href: report.charge.id.href)
    if let move, let at = lostAt ?? shown.gain?.at {
      period.text += "; \(move.inWords) on \(at.dayName)"
      period.move = (at, lostAt != nil)
    }
    if let lostAt { period.endedAt = min(period.endedAt ?? lostAt, lostAt) }
    return period
  }
}

extension [TimelineChart.Period] {
  /// The name of the product over each run of periods of one that follow each other.
  fileprivate var captions: [TimelineLayout.Span] {
    sorted { $0.from < $1.from }.reduce(into: []) { captions, period in
      let end = period.endedAt ?? period.until ?? Timestamp(milliseconds: .max)
      if let last = captions.last, last.text == period.productID,
        period.from - .gapTolerance <= last.until
      {
        captions[captions.count - 1].until = Swift.max(last.until, end)
      } else {
        captions.append(
          TimelineLayout.Span(
            from: period.from, until: end, classNames: "", label: period.productID,
            text: period.productID, isCaption: true))
      }
    }
  }

  /// The grants of each entitlement, and those that overlap apart.
  fileprivate var lanes: [[TimelineChart.Period]] {
    sorted { ($0.productID, $0.from) < ($1.productID, $1.from) }.reduce(into: []) { lanes, grant in
      let free = lanes.firstIndex { lane in
        lane[0].productID == grant.productID
          && lane.allSatisfy { earlier in
            earlier.until.map { $0 <= grant.from } ?? false
          }
      }
      if let free { lanes[free].append(grant) } else { lanes.append([grant]) }
    }
  }
}
