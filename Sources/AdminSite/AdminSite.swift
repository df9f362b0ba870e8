package import HTTPAPI
package import Hummingbird
import LedgerStorage
import Reports
import Subscriptions

/// The administrators' pages: their routes, and the services they share with the API.
package struct AdminSite: Site {
  private let api: API
  private let proxy: TrustedProxy?
  private let installation: Installation

  /// - Parameter proxy: Signs people in, besides keys; nil: none.
  package init(
    of api: API, proxy: TrustedProxy? = nil, installation: Installation = Installation()
  ) {
    self.api = api
    self.proxy = proxy
    self.installation = installation
    // An unreadable template fails now, not at the first request.
    _ = PageRenderer.library
  }

  package func serves(_ path: String) -> Bool { AdminURL.contains(path) }

  package func addMiddleware(to router: Router<APIContext>) {
    router.addMiddleware {
      AdminAnswers(api: api, proxy: proxy, checkup: installation.checkup)
    }
  }

  package func addRoutes(to router: Router<APIContext>) {
    for file in StaticFile.all {
      router.get(RouterPath(file.path), use: file.serve)
    }
    let login = LoginController(api: api)
    router
      .get("/admin/login", use: login.show)
      .post("/admin/login", use: login.logIn)

    let reports = ReportPageController(api: api)
    let accounts = AccountPageController(api: api)
    let lines = OriginalTransactionPageController(api: api)
    let products = ProductPageController(api: api)
    let queues = QueueController(api: api, webhook: installation.webhook)
    let health = HealthPageController(api: api, installation: installation)
    let support = router.group().add(middleware: SessionRequired(role: .support))
    support
      .post("/admin/logout", use: login.logOut)
      .get(
        "/admin", use: OverviewPageController(api: api, checkup: installation.checkup).show
      )
      .get("/admin/search", use: SearchController(api: api).show)
      .get("/admin/account-suggestions", use: SearchController(api: api).suggest)
      .get("/admin/accounts", use: CustomerListController(api: api).show)
      .get("/admin/accounts/{account_id}", use: accounts.show)
      .get("/admin/original-transactions/{original_transaction_id}", use: lines.show)
      .get("/admin/products", use: products.list)
      .get("/admin/product", use: products.show)
      .get("/admin/unclaimed", use: queues.unclaimed)

    let admin = router.group().add(middleware: SessionRequired(role: .admin))
    admin
      .get("/admin/reports", use: reports.list)
      .get("/admin/reports/{name}", use: reports.show)
      .get("/admin/reports/{name}/transactions", use: reports.items)
      .get("/admin/what-if", use: WhatIfPageController(api: api).show)
      .get("/admin/rates", use: RatesPageController(api: api).show)
      .get("/admin/parked", use: queues.parked)
      .post("/admin/parked/jobs", use: queues.retryJobs)
      .post("/admin/parked/webhooks", use: queues.redeliver)
      .get("/admin/rejected", use: queues.rejected)
      .post("/admin/rejected", use: queues.verify)
      .get("/admin/webhooks", use: queues.webhooks)
      .post("/admin/webhooks", use: queues.redeliverAttempted)
      .post("/admin/webhooks/test", use: queues.sendTestEvent)
      .get("/admin/health", use: health.show)

    ProductFormController(api: api).addRoutes(to: admin, at: "/admin/product-form")
    for kind in RateKind.allCases {
      RateFormController(api: api, kind: kind)
        .addRoutes(to: admin, at: AdminURL.rate(kind.rawValue))
    }
    RateRemovalController(api: api).addRoutes(to: admin, at: "/admin/rates/removal")
    OwnershipController(api: api, isRelease: false).addRoutes(
      to: support, at: "/admin/transactions/{transaction_id}/transfer")
    OwnershipController(api: api, isRelease: true).addRoutes(
      to: support, at: "/admin/transactions/{transaction_id}/release")
    RevocationController(api: api).addRoutes(to: support, at: "/admin/grants/{grant_id}/revoke")
    let accountForms: [(String, any ActionController, RouterGroup<APIContext>)] = [
      ("grant", GrantController(api: api), support), ("erase", ErasureController(api: api), admin),
      ("merge", MergeController(api: api), admin),
      ("export", ExportPageController(api: api), admin),
    ]
    for (form, controller, group) in accountForms {
      controller.addRoutes(
        to: group, at: "/admin/accounts/{account_id}/\(form)", "/admin/account-forms/\(form)")
    }
  }
}
