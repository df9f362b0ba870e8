/// A moment, to be read by people and by programs.
struct Moment: Sendable {
  /// RFC 3339, for `datetime`.
  var iso: String
  /// For example `2026-11-22 10:17`, in the page's time zone.
  var text: String
}

/// A short word about something's state, with a colour.
struct Badge: Sendable {
  var text: String
  /// One of ``Tone``.
  var tone: String
}

/// How something is meant; the style sheet gives each tone its colour.
enum Tone {
  static let good = "good"
  static let warning = "warning"
  static let bad = "bad"
  static let info = "info"
  static let quiet = "quiet"
}

/// One line of a list of properties.
struct Property: Sendable {
  var label: String
  var value: String
  var href: String?
  /// An identifier, set in a fixed width and broken anywhere.
  var isCode = false
  /// Explains the value.
  var note: String?
}

/// Any table of values.
struct DataTable: Sendable {
  /// What the table is about, for those who hear it; may be shown.
  var caption: String
  var columns: [DataColumn]
  var rows: [DataRow]
  /// In place of rows where there are none.
  var emptyText: String
  /// For example that there are more rows.
  var note: String?
}

/// A column of a table.
struct DataColumn: Sendable {
  var label: String
  /// Set flush right.
  var isNumber = false
}

/// A row of a table.
struct DataRow: Sendable {
  var cells: [DataCell]
  /// A sum of the rows above.
  var isTotal = false
}

/// One value of a table.
struct DataCell: Sendable {
  var text: String
  /// To what is behind the value.
  var href: String?
  var isNumber = false
  /// The row's name.
  var isHeading = false
  var isCode = false
  /// Beside the value, smaller.
  var note: String?
  /// One of ``Tone``: the text becomes a badge.
  var tone: String?
  /// The length of a bar under the value, in percent of the column's greatest.
  var barWidth: String?
  /// For a table of cohorts: 0 to 10.
  var heat: Int?
}

/// By whom something was done, and why.
struct ActNote: Sendable {
  var administrator: String
  /// When; nil: it stands beside.
  var at: Moment?
  /// In the administrator's own words; nil where nobody asked for it, or it stands beside.
  var reason: String?
}

/// A field that a form sends along unseen.
struct HiddenField: Sendable {
  var name: String
  var value: String
}

/// Links to the pages before and after this one.
struct Paging: Sendable {
  /// For example `1–50 of 1,284`.
  var text: String
  var previousHref: String?
  var nextHref: String?
}
