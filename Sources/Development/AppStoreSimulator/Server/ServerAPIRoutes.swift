import HTTPTypes
import Hummingbird
import NIOCore
import Subscriptions

/// The App Store Server API over HTTP, at Apple's paths.
struct ServerAPIRoutes {
  let simulation: AppStoreSimulation
  let delivery: AnswerDelivery

  /// Apple's requests are small.
  private static let mostBodyBytes = 1 << 20

  /// The routes of one environment; `prefix` is the part of their path before `/inApps`.
  func endpoints(_ environment: Subscriptions.Environment, below prefix: String)
    -> RouteCollection<SimulatorContext>
  {
    let routes = RouteCollection(context: SimulatorContext.self)
    for method in [HTTPRequest.Method.get, .post, .put] {
      routes.on("**", method: method) { request, context -> Response in
        var request = request
        let body = try await request.collectBody(upTo: Self.mostBodyBytes)
        let asked = ServerAPIRequest(
          method: request.method.rawValue, path: String(request.uri.path.dropFirst(prefix.count)),
          query: request.decodedQuery.map { ServerAPIRequest.QueryItem($0.key, $0.value) },
          authorization: request.headers[.authorization], body: Array(body.readableBytesView))
        let answer = simulation.serverAPI(asked, at: environment)
        return try await delivery.deliver(answer, to: request, on: context.channel)
      }
    }
    return routes
  }
}
