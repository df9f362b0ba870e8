import CoreMetrics
import LedgerStorage

/// Counts what Apple is told, by what came of it.
final class AppleTellingMetrics: Sendable {
  private struct Key: Hashable {
    let kind: AppleTelling.Kind
    let outcome: String
  }

  private static let outcomes: [AppleTelling.Outcome] = [
    .accepted, .refused(httpStatus: nil, code: nil), .skipped(.unowned),
  ]

  private let tellings: [Key: Counter]

  init(_ factory: any MetricsFactory) {
    let keys = AppleTelling.Kind.allCases.flatMap { kind in
      Self.outcomes.map { Key(kind: kind, outcome: $0.name) }
    }
    tellings = Dictionary(
      uniqueKeysWithValues: keys.map { key in
        let counter = Counter(
          label: "tenure_apple_tellings_total",
          dimensions: [("kind", key.kind.rawValue), ("outcome", key.outcome)], factory: factory)
        return (key, counter)
      })
  }

  func count(_ kind: AppleTelling.Kind, _ outcome: String) {
    tellings[Key(kind: kind, outcome: outcome)]?.increment()
  }
}
