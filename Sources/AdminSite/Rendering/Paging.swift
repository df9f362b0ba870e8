import HTTPAPI
import Hummingbird
import HummingbirdCore
import Subscriptions

/// Which part of a page's list is asked for: `after` and `limit`, as in the interface.
///
/// Of several lists on one page each has its own parameters, as in `events_after`.
struct PagePart: Sendable {
  /// As many rows as are read without losing one's place.
  static let usual = 50
  static let most = 500

  /// The cursor behind which it begins; nil: at the beginning.
  let after: String?
  let limit: Int
  private let path: String
  private let prefix: String

  /// - Parameters:
  ///   - uri: Of the request.
  ///   - path: Of the page, for links.
  ///   - prefix: Of the parameters' names; empty for a page's only list.
  /// - Throws: A ``Problem`` that names the parameter.
  init(_ uri: URI, of path: String, prefix: String = "") throws {
    let query = FormFields(query: uri)
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

  /// Takes the part out of a whole list.
  ///
  /// - Throws: A ``Problem`` for a cursor that names nothing.
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

  /// The links of a list of which one element more than the part was read.
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

  /// Makes the links of a part of a list.
  ///
  /// - Parameters:
  ///   - count: How many rows the part has.
  ///   - next: The cursor behind it; nil: it is the last one.
  /// - Returns: The links; nil where the part is the whole list.
  func paging(shown count: Int, next: String?) -> Paging? {
    guard after != nil || next != nil else { return nil }
    return Paging(
      text: Count.text(count, "row") + (next == nil ? "" : ", and there are more"),
      previousHref: nil, nextHref: next.map { href(after: $0) })
  }

  static func unknownPlace(_ prefix: String = "") -> Problem {
    Problem.invalid("\(prefix)after", "must be an `after` value from a previous page")
  }

  private func href(after cursor: String?) -> String {
    var query: [(name: String, value: String)] = []
    if let cursor { query.append(("\(prefix)after", cursor)) }
    if limit != Self.usual { query.append(("\(prefix)limit", "\(limit)")) }
    return PageAddress.page(path, query: query)
  }
}
