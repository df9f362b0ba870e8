import CoreMetrics
import LedgerStorage

/// Counters of job runs and of requests to Apple.
final class JobMetrics: Sendable {
  /// The outcome of one run.
  enum Outcome: String, CaseIterable {
    case done
    /// Retried because another side was not available.
    case postponed
    /// Retried after an error of ours.
    case failed
    case discarded = "parked"
  }

  private struct Key: Hashable {
    let kind: Job.Kind
    let outcome: Outcome
  }

  private let runs: [Key: Counter]
  private let durations: [Job.Kind: CoreMetrics.Timer]
  private let granted: [Job.Queue: Counter]
  private let denied: [Job.Queue: Counter]

  init(_ factory: any MetricsFactory) {
    func counters(_ name: String) -> [Job.Queue: Counter] {
      let queues = Job.Queue.allCases.filter { $0.rateBudget != nil }
      return Dictionary(
        uniqueKeysWithValues: queues.map {
          ($0, Counter(label: name, dimensions: [("queue", $0.rawValue)], factory: factory))
        })
    }
    let keys = Job.Kind.allCases.flatMap { kind in
      Outcome.allCases.map { Key(kind: kind, outcome: $0) }
    }
    runs = Dictionary(
      uniqueKeysWithValues: keys.map { key in
        let counter = Counter(
          label: "tenure_jobs_total",
          dimensions: [("kind", key.kind.rawValue), ("outcome", key.outcome.rawValue)],
          factory: factory)
        return (key, counter)
      })
    durations = Dictionary(
      uniqueKeysWithValues: Job.Kind.allCases.map { kind in
        let timer = CoreMetrics.Timer(
          label: "tenure_job_duration_seconds", dimensions: [("kind", kind.rawValue)],
          factory: factory)
        return (kind, timer)
      })
    granted = counters("tenure_apple_budget_granted_total")
    denied = counters("tenure_apple_budget_denied_total")
  }

  func count(_ kind: Job.Kind, _ outcome: Outcome, by count: Int = 1) {
    runs[Key(kind: kind, outcome: outcome)]?.increment(by: count)
  }

  func took(_ kind: Job.Kind, _ time: Duration) {
    durations[kind]?.recordNanoseconds(Int64(time / .nanoseconds(1)))
  }

  func budget(of queue: Job.Queue, granted count: Int, of wanted: Int) {
    granted[queue]?.increment(by: count)
    denied[queue]?.increment(by: wanted - count)
  }
}
