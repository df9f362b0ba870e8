/// Text from outside, compared, ordered and hashed byte by byte, as PostgreSQL does.
///
/// A `String` is compared by its canonical form: two spellings of one character (é, and e with a
/// combining accent) are equal, and a long run of combining marks takes quadratic time to put in
/// order. So text that a caller chose is neither compared nor used as a key before it is one of
/// these.
package protocol TextIdentifier: RawRepresentable, Hashable, Comparable, Codable, Sendable,
  ExpressibleByStringLiteral, CustomStringConvertible
where RawValue == String {
  init(rawValue: String)
}

extension TextIdentifier {
  /// Takes a text as it is written.
  package init(_ rawValue: String) { self.init(rawValue: rawValue) }
  package init(stringLiteral value: String) { self.init(rawValue: value) }
  package var description: String { rawValue }

  package static func == (lhs: Self, rhs: Self) -> Bool {
    let (left, right) = (lhs.rawValue.utf8, rhs.rawValue.utf8)
    return left.count == right.count && left.elementsEqual(right)
  }

  /// Whether two texts differ in any byte.
  ///
  /// Without it, Swift would compare the raw values, which are strings.
  package static func != (lhs: Self, rhs: Self) -> Bool { !(lhs == rhs) }

  package func hash(into hasher: inout Hasher) {
    // ASCII has one spelling only, and Swift hashes it as the bytes that it is.
    if rawValue.isASCII {
      hasher.combine(rawValue)
    } else {
      for byte in rawValue.utf8 { hasher.combine(byte) }
    }
  }

  /// Shorter first, then by bytes: the order of the numbers that Apple's identifiers are.
  package static func < (lhs: Self, rhs: Self) -> Bool {
    let (left, right) = (lhs.rawValue.utf8, rhs.rawValue.utf8)
    return left.count == right.count
      ? left.lexicographicallyPrecedes(right) : left.count < right.count
  }
}

/// Text from outside that is not an identifier of the ledger: a member's name, a form's field, the
/// name of an entitlement.
package struct ExactText: TextIdentifier {
  package let rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  /// Takes a part of a text.
  package init(_ text: Substring) { self.init(rawValue: String(text)) }

  package static func < (lhs: ExactText, rhs: ExactText) -> Bool {
    lhs.rawValue.utf8.lexicographicallyPrecedes(rhs.rawValue.utf8)
  }
}

/// The app's own identifier of an account: whatever the app uses.
package struct AccountID: TextIdentifier {
  package let rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  /// The order in which all programs lock accounts.
  package static func < (lhs: AccountID, rhs: AccountID) -> Bool {
    lhs.rawValue.utf8.lexicographicallyPrecedes(rhs.rawValue.utf8)
  }
}

extension String {
  /// Whether a text has one spelling only, and so can be taken apart by characters.
  package var isASCII: Bool { utf8.allSatisfy { $0 < 0x80 } }

  /// Whether a text begins with another one, byte by byte.
  package func begins(with prefix: String) -> Bool { utf8.starts(with: prefix.utf8) }
}

extension RawRepresentable where Self: CaseIterable, RawValue == String {
  /// The case of a name from outside; nil if there is none.
  ///
  /// Swift's own `init(rawValue:)` compares strings by their canonical form.
  package init?(exactly name: String) {
    let name = ExactText(name)
    guard let found = Self.allCases.first(where: { ExactText($0.rawValue) == name }) else {
      return nil
    }
    self = found
  }
}
