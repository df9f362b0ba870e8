/// The template `search`: what an identifier names.
struct SearchPage: Sendable {
  var page: PageFrame
  /// As it was typed; nil: nothing was.
  var query: String?
  var hits: [SearchHit]
  /// Asked for, and nothing found.
  var isWithoutHits: Bool
  /// There are more than are shown.
  var isCutShort: Bool
}

/// Something that was found.
struct SearchHit: Sendable {
  /// For example `Account` or `Web order line item`.
  var kind: String
  var title: String
  var href: String
  /// In words: what it is, whose, since when.
  var detail: String
  var badges: [Badge]
}
