import HTTPTypes
import Hummingbird
import LedgerStorage
import NIOHTTP1
import Subscriptions

/// What holds for every answer under `/admin`, whatever becomes of the request: who is logged in,
/// the headers that keep the pages safe, and errors as pages.
struct AdminAnswers: RouterMiddleware {
  let keys: APIKeys
  let ledger: Ledger
  let templates: PageTemplates
  let now: @Sendable () -> Timestamp

  func handle(
    _ request: Request, context: APIContext,
    next: @concurrent (Request, APIContext) async throws -> Response
  ) async throws -> Response {
    guard PageAddress.contains(request.uri.path) else { return try await next(request, context) }
    var context = context
    let sealed = request.cookie(Cookie.flashName)

    var response: Response
    do {
      context.admin.session = try await session(of: request)
      context.admin.flash = sealed.flatMap { context.admin.session?.flash(sealed: $0) }
      response = try await next(request, context)
    } catch let error as HTTPParserError {
      throw error
    } catch {
      response = page(ProblemReporting.problem(error, context), context)
      if request.method == .head { response = response.createHeadResponse() }
    }
    if sealed != nil, response.headers[.contentType]?.hasPrefix("text/html") ?? false {
      response.setCookie(.flash(nil, on: request))
    }
    Self.protect(&response)
    return response
  }

  /// The session of a cookie that was signed here and not logged out.
  private func session(of request: Request) async throws -> AdminSession? {
    guard !StaticFile.paths.contains(ExactText(request.uri.path)),
      let cookie = request.cookie(Cookie.sessionName),
      let session = AdminSession(cookie: cookie, keys: keys, at: now()),
      try await ledger.isOpen(session: session.id)
    else { return nil }
    return session
  }

  /// What the pages load comes from here, and nothing of them runs or stands anywhere else.
  private static let policy =
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
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

  private func page(_ problem: Problem, _ context: APIContext) -> Response {
    let links =
      context.admin.session == nil
      ? [PageLink(label: "Log in", href: PageAddress.login)]
      : [PageLink(label: "Overview", href: PageAddress.overview)]
    var response = templates.response(
      ErrorPage(
        page: PageMaker.frame(Self.title(of: problem), context), status: problem.status.code,
        code: problem.code.rawValue, detail: Self.detail(of: problem), links: links),
      .error, status: problem.status)
    for field in problem.headers where field.name != .contentType {
      response.headers[field.name] = field.value
    }
    return response
  }

  private static func title(of problem: Problem) -> String {
    switch problem.code {
    case .notFound: "There is no such page"
    case .forbidden: "This was refused"
    default: problem.code.title
    }
  }

  private static func detail(of problem: Problem) -> String {
    problem.code == .notFound
      ? "The search finds accounts, transactions, orders and line items." : problem.detail
  }
}
