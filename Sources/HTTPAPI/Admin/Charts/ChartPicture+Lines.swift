import Subscriptions

extension ChartPicture {
  /// Draws stocks: a line for each series, and an area below the first.
  ///
  /// - Parameters:
  ///   - data: The numbers.
  ///   - includesZero: Whether the axis begins at zero; only then is there an area.
  init(linesOf data: ChartData, includesZero: Bool = true) {
    let scale = ChartScale(
      data.series.flatMap { $0.values.compactMap(\.self) }, height: data.height,
      includesZero: includesZero)
    let shares = data.centres
    self = data.picture(scale: scale, marks: data.calendarMarks(at: shares))
    for (index, series) in data.series.enumerated() {
      let seriesClass = ChartData.seriesClass(index)
      let runs = PathRun.runs(of: series.values, at: shares, in: scale)
      let drawn = runs.filter { $0.points.count > 1 }
      if !drawn.isEmpty {
        lines.append(
          ChartPath(seriesClass: seriesClass, data: drawn.map(\.line).joined()))
        if index == 0, includesZero {
          areas.append(
            ChartPath(
              seriesClass: seriesClass,
              data: drawn.map { $0.area(from: scale.baseline) }.joined()))
        }
      }
      // What has no neighbours is no line.
      for point in runs.filter({ $0.points.count == 1 }).flatMap(\.points) {
        dots.append(
          ChartDot(
            seriesClass: seriesClass, x: Coordinate.text(point.x / 10),
            y: Coordinate.text(point.y)))
      }
    }
  }
}

/// Values that follow each other without a gap; 0 to 1000 across and pixels down.
struct PathRun: Sendable {
  var points: [(x: Double, y: Double)]

  /// Splits values where one is missing.
  static func runs(of values: [Int64?], at shares: [Double], in scale: ChartScale) -> [PathRun] {
    var runs: [PathRun] = []
    var isOpen = false
    for (value, share) in zip(values, shares) {
      guard let value else {
        isOpen = false
        continue
      }
      if !isOpen { runs.append(PathRun(points: [])) }
      isOpen = true
      runs[runs.count - 1].points.append((share * 1000, scale.y(value)))
    }
    return runs
  }

  /// For a path's data.
  var line: String { Self.line(points) }

  /// Down to a baseline.
  func area(from baseline: Double) -> String {
    guard let first = points.first, let last = points.last else { return "" }
    return Self.line([(first.x, baseline)] + points + [(last.x, baseline)]) + "Z"
  }

  private static func line(_ points: [(x: Double, y: Double)]) -> String {
    points.enumerated().map { index, point in
      (index == 0 ? "M" : "L") + Coordinate.text(point.x) + " " + Coordinate.text(point.y)
    }
    .joined()
  }
}

extension ChartData {
  /// The middle of each bucket, as a share of the width.
  var centres: [Double] {
    buckets.indices.map { (Double($0) + 0.5) / Double(buckets.count) }
  }

  /// The marks of the calendar, each at the first bucket that begins no earlier.
  func calendarMarks(at shares: [Double]) -> [(share: Double, label: String)] {
    guard let first = buckets.first, let last = buckets.last else { return [] }
    guard first.at < last.at else { return [(0.5, first.label)] }
    let finest = zip(buckets, buckets.dropFirst()).map { $1.at - $0.at }.min() ?? .zero
    let ticks = CalendarTicks(
      from: first.at, until: last.at, most: Self.mostTicks, finest: finest)
    return ticks.marks.compactMap { mark in
      buckets.firstIndex { $0.at >= mark.moment }.map { (shares[$0], mark.label) }
    }
  }
}
