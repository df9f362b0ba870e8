import Hummingbird

/// What travels with a request on its way through the routes.
struct APIContext: RequestContext, Sendable {
  var coreContext: CoreRequestContextStorage
  /// Who calls; nil without a key, or with one that nobody has.
  var caller: APIKeys.Caller?

  init(source: ApplicationRequestContextSource) {
    coreContext = CoreRequestContextStorage(source: source)
  }
}
