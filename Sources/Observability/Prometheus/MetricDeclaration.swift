/// A type of metric, by its name in the exposition.
enum MetricType: String { case counter, gauge, histogram }

/// The name, type and labels of an exported metric.
///
/// Only these are exported, so neither libraries nor made-up label values can bloat Prometheus.
package struct MetricDeclaration: Hashable, Sendable {
  package enum Kind: Hashable, Sendable {
    case counter
    case gauge
    /// Durations, counted up to each of these bounds, in seconds.
    case histogram(bounds: [Double])

    var type: MetricType {
      switch self {
      case .counter: .counter
      case .gauge: .gauge
      case .histogram: .histogram
      }
    }
  }

  package var name: String
  package var kind: Kind
  /// In the order of the exposition.
  package var labels: [String]
  /// One sentence without its full stop.
  package var help: String
  /// Whether the value is read from the database for each exposition.
  package var isReading = false

  package init(
    _ name: String, _ kind: Kind, by labels: [String] = [], isReading: Bool = false, _ help: String
  ) {
    self.name = name
    self.kind = kind
    self.labels = labels
    self.isReading = isReading
    self.help = help
  }
}

/// All of Tenure's metrics; tests compare dashboards, alert rules and `Operating.md` with them.
extension MetricDeclaration {
  /// From a quarter of a millisecond, a typical entitlement read, to ten seconds.
  private static let quick: Kind = .histogram(bounds: [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
  ])
  /// Up to minutes, for calls to other servers.
  private static let slow: Kind = .histogram(bounds: [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120,
  ])
  /// Up to days, for delays.
  private static let late: Kind = .histogram(bounds: [
    0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 7_200, 28_800, 86_400, 259_200,
  ])

  /// By name.
  private static let metrics: KeyValuePairs<String, Entry> = [
    "tenure_http_requests_total": .counter(
      "Requests by route and status class", by: ["method", "route", "status"]),
    "tenure_http_request_duration_seconds": .histogram(
      quick, "Time from a request's head to its response's head", by: ["method", "route"]),
    "tenure_http_requests_in_flight": .gauge("Requests in progress"),
    "tenure_http_connections": .gauge("Open connections"),
    "tenure_http_connections_refused_total": .counter(
      "Connections refused or closed because of TENURE_HTTP_MAX_CONNECTIONS"),

    "tenure_database_requests_total": .counter(
      "Round trips to PostgreSQL, inside and outside of transactions", by: ["kind", "outcome"]),
    "tenure_database_request_duration_seconds": .histogram(
      quick, "Duration of a round trip, including the wait for a connection", by: ["kind"]),
    "tenure_database_connections": .gauge(
      "Connections to PostgreSQL: idle, busy, leased to a transaction, or connecting",
      by: ["state"]
    ),
    "tenure_database_requests_in_flight": .gauge("Round trips in flight"),
    "tenure_database_requests_waiting": .gauge("Round trips waiting for a connection"),
    "tenure_database_connects_total": .counter("Connection attempts by outcome", by: ["outcome"]),
    "tenure_database_connections_lost_total": .counter(
      "Connections that broke or were closed by PostgreSQL"),
    "tenure_replica_age_seconds": .gauge(
      "Maximum age of the read replica's data; +Inf while unknown"),
    "tenure_read_cache_reads_total": .counter(
      "Reads of entitlements in memory (hit) or not (miss)", by: ["outcome"]),
    "tenure_read_cache_dropped_total": .counter(
      "Answers dropped from memory: their account or the catalogue changed, the changes since are "
        + "unknown (history), or others needed the room (evicted)",
      by: ["reason"]),
    "tenure_read_cache_bytes": .gauge("Memory taken by answers, up to TENURE_READ_CACHE"),

    "tenure_apple_requests_total": .counter(
      "Requests to Apple, by endpoint and outcome", by: ["call", "environment", "outcome"]),
    "tenure_apple_request_duration_seconds": .histogram(
      slow, "Time from a request to Apple to the end of its response", by: ["api", "environment"]),
    "tenure_apple_receipt_statuses_total": .counter(
      "verifyReceipt responses by status", by: ["status"]),
    "tenure_apple_retries_total": .counter(
      "Immediate retries of App Store Server API requests, with a new token or after a 429",
      by: ["reason"]),
    "tenure_apple_held_back_total": .counter(
      "App Store Server API requests not sent because the hourly limit was reached",
      by: ["environment"]),
    "tenure_apple_budget_granted_total": .counter(
      "Polls allowed by TENURE_POLLS_PER_HOUR, and write-backs allowed by Apple's limit",
      by: ["queue"]),
    "tenure_apple_budget_denied_total": .counter(
      "Polls deferred by TENURE_POLLS_PER_HOUR, and write-backs deferred by Apple's limit",
      by: ["queue"]),
    "tenure_apple_tellings_total": .counter(
      "Write-backs of ownership and consumption to Apple: accepted, refused, or not sent",
      by: ["kind", "outcome"]),

    "tenure_ownership_decisions_total": .counter(
      "Charges that got a new owner, by rule and action: decided, claimed, corrected or placed",
      by: ["rule", "action"]),
    "tenure_revocations_total": .counter("Charges found to be revoked or restored", by: ["change"]),
    "tenure_submissions_total": .counter(
      "Submission verifications by source and outcome", by: ["source", "outcome"]),
    "tenure_notifications_total": .counter(
      "Received notifications: stored, repeated or refused", by: ["version", "type", "outcome"]),
    "tenure_notifications_refused_total": .counter(
      "Refused notifications by reason", by: ["reason"]),
    "tenure_notifications_processed_total": .counter(
      "Processed notifications by outcome", by: ["outcome"]),

    "tenure_jobs_total": .counter("Finished jobs by outcome", by: ["kind", "outcome"]),
    "tenure_job_duration_seconds": .histogram(slow, "Duration of jobs", by: ["kind"]),
    "tenure_webhook_pushes_total": .counter(
      "Events pushed to the webhook: delivered, failed, or given up", by: ["outcome"]),
    "tenure_webhook_push_duration_seconds": .histogram(slow, "Response time of the webhook"),
    "tenure_webhook_delay_seconds": .histogram(
      late, "Time from an event's publication in the feed to its delivery"),

    // Read from the database, at most every few seconds.
    "tenure_database_readable": .gauge(
      "1 if the metrics below could be read; 0 if they are left out"),
    "tenure_jobs_due": .reading("Due jobs not yet started, counted up to 10000", by: ["queue"]),
    "tenure_jobs_due_age_seconds": .reading("Age of the oldest due job", by: ["queue"]),
    "tenure_jobs_parked": .reading("Failed jobs that wait for a manual retry", by: ["kind"]),
    "tenure_submissions_waiting": .reading(
      "Submissions not yet verified by Apple, counted up to 10000"),
    "tenure_charges_unclaimed": .reading(
      "Unclaimed charges among the latest 10000 that arrived without an owner", by: ["environment"]),
    "tenure_webhook_events_waiting": .reading("Events not yet pushed, counted up to 10000"),
    "tenure_webhook_lag_seconds": .reading("Age of the oldest event not yet pushed"),
    "tenure_webhook_events_parked": .reading("Failed events that wait for a manual retry"),
    "tenure_feed_position": .reading("Last position in the event feed"),
    "tenure_feed_unplaced_events": .reading(
      "Events without a feed position yet, counted up to 10000"),
    "tenure_movements_unfolded": .reading("Movements not yet rolled up, counted up to 10000"),
    "tenure_server_heartbeat_age_seconds": .reading("Age of the latest server heartbeat"),
    "tenure_apple_budget_left": .reading(
      "Polls and write-backs available immediately, as of the last one", by: ["name"]),

    "tenure_schema_version": .gauge("Database schema version used by this program"),
    "process_start_time_seconds": .gauge("Start time of the process, in seconds since 1970"),
    "process_resident_memory_bytes": .gauge("Resident memory of the process"),
  ]

  package static let tenure = metrics.map { name, entry in
    MetricDeclaration(name, entry.kind, by: entry.labels, isReading: entry.isReading, entry.help)
  }
}

/// A metric without its name.
private struct Entry {
  var kind: MetricDeclaration.Kind
  var help: String
  var labels: [String]
  var isReading = false

  static func counter(_ help: String, by labels: [String] = []) -> Entry {
    Entry(kind: .counter, help: help, labels: labels)
  }

  static func gauge(_ help: String, by labels: [String] = []) -> Entry {
    Entry(kind: .gauge, help: help, labels: labels)
  }

  static func reading(_ help: String, by labels: [String] = []) -> Entry {
    Entry(kind: .gauge, help: help, labels: labels, isReading: true)
  }

  static func histogram(
    _ kind: MetricDeclaration.Kind, _ help: String, by labels: [String] = []
  ) -> Entry {
    Entry(kind: kind, help: help, labels: labels)
  }
}
