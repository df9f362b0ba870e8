/// Whether an account was actively auto-renewing when a charge was made, and what shows it.
package struct RenewalFinding: Hashable, Sendable {
  /// The account that was renewing; nil if none was.
  package var account: AccountKey?
  package var ground: Ground
  /// The line's latest charge before: what would have been renewed.
  package var previous: Charge.ID?
  /// The date of the word of Apple's that settled it; nil if the charges alone did.
  package var statusAsOf: Timestamp?
  /// Since when auto-renew had been *off* before this was charged all the same: somebody had
  /// switched it on again, whether we heard of it or not.
  package var switchedOffAt: Timestamp?

  package init(
    account: AccountKey? = nil, ground: Ground, previous: Charge.ID? = nil,
    statusAsOf: Timestamp? = nil, switchedOffAt: Timestamp? = nil
  ) {
    self.account = account
    self.ground = ground
    self.previous = previous
    self.statusAsOf = statusAsOf
    self.switchedOffAt = switchedOffAt
  }

  /// What the finding rests on; the raw values are stored.
  package enum Ground: String, Codable, CaseIterable, Sendable {
    // An account is renewing:
    case renewedByApple = "renewed_by_apple"
    case renewedAtPeriodEnd = "renewed_at_period_end"
    case recoveredFromBillingProblem = "recovered_from_billing_problem"
    case changedWhileRenewing = "changed_while_renewing"
    // None is:
    case notASubscription = "not_a_subscription"
    case noEarlierCharge = "no_earlier_charge"
    case earlierChargeUnclaimed = "earlier_charge_unclaimed"
    case earlierChargeWithoutPeriod = "earlier_charge_without_period"
    case earlierChargeRevoked = "earlier_charge_revoked"
    case accountErased = "account_erased"
    case boughtAfterPeriodEnd = "bought_after_period_end"
    case autoRenewOff = "auto_renew_off"
    case lapsed = "lapsed"
    case expired = "expired"
    case billingRetryOver = "billing_retry_over"
    case tokenOfAnotherAccount = "token_of_another_account"
    case orderedByAnotherAccount = "ordered_by_another_account"
    /// Somebody may have been; an administrator released the charge all the same.
    case released
    // There is nothing to decide:
    case reportsAnotherCharge = "reports_another_charge"
  }
}
