/// The version of all programs, as `tenure --version`, logs, `/healthz` and a metric show it.
package enum TenureVersion {
  package static let current = "1.0.0"
}

/// An exported metric; nothing else is exported, so neither libraries nor made-up label values can
/// bloat Prometheus.
package struct MetricDeclaration: Hashable, Sendable {
  /// By its name in the exposition.
  package enum Kind: String, Sendable { case counter, gauge, histogram }

  package var name: String
  package var kind: Kind
  /// One sentence without its full stop.
  package var help: String
  /// In the order of the exposition.
  package var labels: [String]
  /// Of a histogram, which counts durations up to each of them, in seconds.
  package var bounds: [Double] = []
  /// Whether the value is read from the database for each exposition.
  package var isReading = false

  package static func counter(_ name: String, _ help: String, by labels: [String] = []) -> Self {
    Self(name: name, kind: .counter, help: help, labels: labels)
  }

  package static func gauge(_ name: String, _ help: String, by labels: [String] = []) -> Self {
    Self(name: name, kind: .gauge, help: help, labels: labels)
  }

  package static func reading(_ name: String, _ help: String, by labels: [String] = []) -> Self {
    Self(name: name, kind: .gauge, help: help, labels: labels, isReading: true)
  }

  package static func histogram(
    _ name: String, _ bounds: [Double], _ help: String, by labels: [String] = []
  ) -> Self {
    Self(name: name, kind: .histogram, help: help, labels: labels, bounds: bounds)
  }
}

/// All of Tenure's metrics; tests compare dashboards, alert rules and `Operating.md` with them.
extension MetricDeclaration {
  /// From a quarter of a millisecond, a typical entitlement read, to ten seconds.
  private static let quick = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
  ]
  /// Few, because there is a histogram for each route.
  private static let perRoute = [0.001, 0.005, 0.025, 0.1, 1, 10]
  /// Up to minutes, for calls to other servers; few, because there is a histogram for each job.
  private static let slow = [0.05, 0.25, 1, 5, 30, 120]
  private static let late = [
    0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 7_200, 28_800, 86_400, 259_200,
  ]

  package static let tenure: [Self] = [
    .counter(
      "tenure_http_requests_total", "Requests by route and status class",
      by: ["method", "route", "status"]),
    .histogram(
      "tenure_http_request_duration_seconds", perRoute,
      "Time from a request's head to its response's head", by: ["route"]),
    .gauge("tenure_http_requests_in_flight", "Requests in progress"),
    .gauge("tenure_http_connections", "Open connections"),
    .counter(
      "tenure_http_connections_refused_total",
      "Connections refused or closed because of TENURE_HTTP_MAX_CONNECTIONS"),

    .counter(
      "tenure_database_requests_total",
      "Round trips to PostgreSQL, inside and outside of transactions", by: ["kind", "outcome"]),
    .histogram(
      "tenure_database_request_duration_seconds", quick,
      "Duration of a round trip, including the wait for a connection", by: ["kind"]),
    .gauge(
      "tenure_database_connections",
      "Connections to PostgreSQL: idle, busy, leased to a transaction, or connecting", by: ["state"]
    ),
    .gauge("tenure_database_requests_in_flight", "Round trips in flight"),
    .gauge("tenure_database_requests_waiting", "Round trips waiting for a connection"),
    .counter("tenure_database_connects_total", "Connection attempts by outcome", by: ["outcome"]),
    .counter(
      "tenure_database_connections_lost_total",
      "Connections that broke or were closed by PostgreSQL"),
    .gauge(
      "tenure_replica_age_seconds", "Maximum age of the read replica's data; +Inf while unknown"),
    .counter(
      "tenure_read_cache_reads_total", "Reads of entitlements in memory (hit) or not (miss)",
      by: ["outcome"]),
    .counter(
      "tenure_read_cache_dropped_total",
      "Answers dropped from memory: their account or the catalogue changed, the changes since are "
        + "unknown (history), or others needed the room (evicted)",
      by: ["reason"]),
    .gauge("tenure_read_cache_bytes", "Memory taken by answers, up to TENURE_READ_CACHE"),

    .counter(
      "tenure_apple_requests_total", "Requests to Apple, by endpoint and outcome",
      by: ["call", "environment", "outcome"]),
    .histogram(
      "tenure_apple_request_duration_seconds", slow,
      "Time from a request to Apple to the end of its response", by: ["api", "environment"]),
    .counter(
      "tenure_apple_receipt_statuses_total", "verifyReceipt responses by status", by: ["status"]),
    .counter(
      "tenure_apple_retries_total",
      "Immediate retries of App Store Server API requests, with a new token or after a 429",
      by: ["reason"]),
    .counter(
      "tenure_apple_held_back_total",
      "App Store Server API requests not sent because the hourly limit was reached",
      by: ["environment"]),
    .counter(
      "tenure_apple_budget_granted_total",
      "Polls allowed by TENURE_POLLS_PER_HOUR, and write-backs allowed by Apple's limit",
      by: ["queue"]),
    .counter(
      "tenure_apple_budget_denied_total",
      "Polls deferred by TENURE_POLLS_PER_HOUR, and write-backs deferred by Apple's limit",
      by: ["queue"]),
    .counter(
      "tenure_write_backs_total",
      "Write-backs of ownership and consumption to Apple: accepted, refused, or not sent",
      by: ["kind", "outcome"]),

    .counter(
      "tenure_ownership_decisions_total",
      "Charges that got a new owner, by rule and action: decided, claimed, corrected or placed",
      by: ["rule", "action"]),
    .counter("tenure_revocations_total", "Charges found to be revoked or restored", by: ["change"]),
    .counter(
      "tenure_submissions_total", "Submission verifications by source and outcome",
      by: ["source", "outcome"]),
    .counter(
      "tenure_notifications_total", "Received notifications: stored, repeated or refused",
      by: ["version", "type", "outcome"]),
    .counter(
      "tenure_notifications_refused_total", "Refused notifications by reason", by: ["reason"]),
    .counter(
      "tenure_notifications_processed_total", "Processed notifications by outcome", by: ["outcome"]),

    .counter("tenure_jobs_total", "Finished jobs by outcome", by: ["kind", "outcome"]),
    .histogram("tenure_job_duration_seconds", slow, "Duration of jobs", by: ["kind"]),
    .counter(
      "tenure_webhook_pushes_total", "Events pushed to the webhook: delivered, failed, or given up",
      by: ["outcome"]),
    .histogram("tenure_webhook_push_duration_seconds", slow, "Response time of the webhook"),
    .histogram(
      "tenure_webhook_delay_seconds", late,
      "Time from an event's publication in the feed to its delivery"),

    // Read from the database, at most every few seconds.
    .gauge(
      "tenure_database_readable", "1 if the metrics below could be read; 0 if they are left out"),
    .reading("tenure_jobs_due", "Due jobs not yet started, counted up to 10000", by: ["queue"]),
    .reading("tenure_jobs_due_age_seconds", "Age of the oldest due job", by: ["queue"]),
    .reading("tenure_jobs_parked", "Failed jobs that wait for a manual retry", by: ["kind"]),
    .reading(
      "tenure_submissions_waiting", "Submissions not yet verified by Apple, counted up to 10000"),
    .reading(
      "tenure_charges_unclaimed",
      "Charges without an owner whose period has not ended, counted among the latest 10000",
      by: ["environment"]),
    .reading("tenure_webhook_events_waiting", "Events not yet pushed, counted up to 10000"),
    .reading("tenure_webhook_lag_seconds", "Age of the oldest event not yet pushed"),
    .reading("tenure_webhook_events_parked", "Failed events that wait for a manual retry"),
    .reading("tenure_feed_position", "Last position in the event feed"),
    .reading(
      "tenure_feed_unplaced_events", "Events without a feed position yet, counted up to 10000"),
    .reading("tenure_movements_unfolded", "Movements not yet rolled up, counted up to 10000"),
    .reading("tenure_server_heartbeat_age_seconds", "Age of the latest server heartbeat"),
    .reading(
      "tenure_apple_budget_left", "Polls and write-backs available immediately, as of the last one",
      by: ["name"]),

    .gauge("tenure_build_info", "1, with the version of this program", by: ["version"]),
    .gauge("tenure_schema_version", "Database schema version used by this program"),
    .gauge("process_start_time_seconds", "Start time of the process, in seconds since 1970"),
    .gauge("process_resident_memory_bytes", "Resident memory of the process"),
  ]
}
