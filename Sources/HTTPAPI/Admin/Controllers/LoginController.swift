import HTTPTypes
import Hummingbird
import LedgerStorage
import Logging
import Subscriptions

/// Logging in with an administrator's key, and out.
struct LoginController: Sendable {
  let keys: APIKeys
  let brake: FailureBrake
  let ledger: Ledger
  let templates: PageTemplates
  let now: @Sendable () -> Timestamp

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let query = FormFields(query: request.uri)
    return page(
      returnTo: query["return_to"]?.rawValue,
      fault: query["ended"].map { _ in
        "The session is over, and nothing was done: log in, and send the form once more."
      })
  }

  @Sendable
  func logIn(_ request: Request, context: APIContext) async throws -> Response {
    guard request.isFromOurPages else { throw Problem.foreignForm }
    let form = try await request.form(upTo: BodyLimit.login)
    let now = now()
    let caller = keys.caller(secret: Array((form["key"]?.rawValue ?? "").utf8))
    guard let caller, caller.role == .admin,
      let key = keys.sessionKey(ofAdministrator: caller.name)
    else {
      context.logger.notice("A login failed")
      BodyShare.current?.giveBack()
      await brake.delay(.login(request, context, key: caller), at: now)
      return page(
        returnTo: form["return_to"]?.rawValue, fault: "This is no administrator's key.",
        status: .forbidden)
    }
    let session = AdminSession(of: caller.name, key: key, at: now)
    try await ledger.openSession(
      session.id, of: session.administrator, until: session.end, at: now)
    context.logger.info(
      "An administrator logged in", metadata: ["caller": "\(session.administrator)"])
    var response = Response.redirect(
      to: Self.destination(form["return_to"]?.rawValue), type: .normal)
    response.setCookie(.session(session, on: request))
    return response
  }

  @Sendable
  func logOut(_ request: Request, context: APIContext) async throws -> Response {
    if let session = context.admin.session { try await ledger.closeSession(session.id) }
    var response = Response.redirect(to: PageAddress.login, type: .normal)
    response.setCookie(.session(nil, on: request))
    return response
  }

  private func page(returnTo path: String?, fault: String? = nil, status: HTTPResponse.Status = .ok)
    -> Response
  {
    templates.response(
      LoginPage(
        page: PageFrame(title: "Log in", administrator: nil, csrfToken: ""),
        returnTo: Self.destination(path), fault: fault),
      .login, status: status)
  }

  private static func destination(_ path: String?) -> String {
    path.flatMap { PageAddress.isOurs($0) ? $0 : nil } ?? PageAddress.overview
  }
}
