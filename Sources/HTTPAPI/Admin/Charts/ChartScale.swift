/// Where values stand in a chart, between round numbers.
///
/// Values are whole numbers of small units, so that the steps between the marks are exact.
struct ChartScale: Hashable, Sendable {
  /// The lowest and the highest mark.
  let lowest: Int64
  let highest: Int64
  /// Between two marks: 1, 2 or 5 times a power of ten.
  let step: Int64
  /// In pixels.
  let height: Int

  /// More than any book ever held; what lies beyond is drawn at the edge.
  private static let limit: Int64 = 100_000_000_000_000_000

  /// Holds a value within what can be drawn, so that no sum overflows.
  static func clamped(_ value: Int64) -> Int64 { min(max(value, -limit), limit) }

  /// - Parameters:
  ///   - values: What has a place in the chart.
  ///   - height: Of the plot, in pixels.
  ///   - includesZero: Areas and bars begin at zero; a line alone may leave it out.
  ///   - steps: So many steps between marks at most, about.
  init(_ values: some Sequence<Int64>, height: Int, includesZero: Bool = true, steps: Int64 = 5) {
    var (low, high) = includesZero ? (Int64(0), Int64(0)) : (Self.limit, -Self.limit)
    for value in values {
      low = min(low, Self.clamped(value))
      high = max(high, Self.clamped(value))
    }
    if low > high { (low, high) = (0, 0) }
    let step = Self.step(for: high - low, steps: steps)
    self.step = step
    self.height = height
    lowest = Self.floor(low, to: step)
    let top = -Self.floor(-high, to: step)
    highest = top > lowest ? top : lowest + step
  }

  /// The smallest round step that needs no more than so many.
  private static func step(for span: Int64, steps: Int64) -> Int64 {
    var power: Int64 = 1
    while true {
      for factor: Int64 in [1, 2, 5] where power * factor * steps >= span { return power * factor }
      power *= 10
    }
  }

  private static func floor(_ value: Int64, to step: Int64) -> Int64 {
    let rest = value % step
    return value - rest - (rest < 0 ? step : 0)
  }

  /// From the bottom to the top.
  var marks: [Int64] { Array(stride(from: lowest, through: highest, by: Int64.Stride(step))) }

  /// Where a value stands: pixels from the top.
  func y(_ value: Int64) -> Double {
    let inside = min(max(value, lowest), highest)
    return Double(height) * Double(highest - inside) / Double(highest - lowest)
  }

  /// Where an area or a bar begins: zero, or the edge that is nearest to it.
  var baseline: Double { y(0) }

  /// The marks with their words.
  func ticks(in unit: ChartUnit) -> [ChartTick] {
    marks.map { mark in
      ChartTick(
        position: Coordinate.text(y(mark)), label: unit.short(mark), anchor: "end",
        isZero: mark == 0)
    }
  }
}
