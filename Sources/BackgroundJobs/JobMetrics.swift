import CoreMetrics
import LedgerStorage

/// Counts what workers do.
final class JobMetrics: Sendable {
  /// What came of doing a job once.
  enum Outcome: String, CaseIterable {
    case done
    /// It could not be done now, and comes again.
    case postponed
    /// Something of ours failed; it comes again.
    case failed
    /// It was given up.
    case parked
  }

  private struct Key: Hashable {
    let kind: Job.Task.Kind
    let outcome: Outcome
  }

  private let jobs: [Key: Counter]
  private let durations: [Job.Task.Kind: CoreMetrics.Timer]
  private let granted: [Job.Lane: Counter]
  private let denied: [Job.Lane: Counter]

  init(_ factory: any MetricsFactory) {
    let keys = Job.Task.Kind.allCases.flatMap { kind in
      Outcome.allCases.map { Key(kind: kind, outcome: $0) }
    }
    jobs = Dictionary(
      uniqueKeysWithValues: keys.map { key in
        let counter = Counter(
          label: "tenure_jobs_total",
          dimensions: [("kind", key.kind.rawValue), ("outcome", key.outcome.rawValue)],
          factory: factory)
        return (key, counter)
      })
    durations = Dictionary(
      uniqueKeysWithValues: Job.Task.Kind.allCases.map { kind in
        let timer = CoreMetrics.Timer(
          label: "tenure_job_duration_seconds", dimensions: [("kind", kind.rawValue)],
          factory: factory)
        return (kind, timer)
      })
    func budgets(_ name: String) -> [Job.Lane: Counter] {
      let lanes: [Job.Lane] = [.polls, .sandboxPolls, .tellings, .sandboxTellings]
      return Dictionary(
        uniqueKeysWithValues: lanes.map { lane in
          (
            lane,
            Counter(label: name, dimensions: [("lane", lane.rawValue)], factory: factory)
          )
        })
    }
    granted = budgets("tenure_apple_budget_granted_total")
    denied = budgets("tenure_apple_budget_denied_total")
  }

  func count(_ kind: Job.Task.Kind, _ outcome: Outcome) {
    jobs[Key(kind: kind, outcome: outcome)]?.increment()
  }

  func took(_ kind: Job.Task.Kind, _ time: Duration) {
    durations[kind]?.recordNanoseconds(Int64(time / .nanoseconds(1)))
  }

  /// Part of what was wished to be asked or told is allowed.
  func budget(of lane: Job.Lane, granted count: Int, of wanted: Int) {
    granted[lane]?.increment(by: count)
    denied[lane]?.increment(by: wanted - count)
  }
}
