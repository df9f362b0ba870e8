/// The account that owns a charge, and the row of the decision table that assigned it.
package struct Decision: Hashable, Codable, Sendable {
  /// The rows of the decision table, first match first.
  package enum Rule: String, Codable, CaseIterable, Sendable {
    /// Row 0: an administrator's override.
    case administrator
    /// Row 1: the account was actively auto-renewing when the charge was made.
    case activelyAutoRenewing = "actively_auto_renewing"
    /// Row 2: the account submitted it first.
    case submitter
    /// Row 1t, settled: the charge was bought with its own token, which this ledger issued to
    /// the account. Row 3, until the first claim: it carries another token of the account.
    case appAccountToken = "app_account_token"
    /// Row 4: no owner until an account claims the charge.
    case unclaimed
  }

  package var owner: AccountKey?
  package var rule: Rule
  /// The result of row 1: why the owner was renewing, or why no account was.
  package var renewal: RenewalEvidence
  /// Whether a first claim can still change the owner.
  package var isProvisional: Bool

  package init(
    owner: AccountKey?, rule: Rule, renewal: RenewalEvidence, isProvisional: Bool = false
  ) {
    self.owner = owner
    self.rule = rule
    self.renewal = renewal
    self.isProvisional = isProvisional
  }

  /// Whether Apple charged automatically: by the kind that it reports, else by the evidence.
  package func isAutomaticRenewal(_ kind: ChargeKind) -> Bool {
    switch kind {
    case .renewal: true
    case .purchase: false
    case .unknown: [.renewedAtPeriodEnd, .recoveredFromBillingProblem].contains(renewal.reason)
    }
  }

  static let undecided = Decision(
    owner: nil, rule: .unclaimed, renewal: RenewalEvidence(reason: .noEarlierCharge),
    isProvisional: true)
}

/// A stretch in which an original transaction is bound to one account, or to none: to the owner of
/// its latest charge dated before a moment.
package struct Binding: Hashable, Sendable {
  /// Nil: the latest charge is unclaimed.
  package var account: AccountKey?
  /// The date of the first charge of the stretch.
  package var boundAt: Timestamp
  package var charge: Charge.ID
  package var rule: Decision.Rule

  /// Derives the bindings, oldest first: one for each change of the account from the first owner
  /// on.
  package static func bindings(of charges: [Charge], decisions: [Decision]) -> [Binding] {
    var bindings: [Binding] = []
    for position in charges.positionsThatRan(among: charges.indices) {
      let (charge, decision) = (charges[position], decisions[position])
      if let last = bindings.last, last.account == decision.owner { continue }
      if bindings.isEmpty, decision.owner == nil { continue }
      bindings.append(
        Binding(
          account: decision.owner, boundAt: charge.date, charge: charge.id, rule: decision.rule))
    }
    return bindings
  }
}

extension [Binding] {
  /// The account bound as of a moment; a binding does not count yet at its beginning.
  package func account(asOf moment: Timestamp) -> AccountKey? {
    last { $0.boundAt < moment }?.account
  }
}
