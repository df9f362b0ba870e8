/// A list of Apple's, read as far as it can be.
///
/// Apple writes some lists as a single object where there is one entry. An entry that cannot be
/// read is set aside with the reason and does not cost the others.
struct AnswerList<Element: Decodable & Sendable>: Decodable, Sendable {
  private(set) var elements: [Element] = []
  /// Why entries could not be read; one reason each.
  private(set) var faults: [String] = []

  init(from decoder: any Decoder) throws {
    guard var list = try? decoder.unkeyedContainer() else {
      if let value = try? decoder.singleValueContainer(), value.decodeNil() { return }
      read { try Element(from: decoder) }
      return
    }
    while !list.isAtEnd {
      if try list.decodeNil() {
        faults.append("an entry is null")
        continue
      }
      // A failed entry stays the next one: it has to be stepped over.
      if !read({ try list.decode(Element.self) }) { _ = try list.decode(AnyEntry.self) }
    }
  }

  @discardableResult
  private mutating func read(_ element: () throws -> Element) -> Bool {
    do {
      elements.append(try element())
      return true
    } catch let fault as UnreadableField {
      faults.append(fault.description)
    } catch {
      faults.append("an entry is not an object")
    }
    return false
  }
}

/// Any JSON value.
private struct AnyEntry: Decodable {
  init(from decoder: any Decoder) {}
}
