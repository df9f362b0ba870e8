import CoreMetrics
package import HTTPTypes
import Hummingbird
import Instrumentation
import Intake
import Logging
import NIOHTTP1
import Subscriptions
import Synchronization
import Tracing

/// Gives every request an ID and logs one line, with the route instead of the path, which may contain
/// an account ID, and no body, header field or query.
struct RequestLog: RouterMiddleware {
  /// High-traffic routes, logged at level debug.
  private static let quietRoutes: Set<String> = [
    "/v1/accounts/{account_id}/entitlements", "/v1/entitlements/query", "/healthz", "/readyz",
    "/metrics",
    // Open to all callers; the intake logs stored notifications.
    "/v1/appstore/notifications",
  ]

  func handle(_ request: Request, context: APIContext, next: Next) async throws -> Response {
    var context = context
    let id = Self.adoptID(of: request, in: &context)
    let start = ContinuousClock.now
    let known = context
    return try await LogContext.$current.withValue(.request(id: id)) {
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

  /// The caller's request ID if it is usable, or else Hummingbird's, whose metadata key is removed.
  ///
  /// Without that key `context.id` traps; nothing reads it.
  private static func adoptID(of request: Request, in context: inout APIContext) -> String {
    let key = "hb.request.id"
    let made = context.logger[metadataKey: key]?.description
    context.logger[metadataKey: key] = nil
    if let id = request.headers[.requestID], isUsable(id) { return id }
    return made ?? RequestID().description
  }

  /// Whether a caller's ID is short and visible ASCII, and so safe to log and return.
  static func isUsable(_ id: String) -> Bool {
    (1...128).contains(id.utf8.count) && id.utf8.allSatisfy { (0x21...0x7E).contains($0) }
  }
}

extension HTTPField.Name {
  static let requestID = token("X-Request-ID")
  static let forwardedFor = token("X-Forwarded-For")

  /// Makes a name of a literal, which must be a valid token.
  package static func token(_ name: String) -> HTTPField.Name {
    guard let name = HTTPField.Name(name) else { preconditionFailure("The name is a token.") }
    return name
  }
}

struct RequestCounting: RouterMiddleware {
  let metrics: RequestMetrics

  func handle(_ request: Request, context: APIContext, next: Next) async throws -> Response {
    metrics.inFlight.increment()
    defer { metrics.inFlight.decrement() }
    let start = ContinuousClock.now
    let response = try await next(request, context)
    // Methods that a route does not have would multiply the series.
    let route = response.status == .methodNotAllowed ? "none" : context.route
    metrics.route(request.method.rawValue, route).count(
      status: response.status.code,
      nanoseconds: Int64((ContinuousClock.now - start) / .nanoseconds(1)))
    return response
  }
}

/// Records a span for every request, named after its route, in the caller's trace if there is one.
struct RequestTracing: RouterMiddleware {
  static var isOn: Bool { !(InstrumentationSystem.tracer is NoOpTracer) }

  private let isOn = Self.isOn

  func handle(_ request: Request, context: APIContext, next: Next) async throws -> Response {
    guard isOn else { return try await next(request, context) }
    var trace = InstrumentationContext.topLevel
    InstrumentationSystem.instrument.extract(
      request.headers, into: &trace, using: HeaderExtractor())
    return try await withSpan(request.method.rawValue, context: trace, ofKind: .server) { span in
      let response = try await next(request, context)
      if span.isRecording {
        // Known only after routing.
        let route = context.route
        span.operationName = "\(request.method.rawValue) \(route)"
        span.attributes["http.request.method"] = request.method.rawValue
        span.attributes["http.route"] = route
        span.attributes["http.response.status_code"] = response.status.code
        if response.status.kind == .serverError { span.setStatus(SpanStatus(code: .error)) }
      }
      return response
    }
  }

  private struct HeaderExtractor: Extractor {
    func extract(key: String, from fields: HTTPFields) -> String? {
      HTTPField.Name(key).flatMap { fields[$0] }
    }
  }
}

/// Metrics of requests by method, route template and class of status; durations by route alone.
///
/// Templates bound the series and keep out account IDs.
final class RequestMetrics: Sendable {
  final class Route: Sendable {
    /// By the first digit of the status, once there was one.
    private let answers = Mutex<[Int: Counter]>([:])
    private let duration: CoreMetrics.Timer
    private let labels: [(String, String)]
    private let factory: any MetricsFactory

    init(_ method: String, _ route: String, _ factory: any MetricsFactory) {
      labels = [("method", method), ("route", route)]
      self.factory = factory
      duration = CoreMetrics.Timer(
        label: "tenure_http_request_duration_seconds", dimensions: [("route", route)],
        factory: factory)
    }

    func count(status: Int, nanoseconds: Int64) {
      answers.withLock { answers in
        let counter =
          answers[status / 100]
          ?? Counter(
            label: "tenure_http_requests_total",
            dimensions: labels + [("status", "\(status / 100)xx")], factory: factory)
        answers[status / 100] = counter
        counter.increment()
      }
      duration.recordNanoseconds(nanoseconds)
    }
  }

  /// Any other method is counted as `other`, because clients can make them up; HEAD as GET.
  private static let methods: Set = ["GET", "POST", "PUT", "PATCH", "DELETE"]

  /// The busiest route, found without a lock.
  let entitlements: Route
  let inFlight: Meter
  let connections: Meter
  let refusedConnections: Counter
  /// By method and route.
  private let routes = Mutex<[String: [String: Route]]>([:])
  private let factory: any MetricsFactory

  init(_ factory: any MetricsFactory) {
    self.factory = factory
    entitlements = Route("GET", Self.entitlementRoute, factory)
    inFlight = Meter(label: "tenure_http_requests_in_flight", factory: factory)
    connections = Meter(label: "tenure_http_connections", factory: factory)
    refusedConnections = Counter(label: "tenure_http_connections_refused_total", factory: factory)
  }

  private static let entitlementRoute = "/v1/accounts/{account_id}/entitlements"

  func route(_ method: String, _ route: String) -> Route {
    let known = method == "HEAD" ? "GET" : method
    if known == "GET", route == Self.entitlementRoute { return entitlements }
    let (method, route) = Self.methods.contains(known) ? (known, route) : ("other", "none")
    return routes.withLock { routes in
      if let known = routes[method]?[route] { return known }
      let new = Route(method, route, factory)
      routes[method, default: [:]][route] = new
      return new
    }
  }
}

package struct ProblemReporting: RouterMiddleware {
  func handle(_ request: Request, context: APIContext, next: Next) async throws -> Response {
    do {
      return try await next(request, context)
    } catch let error as HTTPParserError {
      // Without a parsed request there is nothing to answer: the server closes the connection.
      throw error
    } catch {
      let response = Response(Self.problem(error, context))
      // A response to HEAD ends with its header; a body would be taken for the next response.
      return request.method == .head ? response.createHeadResponse() : response
    }
  }

  package static func problem(_ error: any Error, _ context: APIContext) -> Problem {
    let problem = Problem(error)
    if problem.status.kind == .serverError {
      context.logger.log(
        level: problem.code == .unavailable ? .warning : .error, "Request failed",
        metadata: ["http.route": "\(context.route)", "error": "\(error)"])
    }
    return problem
  }
}
