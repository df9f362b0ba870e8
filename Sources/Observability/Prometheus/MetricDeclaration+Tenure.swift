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

  package static let tenure =
    http + database + apple + ledger + jobs + readings + process

  private static let http = [
    MetricDeclaration(
      "tenure_http_requests_total", .counter, by: ["method", "route", "status"],
      "Requests by route and status class"),
    MetricDeclaration(
      "tenure_http_request_duration_seconds", quick, by: ["method", "route"],
      "Time from a request's head to its response's head"),
    MetricDeclaration(
      "tenure_http_requests_in_flight", .gauge, "Requests in progress"),
    MetricDeclaration("tenure_http_connections", .gauge, "Open connections"),
    MetricDeclaration(
      "tenure_http_connections_refused_total", .counter,
      "Connections refused or closed because of TENURE_HTTP_MAX_CONNECTIONS"),
  ]

  private static let database = [
    MetricDeclaration(
      "tenure_database_requests_total", .counter, by: ["kind", "outcome"],
      "Round trips to PostgreSQL, inside and outside of transactions"),
    MetricDeclaration(
      "tenure_database_request_duration_seconds", quick, by: ["kind"],
      "Duration of a round trip, including the wait for a connection"),
    MetricDeclaration(
      "tenure_database_connections", .gauge, by: ["state"],
      "Connections to PostgreSQL: idle, busy, leased to a transaction, or connecting"),
    MetricDeclaration(
      "tenure_database_requests_in_flight", .gauge, "Round trips in flight"),
    MetricDeclaration(
      "tenure_database_requests_waiting", .gauge, "Round trips waiting for a connection"),
    MetricDeclaration(
      "tenure_database_connects_total", .counter, by: ["outcome"],
      "Connection attempts by outcome"),
    MetricDeclaration(
      "tenure_database_connections_lost_total", .counter,
      "Connections that broke or were closed by PostgreSQL"),
    MetricDeclaration(
      "tenure_replica_age_seconds", .gauge,
      "Maximum age of the read replica's data; +Inf while unknown"),
  ]

  private static let apple = [
    MetricDeclaration(
      "tenure_apple_requests_total", .counter, by: ["call", "environment", "outcome"],
      "Requests to Apple, by endpoint and outcome"),
    MetricDeclaration(
      "tenure_apple_request_duration_seconds", slow, by: ["api", "environment"],
      "Time from a request to Apple to the end of its response"),
    MetricDeclaration(
      "tenure_apple_receipt_statuses_total", .counter, by: ["status"],
      "verifyReceipt responses by status"),
    MetricDeclaration(
      "tenure_apple_retries_total", .counter, by: ["reason"],
      "Immediate retries of App Store Server API requests, with a new token or after a 429"),
    MetricDeclaration(
      "tenure_apple_held_back_total", .counter, by: ["environment"],
      "App Store Server API requests not sent because the hourly limit was reached"),
    MetricDeclaration(
      "tenure_apple_budget_granted_total", .counter, by: ["queue"],
      "Polls allowed by TENURE_POLLS_PER_HOUR, and write-backs allowed by Apple's limit"),
    MetricDeclaration(
      "tenure_apple_budget_denied_total", .counter, by: ["queue"],
      "Polls deferred by TENURE_POLLS_PER_HOUR, and write-backs deferred by Apple's limit"),
    MetricDeclaration(
      "tenure_apple_tellings_total", .counter, by: ["kind", "outcome"],
      "Write-backs of ownership and consumption to Apple: accepted, refused, or not sent"),
  ]

  private static let ledger = [
    MetricDeclaration(
      "tenure_ownership_decisions_total", .counter, by: ["rule", "action"],
      "Charges that got a new owner, by rule and action: decided, claimed, corrected or placed"),
    MetricDeclaration(
      "tenure_revocations_total", .counter, by: ["change"],
      "Charges found to be revoked or restored"),
    MetricDeclaration(
      "tenure_submissions_total", .counter, by: ["source", "outcome"],
      "Submission verifications by source and outcome"),
    MetricDeclaration(
      "tenure_notifications_total", .counter, by: ["version", "type", "outcome"],
      "Received notifications: stored, repeated or refused"),
    MetricDeclaration(
      "tenure_notifications_refused_total", .counter, by: ["reason"],
      "Refused notifications by reason"),
    MetricDeclaration(
      "tenure_notifications_processed_total", .counter, by: ["outcome"],
      "Processed notifications by outcome"),
  ]

  private static let jobs = [
    MetricDeclaration(
      "tenure_jobs_total", .counter, by: ["kind", "outcome"],
      "Finished jobs by outcome"),
    MetricDeclaration(
      "tenure_job_duration_seconds", slow, by: ["kind"], "Duration of jobs"),
    MetricDeclaration(
      "tenure_webhook_pushes_total", .counter, by: ["outcome"],
      "Events pushed to the webhook: delivered, failed, or given up"),
    MetricDeclaration(
      "tenure_webhook_push_duration_seconds", slow, "Response time of the webhook"),
    MetricDeclaration(
      "tenure_webhook_delay_seconds", late,
      "Time from an event's publication in the feed to its delivery"),
  ]

  /// Read from the database, at most every few seconds.
  private static let readings = [
    MetricDeclaration(
      "tenure_database_readable", .gauge,
      "1 if the metrics below could be read; 0 if they are left out"),
    MetricDeclaration(
      "tenure_jobs_due", .gauge, by: ["queue"], isReading: true,
      "Due jobs not yet started, counted up to 10000"),
    MetricDeclaration(
      "tenure_jobs_due_age_seconds", .gauge, by: ["queue"], isReading: true,
      "Age of the oldest due job"),
    MetricDeclaration(
      "tenure_jobs_parked", .gauge, by: ["kind"], isReading: true,
      "Failed jobs that wait for a manual retry"),
    MetricDeclaration(
      "tenure_submissions_waiting", .gauge, isReading: true,
      "Submissions not yet verified by Apple, counted up to 10000"),
    MetricDeclaration(
      "tenure_charges_unclaimed", .gauge, by: ["environment"], isReading: true,
      "Unclaimed charges among the latest 10000 that arrived without an owner"),
    MetricDeclaration(
      "tenure_webhook_events_waiting", .gauge, isReading: true,
      "Events not yet pushed, counted up to 10000"),
    MetricDeclaration(
      "tenure_webhook_lag_seconds", .gauge, isReading: true,
      "Age of the oldest event not yet pushed"),
    MetricDeclaration(
      "tenure_webhook_events_parked", .gauge, isReading: true,
      "Failed events that wait for a manual retry"),
    MetricDeclaration(
      "tenure_feed_position", .gauge, isReading: true, "Last position in the event feed"),
    MetricDeclaration(
      "tenure_feed_unplaced_events", .gauge, isReading: true,
      "Events without a feed position yet, counted up to 10000"),
    MetricDeclaration(
      "tenure_movements_unfolded", .gauge, isReading: true,
      "Movements not yet rolled up, counted up to 10000"),
    MetricDeclaration(
      "tenure_server_heartbeat_age_seconds", .gauge, isReading: true,
      "Age of the latest server heartbeat"),
    MetricDeclaration(
      "tenure_apple_budget_left", .gauge, by: ["name"], isReading: true,
      "Polls and write-backs available immediately, as of the last one"),
  ]

  private static let process = [
    MetricDeclaration(
      "tenure_schema_version", .gauge, "Database schema version used by this program"),
    MetricDeclaration(
      "process_start_time_seconds", .gauge, "Start time of the process, in seconds since 1970"),
    MetricDeclaration(
      "process_resident_memory_bytes", .gauge, "Resident memory of the process"),
  ]
}
