import Subscriptions

/// A timeline's contents, in times rather than coordinates.
struct TimelineLayout: Sendable {
  /// The HTML id: letters, digits and hyphens.
  var id: String
  var title: String
  var description: String
  /// What the picture shows, for those who can't read it.
  var note: String?
  var from: Timestamp
  var until: Timestamp
  var now: Timestamp
  var lanes: [Lane]
  /// Vertical lines through all lanes.
  var rules: [(at: Timestamp, text: String)] = []
  /// The legend of colours and letters.
  var owners: [TimelineOwner] = []

  struct Lane: Sendable {
    var label: String
    /// In pixels.
    var height: Int
    var spans: [Span] = []
    var marks: [Mark] = []
  }

  struct Span: Sendable {
    var from: Timestamp
    var until: Timestamp
    /// CSS classes.
    var classNames: String
    /// Drawn over the colour.
    var pattern: Pattern?
    /// Clipped at the end of the span.
    var label: String?
    /// The tooltip.
    var text: String
    var href: String?
    /// The distance to the lane's upper and lower edge, in pixels.
    var inset = 0
    /// Only the label is drawn, over other spans.
    var isCaption = false
  }

  struct Mark: Sendable {
    var at: Timestamp
    var symbol: Symbol
    var text: String
    var href: String?
    /// The distance from the lane's top, in pixels.
    var offset: Int
  }

  /// The patterns that the template `timeline` can draw, with their texts in the legend.
  enum Pattern: String, CaseIterable, Sendable {
    case grace = "grace period"
    case retry = "billing retry"
    case refunded
    case lost = "lost to another account"
    case late = "paid, known only later"
  }

  /// The symbols that the template `timeline` can draw, with their texts in the legend.
  enum Symbol: String, CaseIterable, Sendable {
    case refund
    case move = "new owner"
    case off = "auto-renew off"
    case on = "auto-renew on"
    case notification
    case submission
    case poll
    case administrator
  }
}

/// A timeline as drawn by the template `timeline`: lanes on one time axis.
///
/// Horizontal positions are percentages, vertical ones pixels, as in a chart.
struct TimelinePicture: Sendable {
  var layout: TimelineLayout
  /// The height of the lanes.
  var height: Int
  /// The height including the time axis.
  var fullHeight: Int
  var labelY: Int
  /// `timeline-short`, `timeline-medium` or `timeline-long`: the minimum width.
  var widthClass: String
  /// The width of the lanes' labels, in pixels.
  var labelWidth: Int
  var ticks: [ChartTick]
  /// The present, or nil if it is outside the axis.
  var nowX: String?
  /// The label of the present is on its right: there is no room on the left.
  var isNowEarly = false
  typealias PlacedLane = (label: String, labelY: Int, bottom: Int)
  typealias PlacedSpan = (
    span: TimelineLayout.Span, x: String, width: String, y: Int, height: Int, labelY: Int
  )
  typealias PlacedMark = (mark: TimelineLayout.Mark, x: String, y: Int)

  /// With the baselines of the labels, and the lines between a lane and the next.
  var lanes: [PlacedLane]
  var spans: [PlacedSpan]
  var rules: [(x: String, text: String)]
  var marks: [PlacedMark]
  /// The legend of patterns and symbols.
  var signs: [(pattern: TimelineLayout.Pattern?, symbol: TimelineLayout.Symbol?, label: String)]
}

/// An account in the legend.
struct TimelineOwner: Sendable {
  /// `owner-0` (none) to `owner-6`.
  var ownerClass: String
  var letter: String
  var name: String
  var href: String?
  /// For example `7 charges, 14 Jan 2025 to 14 Aug 2025`.
  var note: String

  /// The CSS class of an owner: `owner-0` for none, then six colours that repeat.
  static func ownerClass(_ owner: Int) -> String {
    owner > 0 ? "owner-\((owner - 1) % 6 + 1)" : "owner-0"
  }

  /// The letter of an owner: – for none, A to Z, then A2 and so on.
  static func letter(_ owner: Int) -> String {
    guard owner > 0 else { return "–" }
    let (round, index) = (owner - 1).quotientAndRemainder(dividingBy: 26)
    let letter = String(UnicodeScalar(UInt8(ascii: "A") + UInt8(index)))
    return round > 0 ? "\(letter)\(round + 1)" : letter
  }
}

extension TimelinePicture {
  private static let laneGap = 10
  private static let axisHeight = 24
  private static let mostTicks = 10
  /// The longest label of a lane, at some 7 pixels per character; of a longer one the end is shown.
  private static let mostLetters = 21
  /// The room that the label of the present needs.
  private static let earlyPercent = 10.0
  /// The smallest visible width of a span, in percent.
  private static let narrowest = 0.15

  init(_ sketch: TimelineLayout) {
    let axis = Axis(from: sketch.from, until: sketch.until)
    var top = 2
    var (lanes, spans, marks): ([PlacedLane], [PlacedSpan], [PlacedMark]) = ([], [], [])
    for lane in sketch.lanes {
      let bottom = top + lane.height + Self.laneGap / 2
      let label = lane.label
      lanes.append(
        (
          label.count > Self.mostLetters ? "…\(label.suffix(Self.mostLetters - 1))" : label,
          top + lane.height / 2 + 4, bottom
        ))
      spans += lane.spans.map {
        Self.span($0, top: top, height: lane.height, on: axis, width: Self.leastWidth(of: sketch))
      }
      marks += lane.marks.map {
        ($0, Coordinate.text(axis.percent($0.at)), top + $0.offset)
      }
      top = bottom + Self.laneGap / 2
    }
    // For the label of the present.
    if axis.contains(sketch.now) { top += 8 }
    let ticks = CalendarTicks(from: axis.from, until: axis.until, most: Self.mostTicks)
    self.init(
      layout: sketch, height: top,
      fullHeight: top + Self.axisHeight, labelY: top + 16, widthClass: Self.widthClass(of: sketch),
      labelWidth: max(84, 8 + 7 * (lanes.map(\.label.count).max() ?? 0)),
      ticks: ChartTick.across(ticks.marks.map { (axis.percent($0.moment) / 100, $0.label) }),
      nowX: axis.contains(sketch.now) ? Coordinate.text(axis.percent(sketch.now)) : nil,
      isNowEarly: axis.percent(sketch.now) < Self.earlyPercent,
      lanes: lanes, spans: spans,
      rules: sketch.rules.map { (Coordinate.text(axis.percent($0.at)), $0.text) },
      marks: marks, signs: Self.signs(of: sketch))
  }

  private static func span(
    _ span: TimelineLayout.Span, top: Int, height: Int, on axis: Axis, width: Int
  ) -> PlacedSpan {
    let left = axis.percent(span.from)
    let inner = max(height - 2 * span.inset, 1)
    let percent = max(axis.percent(span.until) - left, narrowest)
    var span = span
    // Some 6.5 pixels per character, and 5 before it; a caption may end beyond its span.
    let perCharacter = span.isCaption ? 5 : 6.5
    let room = percent / 100 * Double(width)
    func fits(_ label: String) -> Bool { room >= perCharacter * Double(label.count) + 5 }
    span.label = span.label.flatMap { label in
      let letter = String(label.prefix { $0 != " " })
      // Else an owner's letter.
      return fits(label) ? label : letter.count == 1 && fits(letter) ? letter : nil
    }
    return (
      span, Coordinate.text(left), Coordinate.text(percent), top + span.inset, inner, inner / 2 + 4
    )
  }

  /// The patterns and symbols in use, in a fixed order.
  private static func signs(of sketch: TimelineLayout)
    -> [(pattern: TimelineLayout.Pattern?, symbol: TimelineLayout.Symbol?, label: String)]
  {
    let patterns = Set(sketch.lanes.flatMap { $0.spans.compactMap(\.pattern) })
    let symbols = Set(sketch.lanes.flatMap { $0.marks.map(\.symbol) })
    return TimelineLayout.Pattern.allCases.filter(patterns.contains).map { ($0, nil, $0.rawValue) }
      + TimelineLayout.Symbol.allCases.filter(symbols.contains).map { (nil, $0, $0.rawValue) }
  }

  /// The pixels that the style sheet gives a picture at least.
  private static func leastWidth(of sketch: TimelineLayout) -> Int {
    switch widthClass(of: sketch) {
    case "timeline-short": 420
    case "timeline-medium": 760
    default: 1400
    }
  }

  private static func widthClass(of sketch: TimelineLayout) -> String {
    switch sketch.lanes.map(\.spans.count).max() ?? 0 {
    case ...12: "timeline-short"
    case ...40: "timeline-medium"
    default: "timeline-long"
    }
  }

  private struct Axis {
    let from: Timestamp
    let until: Timestamp

    init(from: Timestamp, until: Timestamp) {
      self.from = from
      // Avoids division by zero.
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
