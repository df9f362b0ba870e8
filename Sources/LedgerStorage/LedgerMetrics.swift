import CoreMetrics
import Subscriptions

/// Counts ownership decisions and revocations after their commit.
final class LedgerMetrics: Sendable {
  private struct Key: Hashable {
    let rule: Decision.Rule
    let action: OwnershipChange.Action
  }

  private let decisions: [Key: Counter]
  private let revoked: Counter
  private let restored: Counter

  init(_ factory: any MetricsFactory) {
    func counter(_ label: String, _ dimensions: [(String, String)]) -> Counter {
      Counter(label: label, dimensions: dimensions, factory: factory)
    }
    let actions: [OwnershipChange.Action] = [.decided, .claimed, .corrected, .placed]
    let keys = Decision.Rule.allCases.flatMap { rule in
      actions.map { Key(rule: rule, action: $0) }
    }
    decisions = Dictionary(
      uniqueKeysWithValues: keys.map { key in
        let dimensions = [("rule", key.rule.rawValue), ("action", key.action.rawValue)]
        return (key, counter("tenure_ownership_decisions_total", dimensions))
      })
    revoked = counter("tenure_revocations_total", [("change", "revoked")])
    restored = counter("tenure_revocations_total", [("change", "restored")])
  }

  func count(_ recording: Recording) {
    for original in recording.distinctOriginals {
      for change in original.changes {
        decisions[Key(rule: change.decision.rule, action: change.action)]?.increment()
      }
      for charge in original.revocationChanges {
        (charge.revocation == nil ? restored : revoked).increment()
      }
    }
  }
}
