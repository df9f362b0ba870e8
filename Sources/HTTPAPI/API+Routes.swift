import HTTPTypes
import Hummingbird

/// The routes, and the role that each needs.
extension API {
  /// The routes of the OpenAPI document.
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
    let health = HealthController(schema: schema)
    router
      .get("/healthz", use: health.healthz)
      .get("/readyz", use: health.readyz)
      .get("/openapi.yaml", use: OpenAPIDocument.serve)

    let notifications = NotificationController(intake: notifications, brake: brake, now: now)
    router
      .post("/v1/appstore/notifications", use: notifications.receive)

    // Role app.
    let app = router.group().add(middleware: permission(.app))

    let entitlements = EntitlementController(
      entitlements: entitlements, failures: failedReads, now: now)
    app
      .get("/v1/accounts/{account_id}/entitlements", use: entitlements.show)
      .post("/v1/entitlements/query", use: entitlements.query)

    let products = ProductController(catalogue: catalogue, now: now)
    app
      .get("/v1/products", use: products.list)

    let orders = OrderController(ledger: ledger, now: now)
    app
      .post("/v1/orders", use: orders.open)
      .get("/v1/orders/{order_id}", use: orders.show)

    let receipts = ReceiptController(intake: intake, ledger: ledger, catalogue: catalogue)
    app
      .post("/v1/receipts", use: receipts.submit)
      .get("/v1/receipts/{submission_id}", use: receipts.show)

    let accounts = AccountController(ledger: ledger, catalogue: catalogue, now: now)
    app
      .put("/v1/accounts/{account_id}", use: accounts.put)
      .get("/v1/accounts/{account_id}", use: accounts.show)
      .get("/v1/accounts/{account_id}/transactions", use: accounts.transactions)

    let consents = ConsumptionConsentController(ledger: ledger, now: now)
    app
      .put("/v1/accounts/{account_id}/consumption-consent", use: consents.put)
      .get("/v1/accounts/{account_id}/consumption-consent", use: consents.show)
      .delete("/v1/accounts/{account_id}/consumption-consent", use: consents.delete)

    let transactions = TransactionController(ledger: ledger, catalogue: catalogue, now: now)
    app
      .get("/v1/transactions/{transaction_id}", use: transactions.show)
      .post("/v1/transactions/{transaction_id}/delivery", use: transactions.acknowledgeDelivery)

    let lines = OriginalTransactionController(ledger: ledger, catalogue: catalogue, now: now)
    app
      .get("/v1/original-transactions/{original_transaction_id}", use: lines.show)
      .get("/v1/ownership-preview", use: lines.preview)

    let events = EventController(ledger: ledger, watch: watch)
    app
      .get("/v1/events", use: events.list)

    // Role admin.
    let admin = router.group().add(middleware: permission(.admin))
    admin
      .put("/v1/products/{product_id}", use: products.put)

    let transfers = TransferController(transactions: transactions, entitlements: self.entitlements)
    let merges = MergeController(ledger: ledger, entitlements: self.entitlements, now: now)
    let grants = GrantController(ledger: ledger, entitlements: self.entitlements, now: now)
    let erasures = ErasureController(ledger: ledger, now: now)
    let exports = ExportController(
      ledger: ledger, entitlements: self.entitlements, now: now)
    let acts = AdministratorActionController(ledger: ledger)
    admin
      .post("/v1/transactions/{transaction_id}/owner", use: transfers.transfer)
      .delete("/v1/transactions/{transaction_id}/owner", use: transfers.release)
      .post("/v1/accounts/{account_id}/merge", use: merges.merge)
      .post("/v1/grants", use: grants.grant)
      .delete("/v1/grants/{grant_id}", use: grants.revoke)
      .delete("/v1/accounts/{account_id}", use: erasures.erase)
      .get("/v1/accounts/{account_id}/export", use: exports.export)
      .get("/v1/administrator-acts", use: acts.list)

    let redelivery = RedeliveryController(ledger: ledger, now: now)
    admin
      .post("/v1/events/{event_id}/redelivery", use: redelivery.redeliver)
    admin
      .get("/metrics", use: MetricsController(page: metricsPage).show)
    let reports = ReportController(reports: reports, desk: reportCoordinator, now: now)
    admin
      .get("/v1/reports", use: reports.list)
      .get("/v1/reports/{name}", use: reports.show)

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

  /// The methods of RFC 9110 and RFC 5789 that apply to resources.
  private static let methods: [HTTPRequest.Method] = [
    .get, .head, .post, .put, .patch, .delete, .options,
  ]
}
