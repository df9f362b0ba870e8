/// A chart of a report, over the days of its rows.
package struct ReportChart: Sendable {
  /// The sum of some columns, less that of others.
  package struct Series: Sendable {
    package let name: String
    package let added: [String]
    package let takenOff: [String]

    init(_ name: String, _ added: String..., minus takenOff: String...) {
      (self.name, self.added, self.takenOff) = (name, added, takenOff)
    }
  }

  package let title: String
  package let series: [Series]
  /// Whether it has the numbers at the end of each row, drawn as lines instead of stacked bars.
  package let isStock: Bool
  /// The total of each bar.
  package let net: Series?

  static func lines(_ title: String, _ series: Series...) -> ReportChart {
    ReportChart(title: title, series: series, isStock: true, net: nil)
  }

  static func bars(_ title: String, _ series: Series..., net: Series? = nil) -> ReportChart {
    ReportChart(title: title, series: series, isStock: false, net: net)
  }
}
