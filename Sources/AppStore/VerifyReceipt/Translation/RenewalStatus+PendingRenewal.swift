import Subscriptions

extension RenewalStatus {
  /// What Apple plans for a line whose latest transaction is `latest`.
  ///
  /// Of several entries on one line, that of the latest transaction's product counts. `isExpired`:
  /// the answer's status was 21006. Nil without entries.
  init?(
    _ entries: [PendingRenewal], latest: TransactionRecord?, asOf: Timestamp, isExpired: Bool
  ) {
    let product = latest?.key.productID.rawValue
    let entry = entries.max {
      let (left, right) = ($0.productID == product, $1.productID == product)
      return left == right ? $0.sortKey.lexicographicallyPrecedes($1.sortKey) : right
    }
    guard let entry else { return nil }
    let phase = RenewalPhase(
      gracePeriodExpiresDate: entry.gracePeriodExpiresDate,
      isInBillingRetryPeriod: entry.isInBillingRetryPeriod,
      hasEnding: entry.expirationIntent != nil || (isExpired && entry.autoRenews == false),
      paidUntil: latest?.expiresDate, asOf: asOf)
    self.init(
      asOf: asOf, autoRenews: entry.autoRenews, phase: phase.phase,
      autoRenewProductID: entry.autoRenewProductID.map { ProductID($0) },
      expirationIntent: entry.expirationIntent)
  }
}
