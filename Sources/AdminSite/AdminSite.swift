package import HTTPAPI
package import Hummingbird
import LedgerStorage
import Reports
import Subscriptions

/// The administrators' pages: their routes, and what they share with the API.
package struct AdminSite: Site {
  let ledger: Ledger
  let catalogue: CatalogueCache
  let entitlements: EntitlementReader
  let reports: ReportReader
  let reportCoordinator: ReportCoordinator
  let keys: APIKeys
  let brake: FailureBrake
  let templates = PageTemplates.builtIn
  let now: @Sendable () -> Timestamp

  /// Makes the pages for an API.
  package init(of api: API) {
    ledger = api.ledger
    catalogue = api.catalogue
    entitlements = api.entitlements
    reports = api.reports
    reportCoordinator = api.reportCoordinator
    keys = api.keys
    brake = api.brake
    now = api.now
  }

  package func serves(_ path: String) -> Bool { AdminURL.contains(path) }

  package func addMiddleware(to router: Router<APIContext>) {
    router.addMiddleware {
      AdminAnswers(keys: keys, ledger: ledger, templates: templates, now: now)
    }
  }

  package func addRoutes(to router: Router<APIContext>) {
    for file in [StaticFile.styleSheet, .script, .icon] {
      router.get(RouterPath(file.path), use: file.serve)
    }
    let login = LoginController(
      keys: keys, brake: brake, ledger: ledger, templates: templates, now: now)
    router
      .get("/admin/login", use: login.show)
      .post("/admin/login", use: login.logIn)

    let admin = router.group().add(middleware: SessionRequired())
    admin.post("/admin/logout", use: login.logOut)

    let pages = PageRenderer(templates: templates, ledger: ledger, now: now)
    addReportPages(to: admin, pages: pages)

    admin.get("/admin/search", use: SearchController(pages: pages, ledger: ledger).show)

    let accounts = AccountPageController(
      pages: pages, ledger: ledger, catalogue: catalogue, entitlements: entitlements)
    admin
      .get("/admin/accounts", use: accounts.show)
      .get("/admin/accounts/{account_id}", use: accounts.show)

    let lines = OriginalTransactionPageController(
      pages: pages, ledger: ledger, catalogue: catalogue)
    admin
      .get("/admin/original-transactions/{original_transaction_id}", use: lines.show)

    let transfers = TransferPageController(
      pages: pages,
      transactions: TransactionController(ledger: ledger, catalogue: catalogue, now: now),
      entitlements: entitlements)
    admin
      .get("/admin/transactions/{transaction_id}/transfer", use: transfers.ask)
      .post("/admin/transactions/{transaction_id}/transfer", use: transfers.transfer)

    let releases = ReleasePageController(
      pages: pages, transactions: transfers.transactions, entitlements: entitlements)
    admin
      .get("/admin/transactions/{transaction_id}/release", use: releases.ask)
      .post("/admin/transactions/{transaction_id}/release", use: releases.release)

    let grants = GrantPageController(pages: pages, ledger: ledger, entitlements: entitlements)
    admin
      .get("/admin/accounts/{account_id}/grant", use: grants.ask)
      .post("/admin/accounts/{account_id}/grant", use: grants.grant)
      .get("/admin/account-forms/grant", use: grants.ask)
      .post("/admin/account-forms/grant", use: grants.grant)
      .get("/admin/grants/{grant_id}/revoke", use: grants.askRevocation)
      .post("/admin/grants/{grant_id}/revoke", use: grants.revoke)

    let erasures = ErasurePageController(pages: pages, ledger: ledger)
    admin
      .get("/admin/accounts/{account_id}/erase", use: erasures.ask)
      .post("/admin/accounts/{account_id}/erase", use: erasures.erase)
      .get("/admin/account-forms/erase", use: erasures.ask)
      .post("/admin/account-forms/erase", use: erasures.erase)

    let merges = MergePageController(pages: pages, ledger: ledger, entitlements: entitlements)
    admin
      .get("/admin/accounts/{account_id}/merge", use: merges.ask)
      .post("/admin/accounts/{account_id}/merge", use: merges.merge)
      .get("/admin/account-forms/merge", use: merges.ask)
      .post("/admin/account-forms/merge", use: merges.merge)

    let exports = ExportPageController(
      pages: pages,
      exports: ExportController(ledger: ledger, entitlements: entitlements, now: now))
    admin
      .get("/admin/accounts/{account_id}/export", use: exports.ask)
      .post("/admin/accounts/{account_id}/export", use: exports.export)
      .get("/admin/account-forms/export", use: exports.ask)
      .post("/admin/account-forms/export", use: exports.export)

    admin.get("/admin/unclaimed", use: UnclaimedController(pages: pages, ledger: ledger).show)

    let parked = ParkedController(pages: pages, ledger: ledger)
    admin
      .get("/admin/parked", use: parked.show)
      .post("/admin/parked/jobs", use: parked.retryJobs)
      .post("/admin/parked/webhooks", use: parked.redeliver)

    let rejected = RejectedController(pages: pages, ledger: ledger)
    admin
      .get("/admin/rejected", use: rejected.show)
      .post("/admin/rejected", use: rejected.verify)
  }

  private func addReportPages(to routes: some RouterMethods<APIContext>, pages: PageRenderer) {
    let overview = OverviewPageController(pages: pages, desk: reportCoordinator)
    let reports = ReportPageController(pages: pages, desk: reportCoordinator, reports: reports)
    routes
      .get("/admin", use: overview.show)
      .get("/admin/reports", use: reports.list)
      .get("/admin/reports/{name}", use: reports.show)
      .get("/admin/reports/{name}/transactions", use: reports.items)
  }
}
