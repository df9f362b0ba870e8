import Hummingbird
import Reports
import Subscriptions

/// Today against the past weeks.
struct OverviewPageController: Sendable {
  let pages: PageMaker
  let desk: ReportDesk

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let answers = await OverviewAnswers.ask(desk)
    var frame = try await pages.frame("Overview", at: PageAddress.overview, context)
    if !answers.working.isEmpty { frame.refreshSeconds = ReportPageController.refreshSeconds }
    let charts = answers.tables[.active].map { ReportCharts(table: $0).pictures } ?? []
    let page = OverviewPage(
      page: frame, attention: answers.attention, groups: answers.groups,
      activeChart: charts.first ?? ChartPicture(linesOf: Self.nothing("Active at the end")),
      movementChart: charts.dropFirst().first
        ?? ChartPicture(linesOf: Self.nothing("Came and went")),
      acts: answers.acts, actsHref: PageAddress.report(Report.audit.rawValue))
    return pages.response(page, .overview)
  }

  /// A chart that is still being counted.
  private static func nothing(_ title: String) -> ChartData {
    ChartData(
      id: "chart-\(title.utf8.count)", title: title, buckets: [], series: [])
  }
}

extension OverviewAnswers {
  /// The latest acts of administrators.
  var acts: [ActRow] {
    guard let table = tables[.acts] else { return [] }
    return table.rows.indices.compactMap { index in
      guard case .time(let at)? = table.value("at", inRow: index),
        let administrator = table.value("administrator", inRow: index)?.text,
        let action = table.value("action", inRow: index)?.text,
        let subject = table.value("subject", inRow: index)?.text
      else { return nil }
      let reason = table.value("reason", inRow: index)?.text
      // The account that it was done to; of what concerns none there is no page.
      let account = table.value("account_id", inRow: index)?.text
      return ActRow(
        at: Moment(at), administrator: administrator,
        action: action.replacing("_", with: " "), subject: account ?? subject,
        href: account.map { PageAddress.account($0) },
        reason: reason.flatMap { $0.isEmpty ? nil : $0 })
    }
  }
}
