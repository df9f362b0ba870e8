import AppStore
import AsyncHTTPClient
import BackgroundJobs
import CoreMetrics
import Foundation
import HTTPAPI
import Intake
import LedgerStorage
import Logging
import OpenTelemetryTraces
import Postgres
import PrometheusMetrics
import Reports
import ServiceLifecycle
import Subscriptions
import Tracing

/// The programs put together: one place for `serve`, `work`, the demo and the benchmarks.
struct Assembly: Sendable {
  let ledger: Ledger
  let catalogue: CatalogueCache
  let intake: SubmissionIntake
  let notifications: NotificationIntake
  /// What asks Apple how lines stand.
  let poll: LinePoll
  /// What tells Apple of owners and of what became of purchases.
  let teller: AppleTeller
  let entitlements: EntitlementReader
  /// What verifies signed transactions and notifications.
  let signedData: SignedDataVerifier
  /// What asks the App Store Server API; nil without a key for it.
  let serverAPI: AppStoreServerAPI?
  /// What pushes events; nil without a webhook.
  let webhook: WebhookSender?
  let reports: ReportReader
  /// The apps whose notification histories can be read.
  let histories: [Heartbeat.Subject]
  private let schema: SchemaMigrator
  private let settings: Settings
  private let logger: Logger
  private let clock: WorkClock

  /// - Parameters:
  ///   - database: Open, its schema up to date.
  ///   - settings: Checked.
  ///   - transport: The way to Apple.
  ///   - webhook: What pushes events; nil: they are not pushed.
  ///   - logger: The program's.
  ///   - clock: The time; nil: what the settings say. The demo has one that runs fast.
  /// - Throws: ``SettingError``, or what the database says.
  init(
    database: ConnectionPool, settings: Settings, transport: any AppStoreTransport,
    webhook: WebhookSender? = nil, logger: Logger, clock: WorkClock? = nil
  ) async throws {
    let clock = clock ?? settings.clock
    let now = clock.now
    let apps = try settings.appStoreApps()
    histories =
      settings.serverAPIKey == nil || settings.pollsPerHour == 0
      ? []
      : apps.all.flatMap { app in
        Environment.allCases.map { Heartbeat.Subject(bundleID: app.bundleID, environment: $0) }
      }
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
        "What is set is no setting: a name may be misspelt",
        metadata: ["names": "\(settings.unread.joined(separator: " "))"])
    }
    if settings.acceptsXcode {
      logger.warning(
        """
        What Xcode made is accepted, as of the sandbox, and Apple did not sign it: anybody can \
        make it. TENURE_APPSTORE_ACCEPT_XCODE is for development only
        """)
    }
    if settings.isClockSet {
      logger.warning("The time is what the file of TENURE_CLOCK_FILE says: for development only")
    }
    self.webhook = webhook
    ledger = Ledger(
      database: database, orderLifetime: settings.orderExpiry, tellings: settings.tellings)
    catalogue = try await CatalogueCache(ledger: ledger, logger: logger)
    intake = SubmissionIntake(
      ledger: ledger, receipts: receipts, signedData: signedData, catalogue: catalogue,
      sandboxAccess: settings.sandboxAccess,
      provisionalAccess: settings.provisionalAccess.map {
        ProvisionalAccess(
          receipts: LocalReceiptVerifier(
            roots: settings.trustedReceiptRoots, apps: apps, acceptsXcode: settings.acceptsXcode),
          longest: $0)
      },
      logger: logger, now: now)
    notifications = NotificationIntake(
      ledger: ledger, receipts: receipts, signedData: signedData, serverAPI: serverAPI, apps: apps,
      catalogue: catalogue, sandboxAccess: settings.sandboxAccess, logger: logger, now: now)
    teller = AppleTeller(
      ledger: ledger, serverAPI: serverAPI, apps: apps, catalogue: catalogue,
      sandboxAccess: settings.sandboxAccess, logger: logger, now: now)
    poll = LinePoll(
      ledger: ledger, serverAPI: serverAPI, receipts: receipts, apps: apps, catalogue: catalogue,
      sandboxAccess: settings.sandboxAccess, logger: logger, now: now)
    let changes = ledger.changes
    let replica = settings.readDatabaseURL.map { url in
      var configuration = ConnectionPool.Configuration(uri: url)
      configuration.usesPreparedStatements = settings.usesPreparedStatements
      return ReadReplica(
        configuration: configuration, primary: database, changes: changes,
        staleness: settings.readMaxStaleness, logger: logger)
    }
    entitlements = EntitlementReader(
      ledger: ledger, catalogue: catalogue, sandboxAccess: settings.sandboxAccess,
      replica: replica)
    if try await ledger.publish(settings.sandboxAccess, at: now()) {
      logger.notice("The view current_entitlement follows this program's TENURE_SANDBOX_ACCESS now")
    }
    // On connections of their own: what waits behind a report would wait for seconds.
    reports = ReportReader(
      database: ConnectionPool(
        configuration: ReportReader.configuration(like: database.configuration), logger: logger))
    schema = SchemaMigrator(database: database, logger: logger)
    self.settings = settings
    self.logger = logger
    self.clock = clock
  }

  func api(keys: APIKeys) -> API {
    API(
      ledger: ledger, intake: intake, notifications: notifications, catalogue: catalogue,
      entitlements: entitlements, reports: reports, schema: schema, keys: keys, logger: logger,
      now: clock.now)
  }

  /// What shows the process and the ledger to Prometheus where there is no API.
  func metricsPage(of registry: PrometheusRegistry) -> MetricsPage {
    MetricsPage(registry: registry, ledger: ledger, logger: logger, now: clock.now)
  }

  /// What every server runs beside its API.
  func heartbeat() -> Heartbeat {
    Heartbeat(ledger: ledger, subjects: histories, logger: logger, now: clock.now)
  }

  /// What notices that the schema is brought further beside this program.
  func schemaWatch(ending: SchemaWatch.Ending) -> SchemaWatch {
    SchemaWatch(schema: schema, ending: ending, logger: logger)
  }

  /// What a server runs that has a replica to ask.
  var replicaWatch: [any Service] {
    entitlements.replica.map { [ReplicaWatch(replica: $0)] } ?? []
  }

  /// Tells workers apart that hold jobs: in containers, hosts and process ids can be the same.
  private static var workerName: String {
    let process = ProcessInfo.processInfo
    return "\(process.hostName)-\(process.processIdentifier)-\(UUID().uuidString.prefix(8))"
  }

  /// The worker, and what runs beside it.
  func worker() -> [any Service] {
    // Without polls their queues aren't read.
    let concurrency = Worker.concurrency.filter { queue, _ in
      settings.pollsPerHour > 0 || queue != .polls && queue != .sandboxPolls
    }
    let worker = Worker(
      tools: jobTools, name: Self.workerName, concurrency: concurrency, budget: appleBudget,
      recurring: jobTools.recurringJobs, logger: logger, clock: clock)
    guard webhook != nil else { return [worker] }
    return [EventPusher(ledger: ledger, logger: logger, now: clock.now), worker]
  }

  /// What jobs are done with.
  var jobTools: JobTools {
    let (catalogue, sandboxAccess) = (catalogue, settings.sandboxAccess)
    return JobTools(
      ledger: ledger, submissions: intake, notifications: notifications, poll: poll, teller: teller,
      webhook: webhook, histories: histories, eventRetention: settings.eventRetention,
      rawRetention: settings.rawRetention,
      terms: { catalogue.terms(sandboxAccess) })
  }

  /// What Apple is asked and told in an hour at the most, by all programs together.
  private var appleBudget: JobBudget {
    .apple(pollsPerHour: settings.pollsPerHour, in: ledger, now: clock.now)
  }

  /// One pass over what is due to be polled; `patience` is how long it may wait for the budget.
  func pollPass(patience: Duration) -> PollPass {
    PollPass(
      tools: jobTools, budget: appleBudget, name: Self.workerName, patience: patience,
      logger: logger, now: clock.now)
  }
}

/// Follows the replica for as long as a program runs.
struct ReplicaWatch: Service {
  let replica: ReadReplica

  func run() async throws {
    await cancelWhenGracefulShutdown { await replica.run() }
  }
}

/// Keeps the catalogue fresh for as long as a program runs.
struct CatalogueRefresh: Service {
  let catalogue: CatalogueCache

  func run() async throws {
    await cancelWhenGracefulShutdown { await catalogue.run() }
  }
}

extension Timestamp {
  /// The system's clock.
  static var now: Timestamp {
    Timestamp(milliseconds: Int64((Date().timeIntervalSince1970 * 1000).rounded(.down)))
  }
}

extension PrometheusRegistry {
  /// Counts whatever this process does from now on; once, before anything is made that counts.
  ///
  /// - Returns: Where it is counted.
  @discardableResult
  static func bootstrapTenure() -> PrometheusRegistry {
    let registry = PrometheusRegistry()
    MetricsSystem.bootstrap(registry)
    return registry
  }
}

extension SpanExporter {
  /// Makes spans of whatever this process does from now on, where somebody wants them; once, before
  /// anything is made that looks for a tracer.
  ///
  /// - Parameters:
  ///   - settings: Where they go; nil: there are none.
  ///   - program: Which of the programs this is.
  ///   - logger: The program's.
  /// - Returns: What sends them. It begins first, and so ends last.
  static func bootstrapTenure(_ settings: TraceSettings?, from program: String, logger: Logger)
    -> [any Service]
  {
    guard let settings else { return [] }
    let exporter = SpanExporter(to: settings.collector, from: program, logger: logger)
    InstrumentationSystem.bootstrap(OpenTelemetryTracer(exporter: exporter, ratio: settings.ratio))
    return [exporter]
  }
}
