/// What one account holds of one line, or of lines that Apple links, and what that grants at a
/// moment.
struct LineEntitlements {
  /// A charge with its end and with what its product grants.
  private struct Part {
    var holding: Holding
    /// Nil: never.
    var end: Timestamp?
    var entitlements: [ExactText]

    /// Until when it gives access of itself: its end, or the revocation before it; nil: for ever.
    var accessEnd: Timestamp? { [end, holding.revokedAt].compactMap(\.self).min() }
  }

  private let parts: [Part]
  private let moment: Timestamp

  /// - Parameters:
  ///   - holdings: One account's of one line. What the catalogue doesn't know grants nothing yet,
  ///     and consumables never do.
  ///   - catalogue: Which product grants what.
  ///   - moment: The moment that is asked about.
  init(_ holdings: [Holding], in catalogue: Catalogue, at moment: Timestamp) {
    self.moment = moment
    parts = holdings.compactMap { holding in
      holding.entitlements(in: catalogue).map {
        Part(holding: holding, end: holding.end(in: catalogue), entitlements: $0)
      }
    }
  }

  /// One entitlement for each name that the line's deciding charge grants.
  var entitlements: [Entitlement] {
    let begun = parts.filter { $0.holding.hasBegun(by: moment) }
    let unrevoked = begun.filter { !$0.holding.isRevoked(at: moment) }.max(by: isLess)
    if let unrevoked, state(of: unrevoked) != .expired {
      return unrevoked.entitlements.map {
        entitlement(named: $0, of: prolonged(unrevoked, for: $0), state: state(of: unrevoked))
      }
    }
    let revoked =
      begun
      .filter { part in
        part.holding.isRevoked(at: moment) && part.end.map { moment < $0 } ?? true
      }
      .max(by: isLess)
    if let revoked {
      return revoked.entitlements.map { entitlement(named: $0, of: revoked, state: .revoked) }
    }
    guard let over = unrevoked ?? begun.max(by: isLess) else { return [] }
    return over.entitlements.map { entitlement(named: $0, of: over, state: .expired) }
  }

  /// The state of what is not revoked.
  private func state(of part: Part) -> Entitlement.State {
    guard let end = part.end, moment >= end else { return .active }
    switch part.holding.renewal?.phase {
    case .gracePeriod(let until) where moment < until: return .inGracePeriod
    case .billingRetry: return .inBillingRetry
    case .gracePeriod, .undisturbed, .expired, nil: return .expired
    }
  }

  /// The part with the later end of what follows it without a gap and grants the same entitlement.
  ///
  /// Apple reports renewals up to a day early, and dates some a few seconds after the last end: the
  /// entitlement is one, unbroken.
  private func prolonged(_ part: Part, for name: ExactText) -> Part {
    var longest = part
    for next in parts.sorted(by: beginsEarlier) {
      guard let end = longest.accessEnd else { break }
      guard next.holding.revokedAt == nil, next.entitlements.contains(name),
        next.holding.startsAt <= end + .gapTolerance, next.end.map({ $0 > end }) ?? true
      else { continue }
      longest.end = next.end
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
      transactionID: holding.charge.transactionID, source: .appStore)
  }

  /// Until when there is access, with the grace period after the end.
  private func accessEnd(of part: Part) -> Timestamp? {
    var part = part
    if let end = part.end, case .gracePeriod(let until) = part.holding.renewal?.phase {
      part.end = max(end, until)
    }
    return part.accessEnd
  }

  /// Whether the account owns the line's latest charge, and that will renew what is held until
  /// `end`.
  private func willRenew(_ name: ExactText, until end: Timestamp?, state: Entitlement.State) -> Bool {
    guard state != .revoked, state != .expired else { return false }
    return parts.contains { latest in
      guard let renewal = latest.holding.renewal, latest.holding.revokedAt == nil,
        latest.entitlements.contains(name),
        end.map({ latest.holding.startsAt <= $0 + .gapTolerance }) ?? true
      else { return false }
      return renewal.autoRenews && renewal.phase != .expired && self.state(of: latest) != .expired
    }
  }

  private func beginsEarlier(_ lhs: Part, _ rhs: Part) -> Bool {
    (lhs.holding.startsAt, lhs.holding.charge) < (rhs.holding.startsAt, rhs.holding.charge)
  }

  /// Which of two parts yields: the one that ends earlier.
  ///
  /// A part dated a little ahead yields to one that is running, so that another product does not
  /// end what was paid for before its time.
  private func isLess(_ lhs: Part, _ rhs: Part) -> Bool {
    if isRunning(lhs) != isRunning(rhs) { return isRunning(rhs) }
    let (left, right) = (lhs.end?.milliseconds ?? .max, rhs.end?.milliseconds ?? .max)
    return (left, lhs.holding.startsAt, lhs.holding.charge)
      < (right, rhs.holding.startsAt, rhs.holding.charge)
  }

  private func isRunning(_ part: Part) -> Bool {
    part.holding.startsAt <= moment && part.end.map { moment < $0 } ?? true
  }
}
