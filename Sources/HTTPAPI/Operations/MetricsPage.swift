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
    Meter(label: "tenure_schema_version", factory: registry).set(SchemaMigrator.currentVersion)
    Meter(label: "process_start_time_seconds", factory: registry).set(
      Date.now.timeIntervalSince1970)
  }

  /// The answer to `GET /metrics`.
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
  /// Makes a server of `/metrics` and `/healthz` for programs without an HTTP API, not yet running.
  ///
  /// It needs no key, because it exposes no personal data; keep its address private. With port 0 it
  /// listens on a free port, which it passes to `onListening`.
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
