import Subscriptions

/// What Apple says of a period that could or could not be renewed, in any of its formats.
struct RenewalPhase {
  var gracePeriodExpiresDate: Timestamp?
  var isInBillingRetryPeriod: Bool?
  /// Whether Apple says that the line has ended or will: an expiration intent, or status 21006 with
  /// renewal off.
  var hasEnding: Bool
  /// The end of the paid period, as far as it is known.
  var paidUntil: Timestamp?
  /// The date of Apple's answer.
  var asOf: Timestamp

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
  var phase: RenewalStatus.Phase? {
    // A grace period lies behind the period that could not be renewed; Apple recovered the rest.
    let grace = gracePeriodExpiresDate.flatMap { grace in
      paidUntil.map { grace > $0 } ?? true ? grace : nil
    }
    if let grace, grace > asOf { return .gracePeriod(until: grace) }
    if isInBillingRetryPeriod == true { return .billingRetry }
    if hasEnding { return paidUntil.map { $0 <= asOf ? .expired : .undisturbed } }
    return grace != nil && isInBillingRetryPeriod == nil ? .billingRetry : .undisturbed
  }
}
