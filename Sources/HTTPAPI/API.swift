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

/// The HTTP interface: what it is made of, and the application that serves it.
///
/// The program and the tests assemble it here and nowhere else; `API+Routes.swift` lists its
/// routes.
package struct API: Sendable {
  package let ledger: Ledger
  let intake: SubmissionIntake
  let notifications: NotificationIntake
  package let catalogue: CatalogueCache
  package let entitlements: EntitlementReader
  package let reports: ReportReader
  let schema: SchemaMigrator
  /// What makes reports for the administrator's pages.
  package let reportDesk: ReportDesk
  /// What tells those who wait for events that there are some.
  let watch: EventWatch
  package let keys: APIKeys
  /// What delays the answers to wrong keys.
  package let brake = FailureBrake()
  let bodyBudgets = BodyBudgets()
  let failedReads = FailedReads()
  let metricsPage: MetricsPage
  let requestMetrics: RequestMetrics
  let logger: Logger
  package let now: @Sendable () -> Timestamp
  /// Pages served next to the interface; nil for none.
  package var site: (any Site)?

  /// - Parameters:
  ///   - ledger: Where everything is kept.
  ///   - intake: What submitted receipts go through.
  ///   - notifications: What Apple's notifications go through.
  ///   - catalogue: The products, kept fresh by whoever assembles the program.
  ///   - entitlements: What answers the hot path.
  ///   - reports: What answers operators.
  ///   - schema: What tells whether the database fits this program, for `/readyz`.
  ///   - keys: Who may call.
  ///   - metrics: Where requests are counted, and what `/metrics` shows; nil: what the program has
  ///     set up, or one that shows little more than this API.
  ///   - logger: What requests are logged with.
  ///   - now: The time.
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
    reportDesk = ReportDesk(reports: reports, now: now)
    self.keys = keys
    self.logger = logger
    self.now = now
  }

  /// Makes the application, a `Service`: when it is told to shut down it takes no new connections
  /// and finishes what is in flight.
  ///
  /// - Parameters:
  ///   - host: The address to listen on.
  ///   - port: 0 for a free one.
  ///   - limits: What clients may take up.
  ///   - onListening: Told the port once it listens.
  /// - Returns: The application, not yet running.
  package func application(
    host: String, port: Int, limits: ConnectionLimits = ConnectionLimits(),
    onListening: @escaping @Sendable (Int) async -> Void = { _ in }
  ) -> some ApplicationProtocol {
    // Who wants to see every request in the log, or a span of each, gets all of them from the
    // router.
    let isWatched = logger.logLevel <= .debug || RequestTracing.isOn
    let desks = isWatched ? nil : EntitlementDesks(reader: entitlements, now: now)
    let open = OpenConnections(limit: limits.connections, metrics: requestMetrics)
    return Application(
      router: router(),
      server: HTTPServerBuilder { responder in
        EntitlementChannel(
          responder: responder, keys: keys, desks: desks, failures: failedReads,
          metrics: requestMetrics, limits: limits, open: open)
      },
      configuration: ApplicationConfiguration(address: .hostname(host, port: port)),
      services: [EventWatching(watch: watch), reportDesk],
      onServerRunning: { channel in await onListening(channel.localAddress?.port ?? port) },
      logger: logger)
  }
}

/// Pages served next to the interface, by the same application.
package protocol Site: Sendable {
  /// Whether a path is one of the site's, whether or not there is a page.
  func serves(_ path: String) -> Bool
  /// Adds what handles every request inside the interface's own middleware.
  func addMiddleware(to router: Router<APIContext>)
  func addRoutes(to router: Router<APIContext>)
}

/// What travels with a request on its way through the routes.
package struct APIContext: RequestContext, Sendable {
  package var coreContext: CoreRequestContextStorage
  /// Who calls; nil without a key, or with one that nobody has.
  package var caller: APIKeys.Caller?
  /// The connection that the request came on.
  let channel: any Channel
  /// What the ``Site`` knows of the request.
  package var site: (any Sendable)?

  package init(source: ApplicationRequestContextSource) {
    coreContext = CoreRequestContextStorage(source: source)
    channel = source.channel
  }

  /// The other end's address, which may be a proxy's.
  var remoteAddress: String? { channel.remoteAddress?.ipAddress }

  /// What Hummingbird calls the route of a path that has none.
  private static let unknownRoute = "NotFound"

  /// The template of the route, which names nobody; `none` for a path that has none.
  var route: String {
    endpointPath.flatMap { $0 == Self.unknownRoute ? nil : $0 } ?? "none"
  }
}
