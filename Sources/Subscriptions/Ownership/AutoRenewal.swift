/// "Actively auto-renewing as of t", the first row of the decision table, by evidence from before t
/// alone: later evidence doesn't show who was renewing then.
package struct AutoRenewal {
  let history: EvidenceHistory
  let charges: [Charge]
  let course: RenewalForecast
  private let constants: RuleConstants

  init(history: EvidenceHistory, charges: [Charge], constants: RuleConstants = .standard) {
    (self.history, self.charges, self.constants) = (history, charges, constants)
    course = RenewalForecast(history, charges: charges, constants: constants)
  }

  /// Finds who was renewing when the charge at `position` was made.
  ///
  /// - Parameter owner: The owner of an earlier charge as of a moment.
  package func evidence(
    forChargeAt position: Int, owner: (_ position: Int, _ asOf: Timestamp) -> AccountKey?
  ) -> RenewalEvidence {
    let charge = charges[position]
    guard charge.isSubscription else { return RenewalEvidence(reason: .notASubscription) }
    guard let previousPosition = charges.positionBefore(position) else {
      return RenewalEvidence(reason: .noEarlierCharge)
    }
    let previous = charges[previousPosition]
    func notRenewing(_ reason: RenewalEvidence.Reason, statusAsOf: Timestamp? = nil)
      -> RenewalEvidence
    {
      RenewalEvidence(reason: reason, previous: previous.id, statusAsOf: statusAsOf)
    }

    guard let account = owner(previousPosition, charge.date) else {
      return notRenewing(.earlierChargeUnclaimed)
    }
    if history.isErased(account, by: charge.date) { return notRenewing(.accountErased) }
    guard previous.isSubscription else { return notRenewing(.earlierChargeWithoutPeriod) }
    if let revocation = previous.revocation, revocation.at < charge.date {
      return notRenewing(.earlierChargeRevoked)
    }

    let statement = course.autoRenewStatement(after: previousPosition, before: charge.date)
    let (reason, statusAsOf) = verdict(on: charge, after: previous, statement: statement)
    guard reason.isRenewing else { return notRenewing(reason, statusAsOf: statusAsOf) }
    if let offSince = statement?.offSince,
      tokenNamesAnother(than: account, for: charge, since: offSince)
    {
      return notRenewing(.tokenOfAnotherAccount, statusAsOf: offSince)
    }
    return RenewalEvidence(
      account: account, reason: reason, previous: previous.id, statusAsOf: statusAsOf,
      switchedOffAt: statement?.offSince)
  }

  /// Whether the claimant had switched auto-renew on again before a charge: it opened an order for
  /// the charge's product while auto-renew was off, and before the claim arrived.
  package func wasSwitchedOn(byOrderBehind claim: Claim, beforeChargeAt position: Int) -> Bool {
    let charge = charges[position]
    guard let previous = charges.positionBefore(position),
      let statement = course.autoRenewStatement(after: previous, before: charge.date),
      let offSince = statement.offSince
    else { return false }
    let onAgainBy = statement.autoRenews ? statement.since : charge.date
    let claimant = history.successor(of: claim.account, asOf: claim.receivedAt)
    return history.orders.contains {
      history.successor(of: $0.account, asOf: claim.receivedAt) == claimant
        && $0.productID == charge.productID
        && $0.openedAt >= offSince - .clockTolerance
        && $0.openedAt <= min(onAgainBy + .clockTolerance, claim.receivedAt)
    }
  }

  // MARK: The table

  private typealias Verdict = (reason: RenewalEvidence.Reason, statusAsOf: Timestamp?)

  private func verdict(
    on charge: Charge, after previous: Charge, statement: RenewalForecast.AutoRenewStatus?
  ) -> Verdict {
    if charge.kind == .renewal { return (.renewedByApple, nil) }
    guard let periodEnd = previous.end else { return (.earlierChargeWithoutPeriod, nil) }
    let isNearPeriodEnd = (charge.date - periodEnd).isWithin(constants.periodEnd)
    let isOff = statement.map { !$0.autoRenews } ?? false

    switch charge.kind {
    case .purchase where charge.date >= accessEnd(of: previous, at: periodEnd, for: charge):
      return (.boughtAfterPeriodEnd, nil)
    case .unknown where isNearPeriodEnd:
      // An off in the last day may be later than Apple's charge.
      if isOff, let statement, statement.since < charge.date - constants.earlyCharge {
        return (.autoRenewOff, statement.since)
      }
      return (.renewedAtPeriodEnd, statement?.since)
    case .unknown where charge.date > periodEnd:
      return verdictOnLateCharge(charge, after: previous, endingAt: periodEnd)
    case .renewal, .purchase, .unknown:
      return isOff ? (.autoRenewOff, statement?.since) : (.changedWhileRenewing, statement?.since)
    }
  }

  /// A charge of unknown kind after the period's end renews only during grace or billing retry.
  private func verdictOnLateCharge(
    _ charge: Charge, after previous: Charge, endingAt periodEnd: Timestamp
  ) -> Verdict {
    guard let status = course.phaseStatement(from: periodEnd, before: charge.date) else {
      return (.lapsed, nil)
    }
    switch status.phase {
    case .gracePeriod, .billingRetry:
      let limit = constants.billingRetry(isCommitment: previous.isCommitment || status.isCommitment)
      let isInTime = charge.date <= periodEnd + limit
      return (isInTime ? .recoveredFromBillingProblem : .billingRetryOver, status.at)
    case .expired: return (.expired, status.at)
    case .undisturbed: return (.lapsed, nil)
    }
  }

  // MARK: Parts

  /// The end of a charge's period, with the grace period that was known before the next charge.
  private func accessEnd(of charge: Charge, at periodEnd: Timestamp, for next: Charge) -> Timestamp
  {
    let phase = course.phaseStatement(from: charge.date, before: next.date)?.phase
    return max(periodEnd, phase?.graceEnd ?? periodEnd)
  }

  /// Whether the charge, or a later renewal status, carries another account's token.
  private func tokenNamesAnother(
    than account: AccountKey, for charge: Charge, since offSince: Timestamp
  ) -> Bool {
    let renewalToken = course.lastStatus(from: offSince, before: charge.date) {
      $0.appAccountToken != nil
    }?.appAccountToken
    return [charge.appAccountToken, renewalToken].contains { token in
      history.holder(of: token, asOf: charge.date).map { $0 != account } ?? false
    }
  }
}

/// Whether an account was actively auto-renewing when a charge was made, and the evidence for it.
package struct RenewalEvidence: Hashable, Codable, Sendable {
  package var account: AccountKey?
  package var reason: Reason
  /// The latest charge before: the one that would have been renewed.
  package var previous: Charge.ID?
  /// The date of Apple's status that settled it; nil if the charges alone did.
  package var statusAsOf: Timestamp?
  /// The start of the *off* before the charge: auto-renew must have been switched on again since.
  package var switchedOffAt: Timestamp?

  package init(
    account: AccountKey? = nil, reason: Reason, previous: Charge.ID? = nil,
    statusAsOf: Timestamp? = nil, switchedOffAt: Timestamp? = nil
  ) {
    self.account = account
    self.reason = reason
    self.previous = previous
    self.statusAsOf = statusAsOf
    self.switchedOffAt = switchedOffAt
  }

  /// The reason for the result; raw values are stored.
  package enum Reason: String, Codable, CaseIterable, Sendable {
    // An account is renewing:
    case renewedByApple = "renewed_by_apple"
    case renewedAtPeriodEnd = "renewed_at_period_end"
    case recoveredFromBillingProblem = "recovered_from_billing_problem"
    case changedWhileRenewing = "changed_while_renewing"
    // No account is:
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
    /// An administrator released the charge.
    case released
    // There is nothing to decide:
    case reportsAnotherCharge = "reports_another_charge"

    var isRenewing: Bool {
      [.renewedByApple, .renewedAtPeriodEnd, .recoveredFromBillingProblem, .changedWhileRenewing]
        .contains(self)
    }
  }
}
