import Postgres
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
  /// What the line will be renewed as, by Apple's last word since the latest charge.
  package var autoRenewProductID: ProductID?
  package var phase: RenewalStatus.Phase?
  /// The date of Apple's last word.
  package var statusAsOf: Timestamp?

  /// Sums a line up.
  package init(line: Line, rule: OwnershipRule) {
    paidThrough = rule.charges.compactMap(\.end).max()
    statusAsOf = line.history.statuses.last?.asOf
    guard let position = rule.charges.latestPosition else { return }
    latest = rule.charges[position]
    latestOwner = rule.decisions[position].owner
    autoRenewProductID = rule.course.announcedProduct(after: position)
    guard rule.charges[position].isSubscription else { return }
    let renewal = rule.renewal(ofChargeAt: position)
    autoRenews = renewal.autoRenews
    phase = renewal.phase
  }
}

/// What `original_transaction` has of a line's summary.
struct LineSummaryRow: Hashable, Sendable {
  private var latestChargedAt: Timestamp?
  private var latestProductID: ProductID?
  private var latestOwner: AccountKey?
  private var paidThrough: Timestamp?
  private var autoRenews: Bool?
  private var autoRenewProductID: ProductID?
  private var phase: String?
  private var graceEndsAt: Timestamp?
  private var statusAsOf: Timestamp?

  init(_ summary: LineSummary) {
    latestChargedAt = summary.latest?.date
    latestProductID = summary.latest?.productID
    latestOwner = summary.latestOwner
    paidThrough = summary.paidThrough
    autoRenews = summary.autoRenews
    autoRenewProductID = summary.autoRenewProductID
    phase = summary.phase?.name
    graceEndsAt = summary.phase?.graceEndsAt
    statusAsOf = summary.statusAsOf
  }

  /// Reads a line's row.
  static func select(_ line: LineID) -> SQL {
    """
    SELECT latest_charged_at, latest_product_id, latest_owner_key, paid_through, auto_renews,
      auto_renew_product_id, renewal_phase, grace_ends_at, status_as_of
    FROM tenure.original_transaction
    WHERE environment = \(line.environment)
      AND original_transaction_id = \(line.originalTransactionID)
    """
  }

  init(_ rows: Rows) throws {
    (
      latestChargedAt, latestProductID, latestOwner, paidThrough, autoRenews, autoRenewProductID,
      phase, graceEndsAt, statusAsOf
    ) = try rows.decodeOnly(
      Timestamp?.self, ProductID?.self, AccountKey?.self, Timestamp?.self, Bool?.self,
      ProductID?.self, String?.self, Timestamp?.self, Timestamp?.self)
  }
}
