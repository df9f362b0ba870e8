import CoreMetrics
import HTTPTypes
package import Hummingbird
import HummingbirdCore
package import Intake
package import LedgerStorage
package import Logging
import NIOCore
package import Observability
package import Reports
package import Subscriptions

/// The HTTP API; ``API/routes()`` lists its routes.
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

  /// Without `metrics`, `/metrics` shows the registry of `MetricsSystem`, or else a new one.
  package init(
    ledger: Ledger, intake: SubmissionIntake, notifications: NotificationIntake,
    catalogue: CatalogueCache, entitlements: EntitlementReader, reports: ReportReader,
    schema: SchemaMigrator, keys: APIKeys, metrics: PrometheusRegistry? = nil, logger: Logger,
    now: @escaping @Sendable () -> Timestamp
  ) {
    let metrics = metrics ?? MetricsSystem.factory as? PrometheusRegistry ?? PrometheusRegistry()
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
    (self.keys, self.logger, self.now) = (keys, logger, now)
  }

  /// Nil without a key for the App Store Server API.
  package func transactions(ofAppleOrder id: String) async throws -> [TransactionKey]? {
    try await intake.transactions(ofAppleOrder: id)
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
    let server = EntitlementHandler.Server(
      keys: keys, batchers: isWatched ? nil : EntitlementBatchers(reader: entitlements, now: now),
      failures: failedReads, metrics: requestMetrics, limits: limits,
      open: OpenConnections(limit: limits.connections, metrics: requestMetrics))
    return Application(
      router: router(),
      server: HTTPServerBuilder { EntitlementChannel(responder: $0, server: server) },
      configuration: ApplicationConfiguration(address: .hostname(host, port: port)),
      services: [UntilShutdown("EventWatch") { [watch] in await watch.run() }, reportCoordinator],
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

package protocol Controller: Sendable {
  var api: API { get }
}

extension Controller {
  package var ledger: Ledger { api.ledger }
  package var entitlements: EntitlementReader { api.entitlements }
  /// The current catalogue and sandbox access.
  package var terms: AccessTerms { api.entitlements.terms }
  package var catalogue: Catalogue { api.catalogue.catalogue }

  package func now() -> Timestamp { api.now() }
}

extension Ledger {
  func account(_ id: String) async throws -> Account {
    guard let account = try await accounts.account(id) else {
      throw Problem(.unknownAccount, "No account has this ID.")
    }
    return account
  }
}

typealias Next = @concurrent (Request, APIContext) async throws -> Response

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
  package var remoteAddress: String { channel.remoteAddress?.ipAddress ?? "unknown" }

  /// The route's template, which has no account ID in it; `none` for a path without a route.
  var route: String {
    // Hummingbird calls it `NotFound`.
    endpointPath.flatMap { $0 == "NotFound" ? nil : $0 } ?? "none"
  }
}

extension API {
  func routes() -> Router<APIContext> {
    let router = Router(context: APIContext.self, options: .autoGenerateHeadEndpoints)
    router.addMiddleware {
      RequestCounting(metrics: requestMetrics)
      RequestTracing()
      CallerIdentification(keys: keys)
      BodyAdmission(budgets: bodyBudgets, site: site)
      RequestLog()
      ProblemReporting()
    }
    site?.addMiddleware(to: router)

    // No key needed.
    let health = HealthController(api: self)
    router
      .get("/healthz", use: health.healthz)
      .get("/readyz", use: health.readyz)
      .get("/openapi.yaml") { _, _ in OpenAPIDocument.response }

    let notifications = NotificationController(api: self)
    router.post("/v1/appstore/notifications", use: notifications.receive)

    // Role app.
    let app = router.group().add(middleware: permission(.app))

    let entitlements = EntitlementController(api: self)
    app
      .get("/v1/accounts/{account_id}/entitlements", use: entitlements.show)
      .post("/v1/entitlements/query", use: entitlements.query)

    let products = ProductController(api: self)
    app.get("/v1/products", use: products.list)

    let orders = OrderController(api: self)
    app
      .post("/v1/orders", use: orders.open)
      .get("/v1/orders/{order_id}", use: orders.show)

    let receipts = ReceiptController(api: self)
    app
      .post("/v1/receipts", use: receipts.submit)
      .get("/v1/receipts/{submission_id}", use: receipts.show)

    let accounts = AccountController(api: self)
    app
      .put("/v1/accounts/{account_id}", use: accounts.put)
      .get("/v1/accounts/{account_id}", use: accounts.show)
      .get("/v1/accounts/{account_id}/transactions", use: accounts.transactions)
      .put("/v1/accounts/{account_id}/consumption-consent", use: accounts.putConsent)
      .get("/v1/accounts/{account_id}/consumption-consent", use: accounts.showConsent)
      .delete("/v1/accounts/{account_id}/consumption-consent", use: accounts.deleteConsent)

    let transactions = TransactionController(api: self)
    app
      .get("/v1/transactions/{transaction_id}", use: transactions.show)
      .post("/v1/transactions/{transaction_id}/delivery", use: transactions.acknowledgeDelivery)

    let lines = OriginalTransactionController(api: self)
    app
      .get("/v1/original-transactions/{original_transaction_id}", use: lines.show)
      .get("/v1/ownership-preview", use: lines.preview)

    let events = EventController(api: self)
    app.get("/v1/events", use: events.list)

    // Role support.
    let administration = AdministrationController(api: self)
    router.group().add(middleware: permission(.support))
      .post("/v1/transactions/{transaction_id}/owner", use: administration.transfer)
      .delete("/v1/transactions/{transaction_id}/owner", use: administration.release)
      .post("/v1/grants", use: administration.grant)
      .delete("/v1/grants/{grant_id}", use: administration.revoke)

    // Role admin.
    let admin = router.group().add(middleware: permission(.admin))
    admin.put("/v1/products/{product_id}", use: products.put)
    admin
      .post("/v1/accounts/{account_id}/merge", use: administration.merge)
      .delete("/v1/accounts/{account_id}", use: administration.erase)
      .get("/v1/accounts/{account_id}/export", use: administration.export)
      .get("/v1/administrator-actions", use: administration.actions)
      .get("/v1/checkpoints", use: administration.checkpoints)
      .get("/v1/transactions/{transaction_id}/evidence", use: administration.evidence)
      .post("/v1/events/{event_id}/redelivery", use: events.redeliver)
      .get("/metrics") { _, _ in await metricsPage.response() }

    let reports = ReportController(api: self)
    admin
      .get("/v1/reports", use: reports.list)
      .get("/v1/reports/{name}", use: reports.show)
      .post("/v1/what-if", use: WhatIfController(api: self).compare)

    return router
  }

  private func permission(_ role: APIKeys.Role) -> Permission {
    Permission(role: role, brake: brake, now: now)
  }

  /// The routes and the admin pages, with 405 and the allowed methods for any other method.
  func router() -> Router<APIContext> {
    let router = routes()
    site?.addRoutes(to: router)
    for (path, routes) in Dictionary(grouping: router.routes, by: \.path.description) {
      var allowed = Set(routes.map(\.method))
      if allowed.contains(.get) { allowed.insert(.head) }
      let refusal = Problem.methodNotAllowed(allowed)
      for method in Self.methods where !allowed.contains(method) {
        router.on(RouterPath(path), method: method) { _, _ -> Response in throw refusal }
      }
    }
    return router
  }

  private static let methods = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY",
  ].compactMap { HTTPRequest.Method($0) }
}
