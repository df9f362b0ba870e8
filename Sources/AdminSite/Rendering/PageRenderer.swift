import HTTPAPI
import HTTPTypes
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Mustache
import NIOCore
import NIOHTTP1
import Subscriptions

/// Renders the administrator's pages and their frames.
struct PageRenderer: Sendable {
  let ledger: Ledger
  let now: @Sendable () -> Timestamp

  /// The frame of a page as of now; `current` is the page's link in the navigation.
  func frame(_ title: String, at current: String? = nil, _ context: APIContext) async throws
    -> PageFrame
  {
    let now = now()
    var frame = Self.frame(
      title, at: current, context,
      waiting: try await ledger.accounts.waitingCounts(upTo: Self.mostCounted, at: now))
    frame.asOf = Moment(now)
    return frame
  }

  /// The frame of a page that must not query the database.
  static func frame(
    _ title: String, at current: String? = nil, _ context: APIContext,
    waiting: AccountStore.WaitingCounts? = nil
  ) -> PageFrame {
    guard let session = context.admin.session else { return PageFrame(title: title) }
    return PageFrame(
      title: title, administrator: session.caller.name, csrfToken: session.formToken,
      navigation: navigation(
        of: session.caller.role, at: current, waiting, faults: context.admin.faults),
      flash: context.admin.flash, waiting: waiting)
  }

  /// Bounds the time that counting takes.
  private static let mostCounted: Int64 = 1000

  /// A number of ``PageFrame/waiting``; nil for 0.
  static func bounded(_ count: Int) -> String? {
    count == 0 ? nil : count < mostCounted ? "\(count)" : "\(mostCounted)+"
  }

  private static func navigation(
    of role: APIKeys.Role, at current: String?,
    _ waiting: AccountStore.WaitingCounts?, faults: Int?
  ) -> [(heading: String?, items: [PageFrame.NavigationItem])] {
    func item(_ label: String, _ href: String, _ count: Int? = nil) -> PageFrame.NavigationItem {
      (label, href, href == current, count.flatMap(bounded))
    }
    let products = item("Products", AdminURL.products)
    let customers = item("Customers", AdminURL.customers)
    let unclaimed = item("Unclaimed charges", AdminURL.unclaimed, waiting?.unclaimed.count)
    guard role == .admin else {
      return [(nil, [customers, unclaimed, products])]
    }
    return [
      (nil, [item("Overview", AdminURL.overview), customers]),
      (
        "Queue",
        [
          unclaimed,
          item("Failed jobs", AdminURL.parked, waiting?.jobs),
          item("Rejected receipts", AdminURL.rejected, waiting?.rejected),
        ]
      ),
      (
        "Analytics",
        [
          item("Reports", AdminURL.reports), item("What if", AdminURL.whatIf),
          item("Rates", AdminURL.rates),
        ]
      ),
      (
        "Setup",
        [
          products, item("Webhooks", AdminURL.webhooks, waiting?.deliveries),
          item("Health", AdminURL.health, faults),
        ]
      ),
    ]
  }

  /// Redirects to a page that shows the result of an action once.
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

extension PageRenderer {
  /// Renders a page: a labelled tuple with a ``PageFrame`` as `page`, and the template's values.
  static func response(
    _ page: some Sendable, _ template: String, status: HTTPResponse.Status = .ok
  ) -> Response {
    guard let text = library.render(page, withTemplate: template) else {
      return Response(Problem(.internalError, "There is no template \(template)."))
    }
    return Response(
      status: status, headers: [.contentType: "text/html; charset=utf-8"],
      body: ResponseBody(byteBuffer: ByteBuffer(string: text)))
  }

  static let library: MustacheLibrary = {
    MustacheContentTypes.register(PageContentType(), named: "PAGE")
    var library = MustacheLibrary()
    for (name, bytes) in files {
      do {
        try library.register(String(decoding: bytes, as: UTF8.self), named: name)
      } catch {
        preconditionFailure("The template \(name) can't be read: \(error)")
      }
    }
    return library
  }()

  /// All templates, including partials.
  private static let files: [(name: String, bytes: [UInt8])] = [
    ("account", PackageResources.account_mustache),
    ("account-charge", PackageResources.account_charge_mustache),
    ("account-submission", PackageResources.account_submission_mustache),
    ("account-subscription", PackageResources.account_subscription_mustache),
    ("action-note", PackageResources.action_note_mustache),
    ("action", PackageResources.action_mustache),
    ("action-list", PackageResources.action_list_mustache),
    ("badge", PackageResources.badge_mustache),
    ("cell", PackageResources.cell_mustache),
    ("chart", PackageResources.chart_mustache),
    ("customers", PackageResources.customers_mustache),
    ("csrf", PackageResources.csrf_mustache),
    ("done", PackageResources.done_mustache),
    ("drill-down", PackageResources.drill_down_mustache),
    ("error", PackageResources.error_mustache),
    ("facts", PackageResources.facts_mustache),
    ("field", PackageResources.field_mustache),
    ("health", PackageResources.health_mustache),
    ("layout", PackageResources.layout_mustache),
    ("login", PackageResources.login_mustache),
    ("moment", PackageResources.moment_mustache),
    ("navigation", PackageResources.navigation_mustache),
    ("original-transaction", PackageResources.original_transaction_mustache),
    ("original-transaction-charge", PackageResources.original_transaction_charge_mustache),
    ("overview", PackageResources.overview_mustache),
    ("paging", PackageResources.paging_mustache),
    ("piece", PackageResources.piece_mustache),
    ("parked", PackageResources.parked_mustache),
    ("properties", PackageResources.properties_mustache),
    ("rates", PackageResources.rates_mustache),
    ("rejected", PackageResources.rejected_mustache),
    ("report", PackageResources.report_mustache),
    ("reports", PackageResources.reports_mustache),
    ("search", PackageResources.search_mustache),
    ("table", PackageResources.table_mustache),
    ("tables", PackageResources.tables_mustache),
    ("timeline", PackageResources.timeline_mustache),
    ("unclaimed", PackageResources.unclaimed_mustache),
    ("unclaimed-row", PackageResources.unclaimed_row_mustache),
    ("webhooks", PackageResources.webhooks_mustache),
    ("what-if", PackageResources.what_if_mustache),
  ]
}

private struct PageContentType: MustacheContentType {
  func escapeText(_ text: String) -> String { PageText.escaped(text) }
}

/// Reads the session, adds security headers and shows errors as pages, for paths under `/admin`.
struct AdminAnswers: RouterMiddleware, Controller {
  let api: API
  let proxy: TrustedProxy?
  let checkup: Checkup

  func handle(
    _ request: Request, context: APIContext,
    next: @concurrent (Request, APIContext) async throws -> Response
  ) async throws -> Response {
    guard AdminURL.contains(request.uri.path) else { return try await next(request, context) }
    var context = context
    let sealed = request.cookie(.flash)

    var response: Response
    do {
      if let session = proxy?.session(of: request, from: context.remoteAddress) {
        context.admin.session = session
      } else {
        context.admin.session = try await session(of: request)
      }
      context.admin.faults = await checkup.faults
      context.admin.flash = sealed.flatMap { context.admin.session?.flash(sealed: $0) }
      response = try await next(request, context)
    } catch let error as HTTPParserError {
      throw error
    } catch {
      let isForeign = error is ForeignForm
      response = await page(
        isForeign ? ForeignForm.problem : ProblemReporting.problem(error, context),
        isForeignForm: isForeign, of: request, context)
      if request.method == .head { response = response.createHeadResponse() }
    }
    if sealed != nil, response.headers[.contentType]?.hasPrefix("text/html") ?? false {
      response.setCookie(.flash(nil, on: request))
    }
    Self.protect(&response)
    return response
  }

  /// The session of a valid cookie that was not logged out.
  private func session(of request: Request) async throws -> AdminSession? {
    guard !StaticFile.paths.contains(ExactText(request.uri.path)),
      let cookie = request.cookie(.session),
      let session = AdminSession(cookie: cookie, keys: api.keys, at: now()),
      try await ledger.administration.isOpen(session: session.id)
    else { return nil }
    return session
  }

  private static let policy =
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    + "connect-src 'self'; "
    + "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

  private static func protect(_ response: inout Response) {
    response.headers[.contentSecurityPolicy] = policy
    if response.headers[.cacheControl] == nil { response.headers[.cacheControl] = "no-store" }
    response.headers[.referrerPolicy] = "same-origin"
    response.headers[.xContentTypeOptions] = "nosniff"
    response.headers[.frameOptions] = "DENY"
    response.headers[.openerPolicy] = "same-origin"
    response.headers[.resourcePolicy] = "same-origin"
  }

  private func page(
    _ problem: Problem, isForeignForm: Bool, of request: Request, _ context: APIContext
  ) async -> Response {
    let detail =
      problem.code == .notFound
      ? "There is no such page."
      : problem.detail(
        naming: [problem.field].compactMap(\.self).map {
          FormField(
            id: "", name: $0, label: EnumText.sentence($0).replacing(/\sid$/, with: " ID"))
        })
    let title = isForeignForm ? "The form is out of date" : Self.title(of: problem)
    // A fault of the server may be the database's.
    let frame =
      context.admin.session != nil && problem.status.kind == .clientError
      ? try? await pages.frame(title, context) : nil
    var next = Self.next(after: problem, of: request, context)
    if isForeignForm { next.text = nil }
    var response = PageRenderer.response(
      (
        page: frame ?? PageRenderer.frame(title, context), detail: detail,
        next: next.text, links: next.links
      ), "error", status: problem.status)
    for field in problem.headers where field.name != .contentType {
      response.headers[field.name] = field.value
    }
    return response
  }

  /// What the administrator can do about a problem.
  private static func next(after problem: Problem, of request: Request, _ context: APIContext)
    -> (text: String?, links: [PageLink])
  {
    guard let role = context.admin.session?.caller.role else {
      return (nil, [PageLink(label: "Log in", href: AdminURL.login)])
    }
    let customers = PageLink(label: "Customers", href: AdminURL.customers)
    let overview =
      role == .admin ? PageLink(label: "Overview", href: AdminURL.overview) : customers
    let start = role == .admin ? [customers, overview] : [customers]
    let path = request.uri.path
    switch problem.status.code {
    case 400 where request.method == .get && request.uri.query != nil && AdminURL.isOurs(path):
      return (
        "The address has a value that this page does not accept.",
        [PageLink(label: "Open the page without it", href: path), overview]
      )
    case 400 where request.method == .get: return (nil, start)
    case 400, 413, 422:
      return ("Nothing was changed. Go back in your browser, and correct the entry.", [overview])
    case 403: return ("Ask an administrator, or log in with another key.", [overview])
    case 404, 410:
      return (
        "Search above by a part of an account's ID, label or email, or by a complete "
          + "transaction or order ID.", start
      )
    case 405: return ("This address can't be opened like a page.", start)
    case 409:
      return ("Nothing was changed. The state may be another one by now: look at it first.", start)
    case 503: return ("Reload the page in a few seconds.", [overview])
    default:
      return (
        role == .admin ? "Try again; if it happens again, see the log and the page Health." : nil,
        (role == .admin ? [PageLink(label: "Health", href: AdminURL.health)] : []) + [overview]
      )
    }
  }

  private static func title(of problem: Problem) -> String {
    switch problem.code {
    case .notFound: "Page not found"
    case .forbidden: "Access denied"
    case .unknownAccount: "Account not found"
    default: problem.code.title
    }
  }
}
