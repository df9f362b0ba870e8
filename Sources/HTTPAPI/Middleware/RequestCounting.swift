import CoreMetrics
import HTTPTypes
import Hummingbird

/// Counts every request and how long its answer takes, whatever comes of it.
struct RequestCounting: RouterMiddleware {
  let metrics: RequestMetrics

  func handle(
    _ request: Request, context: APIContext,
    next: @concurrent (Request, APIContext) async throws -> Response
  ) async throws -> Response {
    metrics.inFlight.increment()
    defer { metrics.inFlight.decrement() }
    let start = ContinuousClock.now
    let response = try await next(request, context)
    let (seconds, attoseconds) = (ContinuousClock.now - start).components
    metrics.route(request.method.rawValue, context.route).count(
      status: response.status.code,
      nanoseconds: seconds * 1_000_000_000 + attoseconds / 1_000_000_000)
    return response
  }
}
