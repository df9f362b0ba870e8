import Hummingbird

extension API {
  /// Adds the overview and the reports to the administrator's pages.
  ///
  /// - Parameters:
  ///   - routes: Those that only administrators reach who are logged in.
  ///   - pages: What makes pages.
  func addReportPages(to routes: some RouterMethods<APIContext>, pages: PageMaker) {
    let overview = OverviewPageController(pages: pages, desk: reportDesk)
    let reports = ReportPageController(pages: pages, desk: reportDesk, reports: reports)
    routes
      .get("/admin", use: overview.show)
      .get("/admin/reports", use: reports.list)
      .get("/admin/reports/{name}", use: reports.show)
      .get("/admin/reports/{name}/transactions", use: reports.items)
  }
}
