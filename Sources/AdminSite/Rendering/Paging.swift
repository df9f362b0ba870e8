import HTTPAPI
import Hummingbird
import HummingbirdCore
import Subscriptions

/// The requested part of a list: `after` and `limit`, as in the API.
///
/// Each of several lists on a page has its own parameters, such as `events_after`.
struct PagePart: Sendable {
  static let usual = 50
  static let most = 500

  /// The cursor of the last row of the previous page.
  let after: String?
  let limit: Int
  private let path: String
  private let prefix: String

  /// Reads the parameters whose names begin with `prefix`; `path` is the page's, for links.
  ///
  /// - Throws: A ``Problem`` for the parameter.
  init(_ uri: URI, of path: String, prefix: String = "") throws {
    let query = EncodedFields(query: uri)
    self.path = path
    self.prefix = prefix
    after = query["\(prefix)after"]?.rawValue
    guard (after?.utf8.count ?? 0) <= Page.longestCursor else { throw Self.unknownPlace(prefix) }
    limit =
      try query["\(prefix)limit"].map { text in
        guard let limit = Int(text.rawValue), (1...Self.most).contains(limit) else {
          throw Problem.invalid("\(prefix)limit", "must be a number from 1 to \(Self.most)")
        }
        return limit
      } ?? Self.usual
  }

  /// The part of a complete list; throws a ``Problem`` for an unknown cursor.
  func slice<Element>(of list: [Element], cursor: (Element) -> String) throws
    -> (elements: [Element], paging: Paging?)
  {
    var start = 0
    if let after = after.map(ExactText.init(_:)) {
      guard let position = list.firstIndex(where: { ExactText(cursor($0)) == after }) else {
        throw Self.unknownPlace(prefix)
      }
      start = position + 1
    }
    let elements = list[start...].prefix(limit)
    guard start > 0 || elements.count < list.count else { return (Array(elements), nil) }
    let count = ChartUnit.count
    return (
      Array(elements),
      Paging(
        text: "\(count.text(Int64(start + 1)))–\(count.text(Int64(start + elements.count))) of "
          + count.text(Int64(list.count)),
        previousHref: start > 0
          ? href(after: start > limit ? cursor(list[start - limit - 1]) : nil) : nil,
        nextHref: start + elements.count < list.count
          ? elements.last.map { href(after: cursor($0)) } : nil)
    )
  }

  /// The part of a list of which `limit` + 1 elements were read.
  func part<Element>(of found: [Element], cursor: (Element) -> String)
    -> (elements: [Element], paging: Paging?)
  {
    let elements = Array(found.prefix(limit))
    return (
      elements,
      paging(
        shown: elements.count, next: elements.count < found.count ? elements.last.map(cursor) : nil)
    )
  }

  /// The links of a part with `count` rows, or nil if it is the whole list.
  func paging(shown count: Int, next: String?) -> Paging? {
    guard after != nil || next != nil else { return nil }
    return Paging(
      text: Count.text(count, "row") + (next == nil ? "" : ", more on the next page"),
      previousHref: nil, nextHref: next.map { href(after: $0) })
  }

  /// The last row of the previous page, read from its cursor; nil on the first page.
  ///
  /// - Throws: A ``Problem`` for an unknown cursor.
  func place<Place>(_ read: (String) -> Place?) throws -> Place? {
    try after.map { text in
      guard let place = read(text) else { throw Self.unknownPlace(prefix) }
      return place
    }
  }

  /// Control characters are not accepted in identifiers.
  private static let separator: Character = "\u{1F}"

  static func cursor(_ fields: [String]) -> String {
    fields.joined(separator: String(separator))
  }

  static func fields(of cursor: String) -> [String] {
    cursor.split(separator: separator, omittingEmptySubsequences: false).map(String.init)
  }

  private static func unknownPlace(_ prefix: String) -> Problem {
    Problem.invalid("\(prefix)after", "must be an `after` value from a previous page")
  }

  private func href(after cursor: String?) -> String {
    var query: [(name: String, value: String)] = []
    if let cursor { query.append(("\(prefix)after", cursor)) }
    if limit != Self.usual { query.append(("\(prefix)limit", "\(limit)")) }
    return AdminURL.page(path, query: query)
  }
}
