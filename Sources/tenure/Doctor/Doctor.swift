import Logging
import Subscriptions

/// Looks at everything that Tenure depends on, and says of each thing how it is and what to do.
///
/// It changes nothing: it writes to no table, sends no event to the webhook, and asks Apple only
/// for what does not exist.
struct Doctor: Sendable {
  let settings: Settings
  let logger: Logger

  /// Examines everything, one thing after the other.
  func examine() async -> DoctorReport {
    var findings = settingFindings()
    findings += await databaseFindings()
    findings += await appleFindings()
    findings += await webhookFindings()
    return DoctorReport(findings: findings)
  }

  /// What is said of clocks that differ.
  ///
  /// - Parameters:
  ///   - check: The name of the check.
  ///   - other: Whose clock it is.
  ///   - skew: How far it is ahead of ours.
  ///   - precision: How exactly that is known.
  /// - Returns: The finding.
  static func clockFinding(
    _ check: String, of other: String, skew: Duration, precision: Duration
  ) -> DoctorFinding {
    let amount = max(.zero, (skew < .zero ? .zero - skew : skew) - precision)
    let found = "\(other)'s clock differs from this machine's by \(amount.inMilliseconds) ms."
    let remedy = "Have both kept by NTP: `timedatectl` says whether this one is."
    // A token for Apple that is a minute off is refused; signatures of webhooks hold five minutes.
    if amount > .seconds(60) { return .fault(check, found, remedy: remedy) }
    if amount > .seconds(2) { return .warning(check, found, remedy: remedy) }
    return .ok(check, found)
  }
}
