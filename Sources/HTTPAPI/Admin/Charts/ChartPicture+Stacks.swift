import Subscriptions

extension ChartPicture {
  /// Draws movements: for each time a bar, what is gained above zero and what is lost below, and a
  /// line for what they come to.
  ///
  /// - Parameter data: The numbers; those of losses are negative.
  init(stacksOf data: ChartData) {
    let stacks = data.buckets.indices.map { Stack(data.series.map(\.values), at: $0) }
    let sums = data.net?.values.map { $0.map(ChartScale.clamped) } ?? []
    let scale = ChartScale(
      stacks.flatMap { [$0.above, $0.below] } + sums.compactMap(\.self), height: data.height)
    let shares = data.centres
    self = data.picture(scale: scale, marks: data.calendarMarks(at: shares))
    let width = min(78 / Double(max(data.buckets.count, 1)), 10)
    for (stack, share) in zip(stacks, shares) {
      for piece in stack.pieces {
        let (top, bottom) = (scale.y(piece.until), scale.y(piece.from))
        bars.append(
          ChartBar(
            seriesClass: ChartData.seriesClass(piece.series),
            x: Coordinate.text(share * 100 - width / 2), width: Coordinate.text(width),
            y: Coordinate.text(min(top, bottom)), height: Coordinate.text(abs(bottom - top))))
      }
    }
    guard !isEmpty, !sums.isEmpty else { return }
    let run = PathRun.runs(of: sums, at: shares, in: scale)
    lines.append(ChartPath(seriesClass: ChartData.netClass, data: run.map(\.line).joined()))
    if data.buckets.count <= 40 {
      dots += run.flatMap(\.points).map {
        ChartDot(
          seriesClass: ChartData.netClass, x: Coordinate.text($0.x / 10), y: Coordinate.text($0.y))
      }
    }
  }
}

/// The pieces of one bar, from zero up and from zero down.
private struct Stack {
  var pieces: [(series: Int, from: Int64, until: Int64)] = []
  var above: Int64 = 0
  var below: Int64 = 0

  init(_ series: [[Int64?]], at bucket: Int) {
    for (index, values) in series.enumerated() {
      guard let value = values[bucket].map(ChartScale.clamped), value != 0 else { continue }
      if value > 0 {
        pieces.append((index, above, above + value))
        above += value
      } else {
        pieces.append((index, below, below + value))
        below += value
      }
    }
  }
}
