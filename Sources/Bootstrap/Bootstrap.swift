import AdminSite
package import AppStore
package import AsyncHTTPClient
package import BackgroundJobs
import CoreMetrics
import Foundation
package import HTTPAPI
package import Intake
package import LedgerStorage
package import Logging
package import Observability
package import Postgres
package import Reports
package import ServiceLifecycle
package import Subscriptions
import Tracing

/// The composition root of `serve`, `work`, the demo and the benchmarks.
package struct Assembly: Sendable {
  package let ledger: Ledger
  package let catalogue: CatalogueCache
  package let intake: SubmissionIntake
  package let notifications: NotificationIntake
  package let jobTools: JobTools
  package let entitlements: EntitlementReader
  package let signedData: SignedDataVerifier
  /// Nil without a key.
  package let serverAPI: AppStoreServerAPI?
  package let reports: ReportReader
  private let schema: SchemaMigrator
  private let settings: Settings
  private let logger: Logger
  private let clock: WorkerClock

  /// - Parameter clock: Overrides the settings' clock, as the demo does.
  package init(
    database: ConnectionPool, settings: Settings, transport: any AppStoreTransport,
    webhook: WebhookSender? = nil, logger: Logger, clock: WorkerClock? = nil
  ) async throws {
    let clock = clock ?? settings.clock
    let now = clock.now
    let apps = try settings.appStoreApps()
    let receipts = ReceiptVerifier(
      transport: transport, endpoints: settings.verifyReceipt, apps: apps,
      timeout: settings.appStoreTimeout, logger: logger, now: now)
    signedData = SignedDataVerifier(
      roots: settings.trustedRoots, apps: apps, acceptsXcode: settings.acceptsXcode, now: now)
    let signedData = signedData
    serverAPI = settings.serverAPIKey.map { key in
      AppStoreServerAPI(
        transport: transport, addresses: settings.serverAPIAddresses, key: key,
        verifier: signedData, timeout: settings.appStoreTimeout, logger: logger, now: now)
    }
    if !settings.unread.isEmpty {
      logger.warning(
        "Unknown settings are ignored: check their spelling",
        metadata: ["names": "\(settings.unread.joined(separator: " "))"])
    }
    if settings.acceptsXcode {
      logger.warning(
        """
        Transactions signed by Xcode are accepted as sandbox transactions, and anyone can forge \
        them: TENURE_APPSTORE_ACCEPT_XCODE is for development only
        """)
    }
    if settings.isClockSet {
      logger.warning("The time is read from a file: TENURE_CLOCK_FILE is for development only")
    }
    ledger = Ledger(
      database: database, orderLifetime: settings.orderExpiry,
      writeBackKinds: settings.writeBackKinds)
    catalogue = try await CatalogueCache(ledger: ledger, logger: logger)
    let services = IntakeServices(
      ledger: ledger, receipts: receipts, signedData: signedData, serverAPI: serverAPI, apps: apps,
      catalogue: catalogue, sandboxAccess: settings.sandboxAccess, logger: logger, now: now)
    intake = SubmissionIntake(
      services,
      provisionalAccess: settings.provisionalAccess.map {
        ProvisionalAccess(receipts: settings.receiptVerifier(for: apps), longest: $0)
      })
    notifications = NotificationIntake(services)
    let isComparing = settings.serverAPIKey != nil && settings.pollsPerHour > 0
    jobTools = JobTools(
      services, submissions: intake, notifications: notifications, webhook: webhook,
      histories: isComparing
        ? apps.all.flatMap { app in Environment.allCases.map { (app.bundleID, $0) } } : [],
      eventRetention: settings.eventRetention, rawRetention: settings.rawRetention,
      checkpoints: settings.checkpoints)
    let changes = ledger.changes
    let replica = settings.readDatabaseURL.map { url in
      var configuration = ConnectionPool.Configuration(uri: url)
      configuration.usesPreparedStatements = settings.usesPreparedStatements
      return ReadReplica(
        configuration: configuration, primary: database, changes: changes,
        staleness: settings.readMaxStaleness, logger: logger)
    }
    let cache =
      settings.readCache == 0
      ? nil
      : EntitlementCache(
        limit: settings.readCache, ledger: ledger, catalogue: catalogue, logger: logger)
    entitlements = EntitlementReader(
      ledger: ledger, catalogue: catalogue, sandboxAccess: settings.sandboxAccess,
      replica: replica, cache: cache)
    if try await ledger.products.publish(settings.sandboxAccess, at: now()) {
      logger.notice("The view current_entitlement now uses this program's TENURE_SANDBOX_ACCESS")
    }
    // A separate pool, because requests would wait seconds behind a report.
    reports = ReportReader(
      database: ConnectionPool(
        configuration: ReportReader.configuration(like: database.configuration), logger: logger))
    schema = SchemaMigrator(database: database, logger: logger)
    (self.settings, self.logger, self.clock) = (settings, logger, clock)
  }

  package func api(keys: APIKeys) -> API {
    var api = API(
      ledger: ledger, intake: intake, notifications: notifications, catalogue: catalogue,
      entitlements: entitlements, reports: reports, schema: schema, keys: keys, logger: logger,
      now: clock.now)
    var quiet = logger
    // The findings report faults, so they aren't logged as well.
    quiet.logLevel = max(logger.logLevel, .critical)
    // Work is late by the clock that it is due by.
    var checked = settings
    checked.clock = clock
    let doctor = Doctor(settings: checked, logger: quiet, ledger: ledger)
    let webhook = settings.webhook.flatMap { receiver in
      jobTools.webhook.map { sender in
        Installation.Webhook(origin: receiver.origin) { try await sender.send($0, at: $1) }
      }
    }
    api.site = AdminSite(
      of: api, proxy: settings.adminProxy,
      installation: Installation(version: TenureVersion.current, webhook: webhook) {
        await doctor.examine().findings
      })
    return api
  }

  /// The `/metrics` page of programs without an API.
  package func metricsPage(of registry: PrometheusRegistry) -> MetricsPage {
    MetricsPage(registry: registry, ledger: ledger, logger: logger, now: clock.now)
  }

  package func heartbeat() -> Heartbeat { Heartbeat(jobTools) }

  package func schemaWatch(ending: SchemaWatch.Ending) -> SchemaWatch {
    SchemaWatch(schema: schema, ending: ending, logger: logger)
  }

  /// Takes over changed keys of `TENURE_API_KEYS_FILE` within seconds, without a restart.
  package func keyReload(of keys: APIKeys) -> UntilShutdown {
    UntilShutdown("KeyReload") { [settings, logger, clock] in
      var lastFault = ""
      while (try? await Task.sleep(for: .seconds(2))) != nil {
        do {
          if keys.replace(by: try settings.apiKeys(), at: clock.now()) {
            logger.notice("The API keys were reloaded")
          }
          lastFault = ""
        } catch {
          // Once for each fault: the file may stay wrong for long.
          guard "\(error)" != lastFault else { continue }
          lastFault = "\(error)"
          logger.error("The API keys stay as they are", metadata: ["error": "\(error)"])
        }
      }
    }
  }

  package var catalogueRefresh: UntilShutdown {
    UntilShutdown("CatalogueRefresh") { [catalogue] in await catalogue.run() }
  }

  package var replicaWatch: [any Service] {
    entitlements.replica.map { replica in [UntilShutdown("ReplicaWatch") { await replica.run() }] }
      ?? []
  }

  /// A unique name; in containers, host names and process IDs can be equal.
  private static var workerName: String {
    let process = ProcessInfo.processInfo
    return "\(process.hostName)-\(process.processIdentifier)-\(UUID().uuidString.prefix(8))"
  }

  package func worker() -> [any Service] {
    // Without polls their queues aren't read.
    let concurrency = Worker.concurrency.filter { queue, _ in
      settings.pollsPerHour > 0 || queue != .polls && queue != .sandboxPolls
    }
    let worker = Worker(
      tools: jobTools, name: Self.workerName, concurrency: concurrency,
      pollsPerHour: settings.pollsPerHour, recurring: jobTools.recurringJobs, logger: logger,
      clock: clock)
    guard jobTools.webhook != nil else { return [worker] }
    return [EventPusher(jobTools), worker]
  }

  package var poll: StatusPoller { jobTools.poll }

  /// - Parameter patience: The maximum time to wait for the rate limit.
  package func pollPass(patience: Duration) -> PollPass {
    PollPass(
      tools: jobTools, pollsPerHour: settings.pollsPerHour, name: Self.workerName,
      patience: patience, logger: logger, now: clock.now)
  }
}

package func withAssembly<Value>(
  _ settings: Settings, logger: Logger, _ body: (Assembly) async throws -> Value
) async throws -> Value {
  try await Database.open(settings, logger: logger).use { database in
    try await withHTTPClient { client in
      let webhook = settings.webhook.map { WebhookSender(to: $0) }
      return try await ending(webhook, with: { await webhook?.shutDown() }) { webhook in
        try await body(
          try await Assembly(
            database: database, settings: settings,
            transport: TracedTransport(HTTPClientTransport(client: client)), webhook: webhook,
            logger: logger))
      }
    }
  }
}

/// Makes the client that calls Apple, and shuts it down after the body.
package func withHTTPClient<Value>(_ body: (HTTPClient) async throws -> Value) async throws -> Value
{
  let client = HTTPClient(
    eventLoopGroupProvider: .singleton, configuration: HTTPClientTransport.clientConfiguration)
  return try await ending(client, with: { try await client.shutdown() }, after: body)
}

/// Passes a resource to the body, and then ends it, whether or not the body fails.
package func ending<Resource, Value>(
  _ resource: Resource, with end: () async throws -> Void,
  after body: (Resource) async throws -> Value
) async throws -> Value {
  do {
    let value = try await body(resource)
    try await end()
    return value
  } catch {
    try? await end()
    throw error
  }
}

extension Timestamp {
  package static var now: Timestamp {
    Timestamp(milliseconds: Int64((Date().timeIntervalSince1970 * 1000).rounded(.down)))
  }
}

extension PrometheusRegistry {
  /// Installs a registry; call it once, before metrics are created.
  @discardableResult
  package static func bootstrapTenure() -> PrometheusRegistry {
    let registry = PrometheusRegistry()
    MetricsSystem.bootstrap(registry)
    return registry
  }
}

extension SpanExporter {
  /// Installs the tracer, unless tracing is off; call it once, before spans are created.
  ///
  /// - Returns: The exporter, which must start first in order to stop last.
  package static func bootstrapTenure(
    _ settings: TraceSettings?, from program: String, logger: Logger
  ) -> [any Service] {
    guard let settings else { return [] }
    let exporter = SpanExporter(to: settings.collector, from: program, logger: logger)
    InstrumentationSystem.bootstrap(OpenTelemetryTracer(exporter: exporter, ratio: settings.ratio))
    return [exporter]
  }
}

package enum LogFormat: String, CaseIterable, Sendable {
  case text
  /// One object per line.
  case json
}

extension Logger {
  /// Sends logs to standard error, because results go to standard output.
  package static func bootstrapTenure(level: Logger.Level, format: LogFormat = .text) -> Logger {
    LoggingSystem.bootstrap(
      { label, provider in
        switch format {
        case .text: StreamLogHandler.standardError(label: label, metadataProvider: provider)
        case .json: JSONLogHandler(label: label, metadataProvider: provider)
        }
      },
      metadataProvider: .multiplex(
        [LogContext.metadataProvider, OpenTelemetryTracer.metadataProvider]))
    var logger = Logger(label: "tenure")
    logger.logLevel = level
    return logger
  }
}
