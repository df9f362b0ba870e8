import Hummingbird
import NIOCore

/// What travels with a request on its way through the routes.
struct APIContext: RequestContext, Sendable {
  var coreContext: CoreRequestContextStorage
  /// Who calls; nil without a key, or with one that nobody has.
  var caller: APIKeys.Caller?
  /// The connection that the request came on.
  let channel: any Channel
  /// Of the administrator's pages.
  var admin = AdminContext()

  init(source: ApplicationRequestContextSource) {
    coreContext = CoreRequestContextStorage(source: source)
    channel = source.channel
  }

  /// The other end's address, which may be a proxy's.
  var remoteAddress: String? { channel.remoteAddress?.ipAddress }

  /// What Hummingbird calls the route of a path that has none.
  private static let unknownRoute = "NotFound"

  /// The template of the route, which names nobody; `none` for a path that has none.
  var route: String {
    endpointPath.flatMap { $0 == Self.unknownRoute ? nil : $0 } ?? "none"
  }
}
