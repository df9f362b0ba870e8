import HTTPTypes
import Hummingbird
import Subscriptions

/// Lets only administrators pass who are logged in, and only forms that came from their pages.
struct LoggedIn: RouterMiddleware {
  func handle(
    _ request: Request, context: APIContext,
    next: @concurrent (Request, APIContext) async throws -> Response
  ) async throws -> Response {
    let isReading = request.method == .get || request.method == .head
    guard let session = context.admin.session else {
      guard isReading else { return .redirect(to: PageAddress.loginAfterForm, type: .normal) }
      let path = PageAddress.isOurs(request.uri.string) ? request.uri.string : nil
      return .redirect(to: PageAddress.login(returnTo: path), type: .normal)
    }
    var context = context
    context.caller = APIKeys.Caller(name: session.administrator, role: .admin)
    guard !isReading else { return try await next(request, context) }
    guard request.isFromOurPages else { throw Problem.foreignForm }
    context.admin.form = try await request.form()
    guard let token = context.admin.form["csrf"], session.isFormToken(token.rawValue) else {
      throw Problem.foreignForm
    }
    return try await next(request, context)
  }
}

extension Problem {
  /// Says the same whatever was missing.
  static var foreignForm: Problem {
    Problem(
      .forbidden,
      "The form did not come from a page of this session. Nothing was done: go back, load the "
        + "page again, and send it once more.")
  }
}
