import CoreMetrics
package import HTTPTypes
import Hummingbird
import Instrumentation
import Intake
import Logging
import Synchronization
import Tracing

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
  static let requestID = token("X-Request-ID")
  static let forwardedFor = token("X-Forwarded-For")

  /// Makes a name of a literal, which must be a valid token.
  package static func token(_ name: String) -> HTTPField.Name {
    guard let name = HTTPField.Name(name) else { preconditionFailure("The name is a token.") }
    return name
  }
}

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

/// Makes a span of every request, as part of the caller's trace where it names one (`traceparent`
/// and what else the tracer at hand reads).
///
/// It is named after the route and never the path, which can hold a person's account id. Without a
/// tracer nothing is made of it.
struct RequestTracing: RouterMiddleware {
  /// Spans that nobody sees are not made.
  static var isOn: Bool { !(InstrumentationSystem.tracer is NoOpTracer) }

  private let isOn = Self.isOn

  func handle(
    _ request: Request, context: APIContext,
    next: @concurrent (Request, APIContext) async throws -> Response
  ) async throws -> Response {
    guard isOn else { return try await next(request, context) }
    var trace = InstrumentationContext.topLevel
    InstrumentationSystem.instrument.extract(
      request.headers, into: &trace, using: HeaderExtractor())
    return try await withSpan(request.method.rawValue, context: trace, ofKind: .server) { span in
      let response = try await next(request, context)
      if span.isRecording {
        // It is known only now.
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

  /// Reads header fields for the tracer.
  private struct HeaderExtractor: Extractor {
    func extract(key: String, from fields: HTTPFields) -> String? {
      HTTPField.Name(key).flatMap { fields[$0] }
    }
  }
}

/// Counts requests, by method, route and class of status.
///
/// Routes are templates and never paths, so that there are only so many of them, and nobody's
/// account id is among them.
final class RequestMetrics: Sendable {
  /// Of one method on one route; all of it is made once.
  final class Route: Sendable {
    /// From 1xx to 5xx.
    private let answers: [Counter]
    private let duration: CoreMetrics.Timer

    init(_ method: String, _ route: String, _ factory: any MetricsFactory) {
      answers = (1...5).map { status in
        Counter(
          label: "tenure_http_requests_total",
          dimensions: [("method", method), ("route", route), ("status", "\(status)xx")],
          factory: factory)
      }
      duration = CoreMetrics.Timer(
        label: "tenure_http_request_duration_seconds",
        dimensions: [("method", method), ("route", route)], factory: factory)
    }

    func count(status: Int, nanoseconds: Int64) {
      let place = status / 100 - 1
      if answers.indices.contains(place) { answers[place].increment() }
      duration.recordNanoseconds(nanoseconds)
    }
  }

  private struct Key: Hashable {
    let method: String
    let route: String
  }

  /// Any other method is counted as `other`: clients may make them up.
  private static let methods: Set = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

  /// The route that is answered most.
  let entitlements: Route
  let inFlight: Meter
  let connections: Meter
  let refusedConnections: Counter
  private let routes = Mutex<[Key: Route]>([:])
  private let factory: any MetricsFactory

  init(_ factory: any MetricsFactory) {
    self.factory = factory
    entitlements = Route("GET", Self.entitlementRoute, factory)
    inFlight = Meter(label: "tenure_http_requests_in_flight", factory: factory)
    connections = Meter(label: "tenure_http_connections", factory: factory)
    refusedConnections = Counter(
      label: "tenure_http_connections_refused_total", factory: factory)
  }

  private static let entitlementRoute = "/v1/accounts/{account_id}/entitlements"

  /// The counters of a method on a route's template.
  func route(_ method: String, _ route: String) -> Route {
    let key = Key(method: Self.methods.contains(method) ? method : "other", route: route)
    if key.method == "GET", key.route == Self.entitlementRoute { return entitlements }
    return routes.withLock { routes in
      if let known = routes[key] { return known }
      let new = Route(key.method, key.route, factory)
      routes[key] = new
      return new
    }
  }
}
