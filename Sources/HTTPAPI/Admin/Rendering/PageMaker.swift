import HTTPTypes
import Hummingbird
import LedgerStorage
import Subscriptions

/// Makes the administrator's pages: what stands around each, and its HTML.
struct PageMaker: Sendable {
  let templates: PageTemplates
  let ledger: Ledger
  let now: @Sendable () -> Timestamp

  /// What stands around a page.
  ///
  /// - Parameters:
  ///   - title: In the title bar and as the heading.
  ///   - current: The address in the navigation that the page belongs to; nil: none.
  ///   - context: Of the request.
  /// - Returns: The frame, with the present as the moment that the page is about.
  /// - Throws: What the database says.
  func frame(_ title: String, at current: String? = nil, _ context: APIContext) async throws
    -> PageFrame
  {
    var frame = Self.frame(
      title, at: current, context, parked: try await ledger.parkedCount(upTo: Self.mostCounted))
    frame.asOf = Moment(now())
    return frame
  }

  /// What stands around a page that must not ask the database for anything.
  static func frame(
    _ title: String, at current: String? = nil, _ context: APIContext, parked: Int = 0
  ) -> PageFrame {
    guard let session = context.admin.session else {
      return PageFrame(title: title, administrator: nil, csrfToken: "")
    }
    return PageFrame(
      title: title, administrator: session.administrator, csrfToken: session.formToken,
      navigation: navigation(at: current, parked: parked), flash: context.admin.flash)
  }

  /// Counting on would take as long as there are more.
  private static let mostCounted = 1000

  private static func navigation(at current: String?, parked: Int) -> [NavigationGroup] {
    func item(_ label: String, _ href: String, badge: String? = nil) -> NavigationItem {
      NavigationItem(label: label, href: href, isCurrent: href == current, badge: badge)
    }
    let count = parked >= mostCounted ? "\(mostCounted)+" : "\(parked)"
    return [
      NavigationGroup(
        heading: nil, isAlwaysShown: true, items: [item("Overview", PageAddress.overview)]),
      NavigationGroup(
        heading: "To do", isAlwaysShown: true,
        items: [
          item("Unclaimed charges", PageAddress.unclaimed),
          item("Parked", PageAddress.parked, badge: parked > 0 ? count : nil),
          item("Rejected receipts", PageAddress.rejected),
        ]),
      NavigationGroup(
        heading: "Numbers", isAlwaysShown: true, items: [item("Reports", PageAddress.reports)]),
    ]
  }

  /// Answers with a page.
  func response(
    _ page: some Sendable, _ template: PageTemplate, status: HTTPResponse.Status = .ok
  ) -> Response {
    templates.response(page, template, status: status)
  }

  /// Answers that something was done, which the page that follows tells once.
  static func done(_ flash: Flash, then path: String, _ request: Request, _ context: APIContext)
    -> Response
  {
    var response = Response.redirect(to: path, type: .normal)
    if let session = context.admin.session {
      response.setCookie(.flash(session.seal(flash), on: request))
    }
    return response
  }
}
