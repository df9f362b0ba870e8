/// The reason for a charge's owner in a sentence, made when read and never stored.
package struct Explanation {
  private let decision: Decision
  /// The owner within a sentence and at its beginning.
  private let owner: String
  private let subject: String

  /// - Parameter name: The account id behind a key, or a pseudonym.
  package init(_ decision: Decision, name: (AccountKey) -> String) {
    self.decision = decision
    owner = decision.owner.map { "“\(name($0))”" } ?? "nobody"
    subject = "Account \(owner)"
  }

  /// Explains to an account, naming none.
  package init(_ decision: Decision, toldTo account: AccountKey) {
    self.decision = decision
    guard let holder = decision.owner else {
      (owner, subject) = ("nobody", "Nobody")
      return
    }
    (owner, subject) =
      holder == account
      ? ("this account", "This account") : ("another account", "Another account")
  }

  package var sentence: String {
    switch decision.rule {
    case .administrator:
      return "An administrator placed it with \(owner)."
    case .activelyAutoRenewing:
      return "\(subject) was actively auto-renewing when it was charged: \(renewing)."
    case .submitter where decision.finding.ground == .released:
      return "An administrator had released it, and \(owner) was the next one to submit it."
    case .submitter:
      return "\(subject) submitted it first, and nobody was auto-renewing: \(notRenewing)."
    case .appAccountToken where !decision.isProvisional:
      return
        "It was bought with the token issued to \(owner), and no account was auto-renewing: "
        + "\(notRenewing)."
    case .appAccountToken:
      return
        "It carries the token issued to \(owner); nobody was auto-renewing (\(notRenewing)) "
        + "and nobody has submitted it yet."
    case .unclaimed where decision.finding.ground == .reportsAnotherCharge:
      return "It reports the same charge as transaction \(previous), which is decided for both."
    case .unclaimed where decision.finding.ground == .released:
      return "An administrator released it, and nobody has submitted it since."
    case .unclaimed:
      return "Nobody was auto-renewing (\(notRenewing)), and nobody has submitted it yet."
    }
  }

  private var renewing: String {
    let finding = decision.finding
    let reason =
      switch finding.ground {
      case .renewedByApple:
        "Apple says that this charge renews transaction \(previous)"
      case .recoveredFromBillingProblem:
        "transaction \(previous) had lapsed, but Apple was still trying to charge\(saidOn)"
      case .changedWhileRenewing:
        "transaction \(previous) was still running with auto-renew on\(saidOn)"
      default:
        "this charge begins where the period of transaction \(previous) ends"
      }
    guard let switchedOffAt = finding.switchedOffAt else { return reason }
    return reason
      + "; auto-renew had been off since \(switchedOffAt), so somebody switched it on again or "
      + "Apple had charged before"
  }

  private var notRenewing: String {
    switch decision.finding.ground {
    case .notASubscription: "it is not a subscription, so the first claim decides"
    case .noEarlierCharge: "it is the first charge of its original transaction"
    case .earlierChargeUnclaimed: "nobody owns the charge before it, transaction \(previous)"
    case .earlierChargeWithoutPeriod:
      "the charge before it, transaction \(previous), has no paid period"
    case .earlierChargeRevoked: "the charge before it, transaction \(previous), had been refunded"
    case .accountErased: "the account of the charge before it, transaction \(previous), was erased"
    case .boughtAfterPeriodEnd:
      "somebody bought again after the period of transaction \(previous) was over"
    case .autoRenewOff: "auto-renew of transaction \(previous) had been off\(since)"
    case .lapsed:
      "the period of transaction \(previous) had ended, and Apple had said nothing of trying on"
    case .expired: "transaction \(previous) had expired\(saidOn)"
    case .billingRetryOver:
      "the period of transaction \(previous) had ended longer ago than Apple tries to charge"
    case .tokenOfAnotherAccount:
      "auto-renew had been switched off\(since) and on again under another account's token"
    case .orderedByAnotherAccount:
      "auto-renew had been switched off\(sinceSwitch) and on again by the account that ordered"
    case .released: "an administrator released it"
    case .reportsAnotherCharge: "it reports the same charge as transaction \(previous)"
    case .renewedByApple, .renewedAtPeriodEnd, .recoveredFromBillingProblem,
      .changedWhileRenewing:
      "the charge before it was transaction \(previous)"
    }
  }

  private var previous: String { decision.finding.previous?.transactionID.rawValue ?? "unknown" }

  private var saidOn: String {
    decision.finding.statusAsOf.map { ", as Apple said on \($0)" } ?? ""
  }

  private var since: String {
    decision.finding.statusAsOf.map { " since \($0)" } ?? ""
  }

  private var sinceSwitch: String {
    decision.finding.switchedOffAt.map { " on \($0)" } ?? ""
  }
}
