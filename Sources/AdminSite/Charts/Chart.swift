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
  /// The parts of the plot whose numbers still grow.
  var unfinished: [(x: String, width: String)] = []
  var dots: [(seriesClass: String, x: String, y: String)] = []
  /// The parts of the plot that show the values of one time when pointed at.
  var bands: [(x: String, width: String, text: String)]
  /// The series with their latest values.
  var legend: [(seriesClass: String, label: String, value: String?)]
  var isEmpty: Bool
  /// What the numbers count.
  var note: String?
  var table: DataTable
}

struct ChartTick: Sendable {
  /// Percent of the width or pixels down.
  var position: String
  var label: String
  /// `start`, `middle` or `end`, so that the outermost labels stay inside.
  var anchor = "middle"
  /// The same on a phone.
  var narrowAnchor = "middle"
  /// Hidden on a phone.
  var isMinor = false
  var isZero = false
}

extension Chart {
  /// Draws a line for each series, and an area below the first.
  init(linesOf data: ChartData) {
    let scale = ChartScale(
      data.series.flatMap { $0.values.compactMap(\.self) }, height: data.height,
      least: data.unit.leastSpan)
    let shares = data.centres
    self = data.picture(scale: scale, marks: data.calendarMarks(at: shares))
    for (index, series) in data.series.enumerated() where data.isDrawn(series) {
      let seriesClass = data.seriesClass(index)
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
    if categories != nil { return zip(shares, buckets).map { ($0, $1.label) } }
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
    // The net of an unfinished period says nothing yet.
    let sums = (data.net?.values ?? []).enumerated().map { index, value in
      data.unfinished.contains(index) ? nil : value.map(ChartScale.clamped)
    }
    let earlier = (data.previous?.values ?? []).map { $0.map(ChartScale.clamped) }
    let scale = ChartScale(
      stacks.flatMap { [$0.above, $0.below] } + (sums + earlier).compactMap(\.self),
      height: data.height, least: data.unit.leastSpan)
    let shares = data.centres
    self = data.picture(scale: scale, marks: data.calendarMarks(at: shares))
    let width = min(78 / Double(max(data.buckets.count, 1)), 10)
    for (stack, share) in zip(stacks, shares) {
      for piece in stack.pieces {
        let (top, bottom) = (scale.y(piece.until), scale.y(piece.from))
        bars.append(
          (
            data.seriesClass(piece.series), Coordinate.text(share * 100 - width / 2),
            Coordinate.text(width), Coordinate.text(min(top, bottom)),
            Coordinate.text(abs(bottom - top))
          ))
      }
    }
    for (values, seriesClass) in [(sums, ChartData.netClass), (earlier, ChartData.previousClass)]
    where !isEmpty && !values.isEmpty {
      let run = PathRun.runs(of: values, at: shares, in: scale)
      lines.append((seriesClass: seriesClass, data: run.map(\.line).joined()))
      if data.buckets.count <= 40 { addDots(run, seriesClass) }
    }
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
  /// The total of the period before, drawn as another line.
  var previous: Series?
  /// Of the plot, in pixels.
  var height = 200
  /// The names of the series whose growth is bad news, in warm colours.
  var losses: Set<String> = []
  /// The buckets whose numbers still grow.
  var unfinished: Set<Int> = []
  /// What the buckets are, if they are not times.
  var categories: String?
  /// What is said of a bucket after its label.
  var remarks: [Int: String] = [:]
  /// What the numbers count.
  var note: String?
  /// Whether the legend has the sums of the finished buckets instead of the latest values.
  var sumsUp = false

  /// Whether no value is known.
  var isEmpty: Bool { series.allSatisfy { $0.values.allSatisfy { $0 == nil } } }
}

extension ChartData {
  private static let axisHeight = 24
  /// The vertical axis, and the page's margin.
  private static let labelRoom = (left: 48.0, right: 16.0)
  static let mostTicks = 8
  /// As many places to point at as a wide screen has room for.
  private static let mostBands = 400

  /// The frame of all kinds of charts.
  func picture(scale: ChartScale, marks: [(share: Double, label: String)]) -> Chart {
    Chart(
      id: id, title: title, description: description, height: height,
      fullHeight: height + Self.axisHeight, labelY: height + 16, yTicks: scale.ticks(in: unit),
      xTicks: ChartTick.across(marks, room: Self.labelRoom),
      unfinished: isEmpty ? [] : unfinished.sorted().map { (x(of: $0), x(of: 1)) }, bands: bands,
      legend: legend, isEmpty: isEmpty, note: isEmpty ? nil : note, table: table)
  }

  /// The start of a bucket, in percent of the width.
  private func x(of bucket: Int) -> String {
    Coordinate.text(Double(bucket) / Double(buckets.count) * 100)
  }

  /// What has one colour in all charts: plan changes, refunds and billing issues have their own.
  private static let colours = [
    "Returned": 3, "Resubscribed": 3, "Recovered": 3, "Converted": 3, "Expansion": 4,
    "Changed in": 4, "Contraction": 6, "Changed out": 6, "Refunded": 2, "Refunds": 2, "Entered": 5,
    "Involuntary": 5, "In grace period": 5, "Grace period": 5, "Currency changed": 5,
    "Exchange rates": 2,
  ]

  /// The class of a series' colour: cool ones for gains and warm ones for losses, which repeat.
  func seriesClass(_ index: Int) -> String {
    guard !losses.isEmpty else { return "series-\(index % 6 + 1)" }
    let fixed = series.map { Self.colours[$0.name] }
    if let colour = fixed[index] { return "series-\(colour)" }
    let isLoss = losses.contains(series[index].name)
    let all = isLoss ? [7, 2, 5, 4, 6, 1] : [1, 3, 6, 4, 5]
    let free: [Int] = all.filter { !fixed.contains($0) }
    let place = series.indices.prefix(index).count {
      fixed[$0] == nil && losses.contains(series[$0].name) == isLoss
    }
    return "series-\(free[place % free.count])"
  }

  /// The class of the line of the total.
  static let netClass = "series-net"
  static let previousClass = "series-previous"

  /// The series in the legend, the description and the table.
  private var allSeries: [Series] { series + [net, previous].compactMap(\.self) }

  /// Whether a series is drawn: not if it is 0 all the time, unless all are.
  func isDrawn(_ series: Series) -> Bool {
    func hasAny(_ series: Series) -> Bool { series.values.contains { ($0 ?? 0) != 0 } }
    return hasAny(series) || !allSeries.contains(where: hasAny)
  }

  private var legend: [(seriesClass: String, label: String, value: String?)] {
    // The title names a curve that is alone.
    guard categories == nil || sumsUp || allSeries.count > 1 else { return [] }
    return allSeries.enumerated().filter { isDrawn($0.element) }
      .map { index, series in
        (
          self.series.indices.contains(index)
            ? seriesClass(index)
            : series.name == previous?.name ? Self.previousClass : Self.netClass,
          series.name,
          sumsUp
            ? total(series.values, hasOpen: series.name != previous?.name)
            : (series.values.last ?? nil).map(unit.text)
        )
      }
  }

  /// The sum of the finished buckets, as a table has it, and of the others, as in `4 (+3 so far)`; nil
  /// if one of the finished buckets is not known.
  ///
  /// - Parameter hasOpen: Whether the unfinished buckets of the series can still grow.
  private func total(_ values: [Int64?], hasOpen: Bool) -> String? {
    let open = hasOpen ? unfinished : []
    let isKnown = values.enumerated().allSatisfy {
      $0.element != nil || unfinished.contains($0.offset)
    }
    guard isKnown else { return nil }
    func sum(_ isOpen: Bool) -> Int64? {
      values.enumerated().filter { unfinished.contains($0.offset) == isOpen }
        .compactMap(\.element).reduce(nil) { ($0 ?? 0) + ChartScale.clamped($1) }
    }
    let soFar = open.isEmpty ? nil : sum(true)
    guard let soFar, soFar != 0 else { return (sum(false) ?? soFar).map(unit.text) }
    guard !isAllUnfinished, let ended = sum(false) else { return "\(unit.text(soFar)) so far" }
    return "\(unit.text(ended)) (\(soFar > 0 ? "+" : "")\(unit.number(soFar)) so far)"
  }

  /// Whether no finished bucket has a number, so that the sums are those of the others.
  var isAllUnfinished: Bool {
    series.allSatisfy { series in
      series.values.enumerated().allSatisfy { ($1 ?? 0) == 0 || unfinished.contains($0) }
    }
  }

  private func label(of bucket: Int) -> String {
    let label = buckets[bucket].label
    // The axis has numbers alone.
    let name = Int(label) == nil ? label : "\(categories ?? "") \(label)"
    return name + (unfinished.contains(bucket) ? " so far" : "")
      + (remarks[bucket].map { " (\($0))" } ?? "")
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
        x(of: start),
        Coordinate.text(Double(index + 1 - start) / Double(count) * 100),
        "\(label(of: index))\n" + (values.isEmpty ? "not known" : values.joined(separator: "\n"))
      )
    }
  }

  private var table: DataTable {
    DataTable(
      caption: title,
      columns: [DataColumn(label: categories ?? "Time")]
        + allSeries.map { DataColumn(label: $0.name, isNumber: true) },
      rows: buckets.indices.map { index in
        DataRow(
          cells: [DataCell(text: label(of: index), isHeading: true)]
            + allSeries.map { series in
              DataCell(text: series.values[index].map(unit.text) ?? "", isNumber: true)
            })
      },
      emptyText: "There are no values.")
  }
}
