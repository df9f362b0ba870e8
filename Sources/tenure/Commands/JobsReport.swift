import LedgerStorage
import Subscriptions

/// The queue as text for people.
enum JobsReport {
  static func counts(_ counts: [JobCount], at now: Timestamp) -> String {
    guard !counts.isEmpty else { return "There is nothing to do." }
    return table(
      ["kind", "lane", "due", "waiting", "running", "parked", "failing", "due for"],
      counts.map { count in
        let numbers = [count.due, count.waiting, count.running, count.parked, count.failing]
        return [count.kind, count.lane.rawValue] + numbers.map(String.init)
          + [count.dueSince.map { age(now - $0) } ?? ""]
      })
  }

  static func parked(_ jobs: [StoredJob]) -> String {
    table(
      ["id", "kind", "about", "given up", "begun", "because"],
      jobs.map { job in
        let parkedAt = job.parkedAt.map { "\($0)" } ?? ""
        return [
          "\(job.id)", job.kind, job.subject, parkedAt, "\(job.attempts)", job.lastError ?? "",
        ]
      })
  }

  static func details(_ job: StoredJob) -> String {
    let fields: [(String, String?)] = [
      ("id", "\(job.id)"), ("kind", job.kind), ("about", job.subject),
      ("state", job.state.rawValue), ("lane", job.lane.rawValue), ("priority", "\(job.priority)"),
      ("due at", "\(job.runAt)"), ("begun", "\(job.attempts)"),
      ("patience since", "\(job.createdAt)"), ("worker", job.worker),
      ("lease until", job.lockedUntil.map { "\($0)" }),
      ("given up at", job.parkedAt.map { "\($0)" }), ("because", job.lastError),
    ]
    return AppStoreText.columns(fields.compactMap { name, value in value.map { [name, $0] } })
      .joined(separator: "\n")
  }

  private static func table(_ head: [String], _ rows: [[String]]) -> String {
    AppStoreText.columns([head] + rows).joined(separator: "\n")
  }

  /// A duration in its largest unit.
  private static func age(_ duration: Duration) -> String {
    let seconds = max(0, duration.components.seconds)
    let units = [(86_400, "d"), (3600, "h"), (60, "min")] as [(Int64, String)]
    let unit = units.first { seconds >= $0.0 } ?? (1, "s")
    return "\(seconds / unit.0) \(unit.1)"
  }
}
