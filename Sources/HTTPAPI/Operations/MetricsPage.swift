import CoreMetrics
import Foundation
package import Hummingbird
package import LedgerStorage
package import Logging
package import Observability
package import Subscriptions

/// What Prometheus reads: what the process counts, and how the ledger stands.
///
/// The ledger is asked at most every few seconds, however many ask, and by one at a time; whoever
/// comes meanwhile gets the last reading. A database that does not answer delays an answer by two
/// seconds at the most, and the numbers that it would have told are left out.
package actor MetricsPage {
  /// How old a reading may be: Prometheus asks every fifteen seconds or so.
  private static let freshness: Duration = .seconds(5)
  /// What the format is called (https://prometheus.io/docs/instrumenting/exposition_formats/).
  static let contentType = "text/plain; version=0.0.4; charset=utf-8"

  nonisolated let registry: PrometheusRegistry
  private let ledger: Ledger
  private let gauges: LedgerGauges
  private let memory: Meter
  private let logger: Logger
  private let now: @Sendable () -> Timestamp
  private var lastReading: (at: ContinuousClock.Instant, isGood: Bool)?
  private var isReading = false

  /// - Parameters:
  ///   - registry: Where the process counts.
  ///   - ledger: What is read.
  ///   - logger: Told when it can't be read.
  ///   - now: The clock.
  package init(
    registry: PrometheusRegistry, ledger: Ledger, logger: Logger,
    now: @escaping @Sendable () -> Timestamp
  ) {
    self.registry = registry
    self.ledger = ledger
    self.logger = logger
    self.now = now
    gauges = LedgerGauges(registry)
    memory = Meter(label: "process_resident_memory_bytes", factory: registry)
    Meter(label: "tenure_schema_version", factory: registry).set(SchemaMigrator.currentVersion)
    Meter(label: "process_start_time_seconds", factory: registry).set(
      Date.now.timeIntervalSince1970)
  }

  /// Everything, in Prometheus' text format.
  func text() async -> String {
    gauges.show(await ledger.connections())
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
      gauges.show(try await ledger.reading(at: now()), at: now())
      lastReading = (.now, true)
    } catch {
      gauges.show(nil, at: now())
      lastReading = (.now, false)
      logger.warning("The ledger can't be read for /metrics", metadata: ["error": "\(error)"])
    }
  }

  /// In bytes, where the system tells it.
  private static var residentMemory: Int? {
    guard let status = try? String(contentsOfFile: "/proc/self/status", encoding: .utf8),
      let match = status.firstMatch(of: /VmRSS:\s+([0-9]+) kB/), let kibibytes = Int(match.1)
    else { return nil }
    return kibibytes * 1024
  }
}

/// `GET /metrics`.
struct MetricsController: Sendable {
  let page: MetricsPage

  @Sendable
  func show(_ request: Request, context: some RequestContext) async -> Response {
    Response(
      status: .ok, headers: [.contentType: MetricsPage.contentType],
      body: ResponseBody(byteBuffer: ByteBuffer(string: await page.text())))
  }
}

extension MetricsPage {
  /// A server for programs that have no HTTP interface: `/metrics` and `/healthz`, and nothing
  /// else.
  ///
  /// It asks for no key, for it tells nothing of anybody: keep its address inside.
  ///
  /// - Parameters:
  ///   - host: The address to listen on.
  ///   - port: 0 for a free one.
  ///   - onListening: Told the port once it listens.
  /// - Returns: The application, not yet running.
  package nonisolated func application(
    host: String, port: Int, onListening: @escaping @Sendable (Int) async -> Void = { _ in }
  ) -> some ApplicationProtocol {
    let router = Router(options: .autoGenerateHeadEndpoints)
    router.get("/metrics", use: MetricsController(page: self).show)
    router.get("/healthz") { _, _ in HTTPResponse.Status.ok }
    return Application(
      router: router, configuration: ApplicationConfiguration(address: .hostname(host, port: port)),
      onServerRunning: { channel in await onListening(channel.localAddress?.port ?? port) },
      logger: logger)
  }
}
