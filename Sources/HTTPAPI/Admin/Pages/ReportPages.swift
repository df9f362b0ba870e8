/// The template `reports`: all reports, each with its question.
struct ReportListPage: Sendable {
  var page: PageFrame
  var groups: [ReportGroup]
}

/// Reports that belong together.
struct ReportGroup: Sendable {
  var heading: String
  var reports: [ReportEntry]
}

/// A report in the list.
struct ReportEntry: Sendable {
  var label: String
  var href: String
  var summary: String
}

/// The template `report`: any report.
struct ReportPage: Sendable {
  var page: PageFrame
  /// As in `GET /v1/reports/{name}`.
  var name: String
  /// What it counts, exactly.
  var definition: [String]
  /// What is left out or to be minded, with these choices.
  var notes: [String]
  var form: ReportForm
  /// The report is still being made, and the page asks again by itself.
  var working: WorkingState?
  /// The numbers that matter most.
  var tiles: [Tile]
  var charts: [ChartPicture]
  /// Nil while it is being made.
  var table: DataTable?
  var paging: Paging?
  var downloads: [PageLink]
}

/// What can be chosen of a report.
struct ReportForm: Sendable {
  var action: String
  var fields: [ReportField]
  /// What goes along unchanged.
  var hidden: [HiddenField]
}

/// One choice of a report; `isSelect`, `isCheckbox` and `isInput` say which kind, one of them.
struct ReportField: Sendable {
  /// In the page: letters, digits and hyphens.
  var id: String
  var name: String
  var label: String
  var isSelect = false
  var isCheckbox = false
  var isInput = false
  /// `date`, `number` or `text`.
  var type = "text"
  var value = ""
  var isChecked = false
  var options: [ReportOption] = []
  /// What is wrong with the value.
  var fault: String?
}

/// A value that can be chosen.
struct ReportOption: Sendable {
  var value: String
  var label: String
  var isSelected = false
}

/// How far a report is that takes long.
struct WorkingState: Sendable {
  /// For example `Counting 1,000,000 subscriptions`.
  var text: String
  /// 0 to 100; nil: not known.
  var percent: Int?
  /// This page again, to ask by hand.
  var href: String
}

/// The template `drill-down`: the transactions behind a number.
struct DrillDownPage: Sendable {
  var page: PageFrame
  /// The number, as the report has it.
  var number: String
  /// What it counts, in a sentence.
  var sentence: String
  /// Which part of the report it is.
  var properties: [Property]
  var table: DataTable
  var paging: Paging?
  var downloads: [PageLink]
}
