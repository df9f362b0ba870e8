import HTTPAPI
import LedgerStorage
import Subscriptions

/// The context of the template `layout`, which reads it as `page`.
///
/// Templates find values by the names of stored properties. A nil property is looked up further
/// out, so templates write `{{.name}}` for the innermost value. An empty string counts as present,
/// so what may be missing is an optional that is never empty.
struct PageFrame: Sendable {
  var title: String
  /// The name of the administrator's API key; nil before the login, and then without navigation.
  var administrator: String?
  /// The value of the forms' field `csrf`.
  var csrfToken = ""
  /// The last search, as the search field's value.
  var searchText = ""
  typealias NavigationItem = (label: String, href: String, isCurrent: Bool, badge: String?)
  /// The first group has no heading; badges count the items of a page.
  var navigation: [(heading: String?, items: [NavigationItem])] = []
  var flash: Flash?
  /// What the badges count; nil without a query.
  var waiting: AccountStore.WaitingCounts?
  var asOf: Moment?
  /// Breadcrumbs, outermost first.
  var trail: [PageLink] = []
  /// The state of what the page is about, next to the heading.
  var badges: [Badge] = []
  /// The buttons next to the heading.
  var actions: [PageLink] = []
  /// The interval of automatic reloads, while a report is being computed.
  var refreshSeconds: Int?
  var styleHref = StaticFile.styleSheet.href
  var scriptHref = StaticFile.script.href
  var iconHref = StaticFile.icon.href
}

/// The result of an action, shown at the top of the next page.
struct Flash: Codable, Sendable {
  var message: String
  /// One of ``Tone``.
  var tone: String
  var link: PageLink?
}

struct PageLink: Codable, Sendable {
  var label: String
  var href: String
  /// A destructive action, shown in red.
  var isDanger = false

  /// A link to an account's page.
  static func account(_ id: String) -> PageLink { PageLink(label: id, href: AdminURL.account(id)) }
}

/// A time as text and as the attribute `datetime`.
struct Moment: Sendable {
  /// RFC 3339.
  var iso: String
  /// For example `22 Nov 2026, 10:17`, in UTC.
  var text: String

  init(_ moment: Timestamp) {
    iso = moment.description
    text = "\(moment.dayName), \(iso.dropFirst(11).prefix(5))"
  }
}

/// A state as a word with a colour.
struct Badge: Sendable {
  var text: String
  /// One of ``Tone``.
  var tone: String
  /// What the text stands for, shown in a tooltip.
  var identifier: String?
}

/// The CSS classes of colours by meaning.
enum Tone {
  static let good = "good"
  static let warning = "warning"
  static let bad = "bad"
  static let info = "info"
  static let quiet = "quiet"
}

struct Property: Sendable {
  var label: String
  var value: String
  var href: String?
  /// An identifier, shown in a monospaced font.
  var isCode: Bool
  var note: String?

  init(
    _ label: String, _ value: String, href: String? = nil, isCode: Bool = false, note: String? = nil
  ) {
    self.label = label
    self.value = value
    self.href = href
    self.isCode = isCode
    self.note = note
  }

  init(_ label: String, _ moment: Timestamp) { self.init(label, Moment(moment).text) }
}

struct DataTable: Sendable {
  /// Read by screen readers, and shown on some pages.
  var caption: String
  var columns: [DataColumn]
  var rows: [DataRow]
  /// Shown if there are no rows.
  var emptyText: String
  /// For example that there are more rows.
  var note: String?
  /// Whether only the caption is shown at first.
  var isFolded = false
}

struct DataColumn: Sendable {
  var label: String
  /// Right-aligned.
  var isNumber = false
  /// Shown in a tooltip.
  var identifier: String?
}

struct DataRow: Sendable {
  var cells: [DataCell]
  /// `unfinished` for a period whose numbers still grow, or `total`.
  var rowClass: String?
}

struct DataCell: Sendable {
  var text: String
  var href: String?
  var isNumber = false
  /// The number 0, which has no items.
  var isNil = false
  /// The row's heading.
  var isHeading = false
  var isCode = false
  /// Smaller text after the value.
  var note: String?
  /// One of ``Tone``, for a change that is good or bad.
  var tone: String?
  /// What the text stands for, shown in a tooltip.
  var identifier: String?
  /// After the text.
  var pieces: [TextPiece] = []
  /// After the text.
  var tags: [Tag] = []
  /// Whether the number still grows.
  var isUnfinished = false
  /// The intensity of a cohort table's cell, from 0 to 10.
  var heat: Int?
}

/// A part of a sentence: an identifier with a link, or the words between.
typealias TextPiece = (text: String, href: String?)

extension String {
  /// The sentence with its first mention of something as a link; nil without one.
  ///
  /// - Parameter mention: The link's label with what is around it.
  func linking(_ link: PageLink, in mention: String) -> [TextPiece]? {
    guard let place = firstRange(of: mention),
      // Part of a longer identifier.
      !(self[place.upperBound...].first?.isNumber ?? false),
      let name = self[place].firstRange(of: link.label)
    else { return nil }
    return [
      (String(self[..<name.lowerBound]), nil), (link.label, link.href),
      (String(self[name.upperBound...]), nil),
    ]
  }
}

/// A thing with its state.
typealias Tag = (label: String, state: Badge)

/// An administrator's name and reason; the time is nil if it is shown elsewhere.
typealias AdministratorNote = (administrator: String, at: Moment?, reason: String?)

/// A form field; one of `isSelect`, `isCheckbox`, `isText` and `isInput` is set.
struct FormField: Sendable {
  /// The HTML id: letters, digits and hyphens.
  var id: String
  var name: String
  var label: String
  var isSelect = false
  var isCheckbox = false
  /// Has several lines.
  var isText = false
  var isInput = false
  /// `text`, `date` or `number`.
  var type = "text"
  var value = ""
  var isChecked = false
  var options: [(value: String, label: String, isSelected: Bool)] = []
  /// In characters; set for texts that the browser should not complete or correct.
  var maximumLength: Int?
  var isRequired = false
  /// Shares its line with the next or previous field.
  var isHalf = false
  /// The HTML id of the page's suggestions.
  var listID: String?
  /// Where the script reads suggestions for what is entered.
  var source: String?
  var hint: String?
  /// Why the value is refused.
  var fault: String?

  /// The ID of an account, with suggestions.
  static func account(_ field: TextField, _ label: String, hint: String? = nil) -> FormField {
    FormField(
      id: field.name.replacing("_", with: "-"), name: field.name, label: label, isInput: true,
      maximumLength: field.maximumLength, isRequired: true, listID: "accounts",
      source: AdminURL.suggestions,
      hint: hint)
  }

  /// Whether it is filled in or refused, and must not be folded.
  var isUsed: Bool { fault != nil || isChecked || !value.isEmpty }

  /// A choice of a list's filters, at first of any value.
  static func filter(
    _ name: String, _ label: String, _ values: [(String, String)], chosen: String?
  ) -> FormField {
    FormField(
      id: name, name: name, label: label, isSelect: true,
      options: [("", "Any", chosen == nil)] + values.map { ($0, $1, $0 == chosen) })
  }
}

/// The links to the previous and next page of a list.
struct Paging: Sendable {
  /// For example `1–50 of 1,284`.
  var text: String
  var previousHref: String?
  var nextHref: String?
}

/// The escaping of the templates' content type `PAGE`.
///
/// swift-mustache's own `HTML` compares whole characters: a quotation mark followed by a combining
/// accent is another character, passes unescaped and ends the attribute.
enum PageText {
  /// Escapes text for elements and quoted attributes.
  static func escaped(_ text: String) -> String {
    guard text.utf8.contains(where: { entity($0) != nil }) else { return text }
    let bytes = text.utf8.reduce(into: [UInt8]()) { bytes, byte in
      if let entity = entity(byte) { bytes += entity.utf8 } else { bytes.append(byte) }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  /// All five are ASCII bytes, which don't occur within other characters.
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

extension Array {
  /// Sorted by time, latest first; elements of the same time keep their order.
  func latestFirst(_ time: (Element) -> Timestamp) -> [Element] {
    enumerated().sorted { (time($1.element), $0.offset) < (time($0.element), $1.offset) }
      .map(\.element)
  }
}

extension Timestamp {
  /// The UTC day for people, for example `22 Nov 2026`.
  var dayName: String { dayAndTime.date.name }
}

extension CalendarDate {
  /// For people, for example `22 Nov 2026`.
  var name: String { "\(day) \(monthName) \(year)" }
}

extension String {
  /// With times of RFC 3339 as in ``Moment``, but for those in names, which are quoted.
  var withTimesForPeople: String {
    replacing(/“[^”]*”|\d{4}-\d\d-\d\dT[0-9:.]+Z/) { match in
      Timestamp(rfc3339: String(match.output)).map { Moment($0).text } ?? String(match.output)
    }
  }
}

extension Timestamp {
  /// An end for people: `through 22 Nov 2026 (UTC)` at midnight, else `until 22 Nov 2026, 10:17`.
  var lastDayName: String {
    dayAndTime.millisecondOfDay == 0
      ? "through \((self - .milliseconds(1)).dayName) (UTC)" : "until \(Moment(self).text)"
  }
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
