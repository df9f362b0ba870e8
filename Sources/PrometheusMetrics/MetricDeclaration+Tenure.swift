/// Everything that Tenure counts. Dashboards, alert rules and `Operating.md` are checked against it
/// by tests.
extension MetricDeclaration {
  /// From a quarter of a millisecond, which an entitlement takes, to ten seconds.
  private static let quick: Kind = .histogram(bounds: [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
  ])
  /// What waits for somebody else's server, up to minutes.
  private static let slow: Kind = .histogram(bounds: [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120,
  ])
  /// How late something is, up to days.
  private static let late: Kind = .histogram(bounds: [
    0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 7_200, 28_800, 86_400, 259_200,
  ])

  package static let tenure =
    http + database + apple + ledger + jobs + readings + process

  private static let http = [
    MetricDeclaration(
      "tenure_http_requests_total", .counter, by: ["method", "route", "status"],
      "Requests answered, by the class of their status"),
    MetricDeclaration(
      "tenure_http_request_duration_seconds", quick, by: ["method", "route"],
      "From a request's head to the head of its answer"),
    MetricDeclaration(
      "tenure_http_requests_in_flight", .gauge, "Requests that are being answered"),
    MetricDeclaration("tenure_http_connections", .gauge, "Open connections"),
    MetricDeclaration(
      "tenure_http_connections_refused_total", .counter,
      "Connections refused or closed because of TENURE_HTTP_MAX_CONNECTIONS"),
  ]

  private static let database = [
    MetricDeclaration(
      "tenure_database_requests_total", .counter, by: ["kind", "outcome"],
      "Round trips to PostgreSQL, those of transactions apart"),
    MetricDeclaration(
      "tenure_database_request_duration_seconds", quick, by: ["kind"],
      "From asking for a round trip, waiting for a connection included, to its answer"),
    MetricDeclaration(
      "tenure_database_connections", .gauge, by: ["state"],
      "Connections to PostgreSQL: idle, busy, leased to a transaction, or being made"),
    MetricDeclaration(
      "tenure_database_requests_in_flight", .gauge, "Round trips under way"),
    MetricDeclaration(
      "tenure_database_requests_waiting", .gauge, "Round trips that wait for a connection"),
    MetricDeclaration(
      "tenure_database_connects_total", .counter, by: ["outcome"],
      "Connections made, and attempts that failed"),
    MetricDeclaration(
      "tenure_database_connections_lost_total", .counter,
      "Connections that broke or were closed by PostgreSQL"),
    MetricDeclaration(
      "tenure_replica_age_seconds", .gauge,
      "How old what the replica for reads has may be; +Inf while nothing is known of it"),
  ]

  private static let apple = [
    MetricDeclaration(
      "tenure_apple_requests_total", .counter, by: ["call", "environment", "outcome"],
      "Requests to Apple, by the call in Apple's words and what came of it"),
    MetricDeclaration(
      "tenure_apple_request_duration_seconds", slow, by: ["api", "environment"],
      "From a request to Apple to the end of its answer"),
    MetricDeclaration(
      "tenure_apple_receipt_statuses_total", .counter, by: ["status"],
      "Answers of verifyReceipt by Apple's status"),
    MetricDeclaration(
      "tenure_apple_retries_total", .counter, by: ["reason"],
      "Requests to the App Store Server API sent again at once: with a new token, or after a 429"),
    MetricDeclaration(
      "tenure_apple_held_back_total", .counter, by: ["environment"],
      "Requests to the App Store Server API that were not sent, for the hour's limit is reached"),
    MetricDeclaration(
      "tenure_apple_budget_granted_total", .counter, by: ["queue"],
      "Polls that TENURE_POLLS_PER_HOUR allowed, and tellings that Apple's limit did"),
    MetricDeclaration(
      "tenure_apple_budget_denied_total", .counter, by: ["queue"],
      "Polls that had to wait for TENURE_POLLS_PER_HOUR, and tellings for Apple's limit"),
    MetricDeclaration(
      "tenure_apple_tellings_total", .counter, by: ["kind", "outcome"],
      "What Apple was told of ownership and consumption: accepted, refused, or not sent"),
  ]

  private static let ledger = [
    MetricDeclaration(
      "tenure_ownership_decisions_total", .counter, by: ["rule", "action"],
      "Charges that got an owner or another one, by the rule and why: decided, claimed, "
        + "corrected or placed by an administrator"),
    MetricDeclaration(
      "tenure_revocations_total", .counter, by: ["change"],
      "Charges found revoked, and restored"),
    MetricDeclaration(
      "tenure_submissions_total", .counter, by: ["source", "outcome"],
      "Verifications of submissions, by what was sent and what came of it"),
    MetricDeclaration(
      "tenure_notifications_total", .counter, by: ["version", "type", "outcome"],
      "Notifications posted by Apple, or by others: stored, repeated or refused"),
    MetricDeclaration(
      "tenure_notifications_refused_total", .counter, by: ["reason"],
      "Refused notifications by reason"),
    MetricDeclaration(
      "tenure_notifications_processed_total", .counter, by: ["outcome"],
      "Notifications worked off, by what came of it"),
  ]

  private static let jobs = [
    MetricDeclaration(
      "tenure_jobs_total", .counter, by: ["kind", "outcome"],
      "Jobs that workers have ended, by what came of it"),
    MetricDeclaration(
      "tenure_job_duration_seconds", slow, by: ["kind"], "How long jobs took"),
    MetricDeclaration(
      "tenure_webhook_pushes_total", .counter, by: ["outcome"],
      "Events pushed to the webhook: delivered, failed, or given up"),
    MetricDeclaration(
      "tenure_webhook_push_duration_seconds", slow, "How long the webhook took to answer"),
    MetricDeclaration(
      "tenure_webhook_delay_seconds", late,
      "From an event's place in the feed to its delivery"),
  ]

  /// Asked of the database at most every few seconds.
  private static let readings = [
    MetricDeclaration(
      "tenure_database_readable", .gauge,
      "Whether the numbers below could be read; 0: they are left out"),
    MetricDeclaration(
      "tenure_jobs_due", .gauge, by: ["queue"], isReading: true,
      "Jobs that are due and not taken up; of more than 10000 no more are counted"),
    MetricDeclaration(
      "tenure_jobs_due_age_seconds", .gauge, by: ["queue"], isReading: true,
      "How long the oldest of them is due"),
    MetricDeclaration(
      "tenure_jobs_parked", .gauge, by: ["kind"], isReading: true,
      "Jobs that were given up until somebody starts them again"),
    MetricDeclaration(
      "tenure_submissions_waiting", .gauge, isReading: true,
      "Submissions that Apple has not verified yet; of more than 10000 no more are counted"),
    MetricDeclaration(
      "tenure_charges_unclaimed", .gauge, by: ["environment"], isReading: true,
      "Charges that nobody owns, among the latest 10000 that came without an owner"),
    MetricDeclaration(
      "tenure_webhook_events_waiting", .gauge, isReading: true,
      "Events still to be pushed; of more than 10000 no more are counted"),
    MetricDeclaration(
      "tenure_webhook_lag_seconds", .gauge, isReading: true,
      "How long the oldest of them waits"),
    MetricDeclaration(
      "tenure_webhook_events_parked", .gauge, isReading: true,
      "Events that were given up until somebody pushes them again"),
    MetricDeclaration(
      "tenure_feed_position", .gauge, isReading: true, "The last place in the feed of events"),
    MetricDeclaration(
      "tenure_feed_unplaced_events", .gauge, isReading: true,
      "Events without a place in the feed yet; of more than 10000 no more are counted"),
    MetricDeclaration(
      "tenure_movements_unfolded", .gauge, isReading: true,
      "Changes of the journal not summed up yet; of more than 10000 no more are counted"),
    MetricDeclaration(
      "tenure_server_heartbeat_age_seconds", .gauge, isReading: true,
      "How long ago a server last said that it is alive"),
    MetricDeclaration(
      "tenure_apple_budget_left", .gauge, by: ["name"], isReading: true,
      "Polls and tellings that may be made at once, as far as the last one left them"),
  ]

  private static let process = [
    MetricDeclaration(
      "tenure_schema_version", .gauge, "The schema that this program works with"),
    MetricDeclaration(
      "process_start_time_seconds", .gauge, "When the process began, in seconds since 1970"),
    MetricDeclaration(
      "process_resident_memory_bytes", .gauge, "The memory that the process has"),
  ]
}
