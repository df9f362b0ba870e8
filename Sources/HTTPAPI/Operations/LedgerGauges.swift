import CoreMetrics
import LedgerStorage
import Subscriptions

/// The gauges of the ledger and of the connection pool.
struct LedgerGauges: Sendable {
  let factory: any MetricsFactory

  func show(_ reading: LedgerReading?, at now: Timestamp) {
    set("tenure_database_readable", to: reading == nil ? 0 : 1)
    guard let reading else { return }
    func seconds(since moment: Timestamp?) -> Double {
      moment.map { max(0, Double(now.milliseconds - $0.milliseconds) / 1000) } ?? 0
    }
    for queue in Job.Queue.allCases {
      let (label, backlog) = (("queue", queue.rawValue), reading.backlogs[queue])
      set("tenure_jobs_due", label, to: backlog?.due ?? 0)
      set("tenure_jobs_due_age_seconds", label, to: seconds(since: backlog?.since))
    }
    for kind in Job.Kind.allCases.map(\.rawValue) {
      set("tenure_jobs_parked", ("kind", kind), to: reading.discardedJobs[kind] ?? 0)
    }
    set("tenure_submissions_waiting", to: reading.waitingSubmissions)
    for environment in Environment.allCases {
      set(
        "tenure_charges_unclaimed", ("environment", environment.rawValue),
        to: reading.unclaimedCharges[environment] ?? 0)
    }
    set("tenure_webhook_events_waiting", to: reading.waitingDeliveries)
    set("tenure_webhook_lag_seconds", to: seconds(since: reading.waitingDeliveriesSince))
    set("tenure_webhook_events_parked", to: reading.parkedDeliveries)
    set("tenure_feed_position", to: reading.feedPosition)
    set("tenure_feed_unplaced_events", to: reading.unplacedEvents)
    set("tenure_movements_unfolded", to: reading.unfoldedChanges)
    // Without any heartbeat, alerts on its age must fire.
    set(
      "tenure_server_heartbeat_age_seconds",
      to: reading.lastHeartbeat.map { seconds(since: $0) } ?? .infinity)
    for name in Job.Queue.allCases.compactMap(\.rateBudget) {
      set("tenure_apple_budget_left", ("name", name), to: reading.budgets[name] ?? 0)
    }
  }

  func show(_ reading: ConnectionReading) {
    let states = [
      ("idle", reading.idle), ("busy", reading.busy), ("leased", reading.leased),
      ("connecting", reading.connecting),
    ]
    for (state, count) in states {
      set("tenure_database_connections", ("state", state), to: count)
    }
    set("tenure_database_requests_in_flight", to: reading.inFlight)
    set("tenure_database_requests_waiting", to: reading.waiting)
  }

  private func set(_ name: String, _ label: (String, String)? = nil, to value: some BinaryInteger) {
    set(name, label, to: Double(value))
  }

  private func set(_ name: String, _ label: (String, String)? = nil, to value: Double) {
    Meter(label: name, dimensions: label.map { [$0] } ?? [], factory: factory).set(value)
  }
}
