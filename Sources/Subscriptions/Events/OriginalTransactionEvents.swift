/// What a recording on a line changed, as events for those whom it concerns.
///
/// It compares the line as it was with the line as it is, and takes the changes of owners from the
/// entries. So recording again what is known is no news.
package struct LineNews: Sendable {
  let before: LineState
  let after: LineState
  private let entries: [LedgerEntry]

  /// - Parameters:
  ///   - before: The line, or the lines that Apple links, before the recording.
  ///   - ruleBefore: Its charges and recorded decisions.
  ///   - after: The line as it is now.
  ///   - rule: Its charges and recorded decisions.
  ///   - entries: What the recording appended, in order.
  package init(
    before: Line, ruleBefore: OwnershipRule, after: Line, rule: OwnershipRule,
    entries: [LedgerEntry]
  ) {
    self.before = LineState(line: before, rule: ruleBefore)
    self.after = LineState(line: after, rule: rule)
    self.entries = entries
  }

  /// Tells charges, owners and revocations, then the binding and what Apple says of the future.
  ///
  /// What the accounts have now is missing where a binding moved: that takes more than one line.
  ///
  /// - Parameter now: The recording date.
  /// - Returns: The events in the order in which they are told.
  package func events(at now: Timestamp) -> [LedgerEvent] {
    guard !entries.isEmpty else { return [] }
    let news =
      recordedCharges + entries.flatMap(ownerNews) + revocationNews + bindingNews + statusNews
      + phaseNews + productNews
    return news.map { LedgerEvent($0.kind, at: now, account: $0.account, data: $0.data) }
  }

  /// An event without its moment.
  struct Item {
    var kind: LedgerEvent.Kind
    var account: AccountKey?
    var data: EventData

    init(_ kind: LedgerEvent.Kind, to account: AccountKey?, _ data: EventData) {
      self.kind = kind
      self.account = account
      self.data = data
    }
  }

  // MARK: Charges

  /// Charges that were not known by any of their transactions.
  private var recordedCharges: [Item] {
    after.rule.charges.compactMap { charge in
      guard !charge.transactions.contains(where: { before.line.history[$0] != nil }) else {
        return nil
      }
      return Item(.transactionRecorded, to: after.owner(of: charge), EventData(charge))
    }
  }

  /// Charges that were taken back since, or given back.
  ///
  /// One that turned out to be replaced is given back in so far as it was not refunded.
  private var revocationNews: [Item] {
    after.rule.charges.compactMap { charge in
      let known = before.charge(of: charge.id).flatMap {
        $0.id == charge.id ? $0.revocation?.at : nil
      }
      guard known != charge.revocation?.at else { return nil }
      return Item(
        charge.revocation == nil ? .transactionRestored : .transactionRevoked,
        to: after.owner(of: charge), EventData(charge))
    }
  }

  // MARK: Owners

  private func ownerNews(of entry: LedgerEntry) -> [Item] {
    guard case .ownership(let change) = entry.content else { return [] }
    let (old, new) = (change.previousOwner, change.decision.owner)
    if change.retiresCharge {
      // What it reports has an owner of its own, and who that is was told there.
      var data = EventData(change.charge)
      data.isOwner = false
      return old.map { [Item(.ownerCorrected, to: $0, data.decided(change.decision, for: $0))] }
        ?? []
    }
    guard change.changesOwner else { return [] }
    var data = after.charge(of: change.charge).map { EventData($0) } ?? EventData(change.charge)
    data.isOwner = false
    var items: [Item] = []
    if let old {
      items.append(
        Item(
          .ownerCorrected, to: old,
          data.decided(change.decision, for: old, counterpart: .beside(old, new))))
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
      items.append(
        Item(
          kind, to: new,
          data.decided(
            change.decision, for: new, counterpart: isFirst ? nil : .beside(new, old))))
    }
    return items
  }

  // MARK: The line

  private var bindingNews: [Item] {
    let (old, new) = (before.boundAccount, after.boundAccount)
    guard old != new else { return [] }
    let charge = movingCharge
    let data = charge.map { EventData($0) } ?? EventData(line: before.latest?.id.line)
    let decision = charge.flatMap { after.decision(on: $0) }
    return [
      old.map {
        Item(
          .bindingClosed, to: $0,
          data.decided(decision, for: $0, counterpart: .beside($0, new)))
      },
      new.map {
        Item(
          .bindingOpened, to: $0,
          data.decided(decision, for: $0, counterpart: .beside($0, old)))
      },
    ].compactMap(\.self)
  }

  /// The charge that moved the binding: the first one of those that the account owns at the line's
  /// end which it did not own before.
  private var movingCharge: Charge? {
    let all = after.rule.charges
    let charges = all.positionsThatRan(among: all.indices).map { all[$0] }
    let stretch = charges.reversed().prefix { after.owner(of: $0) == after.boundAccount }
    return stretch.last { charge in
      before.charge(of: charge.id)?.id != charge.id
        || before.owner(of: charge) != after.boundAccount
    } ?? charges.last
  }

  /// What Apple says of the line's future, as far as the account to which it is bound knows it.
  ///
  /// To whom the line is newly bound, it is what a purchase implies.
  private var knownOutlook: LineOutlook? {
    before.boundAccount == after.boundAccount ? before.outlook : nil
  }

  private var statusNews: [Item] {
    guard let outlook = after.outlook, let charge = after.latest else { return [] }
    let known = knownOutlook ?? LineOutlook(afterPurchaseOf: charge)
    guard (outlook.autoRenews, outlook.productID) != (known.autoRenews, known.productID) else {
      return []
    }
    // To have bought what was announced is no new announcement.
    if outlook.autoRenews, known.autoRenews, outlook.productID == charge.productID,
      before.latest?.id != charge.id
    {
      return []
    }
    var data = EventData(charge)
    data.autoRenewing = outlook.autoRenews
    data.autoRenewProductID = outlook.productID
    return [Item(.renewalStatusChanged, to: after.boundAccount, data)]
  }

  private var phaseNews: [Item] {
    guard let outlook = after.outlook, let charge = after.latest else { return [] }
    let known = knownOutlook?.phase ?? .undisturbed
    guard outlook.phase != known else { return [] }
    var data = EventData(charge)
    let kind: LedgerEvent.Kind? =
      switch outlook.phase {
      case .gracePeriod(let until):
        {
          data.graceEndsAt = until
          return .inGracePeriod
        }()
      case .billingRetry: .inBillingRetry
      case .undisturbed where known != .expired: .recovered
      case .undisturbed, .expired: nil
      }
    return kind.map { [Item($0, to: after.boundAccount, data)] } ?? []
  }

  private var productNews: [Item] {
    guard let charge = after.latest, charge.isSubscription, let previous = before.latest,
      previous.isSubscription, previous.productID != charge.productID,
      before.boundAccount == after.boundAccount
    else { return [] }
    var data = EventData(charge)
    data.previousProductID = previous.productID
    return [Item(.productChanged, to: after.boundAccount, data)]
  }
}

extension EventData {
  /// Names a charge and says what it was for.
  fileprivate init(_ charge: Charge) {
    self.init(charge.id)
    productID = charge.productID
    purchasedAt = charge.date
    expiresAt = charge.end
    revokedAt = charge.revocation?.at
  }

  /// Names a charge that is none any more.
  fileprivate init(_ charge: Charge.ID) {
    self.init(line: charge.line)
    transactionID = charge.transactionID
    productID = charge.productID
  }

  fileprivate init(line: LineID?) {
    self.init()
    self.line = line
  }

  /// The same with a decision, in words for one account.
  fileprivate func decided(
    _ decision: Decision?, for account: AccountKey, counterpart: Counterpart? = nil
  ) -> EventData {
    var data = self
    data.rule = decision?.rule
    data.because = decision.map { Explanation($0, toldTo: account).sentence }
    data.counterpart = counterpart
    return data
  }
}

extension EventData.Counterpart {
  /// What an account is told of the other side.
  fileprivate static func beside(_ account: AccountKey, _ other: AccountKey?) -> Self? {
    switch other {
    case nil: .nobody
    case account?: nil
    default: .anotherAccount
    }
  }
}

/// A line with what follows from it, for the comparison of before and after.
struct LineState: Sendable {
  let line: Line
  let rule: OwnershipRule
  /// What Apple last said of what follows the latest charge; nil for what does not renew.
  let outlook: LineOutlook?

  init(line: Line, rule: OwnershipRule) {
    self.line = line
    self.rule = rule
    outlook = LineOutlook(rule)
  }

  var latest: Charge? { rule.charges.latestCharge }

  /// The account to which the line is bound by its latest charge.
  var boundAccount: AccountKey? { latest.flatMap(owner(of:)) }

  /// The charge that a transaction reports.
  func charge(of transaction: TransactionKey) -> Charge? {
    rule.position(of: transaction).map { rule.charges[$0] }
  }

  func decision(on charge: Charge) -> Decision? { line.decisions[charge.id]?.decision }

  func owner(of charge: Charge) -> AccountKey? { decision(on: charge)?.owner }
}

/// What Apple last said of what follows a line's latest charge.
struct LineOutlook: Hashable, Sendable {
  var autoRenews: Bool
  /// What the next renewal is for.
  var productID: ProductID
  var phase: RenewalStatus.Phase

  /// What a purchase implies.
  init(afterPurchaseOf charge: Charge) {
    autoRenews = true
    productID = charge.productID
    phase = .undisturbed
  }

  /// Nil for what does not renew.
  init?(_ rule: OwnershipRule) {
    guard let position = rule.charges.latestPosition, rule.charges[position].isSubscription else {
      return nil
    }
    let charge = rule.charges[position]
    self.init(afterPurchaseOf: charge)
    let renewal = rule.renewal(ofChargeAt: position)
    autoRenews = renewal.autoRenews
    phase = renewal.phase
    productID = rule.course.announcedProduct(after: position) ?? productID
  }
}
