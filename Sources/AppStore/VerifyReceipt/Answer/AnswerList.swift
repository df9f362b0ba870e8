import Subscriptions

/// A list of Apple's, read as far as it can be.
///
/// Apple writes some lists as a single object where there is one entry. An entry that cannot be
/// read is set aside with the reason and does not cost the others.
struct AnswerList<Element: Decodable & Sendable>: Decodable, Sendable {
  private(set) var elements: [Element] = []
  private(set) var faults: [EntryFault] = []

  /// - Throws: `UnreadableField` for a value that is neither a list nor an object, such as a text.
  init(from decoder: any Decoder) throws {
    guard var list = try? decoder.unkeyedContainer() else {
      if (try? decoder.container(keyedBy: AnswerKey.self)) != nil {
        read({ try Element(from: decoder) }, orElse: { UnreadEntry(from: decoder) })
        return
      }
      let value = try decoder.singleValueContainer()
      if value.decodeNil() || (try? value.decode(String.self)) == "" { return }
      let name = AnswerKey(stringValue: decoder.codingPath.last?.stringValue ?? "answer")
      throw UnreadableField(name, "is neither a list nor an object")
    }
    while !list.isAtEnd {
      if try list.decodeNil() {
        faults.append(EntryFault(reason: "an entry is null"))
        continue
      }
      // A failed entry stays the next one: it has to be stepped over.
      read({ try list.decode(Element.self) }, orElse: { try list.decode(UnreadEntry.self) })
    }
  }

  private mutating func read(
    _ element: () throws -> Element, orElse skip: () throws -> UnreadEntry
  ) {
    do {
      elements.append(try element())
    } catch {
      let fault = (error as? UnreadableField)?.description ?? "an entry is not an object"
      faults.append(EntryFault(reason: fault, purchaseDate: (try? skip())?.purchaseDate))
    }
  }
}

/// The reason why an entry could not be read.
struct EntryFault: Hashable, Sendable {
  var reason: String
  /// The entry's `purchase_date`; nil if that can't be read either.
  var purchaseDate: Timestamp?
}

/// Any JSON value, with the only part of an entry that is wanted where the rest can't be read.
private struct UnreadEntry: Decodable {
  let purchaseDate: Timestamp?

  init(from decoder: any Decoder) {
    purchaseDate = try? decoder.container(keyedBy: AnswerKey.self).moment("purchase_date")
  }
}
