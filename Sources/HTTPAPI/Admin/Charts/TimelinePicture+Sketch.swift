import Subscriptions

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
