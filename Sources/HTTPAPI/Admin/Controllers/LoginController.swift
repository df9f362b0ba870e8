import HTTPTypes
import Hummingbird
import Logging
import Subscriptions

/// Logging in with an administrator's key, and out.
struct LoginController: Sendable {
  let keys: APIKeys
  let throttle: LoginThrottle
  let templates: PageTemplates
  let now: @Sendable () -> Timestamp

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let query = FormFields(query: request.uri)
    return page(
      returnTo: query["return_to"],
      fault: query["ended"].map { _ in
        "The session is over, and nothing was done: log in, and send the form once more."
      })
  }

  @Sendable
  func logIn(_ request: Request, context: APIContext) async throws -> Response {
    guard request.isFromOurPages else { throw Problem.foreignForm }
    let form = try await request.form()
    let (now, secret) = (now(), Array((form["key"] ?? "").utf8))
    let attempt = throttle.attempt(by: Self.client(of: request, context), at: now) {
      () -> AdminSession? in
      guard let caller = keys.caller(secret: secret), caller.role == .admin,
        let key = keys.sessionKey(ofAdministrator: caller.name)
      else { return nil }
      return AdminSession(of: caller.name, key: key, at: now)
    }
    switch attempt {
    case .success(let session):
      context.logger.info(
        "An administrator logged in", metadata: ["caller": "\(session.administrator)"])
      var response = Response.redirect(
        to: Self.destination(form["return_to"]), type: .normal)
      response.setCookie(.session(session, on: request))
      return response
    case .failure:
      context.logger.notice("A login failed")
      return page(
        returnTo: form["return_to"], fault: "This is no administrator's key.",
        status: .forbidden)
    case .tooSoon(let wait):
      var response = page(
        returnTo: form["return_to"],
        fault: "Too many tries failed. Wait \(Age.text(wait)), and try again.",
        status: .tooManyRequests)
      response.headers[.retryAfter] = "\(wait.components.seconds + 1)"
      return response
    }
  }

  @Sendable
  func logOut(_ request: Request, context: APIContext) async throws -> Response {
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

  /// By what a client is known: what the nearest proxy says of its address, and the proxy's own.
  private static func client(of request: Request, _ context: APIContext)
    -> [(name: String, free: Int)]
  {
    let address = context.remoteAddress ?? "unknown"
    let behind = request.headers[values: .forwardedFor].last?.split(separator: ",").last
    let said = behind.map { $0.prefix(64).filter { !$0.isWhitespace } } ?? ""
    return [
      ("\(address) for \(said)", LoginThrottle.freeFailures),
      (address, LoginThrottle.freeFailuresOfAddress),
    ]
  }
}
