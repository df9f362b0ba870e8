/// A charge that an account owns, with everything needed to compute its entitlements at any later
/// moment, without state: so an entitlement ends on time.
package struct Holding: Hashable, Sendable {
  package var charge: Charge.ID
  /// The smallest original transaction id of those that Apple links; nil if it is the charge's own.
  package var linkedTo: OriginalTransactionID?
  package var productID: ProductID
  /// Nil where Apple does not report it.
  package var productType: ProductType?
  package var periodType = PeriodType.normal
  package var startsAt: Timestamp
  /// The end of the paid period; nil where there is none, or where only the catalogue has it.
  package var endsAt: Timestamp?
  /// The end of grace, or of the paid period without one; nil unless the renewal's charge failed.
  package var graceEndsAt: Timestamp?
  /// The date of a refund, or of the end of Family Sharing.
  package var revokedAt: Timestamp?
  /// Whether Family Sharing ended at `revokedAt`.
  package var isSharingEnded = false
  package var supersededAt: Timestamp?
  /// The moment at which the charge was given to another account or released: access was lost.
  package var movedAt: Timestamp?
  /// Set on the latest charge alone, also where the earlier ones have other owners.
  package var renewal: Renewal?

  /// Apple's latest statement about the next renewal.
  package struct Renewal: Hashable, Sendable {
    package var autoRenews: Bool
    package var phase: RenewalStatus.Phase

    package init(autoRenews: Bool, phase: RenewalStatus.Phase) {
      (self.autoRenews, self.phase) = (autoRenews, phase)
    }
  }

  package init(charge: Charge.ID, productID: ProductID, startsAt: Timestamp, endsAt: Timestamp?) {
    (self.charge, self.productID) = (charge, productID)
    (self.startsAt, self.endsAt) = (startsAt, endsAt)
  }

  /// The original transaction, or the first of those that Apple links with it.
  package var original: OriginalTransactionKey {
    linkedTo.map { OriginalTransactionKey(charge.line.environment, $0) } ?? charge.line
  }
}

extension OriginalTransaction {
  /// Every owned charge as a holding of its owner, by date, except what Apple reports as a
  /// consumable.
  package func allHoldings(_ rule: OwnershipRule) -> [(account: AccountKey, holding: Holding)] {
    rule.charges.indices.compactMap { position in
      guard rule.charges[position].productType != .consumable else { return nil }
      return decisions[rule.charges[position].id]?.decision.owner.map {
        ($0, holding(ofChargeAt: position, in: rule))
      }
    }
  }

  /// Every charge that moved, as a holding that each earlier owner lost, which depends on the order
  /// in which evidence arrived.
  package func lostHoldings(_ rule: OwnershipRule) -> [(account: AccountKey, holding: Holding)] {
    rule.charges.indices.flatMap { position in
      let charge = rule.charges[position]
      let losses = charge.productType == .consumable ? [] : decisions[charge.id]?.losses ?? []
      return losses.map { loss in
        var holding = holding(ofChargeAt: position, in: rule)
        holding.movedAt = loss.at
        holding.renewal = nil
        return (loss.account, holding)
      }
    }
  }

  package func holding(ofChargeAt position: Int, in rule: OwnershipRule) -> Holding {
    let charge = rule.charges[position]
    let periodType = charge.transactions.compactMap { history[$0]?.periodType }.min()
    var holding = Holding(
      charge: charge.id, productID: charge.productID, startsAt: charge.date, endsAt: charge.end)
    holding.linkedTo = linkedTo(of: charge.id.line)
    holding.productType = charge.productType
    holding.periodType = periodType ?? .normal
    holding.revokedAt = charge.revocation?.at
    holding.isSharingEnded = charge.revocation?.isRefund == false
    holding.supersededAt = charge.supersededAt
    if position == rule.charges.latestPosition, charge.isSubscription, charge.supersededAt == nil {
      holding.renewal = rule.renewal(ofChargeAt: position)
    }
    holding.graceEndsAt =
      holding.renewal?.phase.graceEnd ?? rule.graceEnd(ofChargeAt: position)
    return holding
  }

  private func linkedTo(of line: OriginalTransactionKey) -> OriginalTransactionID? {
    guard heads.count > 1, let first = heads.keys.min(), first != line else { return nil }
    return first.originalTransactionID
  }

  /// How far the date of the last entry may be ahead: Apple reports renewals a day early, and a
  /// clock that was ahead once moves all later entries of an original transaction.
  private static let recordingTolerance: Duration = .days(2)

  /// The holdings that can still matter at or after `moment`, by date: without those that ended
  /// over two days before, if the same account holds the same product of the same original
  /// transaction for longer.
  ///
  /// - Parameter moment: The recording date of the last entry, so that the result depends on the
  ///   entries alone.
  package func holdings(_ rule: OwnershipRule, asOf moment: Timestamp)
    -> [(account: AccountKey, holding: Holding)]
  {
    let all = allHoldings(rule)
    var longest: [HoldingGroup: Holding] = [:]
    for (account, holding) in all
    where holding.hasBegun(by: moment) && holding.revokedAt == nil && holding.endsAt != nil {
      let group = HoldingGroup(account, holding)
      if let known = longest[group], !known.endsEarlier(than: holding) { continue }
      longest[group] = holding
    }
    return all.filter { account, holding in
      guard let end = holding.reportedEnd, end + Self.recordingTolerance <= moment,
        holding.renewal == nil, let longest = longest[HoldingGroup(account, holding)]
      else { return true }
      return !holding.endsEarlier(than: longest)
    }
  }

  /// The lost holdings that can be shown: of each product the one whose access ends last, and those
  /// whose end only the catalogue has.
  package func lastLostHoldings(_ rule: OwnershipRule) -> [(account: AccountKey, holding: Holding)]
  {
    let all = lostHoldings(rule)
    let groups = Dictionary(grouping: all.filter { $0.holding.endsAt != nil }) {
      HoldingGroup($0.account, $0.holding)
    }
    return all.filter { $0.holding.endsAt == nil }
      + groups.values.compactMap { group in
        group.max { $0.holding.lostOrder < $1.holding.lostOrder }
      }
  }
}

/// The holdings of which one that lasts longer makes the others unnecessary.
private struct HoldingGroup: Hashable {
  let account: AccountKey
  let original: OriginalTransactionKey
  let productID: ProductID

  init(_ account: AccountKey, _ holding: Holding) {
    self.account = account
    original = holding.original
    productID = holding.productID
  }
}

extension OwnershipRule {
  package func renewal(ofChargeAt position: Int) -> Holding.Renewal {
    Holding.Renewal(
      autoRenews: course.autoRenewStatement(after: position)?.autoRenews ?? true,
      phase: course.phaseStatement(from: charges[position].date)?.phase ?? .undisturbed)
  }

  /// The holding's ``Holding/graceEndsAt``: no later than the next charge.
  fileprivate func graceEnd(ofChargeAt position: Int) -> Timestamp? {
    let charge = charges[position]
    guard charge.isSubscription, charge.supersededAt == nil, let end = charge.end
    else { return nil }
    let next = charges[(position + 1)...].first { !$0.neverBegan && $0.date > charge.date }?.date
    if let next, next <= end { return nil }
    let trouble = course.trouble(afterChargeAt: position, before: next)
    guard trouble != nil || course.endCause(ofChargeAt: position, before: next) == .billing
    else { return nil }
    let graceEnd = trouble?.graceEnd ?? end
    return next.map { min($0, graceEnd) } ?? graceEnd
  }
}

extension Holding {
  /// The end of the charge's access without revocation, or its replacement; nil: never.
  package func end(in catalogue: Catalogue) -> Timestamp? {
    [endsAt ?? catalogueEnd(in: catalogue), supersededAt].compactMap(\.self).min()
  }

  /// The end of the charge's access: with the grace period, or the earlier revocation or move; nil:
  /// never.
  package func accessEnd(in catalogue: Catalogue) -> Timestamp? {
    accessEnd(paidUntil: end(in: catalogue))
  }

  fileprivate func accessEnd(paidUntil end: Timestamp?) -> Timestamp? {
    [end.map { max($0, graceEndsAt ?? $0) }, revokedAt, movedAt].compactMap(\.self).min()
  }

  /// ``end(in:)`` as reported by Apple; nil where only the catalogue has it.
  fileprivate var reportedEnd: Timestamp? { endsAt.map { min($0, supersededAt ?? $0) } }

  /// The order in which ended holdings are shown: the last to end, then the last to begin.
  fileprivate func endsEarlier(than other: Holding) -> Bool {
    guard let end = reportedEnd, let otherEnd = other.reportedEnd else { return false }
    return (end, startsAt, charge) < (otherEnd, other.startsAt, other.charge)
  }

  /// The order in which lost holdings are shown.
  fileprivate var lostOrder: (Int64, Timestamp, Charge.ID) {
    (accessEnd(paidUntil: reportedEnd)?.milliseconds ?? .max, startsAt, charge)
  }

  private func catalogueEnd(in catalogue: Catalogue) -> Timestamp? {
    switch type(in: catalogue) {
    case .nonConsumable: nil
    case .nonRenewing:
      catalogue.product(productID, at: startsAt)?.period?.end(from: startsAt) ?? startsAt
    // Without its expiry (missing only in trimmed old payloads) a charge covers no time.
    case .autoRenewable, .consumable, nil: startsAt
    }
  }

  /// The entitlements granted by the product's newest description, also for older purchases; nil
  /// for products without one and for consumables.
  package func entitlements(in catalogue: Catalogue) -> [ExactText]? {
    guard let product = catalogue[productID], type(in: catalogue) != .consumable else { return nil }
    return product.entitlements
  }

  package func type(in catalogue: Catalogue) -> ProductType? {
    ProductType.known(of: productID, as: productType, hasExpiry: endsAt != nil, in: catalogue)
  }

  /// Tolerates clocks that differ: Apple dates charges seconds ahead.
  package func hasBegun(by moment: Timestamp) -> Bool { startsAt <= moment + .clockTolerance }

  package func isRevoked(at moment: Timestamp) -> Bool { revokedAt.map { $0 <= moment } ?? false }
}

/// An account's holdings of one original transaction, or of linked ones, and their entitlements.
struct OriginalTransactionEntitlements {
  private struct Part {
    var holding: Holding
    /// Nil: never.
    var end: Timestamp?
    var entitlements: [ExactText]

    /// The order of beginning.
    var begin: (Timestamp, Charge.ID) { (holding.startsAt, holding.charge) }

    /// The end, including the grace period; nil: never.
    var gracedEnd: Timestamp? { end.map { max($0, holding.graceEndsAt ?? $0) } }

    /// The end, or the earlier revocation or move; nil: never.
    var accessEnd: Timestamp? {
      [end, holding.revokedAt, holding.movedAt].compactMap(\.self).min()
    }
  }

  private let parts: [Part]
  private let moment: Timestamp

  /// - Parameter holdings: Products that are not in the catalogue grant nothing yet, and
  ///   consumables never do.
  init(_ holdings: [Holding], in catalogue: Catalogue, at moment: Timestamp) {
    self.moment = moment
    parts = holdings.compactMap { holding in
      holding.entitlements(in: catalogue).map {
        Part(holding: holding, end: holding.end(in: catalogue), entitlements: $0)
      }
    }
  }

  /// One entitlement for each name that the deciding charge grants.
  var entitlements: [Entitlement] {
    let begun = parts.filter { part in
      part.holding.hasBegun(by: moment) && part.holding.movedAt.map { $0 <= moment } ?? true
    }
    let held = begun.filter { $0.holding.movedAt == nil && !$0.holding.isRevoked(at: moment) }
      .max(by: isLess)
    if let held, state(of: held) != .expired {
      return held.entitlements.map {
        entitlement(named: $0, of: prolonged(held, for: $0), state: state(of: held))
      }
    }
    // The last to end tells how access ended.
    guard let last = begun.max(by: endedEarlier) else { return [] }
    let isWithdrawn = accessEnd(of: last) != last.gracedEnd
    return last.entitlements.map {
      entitlement(named: $0, of: last, state: isWithdrawn ? .revoked : .expired)
    }
  }

  /// The state of a part that is not revoked.
  private func state(of part: Part) -> Entitlement.State {
    guard let end = part.end, moment >= end else { return .active }
    if let graceEnd = part.holding.graceEndsAt, moment < graceEnd { return .inGracePeriod }
    return part.holding.renewal?.phase == .billingRetry ? .inBillingRetry : .expired
  }

  /// Extends a part by those that follow without a gap and grant the same entitlement: Apple
  /// reports renewals up to a day early, and dates some a few seconds after the last end.
  private func prolonged(_ part: Part, for name: ExactText) -> Part {
    var longest = part
    for next in parts.sorted(by: { $0.begin < $1.begin }) {
      guard let end = longest.accessEnd else { break }
      guard next.holding.revokedAt == nil, next.holding.movedAt == nil,
        next.entitlements.contains(name),
        next.holding.startsAt <= end + .gapTolerance, next.end.map({ $0 > end }) ?? true
      else { continue }
      longest.end = next.end
      longest.holding.graceEndsAt = next.holding.graceEndsAt
      longest.holding.revokedAt = nil
      longest.holding.renewal = next.holding.renewal
    }
    return longest
  }

  private func entitlement(named name: ExactText, of part: Part, state: Entitlement.State)
    -> Entitlement
  {
    let holding = part.holding
    return Entitlement(
      name: name.rawValue, state: state, productID: holding.productID, expiresAt: part.end,
      accessEndsAt: accessEnd(of: part),
      willRenew: willRenew(name, until: part.accessEnd, state: state),
      periodType: holding.periodType, environment: holding.charge.line.environment,
      originalTransactionID: holding.charge.line.originalTransactionID,
      transactionID: holding.charge.transactionID, source: .appStore,
      endedBecause: endReason(of: part, state: state))
  }

  private func endReason(of part: Part, state: Entitlement.State) -> Entitlement.EndReason? {
    let holding = part.holding
    switch state {
    case .active, .inGracePeriod: return nil
    case .inBillingRetry: return .billing
    case .revoked where accessEnd(of: part) == holding.revokedAt:
      return holding.isSharingEnded ? .familySharingEnded : .refunded
    case .revoked: return .moved
    case .expired:
      if let supersededAt = holding.supersededAt, supersededAt == part.end { return .replaced }
      guard holding.movedAt == nil else { return .moved }
      return holding.graceEndsAt == nil ? .expired : .billing
    }
  }

  /// The end of access, including the grace period.
  private func accessEnd(of part: Part) -> Timestamp? {
    part.holding.accessEnd(paidUntil: part.end)
  }

  /// Whether the account owns the latest charge, and that will renew the part that ends at `end`.
  private func willRenew(_ name: ExactText, until end: Timestamp?, state: Entitlement.State) -> Bool
  {
    guard state != .revoked, state != .expired else { return false }
    return parts.contains { latest in
      guard let renewal = latest.holding.renewal, latest.holding.revokedAt == nil,
        latest.entitlements.contains(name),
        end.map({ latest.holding.startsAt <= $0 + .gapTolerance }) ?? true
      else { return false }
      return renewal.autoRenews && renewal.phase != .expired && self.state(of: latest) != .expired
    }
  }

  private func endedEarlier(_ lhs: Part, _ rhs: Part) -> Bool {
    let (left, right) = (accessEnd(of: lhs), accessEnd(of: rhs))
    return left == right
      ? lhs.begin < rhs.begin : left?.milliseconds ?? .max < right?.milliseconds ?? .max
  }

  /// By the end, running parts last: a part dated a little ahead ends no other product early.
  private func isLess(_ lhs: Part, _ rhs: Part) -> Bool {
    if isRunning(lhs) != isRunning(rhs) { return isRunning(rhs) }
    return lhs.end == rhs.end
      ? lhs.begin < rhs.begin : lhs.end?.milliseconds ?? .max < rhs.end?.milliseconds ?? .max
  }

  private func isRunning(_ part: Part) -> Bool {
    part.holding.startsAt <= moment && part.end.map { moment < $0 } ?? true
  }
}
