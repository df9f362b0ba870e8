import HTTPTypes
import Hummingbird
import Intake
import Logging

/// Gives every request an id, and logs one line about it when it is answered.
///
/// The line names the route and not the path, which can hold a person's account id; never a body, a
/// header field or a query.
struct RequestLog: RouterMiddleware {
  /// What is called too often to be of interest: logged as debug.
  private static let quietRoutes: Set<String> = [
    "/v1/accounts/{account_id}/entitlements", "/v1/entitlements/query", "/healthz", "/readyz",
    "/metrics",
    // Anybody can call it, as often as they like. The intake logs what it stores.
    "/v1/appstore/notifications",
  ]

  func handle(
    _ request: Request, context: APIContext,
    next: @concurrent (Request, APIContext) async throws -> Response
  ) async throws -> Response {
    var context = context
    let id = Self.adoptID(of: request, in: &context)
    let start = ContinuousClock.now
    let known = context
    // The line about the request, too, has its id from the occasion.
    return try await Occasion.$current.withValue(.request(id: id)) {
      var response = try await next(request, known)
      response.headers[.requestID] = id
      let route = known.route
      known.logger.log(
        level: Self.quietRoutes.contains(route) ? .debug : .info, "Request answered",
        metadata: [
          "http.method": "\(request.method.rawValue)", "http.route": "\(route)",
          "http.status": "\(response.status.code)",
          "http.duration_ms": "\((ContinuousClock.now - start) / .milliseconds(1))",
          "caller": "\(known.caller?.name ?? "none")",
        ])
      return response
    }
  }

  /// Takes the caller's id of the request, or the one that the server made, for answer and log.
  ///
  /// Log lines have it as the occasion's `request.id`, and not once more under the name that
  /// Hummingbird gives it. Nobody asks for `context.id`, which would be a trap without that name.
  private static func adoptID(of request: Request, in context: inout APIContext) -> String {
    let key = "hb.request.id"
    let made = context.logger[metadataKey: key]?.description
    context.logger[metadataKey: key] = nil
    if let id = request.headers[.requestID], isUsable(id) { return id }
    return made ?? RequestID().description
  }

  /// Whether a caller's id can be logged and repeated as it is: short, and visible ASCII.
  static func isUsable(_ id: String) -> Bool {
    (1...128).contains(id.utf8.count) && id.utf8.allSatisfy { (0x21...0x7E).contains($0) }
  }
}

extension HTTPField.Name {
  static let requestID: HTTPField.Name = {
    guard let name = HTTPField.Name("X-Request-ID") else {
      preconditionFailure("The name is a token.")
    }
    return name
  }()
}
