/// The reason for a charge's owner in a sentence, made when read and never stored.
package struct Explanation {
  private let decision: Decision
  /// The owner within a sentence and at its beginning.
  private let owner: String
  private let subject: String

  /// - Parameter name: The account id behind a key, or a pseudonym.
  package init(_ decision: Decision, name: (AccountKey) -> String) {
    self.decision = decision
    owner = decision.owner.map { "“\(name($0))”" } ?? "no account"
    subject = owner
  }

  /// Explains to an account, naming none.
  package init(_ decision: Decision, for account: AccountKey) {
    self.decision = decision
    (owner, subject) =
      switch decision.owner {
      case nil: ("no account", "No account")
      case account: ("this account", "This account")
      default: ("another account", "Another account")
      }
  }

  package var sentence: String {
    switch decision.rule {
    case .administrator: return "An administrator assigned it to \(owner)."
    case .activelyAutoRenewing:
      return "\(subject) had auto-renew on when Apple charged: \(renewing)."
    case .submitter where decision.renewal.reason == .released:
      return "An administrator released it, and \(owner) was the next to submit it."
    case .submitter: return "\(subject) submitted it first; \(notRenewing)."
    case .appAccountToken
    where !decision.isProvisional && decision.renewal.reason == .notASubscription:
      return "It was bought with the token issued to \(owner)."
    case .appAccountToken where !decision.isProvisional:
      return "It was bought with the token issued to \(owner); \(notRenewing)."
    case .appAccountToken:
      return
        "It carries the token issued to \(owner) and has not been submitted yet; \(notRenewing)."
    case .unclaimed where decision.renewal.reason == .reportsAnotherCharge:
      return "It reports the same charge as transaction \(previous); one decision covers both."
    case .unclaimed where decision.renewal.reason == .released:
      return "An administrator released it, and no account has submitted it since."
    case .unclaimed: return "No account has submitted it yet; \(notRenewing)."
    }
  }

  package var clause: String? {
    switch decision.rule {
    case .administrator: "to whom an administrator assigned it"
    case .activelyAutoRenewing: "whose auto-renew was on when Apple charged"
    case .submitter where decision.renewal.reason == .released:
      "who submitted it after an administrator had released it"
    case .submitter: "who submitted it first"
    case .appAccountToken: "whose token it carries"
    case .unclaimed: nil
    }
  }

  /// Why the charge continues no account's subscription, without transactions and dates.
  ///
  /// - Parameter previous: The owner of the charge before, if any.
  package func lapse(of previous: String?) -> String? {
    let autoRenew = previous.map { "\($0)'s auto-renew" } ?? "auto-renew"
    return switch decision.renewal.reason {
    case .earlierChargeUnclaimed: "no account owned the charge before"
    case .earlierChargeWithoutPeriod: "the charge before has no paid period"
    case .earlierChargeRevoked: "the charge before had been refunded"
    case .accountErased: "the account before was erased"
    case .boughtAfterPeriodEnd: "the paid period had ended"
    case .autoRenewOff: "\(autoRenew) was off"
    case .lapsed: "auto-renew had lapsed and Apple had not reported a billing retry"
    case .expired: "the subscription had expired"
    case .billingRetryOver: "the period had ended longer ago than Apple retries billing"
    case .tokenOfAnotherAccount: "\(autoRenew) was off, then on again with another account's token"
    case .orderedByAnotherAccount:
      "\(previous.map { "\($0) had turned auto-renew off" } ?? "auto-renew had been turned off"), and "
        + "the new owner's order turned it on again"
    case .notASubscription, .noEarlierCharge, .released, .reportsAnotherCharge, .renewedByApple,
      .renewedAtPeriodEnd, .recoveredFromBillingProblem, .changedWhileRenewing:
      nil
    }
  }

  private var renewing: String {
    let renewal = decision.renewal
    let reason =
      switch renewal.reason {
      case .renewedByApple: "Apple reported this charge as the renewal of transaction \(previous)"
      case .recoveredFromBillingProblem:
        "transaction \(previous) had lapsed, but Apple was still retrying the charge\(saidOn)"
      case .changedWhileRenewing:
        "transaction \(previous) was still active with auto-renew on\(saidOn)"
      default: "this charge begins where the period of transaction \(previous) ends"
      }
    guard let switchedOffAt = renewal.switchedOffAt else { return reason }
    return reason
      + "; auto-renew had been off since \(switchedOffAt), so it was turned on again or Apple had "
      + "already charged"
  }

  private var notRenewing: String {
    switch decision.renewal.reason {
    case .notASubscription: "it is not a subscription, so the first claim decides"
    case .noEarlierCharge: "no earlier subscriber: this is the subscription's first charge"
    case .earlierChargeUnclaimed: "no account owns the previous charge, transaction \(previous)"
    case .earlierChargeWithoutPeriod:
      "the previous charge, transaction \(previous), has no paid period"
    case .earlierChargeRevoked: "the previous charge, transaction \(previous), had been refunded"
    case .accountErased: "the account of the previous charge, transaction \(previous), was erased"
    case .boughtAfterPeriodEnd:
      "it was bought after the period of transaction \(previous) had ended"
    case .autoRenewOff: "auto-renew of transaction \(previous) had been off\(since)"
    case .lapsed:
      "the period of transaction \(previous) had ended, and Apple had not reported a billing retry"
    case .expired: "transaction \(previous) had expired\(saidOn)"
    case .billingRetryOver:
      "the period of transaction \(previous) had ended longer ago than Apple retries billing"
    case .tokenOfAnotherAccount:
      "auto-renew had been off\(since) and was turned on again with another account's token"
    case .orderedByAnotherAccount:
      "auto-renew had been turned off\(sinceSwitch), and \(owner)'s order turned it on again"
    case .released: "an administrator released it"
    case .reportsAnotherCharge: "it reports the same charge as transaction \(previous)"
    case .renewedByApple, .renewedAtPeriodEnd, .recoveredFromBillingProblem,
      .changedWhileRenewing:
      "the previous charge was transaction \(previous)"
    }
  }

  private var previous: String { decision.renewal.previous?.transactionID.rawValue ?? "unknown" }

  private var saidOn: String {
    decision.renewal.statusAsOf.map { ", as Apple had last reported on \($0)" } ?? ""
  }

  private var since: String { decision.renewal.statusAsOf.map { " since \($0)" } ?? "" }

  private var sinceSwitch: String { decision.renewal.switchedOffAt.map { " on \($0)" } ?? "" }
}
