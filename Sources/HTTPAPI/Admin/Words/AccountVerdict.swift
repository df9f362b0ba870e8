import LedgerStorage
import Subscriptions

/// Why an account can or cannot use what it paid for, in a few sentences.
struct AccountVerdict: Sendable {
  let text: String
  let tone: String

  /// - Parameters:
  ///   - entitlements: What it has, inactive ones included.
  ///   - charges: The charges that it has to do with.
  ///   - heir: The account into which it was merged; nil: it stands for itself.
  ///   - submission: What its app sent last; nil: nothing.
  init(
    _ entitlements: [Entitlement], charges: AccountCharges, mergedInto heir: String?,
    lastSubmission submission: SubmissionSummary?
  ) {
    let active = entitlements.filter(\.isActive)
    guard active.isEmpty else {
      text = "It may use \(active.map(\.name).joined(separator: ", "))."
      tone = active.contains { $0.state == .inGracePeriod } ? Tone.warning : Tone.good
      return
    }
    let owned = charges.owned.all.count
    var reasons = Self.reasons(charges, mergedInto: heir, lastSubmission: submission)
    if let last = entitlements.first {
      tone =
        last.state != .expired ? Tone.bad : reasons.isEmpty ? Tone.quiet : Tone.warning
      reasons.insert("It may use nothing now. \(last.inWords)", at: 0)
    } else if owned > 0 {
      tone = Tone.warning
      reasons.insert(
        "It may use nothing: of \(Count.text(owned, "charge")) that it owns, none is of a "
          + "product that grants anything.", at: 0)
    } else {
      tone = Tone.warning
      if reasons.isEmpty {
        reasons = [
          "If its person paid, the purchase was never submitted: search for the transaction."
        ]
      }
      reasons.insert("It may use nothing: it owns no charge and was granted nothing.", at: 0)
    }
    text = reasons.joined(separator: " ")
  }

  /// Where what the person paid for may be.
  private static func reasons(
    _ charges: AccountCharges, mergedInto heir: String?,
    lastSubmission submission: SubmissionSummary?
  ) -> [String] {
    var reasons: [String] = []
    if let heir { reasons.append("It was merged into “\(heir)”.") }
    let claimed = charges.claimed.all.count
    if claimed > 0 {
      reasons.append(
        "\(Count.text(claimed, "charge")) that its app submitted "
          + (claimed == 1
            ? "is owned by another account: see below."
            : "are owned by other accounts: see below."))
    }
    let unclaimed = charges.unclaimed.all.count(where: \.isClaimed)
    if unclaimed > 0 {
      reasons.append(
        "\(Count.text(unclaimed, "charge")) that its app submitted "
          + (unclaimed == 1 ? "is owned by nobody: see below." : "are owned by nobody: see below."))
    }
    switch submission?.status {
    case .rejected: reasons.append("What its app sent last was rejected.")
    case .pending: reasons.append("What its app sent last is not decided yet.")
    case .verified, nil: break
    }
    return reasons
  }
}
