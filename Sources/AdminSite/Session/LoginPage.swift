import HTTPAPI
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
      returnTo: Self.destination(query),
      fault: query["ended"].map { _ in
        "The session is over, and nothing was done: log in, and send the form once more."
      })
  }

  @Sendable
  func logIn(_ request: Request, context: APIContext) async throws -> Response {
    guard request.isFromOurPages else { throw Problem.foreignForm }
    let (caller, destination) = try await login(in: request)
    let now = now()
    guard let caller, caller.role == .admin,
      let key = keys.sessionKey(ofAdministrator: caller.name)
    else {
      context.logger.notice("A login failed")
      BodyShare.current?.giveBack()
      await brake.delay(.login(request, context, key: caller), at: now)
      return page(
        returnTo: destination, fault: "This is no administrator's key.",
        status: .forbidden)
    }
    let session = AdminSession(of: caller.name, key: key, at: now)
    try await ledger.openSession(
      session.id, of: session.administrator, until: session.end, at: now)
    context.logger.info(
      "An administrator logged in", metadata: ["caller": "\(session.administrator)"])
    var response = Response.redirect(to: destination, type: .normal)
    response.setCookie(.session(session, on: request))
    return response
  }

  /// Whose key a form has, and where the login leads.
  ///
  /// Nothing else of the form is kept in memory while the answer to a wrong key is delayed.
  private func login(in request: Request) async throws -> (APIKeys.Caller?, destination: String) {
    let form = try await request.form(upTo: BodyLimit.login)
    return (
      keys.caller(secret: Array((form["key"]?.rawValue ?? "").utf8)), Self.destination(form)
    )
  }

  @Sendable
  func logOut(_ request: Request, context: APIContext) async throws -> Response {
    if let session = context.admin.session { try await ledger.closeSession(session.id) }
    var response = Response.redirect(to: PageAddress.login, type: .normal)
    response.setCookie(.session(nil, on: request))
    return response
  }

  private func page(
    returnTo destination: String, fault: String?, status: HTTPResponse.Status = .ok
  ) -> Response {
    templates.response(
      LoginPage(
        page: PageFrame(title: "Log in", administrator: nil, csrfToken: ""),
        returnTo: destination, fault: fault),
      .login, status: status)
  }

  private static func destination(_ fields: FormFields) -> String {
    fields["return_to"].flatMap { PageAddress.isOurs($0.rawValue) ? $0.rawValue : nil }
      ?? PageAddress.overview
  }
}

/// The template `login`: asks for an administrator's key.
struct LoginPage: Sendable {
  var page: PageFrame
  /// The path that was asked for before, to go on to.
  var returnTo: String
  /// Why the last try failed; the same words whatever was wrong.
  var fault: String?
}
