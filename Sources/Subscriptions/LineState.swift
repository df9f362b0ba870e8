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
