import HTTPTypes
import Hummingbird
import Subscriptions

/// Identifies the caller by its API key; ``Permission`` decides what the caller may do.
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

/// Requires an API key with a role.
struct Permission: RouterMiddleware {
  let role: APIKeys.Role
  let brake: FailureBrake
  let now: @Sendable () -> Timestamp

  func handle(
    _ request: Request, context: APIContext,
    next: @concurrent (Request, APIContext) async throws -> Response
  ) async throws -> Response {
    guard let caller = context.caller else {
      if request.headers[.authorization] != nil {
        await brake.delay(.bearer(context), at: now())
      }
      throw Problem.unauthorized
    }
    guard caller.role >= role else { throw Problem.forbidden(needed: role) }
    return try await next(request, context)
  }
}
