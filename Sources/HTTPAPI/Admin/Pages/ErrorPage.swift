/// The template `error`: why there is no page.
struct ErrorPage: Sendable {
  var page: PageFrame
  var status: Int
  var code: String
  var detail: String
  /// What can be done now.
  var links: [PageLink]
}

/// The template `done`: what was done, where there is nothing else to go back to.
struct DonePage: Sendable {
  var page: PageFrame
  var message: String
  var properties: [Property]
  var links: [PageLink]
}
