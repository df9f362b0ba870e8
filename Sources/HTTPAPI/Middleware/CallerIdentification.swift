import HTTPTypes
import Hummingbird

/// Finds out who calls; what a caller may do is for ``Permission`` to say.
struct CallerIdentification: RouterMiddleware {
  let keys: APIKeys

  func handle(
    _ request: Request, context: APIContext,
    next: @concurrent (Request, APIContext) async throws -> Response
  ) async throws -> Response {
    guard let authorization = request.headers[.authorization] else {
      return try await next(request, context)
    }
    var context = context
    context.caller = keys.caller(authorization: authorization)
    return try await next(request, context)
  }
}
