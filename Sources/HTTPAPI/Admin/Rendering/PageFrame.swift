import Subscriptions

/// What stands around every page: the template `layout` reads it as `page`.
///
/// Templates find a value by the name of its stored property, through a mirror. A property that is
/// nil is looked for further out, so templates write `{{.name}}` for what belongs to the innermost
/// value; and an empty text counts as there, so what may be missing is optional and never empty.
struct PageFrame: Sendable {
  /// In the title bar and as the heading.
  var title: String
  /// The name of the administrator's key; nil: nobody is logged in, and there is no navigation.
  var administrator: String?
  /// In every form, as the field `csrf`.
  var csrfToken: String
  /// What was searched for last, to go on from.
  var searchText = ""
  var navigation: [NavigationGroup] = []
  /// What just happened; told once.
  var flash: Flash?
  /// The moment that the page is about.
  var asOf: Moment?
  /// Where the page stands, from the outside in.
  var trail: [PageLink] = []
  /// What the page's subject allows to be done, beside the heading.
  var actions: [PageLink] = []
  /// Seconds after which the browser asks again, while a report is still being made.
  var refreshSeconds: Int?
  // With their versions, so that browsers may keep them.
  var styleHref = StaticFile.styleSheet.href
  var scriptHref = StaticFile.script.href
  var iconHref = StaticFile.icon.href
}

/// Links of the navigation that belong together.
struct NavigationGroup: Sendable {
  /// Nil for the first group.
  var heading: String?
  /// On a phone only groups that are always shown remain; the others are behind their list's link.
  var isAlwaysShown: Bool
  var items: [NavigationItem]
}

/// A link of the navigation.
struct NavigationItem: Sendable {
  var label: String
  var href: String
  var isCurrent = false
  /// How many things wait there; nil: none.
  var badge: String?
}

/// What an action did, told at the top of the next page.
struct Flash: Sendable {
  var message: String
  /// One of ``Tone``.
  var tone: String
  /// Where to look at what was done.
  var link: PageLink?
}

/// A link with its text.
struct PageLink: Sendable {
  var label: String
  var href: String
  /// It takes something away, and looks like it.
  var isDanger = false
}

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

/// Text as it stands in a page.
///
/// The templates name it as their content type, `PAGE`, in place of swift-mustache's own `HTML`:
/// that one compares whole characters, and a quotation mark which is followed by a combining accent
/// is another character than a quotation mark. It passes unescaped, and ends the attribute in which
/// it stands.
enum PageText {
  /// Escapes what means something in HTML, within elements and within quoted attributes.
  static func escaped(_ text: String) -> String {
    guard text.utf8.contains(where: { entity($0) != nil }) else { return text }
    var bytes: [UInt8] = []
    bytes.reserveCapacity(text.utf8.count + 32)
    for byte in text.utf8 {
      if let entity = entity(byte) {
        bytes.append(contentsOf: entity.utf8)
      } else {
        bytes.append(byte)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  /// All five are ASCII, and no byte of another character looks like them.
  private static func entity(_ byte: UInt8) -> String? {
    switch byte {
    case UInt8(ascii: "<"): "&lt;"
    case UInt8(ascii: ">"): "&gt;"
    case UInt8(ascii: "&"): "&amp;"
    case UInt8(ascii: "\""): "&quot;"
    case UInt8(ascii: "'"): "&#39;"
    default: nil
    }
  }
}

extension Moment {
  /// A moment in UTC.
  init(_ moment: Timestamp) {
    let iso = moment.description
    self.init(iso: iso, text: "\(iso.prefix(10)) \(iso.dropFirst(11).prefix(5))")
  }
}

extension Timestamp {
  /// The day in UTC, as in `2026-11-22`.
  var dayText: String { String(description.prefix(10)) }
}

enum Age {
  /// The two largest units, for example `6 days 3 h`.
  static func text(_ duration: Duration) -> String {
    let text = max(duration, .zero).words(isRough: true)
    return text.replacing(" d", with: text.hasPrefix("1 d") ? " day" : " days")
  }
}

enum Count {
  /// For example `1 charge`, `3 charges`.
  static func text(_ number: Int, _ one: String, _ many: String? = nil) -> String {
    "\(ChartUnit.count.text(Int64(number))) \(number == 1 ? one : many ?? one + "s")"
  }
}
