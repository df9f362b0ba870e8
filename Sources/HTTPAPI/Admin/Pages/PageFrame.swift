/// What stands around every page: the template `layout` reads it as `page`.
///
/// Templates find a value by the name of its stored property, through a mirror. A property that is
/// nil is looked for further out, so templates write `{{.name}}` for what belongs to the innermost
/// value; and an empty text counts as there, so what may be missing is optional and never empty.
struct PageFrame: Sendable {
  /// In the title bar and as the heading.
  var title: String
  /// The name of the administrator's key; nil: nobody is logged in, and there is no navigation.
  var administrator: String?
  /// In every form, as the field `csrf`.
  var csrfToken: String
  /// What was searched for last, to go on from.
  var searchText = ""
  var navigation: [NavigationGroup] = []
  /// What just happened; told once.
  var flash: Flash?
  /// The moment that the page is about.
  var asOf: Moment?
  /// Where the page stands, from the outside in.
  var trail: [PageLink] = []
  /// What the page's subject allows to be done, beside the heading.
  var actions: [PageLink] = []
  /// Seconds after which the browser asks again, while a report is still being made.
  var refreshSeconds: Int?
  // With their versions, so that browsers may keep them.
  var styleHref = StaticFile.styleSheet.href
  var scriptHref = StaticFile.script.href
  var iconHref = StaticFile.icon.href
}

/// Links of the navigation that belong together.
struct NavigationGroup: Sendable {
  /// Nil for the first group.
  var heading: String?
  /// On a phone only groups that are always shown remain; the others are behind their list's link.
  var isAlwaysShown: Bool
  var items: [NavigationItem]
}

/// A link of the navigation.
struct NavigationItem: Sendable {
  var label: String
  var href: String
  var isCurrent = false
  /// How many things wait there; nil: none.
  var badge: String?
}

/// What an action did, told at the top of the next page.
struct Flash: Sendable {
  var message: String
  /// One of ``Tone``.
  var tone: String
  /// Where to look at what was done.
  var link: PageLink?
}

/// A link with its text.
struct PageLink: Sendable {
  var label: String
  var href: String
  /// It takes something away, and looks like it.
  var isDanger = false
}
