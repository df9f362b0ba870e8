import CoreMetrics
package import Hummingbird
import HummingbirdCore
package import Intake
package import LedgerStorage
package import Logging
import NIOCore
package import Observability
package import Reports
package import Subscriptions

/// The HTTP API; `API+Routes.swift` lists its routes.
package struct API: Sendable {
  package let ledger: Ledger
  let intake: SubmissionIntake
  let notifications: NotificationIntake
  package let catalogue: CatalogueCache
  package let entitlements: EntitlementReader
  package let reports: ReportReader
  let schema: SchemaMigrator
  package let reportCoordinator: ReportCoordinator
  let watch: EventWatch
  package let keys: APIKeys
  package let brake = FailureBrake()
  let bodyBudgets = BodyBudgets()
  let failedReads = FailedReads()
  let metricsPage: MetricsPage
  let requestMetrics: RequestMetrics
  let logger: Logger
  package let now: @Sendable () -> Timestamp
  /// Pages served next to the interface; nil for none.
  package var site: (any Site)?

  /// Without `metrics`, `/metrics` shows the registry of `MetricsSystem`, or else a new one that
  /// has little more than this API's metrics.
  package init(
    ledger: Ledger, intake: SubmissionIntake, notifications: NotificationIntake,
    catalogue: CatalogueCache, entitlements: EntitlementReader, reports: ReportReader,
    schema: SchemaMigrator, keys: APIKeys, metrics: PrometheusRegistry? = nil, logger: Logger,
    now: @escaping @Sendable () -> Timestamp
  ) {
    let metrics =
      metrics ?? MetricsSystem.factory as? PrometheusRegistry ?? PrometheusRegistry()
    metricsPage = MetricsPage(registry: metrics, ledger: ledger, logger: logger, now: now)
    requestMetrics = RequestMetrics(metrics)
    self.ledger = ledger
    self.intake = intake
    self.notifications = notifications
    self.catalogue = catalogue
    self.entitlements = entitlements
    self.reports = reports
    self.schema = schema
    watch = EventWatch(ledger: ledger)
    reportCoordinator = ReportCoordinator(reports: reports, now: now)
    self.keys = keys
    self.logger = logger
    self.now = now
  }

  /// Makes the application, a `Service` that is not yet running.
  ///
  /// On graceful shutdown it accepts no new connections and finishes the requests in flight. With
  /// port 0 it listens on a free port, which it passes to `onListening`.
  package func application(
    host: String, port: Int, limits: ConnectionLimits = ConnectionLimits(),
    onListening: @escaping @Sendable (Int) async -> Void = { _ in }
  ) -> some ApplicationProtocol {
    // Debug logging and tracing need every request to pass through the router's middleware.
    let isWatched = logger.logLevel <= .debug || RequestTracing.isOn
    let desks = isWatched ? nil : EntitlementBatchers(reader: entitlements, now: now)
    let open = OpenConnections(limit: limits.connections, metrics: requestMetrics)
    return Application(
      router: router(),
      server: HTTPServerBuilder { responder in
        EntitlementChannel(
          responder: responder, keys: keys, desks: desks, failures: failedReads,
          metrics: requestMetrics, limits: limits, open: open)
      },
      configuration: ApplicationConfiguration(address: .hostname(host, port: port)),
      services: [EventWatching(watch: watch), reportCoordinator],
      onServerRunning: { channel in await onListening(channel.localAddress?.port ?? port) },
      logger: logger)
  }
}

/// Pages served next to the interface, by the same application.
package protocol Site: Sendable {
  /// Whether a path is one of the site's, whether or not there is a page.
  func serves(_ path: String) -> Bool
  /// Adds middleware that runs inside the API's own, for every request.
  func addMiddleware(to router: Router<APIContext>)
  func addRoutes(to router: Router<APIContext>)
}

package struct APIContext: RequestContext, Sendable {
  package var coreContext: CoreRequestContextStorage
  /// Nil without a valid API key.
  package var caller: APIKeys.Caller?
  let channel: any Channel
  /// The ``Site``'s own context of the request.
  package var site: (any Sendable)?

  package init(source: ApplicationRequestContextSource) {
    coreContext = CoreRequestContextStorage(source: source)
    channel = source.channel
  }

  /// The address of the client or of its proxy.
  var remoteAddress: String? { channel.remoteAddress?.ipAddress }

  /// Hummingbird's `endpointPath` for a path without a route.
  private static let unknownRoute = "NotFound"

  /// The route's template, which has no account ID in it; `none` for a path without a route.
  var route: String {
    endpointPath.flatMap { $0 == Self.unknownRoute ? nil : $0 } ?? "none"
  }
}
