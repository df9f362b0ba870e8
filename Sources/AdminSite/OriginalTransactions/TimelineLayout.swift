import Subscriptions

/// What a timeline shows, in times and not yet in places.
struct TimelineSketch: Sendable {
  var id: String
  var title: String
  var description: String
  /// The ends of the axis.
  var from: Timestamp
  var until: Timestamp
  var now: Timestamp
  var lanes: [Lane]
  /// Moments that matter to all lanes.
  var rules: [Rule] = []
  var owners: [TimelineOwner] = []

  /// What is shown at one height.
  struct Lane: Sendable {
    var label: String
    /// In pixels.
    var height: Int
    var spans: [Span] = []
    var marks: [Mark] = []
  }

  /// Something that lasts.
  struct Span: Sendable {
    var from: Timestamp
    var until: Timestamp
    /// Names of the style sheet.
    var classNames: String
    /// What is laid over its colour.
    var pattern: Pattern?
    var label: String?
    var text: String
    var href: String?
    /// How much it is lower than its lane, above and below each.
    var inset = 0
  }

  /// A moment of a lane.
  struct Mark: Sendable {
    var at: Timestamp
    var symbol: Symbol
    var text: String
    var href: String?
    /// From the lane's top, in pixels.
    var offset: Int
  }

  /// A moment of all lanes.
  struct Rule: Sendable {
    var at: Timestamp
    var text: String
  }

  /// The patterns that the template `timeline` can draw.
  enum Pattern: String, CaseIterable, Sendable {
    case grace
    case retry
    case refunded

    /// For the legend.
    var label: String {
      switch self {
      case .grace: "grace period"
      case .retry: "billing retry"
      case .refunded: "refunded"
      }
    }
  }

  /// The signs that the template `timeline` can draw.
  enum Symbol: String, CaseIterable, Sendable {
    case refund = "mark-refund"
    case move = "mark-move"
    case off = "mark-off"
    case on = "mark-on"
    case notification = "mark-notification"
    case submission = "mark-submission"
    case poll = "mark-poll"
    case administrator = "mark-administrator"

    /// For the legend.
    var label: String {
      switch self {
      case .refund: "refund"
      case .move: "bound to another"
      case .off: "auto-renew off"
      case .on: "auto-renew on"
      case .notification: "notification"
      case .submission: "submission"
      case .poll: "poll"
      case .administrator: "administrator"
      }
    }
  }
}

extension TimelineOwner {
  /// The colour of an owner: 0 is nobody, then six colours, which begin again.
  static func ownerClass(_ owner: Int) -> String {
    owner > 0 ? "owner-\((owner - 1) % 6 + 1)" : "owner-0"
  }

  /// The letter of an owner, so that nothing rests on colours: – for nobody, A to Z, then A2 on.
  static func letter(_ owner: Int) -> String {
    guard owner > 0 else { return "–" }
    let (round, index) = (owner - 1).quotientAndRemainder(dividingBy: 26)
    let letter = String(UnicodeScalar(UInt8(ascii: "A") + UInt8(index)))
    return round > 0 ? "\(letter)\(round + 1)" : letter
  }
}

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

extension TimelinePicture {
  private static let laneGap = 10
  private static let axisHeight = 24
  /// So many marks of the axis at most.
  private static let mostTicks = 10
  /// The width of a word, and more.
  private static let earlyPercent = 10.0
  /// The narrowest that a span may be and still be seen, in percent.
  private static let narrowest = 0.15

  /// Finds the places of what a sketch has.
  init(_ sketch: TimelineSketch) {
    let axis = Axis(from: sketch.from, until: sketch.until)
    var top = 2
    var (lanes, spans, marks): ([TimelineLane], [TimelineSpan], [TimelineMark]) = ([], [], [])
    for lane in sketch.lanes {
      let bottom = top + lane.height + Self.laneGap / 2
      lanes.append(
        TimelineLane(label: lane.label, labelY: top + lane.height / 2 + 4, bottom: bottom))
      spans += lane.spans.map { Self.span($0, top: top, height: lane.height, on: axis) }
      marks += lane.marks.map { mark in
        TimelineMark(
          symbol: mark.symbol.rawValue, x: Coordinate.text(axis.percent(mark.at)),
          y: top + mark.offset, text: mark.text, href: mark.href)
      }
      top = bottom + Self.laneGap / 2
    }
    let ticks = CalendarTicks(from: axis.from, until: axis.until, most: Self.mostTicks)
    self.init(
      id: sketch.id, title: sketch.title, description: sketch.description, height: top,
      fullHeight: top + Self.axisHeight, labelY: top + 16,
      widthClass: Self.widthClass(of: sketch),
      ticks: ChartTick.across(
        ticks.marks.map { (axis.percent($0.moment) / 100, $0.label) }),
      nowX: axis.contains(sketch.now) ? Coordinate.text(axis.percent(sketch.now)) : nil,
      isNowEarly: axis.percent(sketch.now) < Self.earlyPercent,
      lanes: lanes, spans: spans,
      rules: sketch.rules.map {
        TimelineRule(x: Coordinate.text(axis.percent($0.at)), text: $0.text)
      },
      marks: marks, owners: sketch.owners, signs: Self.signs(of: sketch))
  }

  private static func span(
    _ span: TimelineSketch.Span, top: Int, height: Int, on axis: Axis
  ) -> TimelineSpan {
    let left = axis.percent(span.from)
    let inner = max(height - 2 * span.inset, 1)
    return TimelineSpan(
      classNames: span.classNames, pattern: span.pattern?.rawValue, x: Coordinate.text(left),
      width: Coordinate.text(max(axis.percent(span.until) - left, narrowest)),
      y: top + span.inset, height: inner, labelY: inner / 2 + 4, label: span.label,
      text: span.text, href: span.href)
  }

  /// Those that occur, in an order of their own.
  private static func signs(of sketch: TimelineSketch) -> [TimelineSign] {
    let patterns = Set(sketch.lanes.flatMap { $0.spans.compactMap(\.pattern) })
    let symbols = Set(sketch.lanes.flatMap { $0.marks.map(\.symbol) })
    return TimelineSketch.Pattern.allCases.filter(patterns.contains).map {
      TimelineSign(pattern: $0.rawValue, label: $0.label)
    }
      + TimelineSketch.Symbol.allCases.filter(symbols.contains).map {
        TimelineSign(symbol: $0.rawValue, label: $0.label)
      }
  }

  /// As wide as its fullest lane needs.
  private static func widthClass(of sketch: TimelineSketch) -> String {
    switch sketch.lanes.map(\.spans.count).max() ?? 0 {
    case ...12: "timeline-short"
    case ...40: "timeline-medium"
    default: "timeline-long"
    }
  }

  /// From one moment to another, in percent.
  private struct Axis {
    let from: Timestamp
    let until: Timestamp

    init(from: Timestamp, until: Timestamp) {
      self.from = from
      // An axis without length has no places.
      self.until = max(until, from + .minutes(1))
    }

    func contains(_ moment: Timestamp) -> Bool { from <= moment && moment <= until }

    func percent(_ moment: Timestamp) -> Double {
      let inside = min(max(moment, from), until)
      return Double(inside.milliseconds - from.milliseconds)
        / Double(until.milliseconds - from.milliseconds) * 100
    }
  }
}
