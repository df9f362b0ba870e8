extension Sparkline {
  /// In pixels; the line keeps clear of the edges.
  private static let height = 36
  private static let margin = 3

  /// Draws the way of a number; nil where there is nothing to draw a line from.
  ///
  /// - Parameters:
  ///   - values: In order; those that are not known are left out.
  ///   - name: What they are, for the description.
  ///   - unit: How they are written.
  init?(_ values: [Int64?], name: String, unit: ChartUnit = .count) {
    let known = values.enumerated().compactMap { index, value in value.map { (index, $0) } }
    guard let first = known.first, let last = known.last, known.count > 1 else { return nil }
    let (least, most) = known.reduce((first.1, first.1)) { range, point in
      (min(range.0, point.1), max(range.1, point.1))
    }
    let room = Double(Self.height - 2 * Self.margin)
    let points = known.map { index, value in
      let span = Double(most) - Double(least)
      let share = span > 0 ? (Double(value) - Double(least)) / span : 0.5
      return (
        x: Double(index) / Double(values.count - 1) * 100,
        y: Double(Self.margin) + room * (1 - share)
      )
    }
    let run = PathRun(points: points)
    line = run.line
    area = run.area(from: Double(Self.height))
    lastY = Coordinate.text(points.last?.y ?? 0)
    description =
      "\(name): from \(unit.text(first.1)) to \(unit.text(last.1)), "
      + "between \(unit.text(least)) and \(unit.text(most))"
  }
}
