/// A charge that an account owns, with all that is needed to say at any later moment what it
/// grants.
///
/// Holdings are the read model. They carry no state: an entitlement ends on time because the state
/// is computed at the moment of asking, and nothing has to run for it.
package struct Holding: Hashable, Sendable {
  package var charge: Charge.ID
  /// The smallest of the ids of lines that Apple links, which are held as one; nil where the
  /// charge's own is the smallest or the only one.
  package var familyID: OriginalTransactionID?
  package var productID: ProductID
  /// Where Apple names it.
  package var productType: ProductType?
  package var periodType: PeriodType
  package var startsAt: Timestamp
  /// The end of the paid period; nil for what has none, or whose end the catalogue tells.
  package var endsAt: Timestamp?
  /// When what was granted ended: refunded, or withdrawn from the family.
  package var revokedAt: Timestamp?
  /// From when on another charge stands in this one's place.
  package var supersededAt: Timestamp?
  /// Set on the line's latest charge alone, of whomever the earlier ones are.
  package var renewal: Renewal?

  /// What Apple last said of the future of a line.
  package struct Renewal: Hashable, Sendable {
    package var autoRenews: Bool
    package var phase: RenewalStatus.Phase

    package init(autoRenews: Bool, phase: RenewalStatus.Phase) {
      self.autoRenews = autoRenews
      self.phase = phase
    }
  }

  package init(
    charge: Charge.ID, familyID: OriginalTransactionID? = nil, productID: ProductID,
    productType: ProductType? = nil, periodType: PeriodType = .normal, startsAt: Timestamp,
    endsAt: Timestamp?, revokedAt: Timestamp? = nil, supersededAt: Timestamp? = nil,
    renewal: Renewal? = nil
  ) {
    self.charge = charge
    self.familyID = familyID
    self.productID = productID
    self.productType = productType
    self.periodType = periodType
    self.startsAt = startsAt
    self.endsAt = endsAt
    self.revokedAt = revokedAt
    self.supersededAt = supersededAt
    self.renewal = renewal
  }

  /// The line, or the first of those that Apple links with it.
  package var family: LineID {
    familyID.map { LineID(charge.line.environment, $0) } ?? charge.line
  }
}

extension Line {
  /// Every charge of the line that has an owner, as a holding of that owner.
  ///
  /// - Parameter rule: The line's charges and decisions.
  /// - Returns: Holdings by the dates of their charges.
  package func allHoldings(_ rule: OwnershipRule) -> [(account: AccountKey, holding: Holding)] {
    rule.charges.indices.compactMap { position in
      decisions[rule.charges[position].id]?.decision.owner.map {
        ($0, holding(ofChargeAt: position, in: rule))
      }
    }
  }

  /// A charge as it is held, whoever owns it.
  package func holding(ofChargeAt position: Int, in rule: OwnershipRule) -> Holding {
    let charge = rule.charges[position]
    let periodType = charge.transactions.compactMap { history[$0]?.periodType }.min()
    let isLatest = position == rule.charges.latestPosition
    return Holding(
      charge: charge.id, familyID: familyID(of: charge.id.line), productID: charge.productID,
      productType: charge.productType, periodType: periodType ?? .normal, startsAt: charge.date,
      endsAt: charge.end, revokedAt: charge.revocation?.at, supersededAt: charge.supersededAt,
      renewal: isLatest && charge.isSubscription && charge.supersededAt == nil
        ? rule.renewal(ofChargeAt: position) : nil)
  }

  private func familyID(of line: LineID) -> OriginalTransactionID? {
    guard heads.count > 1, let first = heads.keys.min(), first != line else { return nil }
    return first.originalTransactionID
  }

  /// How far the date of a line's last entry may be ahead of the time: Apple reports renewals a day
  /// early, and a clock that was ahead once dates all that is recorded on the line after it.
  private static let recordingTolerance: Duration = .days(2)

  /// The holdings that can still matter at or after `moment`.
  ///
  /// What is left out was over two days before, and the same account holds the same product of the
  /// same line, or of one linked with it, for longer: so it can neither grant anything nor be what
  /// is shown.
  ///
  /// - Parameters:
  ///   - rule: The line's charges and decisions.
  ///   - moment: When the line's last entry was recorded, so that the result is a function of the
  ///     entries alone.
  /// - Returns: Holdings by the dates of their charges.
  package func holdings(_ rule: OwnershipRule, asOf moment: Timestamp)
    -> [(account: AccountKey, holding: Holding)]
  {
    struct Group: Hashable {
      let account: AccountKey
      let family: LineID
      let productID: ProductID
    }
    let all = allHoldings(rule)
    var longest: [Group: Holding] = [:]
    for (account, holding) in all
    where holding.hasBegun(by: moment) && holding.revokedAt == nil && holding.endsAt != nil {
      let group = Group(account: account, family: holding.family, productID: holding.productID)
      if let known = longest[group], !known.endsEarlier(than: holding) { continue }
      longest[group] = holding
    }
    return all.filter { account, holding in
      let group = Group(account: account, family: holding.family, productID: holding.productID)
      guard let end = holding.reportedEnd, end + Self.recordingTolerance <= moment,
        holding.renewal == nil,
        let longest = longest[group]
      else { return true }
      return !holding.endsEarlier(than: longest)
    }
  }
}

extension OwnershipRule {
  /// Apple's last word on what follows a charge.
  package func renewal(ofChargeAt position: Int) -> Holding.Renewal {
    Holding.Renewal(
      autoRenews: course.autoRenewStatement(after: position)?.autoRenews ?? true,
      phase: course.phaseStatement(from: charges[position].date)?.phase ?? .undisturbed)
  }
}

extension Holding {
  /// When the grant is over of itself, or because a later charge took its place; nil: never.
  package func end(in catalogue: Catalogue) -> Timestamp? {
    [endsAt ?? catalogueEnd(in: catalogue), supersededAt].compactMap(\.self).min()
  }

  /// The same as far as Apple tells; nil where only the catalogue can.
  fileprivate var reportedEnd: Timestamp? {
    endsAt.map { min($0, supersededAt ?? $0) }
  }

  /// Which of two is shown when both are over: the one that ended last, then the one that began
  /// last.
  fileprivate func endsEarlier(than other: Holding) -> Bool {
    guard let end = reportedEnd, let otherEnd = other.reportedEnd else { return false }
    return (end, startsAt, charge) < (otherEnd, other.startsAt, other.charge)
  }

  private func catalogueEnd(in catalogue: Catalogue) -> Timestamp? {
    switch type(in: catalogue) {
    case .nonConsumable: nil
    case .nonRenewing:
      catalogue.product(productID, at: startsAt)?.period?.end(from: startsAt) ?? startsAt
    // Without its expiry (only trimmed old payloads lack it) a subscription's charge covers no
    // time.
    case .autoRenewable, .consumable, nil: startsAt
    }
  }

  /// The entitlements that the product's newest description grants.
  ///
  /// It also counts for purchases made under an older one.
  ///
  /// - Returns: Nil for a product that is not described, and for a consumable.
  package func entitlements(in catalogue: Catalogue) -> [ExactText]? {
    guard let product = catalogue[productID], type(in: catalogue) != .consumable else { return nil }
    return product.entitlements
  }

  /// The product's type as far as it is known.
  package func type(in catalogue: Catalogue) -> ProductType? {
    ProductType.known(of: productID, as: productType, hasExpiry: endsAt != nil, in: catalogue)
  }

  /// Whether what was granted has begun by a moment: Apple dates charges seconds ahead, and clocks
  /// differ.
  package func hasBegun(by moment: Timestamp) -> Bool { startsAt <= moment + .clockTolerance }

  /// Whether what was granted had ended by a moment because the charge was taken back.
  package func isRevoked(at moment: Timestamp) -> Bool {
    revokedAt.map { $0 <= moment } ?? false
  }
}
