import Foundation
import HTTPAPI
import Hummingbird
import HummingbirdCore
import JSONText
import Subscriptions

/// The requested part of a list: `after` and `limit`, as in the API.
///
/// Each of several lists on a page has its own parameters, such as `events_after`.
struct PagePart: Sendable {
  static let usual = 50
  static let most = 500

  let page: Page
  private let path: String
  private let prefix: String
  private let usual: Int

  var limit: Int { page.limit }

  /// Reads the parameters whose names begin with `prefix`; `path` is the page's, for links.
  ///
  /// - Throws: A ``Problem`` for the parameter.
  init(_ uri: URI, of path: String, prefix: String = "", usual: Int = Self.usual) throws {
    page = try Page(
      EncodedFields(query: uri), prefix: prefix, defaultLimit: usual, maximumLimit: Self.most)
    (self.path, self.prefix, self.usual) = (path, prefix, usual)
  }

  /// The part of a complete list; throws a ``Problem`` for an unknown cursor.
  func slice<Element>(of list: [Element], cursor: (Element) -> String) throws
    -> (elements: [Element], paging: Paging?)
  {
    let (elements, next) = try page.slice(of: list, cursor: cursor)
    let start = elements.startIndex
    guard elements.count < list.count else { return (list, nil) }
    func text(_ number: Int) -> String { ChartUnit.count.text(Int64(number)) }
    return (
      Array(elements),
      Paging(
        text: "\(text(start + 1))–\(text(elements.endIndex)) of \(text(list.count))",
        previousHref: start > 0
          ? href(after: start > limit ? cursor(list[start - limit - 1]) : nil) : nil,
        nextHref: next.map { href(after: $0) })
    )
  }

  /// The part of a list of which `limit` + 1 elements were read; a cursor is a row's position as JSON.
  func part<Element>(of found: [Element], cursor: (Element) -> some Encodable)
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
  func paging(shown count: Int, next: (some Encodable)?) -> Paging? {
    guard page.after != nil || next != nil else { return nil }
    let cursor = next.flatMap { try? JSONEncoder().encode($0) }
    return Paging(
      text: Count.text(count, "row") + (next == nil ? "" : ", more on the next page"),
      previousHref: nil,
      nextHref: cursor.map { href(after: String(decoding: $0, as: UTF8.self)) })
  }

  /// The position of the last row of the previous page; nil on the first page.
  ///
  /// - Throws: A ``Problem`` for an unknown cursor.
  func cursor<Cursor: Decodable>() throws -> Cursor? {
    try page.cursor { Cursor(strictJSON: Array($0.utf8)) }
  }

  private func href(after cursor: String?) -> String {
    var query: [(name: String, value: String)] = []
    if let cursor { query.append(("\(prefix)after", cursor)) }
    if limit != usual { query.append(("\(prefix)limit", "\(limit)")) }
    return AdminURL.page(path, query: query)
  }
}

/// The position of a row in a list sorted by time.
struct TimedCursor<ID: Codable & Sendable>: Codable, Sendable {
  var at: Timestamp
  var id: ID
}

extension Decodable {
  /// Decodes what the strict reader accepts; nil for anything else.
  init?(strictJSON bytes: [UInt8]) {
    guard (try? JSONValue(parsing: bytes)) != nil,
      let value = try? JSONDecoder().decode(Self.self, from: Data(bytes))
    else { return nil }
    self = value
  }
}
