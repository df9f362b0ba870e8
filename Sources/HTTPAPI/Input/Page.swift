import Hummingbird
import HummingbirdCore
import Subscriptions

/// Which part of a list is asked for.
struct Page: Sendable {
  /// Enough for nearly every list as a whole, and an answer of some hundred kilobytes.
  static let defaultLimit = 100
  static let maximumLimit = 1000

  /// Every cursor is shorter, in bytes.
  static let longestCursor = 2048

  /// The cursor behind which the page begins; nil: at the beginning.
  let after: String?
  let limit: Int

  /// - Throws: A ``Problem`` that names the parameter.
  init(_ uri: URI) throws {
    let query = Query(uri)
    after = query?["after"]?.rawValue
    guard (after?.utf8.count ?? 0) <= Self.longestCursor else { throw Self.malformedCursor }
    guard let text = query?["limit"] else {
      limit = Self.defaultLimit
      return
    }
    guard let limit = Int(text.rawValue), (1...Self.maximumLimit).contains(limit) else {
      throw Problem.invalid("limit", "must be a number from 1 to \(Self.maximumLimit)")
    }
    self.limit = limit
  }

  /// A cursor that no page can have given.
  static let malformedCursor = Problem.invalid(
    "after", "must be a `next` value from a previous page")

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
    if let after = after.map(ExactText.init(_:)) {
      guard let position = list.firstIndex(where: { ExactText(cursor($0)) == after }) else {
        throw Self.malformedCursor
      }
      rest = list[(position + 1)...]
    }
    let elements = rest.prefix(limit)
    return (elements, elements.count < rest.count ? elements.last.map(cursor) : nil)
  }
}
