/// A line without axes, beside a number; its coordinates are 0 to 100 across and pixels down.
struct Sparkline: Sendable {
  /// What can be seen in it, in words.
  var description: String
  var line: String
  var area: String
  /// The latest value, at the right edge.
  var lastY: String
}
