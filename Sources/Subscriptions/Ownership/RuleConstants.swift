/// The durations in the ownership rule.
package struct RuleConstants: Hashable, Sendable {
  /// How long Apple retries a failed charge; 30 days longer on a twelve-month commitment.
  package var billingRetry: Duration
  /// How early Apple charges: an *off* so close to the period's end is about the next one.
  package var earlyCharge: Duration
  /// How far from the end of a period a renewal may begin.
  package var periodEnd: Duration

  package static let standard = RuleConstants()

  /// The accepted values of ``init(billingRetryDays:earlyChargeHours:periodEndSeconds:)``.
  package static let range = 0...100_000

  /// Takes other values than those of the rule; nil: as in the rule.
  package init(
    billingRetryDays: Int? = nil, earlyChargeHours: Int? = nil, periodEndSeconds: Int? = nil
  ) {
    billingRetry = .days(billingRetryDays ?? 60)
    earlyCharge = .hours(earlyChargeHours ?? 24)
    periodEnd = periodEndSeconds.map { .seconds($0) } ?? .gapTolerance
  }

  func billingRetry(isCommitment: Bool) -> Duration {
    isCommitment ? billingRetry + .days(30) : billingRetry
  }
}
