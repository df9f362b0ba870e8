import Hummingbird

/// Lets only those pass whose key has a role.
struct Permission: RouterMiddleware {
  let role: APIKeys.Role

  func handle(
    _ request: Request, context: APIContext,
    next: @concurrent (Request, APIContext) async throws -> Response
  ) async throws -> Response {
    guard let caller = context.caller else { throw Problem.unauthorized }
    guard caller.role >= role else { throw Problem.forbidden(needed: role) }
    return try await next(request, context)
  }
}
