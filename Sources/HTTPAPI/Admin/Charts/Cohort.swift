/// Those who began in one time, and how many of them are still there after each following one.
struct Cohort: Sendable {
  /// For example `Nov 2025`.
  var label: String
  var size: Int64
  /// After 0, 1, 2 … times; nil: not yet over.
  var retained: [Int64?]
  /// Where the numbers lead to, one for each or none at all.
  var hrefs: [String] = []
  var sizeHref: String?
}

extension DataTable {
  /// Lays cohorts out as a triangle of shares, the deeper the colour the more remain.
  ///
  /// - Parameters:
  ///   - cohorts: In order of time.
  ///   - caption: What the table is about.
  ///   - period: What the columns count, for example `Month`; said once.
  init(cohorts: [Cohort], caption: String, period: String) {
    let count = cohorts.map(\.retained.count).max() ?? 0
    self.init(
      caption: caption,
      columns: [DataColumn(label: "Cohort"), DataColumn(label: "Size", isNumber: true)]
        + (0..<count).map {
          DataColumn(label: $0 == 0 ? "\(period) 0" : "\($0)", isNumber: true)
        },
      rows: cohorts.map { cohort in
        DataRow(
          cells: [
            DataCell(text: cohort.label, isHeading: true),
            DataCell(
              text: ChartUnit.count.text(cohort.size), href: cohort.sizeHref, isNumber: true),
          ] + (0..<count).map(cohort.cell))
      },
      emptyText: "No cohort has begun yet.")
  }
}

extension Cohort {
  /// A share with one decimal, rounded down so that only what is whole is said to be.
  fileprivate func cell(_ index: Int) -> DataCell {
    guard retained.indices.contains(index), let left = retained[index], size > 0 else {
      return DataCell(text: "", isNumber: true)
    }
    let part = min(max(Double(left) / Double(size), 0), 1)
    let share = Int64((part * 1000).rounded(.down)) * 10
    return DataCell(
      text: ChartUnit.share.text(share),
      href: hrefs.indices.contains(index) ? hrefs[index] : nil, isNumber: true,
      heat: Int(share / 1000))
  }
}
