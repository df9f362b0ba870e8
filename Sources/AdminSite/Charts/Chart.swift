import Foundation
import Subscriptions

/// A chart for the template `chart`.
///
/// Horizontal values are percentages of the plot's width and vertical ones pixels, so that a chart
/// fits any screen while its text keeps its size.
struct Chart: Sendable {
  /// Letters, digits and hyphens.
  var id: String
  var title: String
  /// The chart in words.
  var description: String
  /// Of the plot.
  var height: Int
  /// Of the plot with the time axis below it.
  var fullHeight: Int
  /// The baseline of the time axis's labels.
  var labelY: Int
  var yTicks: [ChartTick]
  var xTicks: [ChartTick]
  /// The areas below lines, and the lines: 0 to 1000 across, pixels down.
  var areas: [(seriesClass: String, data: String)] = []
  var lines: [(seriesClass: String, data: String)] = []
  /// The pieces of stacked bars.
  var bars: [(seriesClass: String, x: String, width: String, y: String, height: String)] = []
  var dots: [(seriesClass: String, x: String, y: String)] = []
  /// The parts of the plot that show the values of one time when pointed at.
  var bands: [(x: String, width: String, text: String)]
  /// The series with their latest values.
  var legend: [(seriesClass: String, label: String, value: String?)]
  var isEmpty: Bool
  var table: DataTable
}

struct ChartTick: Sendable {
  /// Percent of the width or pixels down.
  var position: String
  var label: String
  /// `start`, `middle` or `end`, so that the outermost labels stay inside.
  var anchor = "middle"
  /// Hidden on a phone.
  var isMinor = false
  var isZero = false
}

extension Chart {
  /// Draws a line for each series, and an area below the first.
  init(linesOf data: ChartData) {
    let scale = ChartScale(
      data.series.flatMap { $0.values.compactMap(\.self) }, height: data.height)
    let shares = data.centres
    self = data.picture(scale: scale, marks: data.calendarMarks(at: shares))
    for (index, series) in data.series.enumerated() {
      let seriesClass = ChartData.seriesClass(index)
      let runs = PathRun.runs(of: series.values, at: shares, in: scale)
      let drawn = runs.filter { $0.points.count > 1 }
      if !drawn.isEmpty {
        lines.append((seriesClass: seriesClass, data: drawn.map(\.line).joined()))
        if index == 0 {
          areas.append(
            (
              seriesClass: seriesClass, data: drawn.map { $0.area(from: scale.baseline) }.joined()
            ))
        }
      }
      // A single value is not a line.
      addDots(runs.filter { $0.points.count == 1 }, seriesClass)
    }
  }

  private mutating func addDots(_ runs: [PathRun], _ seriesClass: String) {
    dots += runs.flatMap(\.points).map {
      (seriesClass, Coordinate.text($0.x / 10), Coordinate.text($0.y))
    }
  }
}

/// Values without a gap between them: 0 to 1000 across, pixels down.
struct PathRun: Sendable {
  var points: [(x: Double, y: Double)]

  /// Splits values at the missing ones.
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

  var line: String { Self.line(points) }

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
  /// The centre of each bucket, as a share of the width.
  var centres: [Double] {
    buckets.indices.map { (Double($0) + 0.5) / Double(buckets.count) }
  }

  /// The calendar's marks, each at the first bucket that begins no earlier.
  func calendarMarks(at shares: [Double]) -> [(share: Double, label: String)] {
    guard let first = buckets.first, let last = buckets.last else { return [] }
    guard first.at < last.at else { return [(0.5, first.label)] }
    let finest = zip(buckets, buckets.dropFirst()).map { $1.at - $0.at }.min() ?? .zero
    let ticks = CalendarTicks(from: first.at, until: last.at, most: Self.mostTicks, finest: finest)
    return ticks.marks.compactMap { mark in
      buckets.firstIndex { $0.at >= mark.moment }.map { (shares[$0], mark.label) }
    }
  }
}

extension Chart {
  /// Draws a stacked bar for each time, with gains above zero and losses (negative values) below,
  /// and a line for the total.
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
          (
            ChartData.seriesClass(piece.series), Coordinate.text(share * 100 - width / 2),
            Coordinate.text(width), Coordinate.text(min(top, bottom)),
            Coordinate.text(abs(bottom - top))
          ))
      }
    }
    guard !isEmpty, !sums.isEmpty else { return }
    let run = PathRun.runs(of: sums, at: shares, in: scale)
    lines.append((seriesClass: ChartData.netClass, data: run.map(\.line).joined()))
    if data.buckets.count <= 40 { addDots(run, ChartData.netClass) }
  }
}

/// The pieces of one bar, upwards and downwards from zero.
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

/// Writes coordinates.
enum Coordinate {
  /// A number with up to two decimals, as in `12.5`, `0` and `-3.33`.
  ///
  /// NaN and infinity are 0, so that no value breaks a chart.
  static func text(_ number: Double) -> String {
    guard number.isFinite, abs(number) < 1_000_000 else { return "0" }
    // Adding zero turns −0 into 0.
    let text = "\((number * 100).rounded() / 100 + 0)"
    return text.hasSuffix(".0") ? String(text.dropLast(2)) : text
  }
}

/// The numbers of a chart: series over the same times.
struct ChartData: Sendable {
  /// Letters, digits and hyphens.
  var id: String
  var title: String
  var unit = ChartUnit.count
  typealias Series = (name: String, values: [Int64?])

  /// Days, weeks or months in order, as wall-clock times of the report's time zone, with labels
  /// such as `2026-11-22`, `Week of 2026-11-16` or `Nov 2026`.
  var buckets: [(at: Timestamp, label: String)]
  /// With a value for each bucket; nil if unknown.
  var series: [Series]
  /// The total of all series, drawn as a line over their bars.
  var net: Series?
  /// Of the plot, in pixels.
  var height = 200

  /// Whether no value is known.
  var isEmpty: Bool { series.allSatisfy { $0.values.allSatisfy { $0 == nil } } }
}

extension ChartData {
  private static let axisHeight = 24
  static let mostTicks = 8
  /// As many places to point at as a wide screen has room for.
  private static let mostBands = 400

  /// The frame of all kinds of charts.
  func picture(scale: ChartScale, marks: [(share: Double, label: String)]) -> Chart {
    Chart(
      id: id, title: title, description: description, height: height,
      fullHeight: height + Self.axisHeight, labelY: height + 16, yTicks: scale.ticks(in: unit),
      xTicks: ChartTick.across(marks), bands: bands, legend: legend, isEmpty: isEmpty, table: table)
  }

  /// The class of a series' colour; the six colours repeat.
  static func seriesClass(_ index: Int) -> String { "series-\(index % 6 + 1)" }

  /// The class of the line of the total.
  static let netClass = "series-net"

  /// The series in the legend, the description and the table.
  private var allSeries: [Series] { series + (net.map { [$0] } ?? []) }

  private var legend: [(seriesClass: String, label: String, value: String?)] {
    allSeries.enumerated().map { index, series in
      (
        self.series.indices.contains(index) ? Self.seriesClass(index) : Self.netClass,
        series.name, (series.values.last ?? nil).map(unit.text)
      )
    }
  }

  /// One sentence for each series: where it ends, where it began, and its extremes.
  private var description: String {
    allSeries.compactMap { series in
      let known = zip(buckets, series.values).compactMap { bucket, value in
        value.map { (label: bucket.label, value: $0) }
      }
      guard let first = known.first, let last = known.last,
        let least = known.map(\.value).min(), let most = known.map(\.value).max()
      else { return nil }
      return "\(series.name): \(unit.text(last.value)) (\(last.label)), "
        + "\(unit.text(first.value)) at first (\(first.label)), "
        + "between \(unit.text(least)) and \(unit.text(most))."
    }
    .joined(separator: " ")
  }

  private var bands: [(x: String, width: String, text: String)] {
    let count = buckets.count
    guard count > 0 else { return [] }
    let group = (count + Self.mostBands - 1) / Self.mostBands
    return stride(from: 0, to: count, by: group).map { start in
      // The latest bucket of the band.
      let index = min(start + group, count) - 1
      let values = allSeries.compactMap { series in
        series.values[index].map { "\(series.name) \(unit.text($0))" }
      }
      return (
        Coordinate.text(Double(start) / Double(count) * 100),
        Coordinate.text(Double(index + 1 - start) / Double(count) * 100),
        "\(buckets[index].label): "
          + (values.isEmpty ? "not known" : values.joined(separator: ", "))
      )
    }
  }

  /// Latest first.
  private var table: DataTable {
    DataTable(
      caption: title,
      columns: [DataColumn(label: "Time")]
        + allSeries.map { DataColumn(label: $0.name, isNumber: true) },
      rows: buckets.indices.reversed().map { index in
        DataRow(
          cells: [DataCell(text: buckets[index].label, isHeading: true)]
            + allSeries.map { series in
              DataCell(text: series.values[index].map(unit.text) ?? "", isNumber: true)
            })
      },
      emptyText: "There are no values.")
  }
}

/// The vertical axis of a chart, between round numbers.
///
/// Values are integers of small units, so that the steps between the marks are exact.
struct ChartScale: Hashable, Sendable {
  /// The lowest and the highest mark.
  let lowest: Int64
  let highest: Int64
  /// Between two marks: 1, 2 or 5 times a power of ten.
  let step: Int64
  /// In pixels.
  let height: Int

  /// Larger values are drawn at the edge.
  private static let limit: Int64 = 100_000_000_000_000_000

  /// Limits a value, so that no sum overflows.
  static func clamped(_ value: Int64) -> Int64 { min(max(value, -limit), limit) }

  /// Includes zero.
  init(_ values: [Int64], height: Int) {
    let low = Self.clamped(min(values.min() ?? 0, 0))
    let high = Self.clamped(max(values.max() ?? 0, 0))
    step = Self.step(for: high - low)
    self.height = height
    lowest = Self.floor(low, to: step)
    highest = max(-Self.floor(-high, to: step), lowest + step)
  }

  /// The smallest round step of which five cover the span.
  private static func step(for span: Int64) -> Int64 {
    var power: Int64 = 1
    while true {
      for factor: Int64 in [1, 2, 5] where power * factor * 5 >= span { return power * factor }
      power *= 10
    }
  }

  private static func floor(_ value: Int64, to step: Int64) -> Int64 {
    let rest = value % step
    return value - rest - (rest < 0 ? step : 0)
  }

  /// From the bottom to the top.
  var marks: [Int64] { Array(stride(from: lowest, through: highest, by: Int64.Stride(step))) }

  /// In pixels from the top.
  func y(_ value: Int64) -> Double {
    let inside = min(max(value, lowest), highest)
    return Double(height) * Double(highest - inside) / Double(highest - lowest)
  }

  /// The start of areas and bars: zero, or the nearest edge.
  var baseline: Double { y(0) }

  func ticks(in unit: ChartUnit) -> [ChartTick] {
    marks.map { mark in
      ChartTick(
        position: Coordinate.text(y(mark)), label: unit.short(mark), anchor: "end",
        isZero: mark == 0)
    }
  }
}

/// The unit of a chart's numbers, and their format.
enum ChartUnit: Hashable, Sendable {
  case count
  /// Milliunits of a currency.
  case money(currency: String)
  /// Hundredths of a percent.
  case share

  /// Writes a value exactly, as in `1,284`, `1,284.50 USD` or `3.25 %`.
  func text(_ value: Int64) -> String {
    switch self {
    case .count: Self.text(Decimal(value), decimals: 0...0)
    case .money(let currency):
      Self.text(Decimal(value) / 1000, decimals: (Self.decimals[currency] ?? 2)...3) + " "
        + currency
    case .share: Self.text(Decimal(value) / 100, decimals: 1...2) + " %"
    }
  }

  /// Writes a value for an axis, as in `1.2k`, without the currency.
  func short(_ value: Int64) -> String {
    switch self {
    case .count: Self.short(Decimal(value))
    case .money: Self.short(Decimal(value) / 1000)
    case .share: Self.text(Decimal(value) / 100, decimals: 0...2) + " %"
    }
  }

  /// Writes a number in thousands, millions and so on.
  private static func short(_ number: Decimal) -> String {
    var (number, suffix) = (number, "")
    for next in ["k", "M", "G", "T"] where number.magnitude >= 1000 {
      (number, suffix) = (number / 1000, next)
    }
    return text(number, decimals: 0...2) + suffix
  }

  /// Writes a number with thousands separators, rounded towards zero.
  private static func text(_ number: Decimal, decimals: ClosedRange<Int>) -> String {
    number.formatted(
      .number.locale(english).precision(.fractionLength(decimals)).rounded(rule: .towardZero)
    ).replacing("-", with: "−")
  }

  private static let english = Locale(identifier: "en_US")

  /// Apple's currencies without and with three decimals; all others have two.
  private static let decimals: [String: Int] = [
    "JPY": 0, "KRW": 0, "VND": 0, "CLP": 0, "BHD": 3, "JOD": 3, "KWD": 3, "OMR": 3, "TND": 3,
  ]
}

/// The marks of a time axis: midnights, first days of months, or full hours.
///
/// Times are read as UTC; for another time zone the caller passes wall-clock times.
struct CalendarTicks: Sendable {
  /// In order, with labels.
  let marks: [(moment: Timestamp, label: String)]

  /// At most that many marks, none closer than the finest distance: days have no hours.
  init(from: Timestamp, until: Timestamp, most: Int, finest: Duration = .zero) {
    var marks: [(moment: Timestamp, label: String)] = []
    for step in Step.all where from < until && marks.isEmpty && step.shortest >= finest {
      let moments = step.marks(from: from, until: until, most: most)
      marks = moments.enumerated().map { index, moment in
        let hasRoom = moments.count <= Self.fewDays
        return (moment, step.label(moment, isFirst: index == 0, hasRoom: hasRoom))
      }
    }
    self.marks = marks
  }

  /// With more days there is no room for the year in each label.
  private static let fewDays = 5

  private enum Step {
    /// Days or parts of one, counted from a moment.
    case time(Duration, from: Timestamp)
    case months(Int)

    /// Weeks begin on Mondays.
    private static let monday = Timestamp(CalendarDate(year: 1970, month: 1, day: 5))
    private static let epoch = Timestamp(milliseconds: 0)

    /// From the finest to the coarsest.
    static let all: [Step] =
      ([.hours(1), .hours(3), .hours(6), .hours(12), .days(1), .days(2)] as [Duration])
      .map { .time($0, from: epoch) } + [7, 14].map { .time(.days($0), from: monday) }
      + [1, 2, 3, 6, 12, 24, 60, 120, 600, 1200].map(months)

    /// The shortest: February has 28 days.
    var shortest: Duration {
      switch self {
      case .time(let length, _): length
      case .months(let months): .days(28 * months)
      }
    }

    /// Empty if there are more than the limit.
    func marks(from: Timestamp, until: Timestamp, most: Int) -> [Timestamp] {
      let first = number(of: from)
      let marks = (first...first + most + 1).map(mark).filter { from <= $0 && $0 <= until }
      return marks.count > most ? [] : marks
    }

    /// The number of the last mark that is not after a moment.
    private func number(of moment: Timestamp) -> Int {
      switch self {
      case .time(let length, let origin):
        Int(((moment - origin) / length).rounded(.down))
      case .months(let months):
        (moment.dayAndTime.date.year * 12 + moment.dayAndTime.date.month - 1) / months
      }
    }

    private func mark(_ number: Int) -> Timestamp {
      switch self {
      case .time(let length, let origin): return origin + length * number
      case .months(let months):
        let month = number * months
        return Timestamp(CalendarDate(year: month / 12, month: month % 12 + 1, day: 1))
      }
    }

    func label(_ moment: Timestamp, isFirst: Bool, hasRoom: Bool) -> String {
      let (date, time) = moment.dayAndTime
      switch self {
      case .time where time > 0:
        let hour = time / 3_600_000
        return (hour < 10 ? "0" : "") + "\(hour):00"
      case .time:
        return "\(date.day) \(date.monthName)" + (isFirst && hasRoom ? " \(date.year)" : "")
      case .months(let months) where months.isMultiple(of: 12): return "\(date.year)"
      case .months: return date.monthName + (isFirst || date.month == 1 ? " \(date.year)" : "")
      }
    }
  }
}

extension ChartTick {
  /// Marks at shares of an axis: outer labels stay inside; a phone hides every other of many.
  static func across(_ marks: [(share: Double, label: String)]) -> [ChartTick] {
    marks.enumerated().map { index, mark in
      let anchor = mark.share < 0.06 ? "start" : mark.share > 0.94 ? "end" : "middle"
      return ChartTick(
        position: Coordinate.text(mark.share * 100), label: mark.label, anchor: anchor,
        isMinor: marks.count > 4 && !index.isMultiple(of: 2))
    }
  }
}
