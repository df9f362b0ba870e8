package enum EntitlementEvents {
  /// Compares the published entitlements of an account with the current ones.
  ///
  /// Access whose published end has passed is reported as expired at that end, even if there is
  /// access again by now.
  ///
  /// - Parameters:
  ///   - published: The end of access of each entitlement that events have reported as active; nil:
  ///     never.
  ///   - entitlements: The account's current entitlements, inactive ones included.
  /// - Returns: The events by the entitlements' names, and the new published state.
  package static func events(
    for account: AccountKey, published: [ExactText: Timestamp?], now entitlements: [Entitlement],
    at now: Timestamp
  ) -> (events: [LedgerEvent], published: [ExactText: Timestamp?]) {
    let current = Dictionary(entitlements.map { (ExactText($0.name), $0) }) { first, _ in first }
    let active = current.filter(\.value.isActive)
    var events: [LedgerEvent] = []
    for name in Set(published.keys).union(active.keys).sorted() {
      var known = published[name]
      func add(_ kind: LedgerEvent.Kind, at moment: Timestamp, _ entitlement: Entitlement) {
        var data = EventData()
        data.entitlement = entitlement
        events.append(LedgerEvent(kind, at: moment, account: account, data: data))
      }
      if case .some(.some(let end)) = known, end <= now {
        let shown = current[name].flatMap { $0.isActive ? nil : $0 }
        let source = current[name]?.source ?? .appStore
        add(
          .entitlementExpired, at: end, shown ?? .ended(name, .expired, at: end, from: source))
        known = nil
      }
      switch (known, active[name]) {
      case (nil, let entitlement?):
        add(.entitlementGranted, at: now, entitlement)
      case (let end?, let entitlement?):
        if entitlement.accessEndsAt == end { continue }
        let isLonger = entitlement.accessEndsAt.map { new in end.map { $0 < new } ?? false } ?? true
        add(isLonger ? .entitlementExtended : .entitlementShortened, at: now, entitlement)
      case (.some, nil):
        let shown = current[name] ?? .ended(name, .revoked, at: now)
        add(shown.state == .revoked ? .entitlementRevoked : .entitlementExpired, at: now, shown)
      case (nil, nil): continue
      }
    }
    return (events, active.mapValues(\.accessEndsAt))
  }

  /// Finds the next moment at which time alone can change the entitlements.
  package static func nextChange(
    holdings: [Holding], grants: [Grant], catalogue: Catalogue, after now: Timestamp
  ) -> Timestamp? {
    moments(
      of: holdings.filter { $0.entitlements(in: catalogue)?.isEmpty == false }, grants,
      in: catalogue
    ).filter { now < $0 }.min()
  }

  /// The moments at which time alone can change the state of holdings and grants.
  private static func moments(of holdings: [Holding], _ grants: [Grant], in catalogue: Catalogue)
    -> [Timestamp]
  {
    var moments: [Timestamp] = []
    func add(_ moment: Timestamp?) { if let moment { moments.append(moment) } }
    for holding in holdings {
      add(holding.startsAt - .clockTolerance)
      add(holding.startsAt)
      add(holding.end(in: catalogue))
      add(holding.revokedAt)
      add(holding.renewal?.phase.graceEnd)
    }
    for grant in grants {
      add(grant.startsAt)
      add(grant.accessEnd)
      add(grant.revokedAt)
    }
    return moments
  }

  /// Finds the longest time around a moment in which the entitlements stay the same.
  ///
  /// Unlike in ``nextChange(holdings:grants:catalogue:after:)``, products without entitlements
  /// count: one that is current hides those of the others.
  static func constancy(
    holdings: [Holding], grants: [Grant], catalogue: Catalogue, around moment: Timestamp
  ) -> Range<Timestamp> {
    var (start, end) = (Timestamp(milliseconds: .min), Timestamp(milliseconds: .max))
    for change in moments(of: holdings, grants, in: catalogue) {
      if change <= moment { start = max(start, change) } else { end = min(end, change) }
    }
    return start..<end
  }
}

extension Entitlement {
  /// Access that ended and is not held as such: it began again, or was withdrawn.
  fileprivate static func ended(
    _ name: ExactText, _ state: State, at end: Timestamp, from source: Source = .appStore
  ) -> Entitlement {
    Entitlement(
      name: name.rawValue, state: state, expiresAt: end, accessEndsAt: end, willRenew: false,
      periodType: .normal, source: source)
  }
}
