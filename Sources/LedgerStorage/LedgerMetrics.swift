import CoreMetrics
import Subscriptions

/// Counts ownership decisions and revocations after their commit.
final class LedgerMetrics: Sendable {
  private let decisions: [Decision.Rule: [OwnershipChange.Action: Counter]]
  private let revoked: Counter
  private let restored: Counter

  init(_ factory: any MetricsFactory) {
    func counter(_ label: String, _ dimensions: [(String, String)]) -> Counter {
      Counter(label: label, dimensions: dimensions, factory: factory)
    }
    let actions: [OwnershipChange.Action] = [.decided, .claimed, .corrected, .placed]
    decisions = Decision.Rule.allCases.reduce(into: [:]) { decisions, rule in
      for action in actions {
        let dimensions = [("rule", rule.rawValue), ("action", action.rawValue)]
        decisions[rule, default: [:]][action] = counter(
          "tenure_ownership_decisions_total", dimensions)
      }
    }
    revoked = counter("tenure_revocations_total", [("change", "revoked")])
    restored = counter("tenure_revocations_total", [("change", "restored")])
  }

  func count(_ recording: Recording) {
    for original in recording.distinctOriginals {
      for change in original.changes {
        decisions[change.decision.rule]?[change.action]?.increment()
      }
      for charge in original.revocationChanges {
        (charge.revocation == nil ? restored : revoked).increment()
      }
    }
  }
}
