import CoreMetrics
import LedgerStorage

final class JobMetrics: Sendable {
  enum Outcome: String, CaseIterable {
    case done
    /// Retried because another side was not available.
    case postponed
    /// Retried after an error of ours.
    case failed
    case discarded = "parked"
  }

  private let runs: [Job.Kind: [Outcome: Counter]]
  private let durations: [Job.Kind: CoreMetrics.Timer]
  private let granted: [Job.Queue: Counter]
  private let denied: [Job.Queue: Counter]

  init() {
    func counters(_ name: String) -> [Job.Queue: Counter] {
      Self.each(of: Job.Queue.allCases.filter { $0.rateBudget != nil }) {
        Counter(label: name, dimensions: [("queue", $0.rawValue)])
      }
    }
    runs = Self.each(of: Job.Kind.allCases) { kind in
      Self.each(of: Outcome.allCases) { outcome in
        Counter(
          label: "tenure_jobs_total",
          dimensions: [("kind", kind.rawValue), ("outcome", outcome.rawValue)])
      }
    }
    durations = Self.each(of: Job.Kind.allCases) { kind in
      CoreMetrics.Timer(label: "tenure_job_duration_seconds", dimensions: [("kind", kind.rawValue)])
    }
    granted = counters("tenure_apple_budget_granted_total")
    denied = counters("tenure_apple_budget_denied_total")
  }

  private static func each<Key: Hashable, Metric>(
    of keys: [Key], _ make: (Key) -> Metric
  ) -> [Key: Metric] {
    Dictionary(uniqueKeysWithValues: keys.map { ($0, make($0)) })
  }

  func count(_ kind: Job.Kind, _ outcome: Outcome, by count: Int = 1) {
    runs[kind]?[outcome]?.increment(by: count)
  }

  func took(_ kind: Job.Kind, _ time: Duration) {
    durations[kind]?.recordNanoseconds(Int64(time / .nanoseconds(1)))
  }

  func budget(of queue: Job.Queue, granted count: Int, of wanted: Int) {
    granted[queue]?.increment(by: count)
    denied[queue]?.increment(by: wanted - count)
  }
}
