import HTTPAPI
import HTTPTypes
import Hummingbird
import LedgerStorage
import Logging
import Subscriptions

/// Login with an admin API key, and logout.
struct LoginController: Controller {
  let api: API

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let query = EncodedFields(query: request.uri)
    return page(
      returnTo: Self.destination(query),
      fault: query["ended"].map { _ in
        "Your session has ended and nothing was changed. Log in and submit the form again."
      })
  }

  @Sendable
  func logIn(_ request: Request, context: APIContext) async throws -> Response {
    guard request.isFromOurPages else { throw ForeignForm() }
    let (caller, destination) = try await login(in: request)
    let now = now()
    guard let caller, let (_, key) = api.keys.session(of: caller.name) else {
      let fault =
        caller == nil
        ? "Invalid key." : "This key is for the app server. Enter a support or admin key."
      context.logger.notice("A login failed")
      BodyShare.current?.giveBack()
      await api.brake.delay(.login(request, context, key: caller), at: now)
      return page(returnTo: destination, fault: fault, status: .forbidden)
    }
    let session = AdminSession(of: caller, key: key, at: now)
    try await ledger.administration.openSession(
      session.id, of: caller.name, until: session.end, at: now)
    context.logger.info("An administrator logged in", metadata: ["caller": "\(caller.name)"])
    var response = Response.redirect(to: destination, type: .normal)
    response.setCookie(.session(session, on: request))
    return response
  }

  /// The key's caller and the return path; releases the form before a wrong key's delay.
  private func login(in request: Request) async throws -> (APIKeys.Caller?, destination: String) {
    let form = try await request.form(upTo: BodyLimit.login)
    return (
      api.keys.caller(secret: Array((form["key"]?.rawValue ?? "").utf8)), Self.destination(form)
    )
  }

  @Sendable
  func logOut(_ request: Request, context: APIContext) async throws -> Response {
    if let session = context.admin.session {
      try await ledger.administration.closeSession(session.id)
    }
    var response = Response.redirect(to: AdminURL.login, type: .normal)
    response.setCookie(.session(nil, on: request))
    return response
  }

  private func page(
    returnTo destination: String, fault: String?, status: HTTPResponse.Status = .ok
  ) -> Response {
    PageRenderer.response(
      (page: PageFrame(title: "Log in"), returnTo: destination, fault: fault), "login",
      status: status)
  }

  private static func destination(_ fields: EncodedFields) -> String {
    fields["return_to"].flatMap { AdminURL.isOurs($0.rawValue) ? $0.rawValue : nil }
      ?? AdminURL.overview
  }
}
