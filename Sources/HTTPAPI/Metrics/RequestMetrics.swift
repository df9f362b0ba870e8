import CoreMetrics
import HTTPTypes
import Synchronization

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
