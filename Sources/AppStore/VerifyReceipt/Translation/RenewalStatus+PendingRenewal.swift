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
    self.init(
      asOf: asOf, autoRenews: entry.autoRenews,
      phase: entry.phase(paidUntil: latest?.expiresDate, asOf: asOf, isExpired: isExpired),
      autoRenewProductID: entry.autoRenewProductID.map { ProductID($0) },
      expirationIntent: entry.expirationIntent)
  }
}

extension PendingRenewal {
  /// The first row that matches; nil where the end of the paid period is needed and not known.
  ///
  /// | what Apple says | phase |
  /// | --- | --- |
  /// | a grace period that ends after the paid one and after the answer | grace |
  /// | is_in_billing_retry_period 1 | billing retry |
  /// | an expiration_intent, or 21006 with renewal off, and the paid period is over | expired |
  /// | the same, and the paid period runs | undisturbed: it says why the line will end |
  /// | a grace period that is over, and not a word of giving up | billing retry |
  /// | anything else | undisturbed |
  ///
  /// 21006 alone is not believed: it has been seen for hours between an expiry and its renewal.
  fileprivate func phase(
    paidUntil: Timestamp?, asOf: Timestamp, isExpired: Bool
  ) -> RenewalStatus.Phase? {
    // A grace period lies behind the period that could not be renewed; Apple recovered the rest.
    let grace = gracePeriodExpiresDate.flatMap { grace in
      paidUntil.map { grace > $0 } ?? true ? grace : nil
    }
    if let grace, grace > asOf { return .gracePeriod(until: grace) }
    if isInBillingRetryPeriod == true { return .billingRetry }
    if expirationIntent != nil || (isExpired && autoRenews == false) {
      return paidUntil.map { $0 <= asOf ? .expired : .undisturbed }
    }
    return grace != nil && isInBillingRetryPeriod == nil ? .billingRetry : .undisturbed
  }
}
