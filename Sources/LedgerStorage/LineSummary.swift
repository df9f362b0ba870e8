package import Subscriptions

/// What a line comes to now: what `original_transaction` shows.
package struct LineSummary: Hashable, Sendable {
  /// The latest charge recorded.
  package var latest: Charge?
  package var latestOwner: AccountKey?
  /// The latest end of a paid period on the line.
  package var paidThrough: Timestamp?
  /// Whether the line will renew; nil for what can't.
  package var autoRenews: Bool?
  package var autoRenewProductID: ProductID?
  package var phase: RenewalStatus.Phase?
  /// The date of Apple's last word.
  package var statusAsOf: Timestamp?

  /// Sums a line up.
  package init(line: Line, rule: OwnershipRule) {
    paidThrough = rule.charges.compactMap(\.end).max()
    statusAsOf = line.history.statuses.last?.asOf
    autoRenewProductID =
      line.history.statuses.last { $0.autoRenewProductID != nil }?
      .autoRenewProductID
    guard let position = rule.charges.indices.last else { return }
    latest = rule.charges[position]
    latestOwner = rule.decisions[position].owner
    guard rule.charges[position].isSubscription else { return }
    let renewal = rule.renewal(ofChargeAt: position)
    autoRenews = renewal.autoRenews
    phase = renewal.phase
  }
}
