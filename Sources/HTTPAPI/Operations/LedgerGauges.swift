import CoreMetrics
import LedgerStorage
import Subscriptions

/// The gauges of the ledger and of the connection pool.
final class LedgerGauges: Sendable {
  private let isReadable: Meter
  private let due: [Job.Queue: Meter]
  private let dueAges: [Job.Queue: Meter]
  private let discardedJobs: [String: Meter]
  private let waitingSubmissions: Meter
  private let unclaimed: [Environment: Meter]
  private let waitingDeliveries: Meter
  private let webhookLag: Meter
  private let parkedDeliveries: Meter
  private let feedPosition: Meter
  private let unplacedEvents: Meter
  private let unfolded: Meter
  private let heartbeatAge: Meter
  private let budgets: [String: Meter]
  private let connections: [String: Meter]
  private let inFlight: Meter
  private let waiting: Meter

  init(_ factory: any MetricsFactory) {
    func meter(_ name: String, _ labels: [(String, String)] = []) -> Meter {
      Meter(label: name, dimensions: labels, factory: factory)
    }
    func meters<Key: Hashable>(
      _ name: String, by label: String, _ keys: [Key], _ text: (Key) -> String
    ) -> [Key: Meter] {
      Dictionary(uniqueKeysWithValues: keys.map { ($0, meter(name, [(label, text($0))])) })
    }
    isReadable = meter("tenure_database_readable")
    due = meters("tenure_jobs_due", by: "queue", Job.Queue.allCases, \.rawValue)
    dueAges = meters("tenure_jobs_due_age_seconds", by: "queue", Job.Queue.allCases, \.rawValue)
    discardedJobs = meters(
      "tenure_jobs_parked", by: "kind", Job.Kind.allCases.map(\.rawValue), \.self)
    waitingSubmissions = meter("tenure_submissions_waiting")
    unclaimed = meters(
      "tenure_charges_unclaimed", by: "environment", Environment.allCases, \.rawValue)
    waitingDeliveries = meter("tenure_webhook_events_waiting")
    webhookLag = meter("tenure_webhook_lag_seconds")
    parkedDeliveries = meter("tenure_webhook_events_parked")
    feedPosition = meter("tenure_feed_position")
    unplacedEvents = meter("tenure_feed_unplaced_events")
    unfolded = meter("tenure_movements_unfolded")
    heartbeatAge = meter("tenure_server_heartbeat_age_seconds")
    budgets = meters(
      "tenure_apple_budget_left", by: "name",
      Job.Queue.allCases.compactMap(\.rateBudget), \.self)
    connections = meters(
      "tenure_database_connections", by: "state", ["idle", "busy", "leased", "connecting"], \.self)
    inFlight = meter("tenure_database_requests_in_flight")
    waiting = meter("tenure_database_requests_waiting")
  }

  func show(_ reading: LedgerReading?, at now: Timestamp) {
    isReadable.set(reading == nil ? 0 : 1)
    guard let reading else { return }
    func seconds(since moment: Timestamp?) -> Double {
      moment.map { max(0, Double(now.milliseconds - $0.milliseconds) / 1000) } ?? 0
    }
    for queue in Job.Queue.allCases {
      let backlog = reading.backlogs[queue]
      due[queue]?.set(backlog?.due ?? 0)
      dueAges[queue]?.set(seconds(since: backlog?.since))
    }
    for (kind, meter) in discardedJobs { meter.set(reading.discardedJobs[kind] ?? 0) }
    waitingSubmissions.set(reading.waitingSubmissions)
    for (environment, meter) in unclaimed {
      meter.set(reading.unclaimedCharges[environment] ?? 0)
    }
    waitingDeliveries.set(reading.waitingDeliveries)
    webhookLag.set(seconds(since: reading.waitingDeliveriesSince))
    parkedDeliveries.set(reading.parkedDeliveries)
    feedPosition.set(reading.feedPosition)
    unplacedEvents.set(reading.unplacedEvents)
    unfolded.set(reading.unfoldedChanges)
    // Without any heartbeat, alerts on its age must fire.
    heartbeatAge.set(reading.lastHeartbeat.map { seconds(since: $0) } ?? .infinity)
    for (name, meter) in budgets { meter.set(reading.budgets[name] ?? 0) }
  }

  func show(_ reading: ConnectionReading) {
    connections["idle"]?.set(reading.idle)
    connections["busy"]?.set(reading.busy)
    connections["leased"]?.set(reading.leased)
    connections["connecting"]?.set(reading.connecting)
    inFlight.set(reading.inFlight)
    waiting.set(reading.waiting)
  }
}
