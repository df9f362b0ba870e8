import CoreMetrics
import Foundation
package import Hummingbird
package import LedgerStorage
package import Logging
package import Observability
package import Subscriptions

/// The metrics of the process and of the ledger, in Prometheus' text format.
///
/// The ledger is read at most every few seconds and by one request at a time; the others show the
/// last reading. A database that does not answer delays a response by at most two seconds, and its
/// metrics are left out.
package actor MetricsPage {
  /// The age at which a reading is replaced; Prometheus usually asks every 15 seconds.
  private static let freshness: Duration = .seconds(5)
  // https://prometheus.io/docs/instrumenting/exposition_formats/
  static let contentType = "text/plain; version=0.0.4; charset=utf-8"

  nonisolated let registry: PrometheusRegistry
  private let ledger: Ledger
  private let gauges: LedgerGauges
  private let memory: Meter
  private let logger: Logger
  private let now: @Sendable () -> Timestamp
  private var lastReading: (at: ContinuousClock.Instant, isGood: Bool)?
  private var isReading = false

  package init(
    registry: PrometheusRegistry, ledger: Ledger, logger: Logger,
    now: @escaping @Sendable () -> Timestamp
  ) {
    self.registry = registry
    self.ledger = ledger
    self.logger = logger
    self.now = now
    gauges = LedgerGauges(factory: registry)
    memory = Meter(label: "process_resident_memory_bytes", factory: registry)
    Meter(
      label: "tenure_build_info", dimensions: [("version", TenureVersion.current)],
      factory: registry
    ).set(1)
    Meter(label: "tenure_schema_version", factory: registry).set(SchemaMigrator.currentVersion)
    Meter(label: "process_start_time_seconds", factory: registry).set(
      Date.now.timeIntervalSince1970)
  }

  func response() async -> Response {
    Response(ByteBuffer(string: await text()), as: Self.contentType)
  }

  private func text() async -> String {
    gauges.show(await ledger.maintenance.connections())
    await read()
    if let bytes = Self.residentMemory { memory.set(bytes) }
    return registry.exposition(withReadings: lastReading?.isGood ?? false)
  }

  private func read() async {
    if let lastReading, ContinuousClock.now - lastReading.at < Self.freshness { return }
    guard !isReading else { return }
    isReading = true
    defer { isReading = false }
    do {
      gauges.show(try await ledger.maintenance.reading(at: now()), at: now())
      lastReading = (.now, true)
    } catch {
      gauges.show(nil, at: now())
      lastReading = (.now, false)
      logger.warning("Reading the ledger for /metrics failed", metadata: ["error": "\(error)"])
    }
  }

  /// In bytes; nil where the system has no `/proc`.
  private static var residentMemory: Int? {
    guard let status = try? String(contentsOfFile: "/proc/self/status", encoding: .utf8),
      let match = status.firstMatch(of: /VmRSS:\s+([0-9]+) kB/), let kibibytes = Int(match.1)
    else { return nil }
    return kibibytes * 1024
  }
}

extension MetricsPage {
  /// A server of `/metrics` and `/healthz` for programs without an API, not yet running.
  ///
  /// Needs no key: it exposes no personal data. Port 0: a free one, passed to `onListening`.
  package nonisolated func application(
    host: String, port: Int, onListening: @escaping @Sendable (Int) async -> Void = { _ in }
  ) -> some ApplicationProtocol {
    let router = Router(options: .autoGenerateHeadEndpoints)
    router.get("/metrics") { _, _ in await self.response() }
    router.get("/healthz") { _, _ in HTTPResponse.Status.ok }
    return Application(
      router: router, configuration: ApplicationConfiguration(address: .hostname(host, port: port)),
      onServerRunning: { channel in await onListening(channel.localAddress?.port ?? port) },
      logger: logger)
  }
}

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
      set("tenure_jobs_due", label, to: backlog?.count ?? 0)
      set("tenure_jobs_due_age_seconds", label, to: seconds(since: backlog?.since))
    }
    for kind in Job.Kind.allCases.map(\.rawValue) {
      set("tenure_jobs_parked", ("kind", kind), to: reading.discardedJobs[kind]?.count ?? 0)
    }
    set("tenure_submissions_waiting", to: reading.waitingSubmissions)
    for environment in Subscriptions.Environment.allCases {
      set(
        "tenure_charges_unclaimed", ("environment", environment.rawValue),
        to: reading.unclaimedCharges[environment]?.count ?? 0)
    }
    set("tenure_webhook_events_waiting", to: reading.waitingDeliveries.count)
    set("tenure_webhook_lag_seconds", to: seconds(since: reading.waitingDeliveries.since))
    set("tenure_webhook_events_parked", to: reading.parkedDeliveries.count)
    set("tenure_feed_position", to: reading.feedPosition)
    set("tenure_feed_unplaced_events", to: reading.unplacedEvents)
    set("tenure_movements_unfolded", to: reading.pendingChanges)
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
