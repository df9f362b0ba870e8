/// A timeline as the template `timeline` draws it: lanes under each other on one axis of time.
///
/// As in a chart, everything across is in percent and everything down is in pixels.
struct TimelinePicture: Sendable {
  /// In the page: letters, digits and hyphens.
  var id: String
  var title: String
  var description: String
  /// Of the lanes.
  var height: Int
  /// With the axis of time below them.
  var fullHeight: Int
  var labelY: Int
  /// `timeline-short`, `timeline-medium` or `timeline-long`: how wide it is at least.
  var widthClass: String
  var ticks: [ChartTick]
  /// The present; nil: outside of the picture.
  var nowX: String?
  /// Its word stands behind it, for before it there is no room.
  var isNowEarly = false
  var lanes: [TimelineLane]
  var spans: [TimelineSpan]
  var rules: [TimelineRule]
  var marks: [TimelineMark]
  /// Who is meant by which colour and letter.
  var owners: [TimelineOwner]
  /// What the other signs of the picture mean.
  var signs: [TimelineSign]
}

/// The name of a lane.
struct TimelineLane: Sendable {
  var label: String
  /// The baseline of the label.
  var labelY: Int
  /// Between this lane and the next.
  var bottom: Int
}

/// Something that lasts.
struct TimelineSpan: Sendable {
  /// Such as `span-period owner-2`, of the names in the style sheet.
  var classNames: String
  /// The pattern of `timeline` that is laid over the colour, such as `grace`; nil: none.
  var pattern: String?
  var x: String
  var width: String
  var y: Int
  var height: Int
  /// The baseline of the label.
  var labelY: Int
  /// Cut off where the span is shorter.
  var label: String?
  /// All about it, for those who point at it.
  var text: String
  var href: String?
}

/// A moment that matters to all lanes.
struct TimelineRule: Sendable {
  var x: String
  var text: String
}

/// A moment.
struct TimelineMark: Sendable {
  /// Such as `mark-refund`: the symbol's name, and its class.
  var symbol: String
  var x: String
  var y: Int
  var text: String
  var href: String?
}

/// A sign of the legend: a pattern or a symbol.
struct TimelineSign: Sendable {
  var pattern: String?
  var symbol: String?
  var label: String
}

/// An account in the legend.
struct TimelineOwner: Sendable {
  /// `owner-0` (nobody) to `owner-6`.
  var ownerClass: String
  var letter: String
  var name: String
  var href: String?
  /// For example `7 charges, 2025-01-14 to 2025-08-14`.
  var note: String
}
