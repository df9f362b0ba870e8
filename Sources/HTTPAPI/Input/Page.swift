import Hummingbird
import HummingbirdCore

/// Which part of a list is asked for.
struct Page: Sendable {
  /// Enough for nearly every list as a whole, and an answer of some hundred kilobytes.
  static let defaultLimit = 100
  static let maximumLimit = 1000

  /// The cursor behind which the page begins; nil: at the beginning.
  let after: String?
  let limit: Int

  /// - Throws: A ``Problem`` that names the parameter.
  init(_ uri: URI) throws {
    let query = Query(uri)
    after = query?["after"]
    guard let text = query?["limit"] else {
      limit = Self.defaultLimit
      return
    }
    guard let limit = Int(text), (1...Self.maximumLimit).contains(limit) else {
      throw Problem.invalid("limit", "must be a number from 1 to \(Self.maximumLimit)")
    }
    self.limit = limit
  }

  /// Takes the page out of a whole list.
  ///
  /// - Parameters:
  ///   - list: The whole list, in its order.
  ///   - cursor: What names an element.
  /// - Returns: The page's elements, and the cursor behind which the next one begins; nil if there
  ///   is none.
  /// - Throws: A ``Problem`` for a cursor that names nothing.
  func slice<Element>(of list: [Element], cursor: (Element) -> String) throws
    -> (elements: ArraySlice<Element>, next: String?)
  {
    var rest = list[...]
    if let after {
      guard let position = list.firstIndex(where: { cursor($0) == after }) else {
        throw Problem.invalid("after", "must be what a page before gave as `next`")
      }
      rest = list[(position + 1)...]
    }
    let elements = rest.prefix(limit)
    return (elements, elements.count < rest.count ? elements.last.map(cursor) : nil)
  }
}
