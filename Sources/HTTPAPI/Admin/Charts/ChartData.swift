import Subscriptions

/// The numbers of a chart: series of values over the same times.
struct ChartData: Sendable {
  /// In the page: letters, digits and hyphens.
  var id: String
  var title: String
  var unit = ChartUnit.count
  /// In order; wall-clock times of the report's time zone.
  var buckets: [ChartBucket]
  var series: [ChartSeries]
  /// What all of the series come to, drawn as a line over their bars; nil: no such line.
  var net: ChartSeries?
  /// Of the plot, in pixels.
  var height = 200

  /// A chart says nothing where no value is known.
  var isEmpty: Bool { series.allSatisfy { $0.values.allSatisfy { $0 == nil } } }
}

/// A day, week or month of a chart.
struct ChartBucket: Sendable {
  var at: Timestamp
  /// For example `2026-11-22`, `Week of 2026-11-16` or `Nov 2026`.
  var label: String
}

/// Values under one name.
struct ChartSeries: Sendable {
  var name: String
  /// One for each bucket; nil: not known.
  var values: [Int64?]
  /// Where a table's values lead to, one for each bucket or none at all.
  var hrefs: [String] = []
}

extension ChartData {
  /// The space below the plot for the labels of its axis.
  private static let axisHeight = 24
  /// So many marks of the axis of time at most.
  static let mostTicks = 8
  /// A wide screen has no more pixels than so many places to point at.
  private static let mostBands = 400

  /// The frame that charts of all kinds have in common.
  func picture(scale: ChartScale, marks: [(share: Double, label: String)]) -> ChartPicture {
    ChartPicture(
      id: id, title: title, description: description, height: height,
      fullHeight: height + Self.axisHeight, labelY: height + 16, yTicks: scale.ticks(in: unit),
      xTicks: ChartTick.across(marks), areas: [], bars: [], lines: [], dots: [], bands: bands,
      legend: legend, isEmpty: isEmpty, table: table)
  }

  /// The class of a series' colour; there are six colours, which then begin again.
  static func seriesClass(_ index: Int) -> String { "series-\(index % 6 + 1)" }

  /// The class of the line for what all series come to.
  static let netClass = "series-net"

  /// What is told in words and in the table.
  private var told: [ChartSeries] { series + (net.map { [$0] } ?? []) }

  private var legend: [ChartKey] {
    told.enumerated().map { index, series in
      ChartKey(
        seriesClass: self.series.indices.contains(index) ? Self.seriesClass(index) : Self.netClass,
        label: series.name, value: (series.values.last ?? nil).map(unit.text))
    }
  }

  /// One sentence for each series: where it ends, where it began, and its extremes.
  private var description: String {
    told.compactMap { series in
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

  private var bands: [ChartBand] {
    let count = buckets.count
    guard count > 0 else { return [] }
    let group = (count + Self.mostBands - 1) / Self.mostBands
    return stride(from: 0, to: count, by: group).map { start in
      // The latest of those that share a band.
      let index = min(start + group, count) - 1
      let values = told.compactMap { series in
        series.values[index].map { "\(series.name) \(unit.text($0))" }
      }
      return ChartBand(
        x: Coordinate.text(Double(start) / Double(count) * 100),
        width: Coordinate.text(Double(index + 1 - start) / Double(count) * 100),
        text: "\(buckets[index].label): "
          + (values.isEmpty ? "not known" : values.joined(separator: ", ")))
    }
  }

  /// Latest first.
  private var table: DataTable {
    DataTable(
      caption: title,
      columns: [DataColumn(label: "Time")]
        + told.map { DataColumn(label: $0.name, isNumber: true) },
      rows: buckets.indices.reversed().map { index in
        DataRow(
          cells: [DataCell(text: buckets[index].label, isHeading: true)]
            + told.map { series in
              DataCell(
                text: series.values[index].map(unit.text) ?? "",
                href: series.hrefs.indices.contains(index) ? series.hrefs[index] : nil,
                isNumber: true)
            })
      },
      emptyText: "There are no values.")
  }
}
