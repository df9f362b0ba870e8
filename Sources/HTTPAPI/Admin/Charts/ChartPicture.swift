/// A chart as the template `chart` draws it.
///
/// Everything across is in percent of the plot's width and everything down is in pixels, so that a
/// chart fills a desk's screen and a phone's alike while its text keeps its size.
struct ChartPicture: Sendable {
  /// In the page: letters, digits and hyphens.
  var id: String
  var title: String
  /// What can be seen in it, in words.
  var description: String
  /// Of the plot.
  var height: Int
  /// Of the plot with the time axis below it.
  var fullHeight: Int
  /// The baseline of the time axis's labels.
  var labelY: Int
  var yTicks: [ChartTick]
  var xTicks: [ChartTick]
  var areas: [ChartPath]
  var bars: [ChartBar]
  var lines: [ChartPath]
  var dots: [ChartDot]
  var bands: [ChartBand]
  var legend: [ChartKey]
  /// There is nothing to draw.
  var isEmpty: Bool
  /// The same values as a table.
  var table: DataTable
}

/// A mark of an axis.
struct ChartTick: Sendable {
  /// Percent of the width or pixels down.
  var position: String
  var label: String
  /// `start`, `middle` or `end`: so that the outermost labels stay inside.
  var anchor = "middle"
  /// Left out on a phone.
  var isMinor = false
  var isZero = false
}

/// A line or the area below it; its coordinates are 0 to 1000 across and pixels down.
struct ChartPath: Sendable {
  /// `series-1` to `series-6`.
  var seriesClass: String
  /// The path's data: letters and numbers only.
  var data: String
}

/// A piece of a stacked bar.
struct ChartBar: Sendable {
  var seriesClass: String
  var x: String
  var width: String
  var y: String
  var height: String
}

/// A single value.
struct ChartDot: Sendable {
  var seriesClass: String
  var x: String
  var y: String
}

/// The part of the plot that belongs to one time, which tells its values when pointed at.
struct ChartBand: Sendable {
  var x: String
  var width: String
  var text: String
}

/// What a colour stands for.
struct ChartKey: Sendable {
  var seriesClass: String
  var label: String
  /// The latest value.
  var value: String?
}
