/// The template `overview`: today against the past weeks.
struct OverviewPage: Sendable {
  var page: PageFrame
  /// What waits for somebody; empty: nothing does.
  var attention: [AttentionItem]
  var groups: [TileGroup]
  /// Active subscriptions over the past weeks.
  var activeChart: ChartPicture
  /// What came and went over the past weeks.
  var movementChart: ChartPicture
  /// The latest acts of administrators.
  var acts: [ActRow]
  var actsHref: String
}

/// Something that waits for somebody.
struct AttentionItem: Sendable {
  /// For example `3 charges are owned by nobody`.
  var text: String
  /// For example `the oldest for 6 d 3 h`.
  var note: String?
  var href: String
  /// One of ``Tone``.
  var tone: String
}

/// Numbers that belong together.
struct TileGroup: Sendable {
  var heading: String
  var tiles: [Tile]
}

/// A number of today, with how it got there.
struct Tile: Sendable {
  var label: String
  var value: String
  /// For example `USD` or `%`.
  var unit: String?
  /// For example `+1.2 % on last week`.
  var change: String?
  /// One of ``Tone``: whether the change is a good one.
  var changeTone: String?
  var note: String?
  /// The report behind it.
  var href: String
  var sparkline: Sparkline?
}

/// What an administrator did.
struct ActRow: Sendable {
  var at: Moment
  var administrator: String
  /// In words.
  var action: String
  var subject: String
  var href: String?
  var reason: String?
}
