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
    let actions: [OwnershipChange.Action] = [.decided, .claimed, .corrected, .placed]
    let keys = Decision.Rule.allCases.flatMap { rule in
      actions.map { Key(rule: rule, action: $0) }
    }
    decisions = Dictionary(
      uniqueKeysWithValues: keys.map { key in
        let counter = Counter(
          label: "tenure_ownership_decisions_total",
          dimensions: [("rule", key.rule.rawValue), ("action", key.action.rawValue)],
          factory: factory)
        return (key, counter)
      })
    func revocations(_ change: String) -> Counter {
      Counter(
        label: "tenure_revocations_total", dimensions: [("change", change)], factory: factory)
    }
    revoked = revocations("revoked")
    restored = revocations("restored")
  }

  func count(_ recording: Recording) {
    for family in recording.distinctFamilies {
      for change in family.changes {
        decisions[Key(rule: change.decision.rule, action: change.action)]?.increment()
      }
      for charge in family.revocationChanges {
        (charge.revocation == nil ? restored : revoked).increment()
      }
    }
  }
}
