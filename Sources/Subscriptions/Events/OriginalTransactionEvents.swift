/// The changes of a recording, as events for the accounts concerned: from the states before and
/// after and, for owners, from the items, so that known evidence publishes nothing.
package struct OriginalTransactionEvents: Sendable {
  private let before: ObservedState
  private let after: ObservedState
  private let items: [LedgerItem]

  package init(
    before: OriginalTransaction, ruleBefore: OwnershipRule, after: OriginalTransaction,
    rule: OwnershipRule, items: [LedgerItem]
  ) {
    self.before = ObservedState(line: before, rule: ruleBefore)
    self.after = ObservedState(line: after, rule: rule)
    self.items = items
  }

  /// Events about charges, owners and revocations, then about the binding and the next renewal, in
  /// the order of publishing.
  ///
  /// A moved binding's current entitlements are added later: they depend on all original
  /// transactions.
  package func events(at now: Timestamp) -> [LedgerEvent] {
    guard !items.isEmpty else { return [] }
    let items =
      recordedCharges + items.flatMap(ownerEvents) + revocationEvents + bindingEvents
      + statusEvents
      + phaseEvents + productEvents
    return items.map { kind, account, data in
      var data = data
      if let line = data.line, let id = data.transactionID, let product = data.productID {
        let key = TransactionKey(line: line, transactionID: id, productID: product)
        data.terms = after.charge(of: key).map(after.line.reportedTerms)
      }
      return LedgerEvent(kind, at: now, account: account, data: data)
    }
  }

  private typealias Item = (kind: LedgerEvent.Kind, account: AccountKey?, data: EventData)

  // MARK: Charges

  private var recordedCharges: [Item] {
    after.rule.charges
      .filter { !$0.transactions.contains { before.line.history[$0] != nil } }
      .map { (.transactionRecorded, after.owner(of: $0), EventData($0)) }
  }

  /// Charges revoked since, or restored, as is one that was upgraded and not refunded.
  private var revocationEvents: [Item] {
    after.rule.charges.compactMap { charge -> Item? in
      let known = before.charge(of: charge.id).flatMap {
        $0.id == charge.id ? $0.revocation?.at : nil
      }
      guard known != charge.revocation?.at else { return nil }
      return (
        charge.revocation == nil ? .transactionRestored : .transactionRevoked,
        after.owner(of: charge), EventData(charge)
      )
    }
  }

  // MARK: Owners

  private func ownerEvents(of item: LedgerItem) -> [Item] {
    guard case .ownership(let change) = item.content else { return [] }
    let (old, new) = (change.previousOwner, change.decision.owner)
    if change.retiresCharge {
      // The charge that its transaction reports has its own owner and events.
      var data = EventData(change.charge)
      data.isOwner = false
      return old.map { [(.ownerCorrected, $0, data.decided(change.decision, for: $0))] } ?? []
    }
    guard change.changesOwner else { return [] }
    var data = after.charge(of: change.charge).map { EventData($0) } ?? EventData(change.charge)
    data.isOwner = false
    var items: [Item] = []
    if let old {
      let data = data.decided(change.decision, for: old, counterpart: .beside(old, new))
      items.append((.ownerCorrected, old, data))
    }
    if let new {
      data.isOwner = true
      let isFirst = old == nil && change.action != .corrected
      let kind: LedgerEvent.Kind =
        switch change.action {
        case .claimed: .transactionClaimed
        case .decided, .placed: isFirst ? .ownerDecided : .ownerCorrected
        case .corrected: .ownerCorrected
        }
      let counterpart: EventData.Counterpart? = isFirst ? nil : .beside(new, old)
      items.append((kind, new, data.decided(change.decision, for: new, counterpart: counterpart)))
    }
    return items
  }

  // MARK: Bindings

  private var bindingEvents: [Item] {
    let (old, new) = (before.boundAccount, after.boundAccount)
    guard old != new else { return [] }
    let charge = movingCharge
    let data = charge.map { EventData($0) } ?? EventData(line: before.latest?.id.line)
    let decision = charge.flatMap { after.decision(on: $0) }
    func items(_ kind: LedgerEvent.Kind, _ account: AccountKey?, _ other: AccountKey?) -> [Item] {
      account.map {
        [(kind, $0, data.decided(decision, for: $0, counterpart: .beside($0, other)))]
      } ?? []
    }
    return items(.bindingClosed, old, new) + items(.bindingOpened, new, old)
  }

  /// The charge that moved the binding: the first new one in the new account's last stretch.
  private var movingCharge: Charge? {
    let all = after.rule.charges
    let charges = all.positionsThatRan(among: all.indices).map { all[$0] }
    let stretch = charges.reversed().prefix { after.owner(of: $0) == after.boundAccount }
    return stretch.last { charge in
      before.charge(of: charge.id)?.id != charge.id
        || before.owner(of: charge) != after.boundAccount
    } ?? charges.last
  }

  /// The renewal status that the bound account knows: for a new one what a purchase implies.
  private var knownOutlook: RenewalOutlook? {
    before.boundAccount == after.boundAccount ? before.outlook : nil
  }

  private var statusEvents: [Item] {
    guard let outlook = after.outlook, let charge = after.latest else { return [] }
    let known = knownOutlook ?? RenewalOutlook(productID: charge.productID)
    guard (outlook.autoRenews, outlook.productID) != (known.autoRenews, known.productID) else {
      return []
    }
    // Buying the announced product is no new announcement.
    if outlook.autoRenews, known.autoRenews, outlook.productID == charge.productID,
      before.latest?.id != charge.id
    {
      return []
    }
    var data = EventData(charge)
    data.autoRenewing = outlook.autoRenews
    data.autoRenewProductID = outlook.productID
    return [(.renewalStatusChanged, after.boundAccount, data)]
  }

  private var phaseEvents: [Item] {
    guard let outlook = after.outlook, let charge = after.latest else { return [] }
    let known = knownOutlook?.phase ?? .undisturbed
    guard outlook.phase != known else { return [] }
    var data = EventData(charge)
    data.graceEndsAt = outlook.phase.graceEnd
    let kind: LedgerEvent.Kind? =
      switch outlook.phase {
      case .gracePeriod: .inGracePeriod
      case .billingRetry: .inBillingRetry
      case .undisturbed: known == .expired ? nil : .recovered
      case .expired: nil
      }
    return kind.map { [($0, after.boundAccount, data)] } ?? []
  }

  private var productEvents: [Item] {
    guard let charge = after.latest, charge.isSubscription, let previous = before.latest,
      previous.isSubscription, previous.productID != charge.productID,
      before.boundAccount == after.boundAccount
    else { return [] }
    var data = EventData(charge)
    data.previousProductID = previous.productID
    return [(.productChanged, after.boundAccount, data)]
  }
}

extension EventData {
  package init(_ charge: Charge) {
    self.init(charge.id)
    productID = charge.productID
    purchasedAt = charge.date
    expiresAt = charge.end
    revokedAt = charge.revocation?.at
  }

  /// A charge that turned out to be none.
  fileprivate init(_ charge: Charge.ID) {
    self.init(line: charge.line)
    transactionID = charge.transactionID
    productID = charge.productID
  }

  fileprivate func decided(
    _ decision: Decision?, for account: AccountKey, counterpart: Counterpart? = nil
  ) -> EventData {
    var data = self
    data.rule = decision?.rule
    data.because = decision.map { Explanation($0, for: account).sentence }
    data.counterpart = counterpart
    return data
  }
}

extension EventData.Counterpart {
  fileprivate static func beside(_ account: AccountKey, _ other: AccountKey?) -> Self? {
    switch other {
    case nil: .noAccount
    case account?: nil
    default: .anotherAccount
    }
  }
}

struct ObservedState: Sendable {
  let line: OriginalTransaction
  let rule: OwnershipRule
  /// Apple's latest statement about the next renewal; nil if there is none to come.
  let outlook: RenewalOutlook?

  init(line: OriginalTransaction, rule: OwnershipRule) {
    (self.line, self.rule) = (line, rule)
    outlook = RenewalOutlook(rule)
  }

  var latest: Charge? { rule.charges.latestCharge }

  var boundAccount: AccountKey? { latest.flatMap(owner(of:)) }

  func charge(of transaction: TransactionKey) -> Charge? {
    rule.position(of: transaction).map { rule.charges[$0] }
  }

  func decision(on charge: Charge) -> Decision? { line.decisions[charge.id]?.decision }

  func owner(of charge: Charge) -> AccountKey? { decision(on: charge)?.owner }
}

struct RenewalOutlook: Hashable, Sendable {
  /// The defaults are what a purchase implies.
  var autoRenews = true
  var productID: ProductID
  var phase = RenewalStatus.Phase.undisturbed
}

extension RenewalOutlook {
  /// Nil for purchases that don't renew.
  init?(_ rule: OwnershipRule) {
    guard let position = rule.charges.latestPosition, rule.charges[position].isSubscription else {
      return nil
    }
    let renewal = rule.renewal(ofChargeAt: position)
    self.init(
      autoRenews: renewal.autoRenews,
      productID: rule.course.announcedProduct(after: position) ?? rule.charges[position].productID,
      phase: renewal.phase)
  }
}

package enum EntitlementEvents {
  /// Compares the published entitlements of an account with the current ones.
  ///
  /// Access whose published end has passed is reported as expired at that end, even if there is
  /// access again by now.
  ///
  /// - Parameters:
  ///   - published: The end of access of each entitlement that events have reported as active; nil:
  ///     never.
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
        add(.entitlementExpired, at: end, shown ?? .ended(name, .expired, at: end, from: source))
        known = nil
      }
      switch (known, active[name]) {
      case (nil, let entitlement?): add(.entitlementGranted, at: now, entitlement)
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
}

extension Entitlement {
  /// Access that ended and is not held as such: it began again, or was withdrawn.
  fileprivate static func ended(
    _ name: ExactText, _ state: State, at end: Timestamp, from source: Source = .appStore
  ) -> Entitlement {
    Entitlement(
      name: name.rawValue, state: state, expiresAt: end, accessEndsAt: end, willRenew: false,
      periodType: .normal, source: source,
      endedBecause: state == .revoked ? nil : source == .appStore ? .expired : .grantEnded)
  }
}
