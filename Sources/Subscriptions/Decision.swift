/// Which account owns a charge, and by which row of the table.
package struct Decision: Hashable, Sendable {
  /// The rows of the decision table, first match first.
  package enum Rule: String, Codable, CaseIterable, Sendable {
    /// Row 0: an administrator placed the charge.
    case administrator
    /// Row 1: the account was actively auto-renewing on the line when the charge was made.
    case activelyAutoRenewing = "actively_auto_renewing"
    /// Row 2: the account submitted it first.
    case submitter
    /// Row 1t, if it is settled: the charge was bought with a token of its own that this ledger
    /// issued to the account. Row 3, until the first claim: it carries such a token all the same.
    case appAccountToken = "app_account_token"
    /// Row 4: nobody. Recorded, grants nothing; a claim may come later.
    case unclaimed
  }

  package var owner: AccountKey?
  package var rule: Rule
  /// What row 1 found: why the owner was renewing or, under every other rule, why nobody was.
  package var finding: RenewalFinding
  /// Whether a first claim can still change the owner.
  package var isProvisional: Bool

  package init(
    owner: AccountKey?, rule: Rule, finding: RenewalFinding, isProvisional: Bool = false
  ) {
    self.owner = owner
    self.rule = rule
    self.finding = finding
    self.isProvisional = isProvisional
  }
}

extension Decision {
  static let undecided = Decision(
    owner: nil, rule: .unclaimed, finding: RenewalFinding(ground: .noEarlierCharge),
    isProvisional: true)
}
