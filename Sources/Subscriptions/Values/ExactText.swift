/// Text from outside, compared, ordered and hashed byte by byte, as in PostgreSQL.
///
/// To `String`, two spellings of one character (é, and e with a combining accent) are equal, and
/// normalizing a long run of combining marks takes quadratic time. So text from a caller must
/// become one of these types before it is compared or used as a key.
package protocol TextIdentifier: RawRepresentable, Hashable, Comparable, Codable, Sendable,
  ExpressibleByStringLiteral, CustomStringConvertible
where RawValue == String {
  init(rawValue: String)
}

extension TextIdentifier {
  package init(_ rawValue: String) { self.init(rawValue: rawValue) }
  package init(stringLiteral value: String) { self.init(rawValue: value) }
  package var description: String { rawValue }

  package static func == (lhs: Self, rhs: Self) -> Bool {
    let (left, right) = (lhs.rawValue.utf8, rhs.rawValue.utf8)
    return left.count == right.count && left.elementsEqual(right)
  }

  /// Without this operator, Swift would compare the raw values as strings.
  package static func != (lhs: Self, rhs: Self) -> Bool { !(lhs == rhs) }

  package func hash(into hasher: inout Hasher) {
    // ASCII has one spelling only, and Swift hashes its bytes.
    if rawValue.isASCII {
      hasher.combine(rawValue)
    } else {
      for byte in rawValue.utf8 { hasher.combine(byte) }
    }
  }

  /// Shorter first, then by bytes: the numeric order of Apple's identifiers.
  package static func < (lhs: Self, rhs: Self) -> Bool {
    let (left, right) = (lhs.rawValue.utf8, rhs.rawValue.utf8)
    return left.count == right.count
      ? left.lexicographicallyPrecedes(right) : left.count < right.count
  }
}

/// Text from outside other than the ledger's identifiers, such as a JSON member or a form field.
package struct ExactText: TextIdentifier {
  package let rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  package init(_ text: Substring) { self.init(rawValue: String(text)) }

  package static func < (lhs: ExactText, rhs: ExactText) -> Bool {
    lhs.rawValue.utf8.lexicographicallyPrecedes(rhs.rawValue.utf8)
  }
}

/// The app's own identifier of an account.
package struct AccountID: TextIdentifier {
  package let rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  /// The order in which all programs lock accounts.
  package static func < (lhs: AccountID, rhs: AccountID) -> Bool {
    lhs.rawValue.utf8.lexicographicallyPrecedes(rhs.rawValue.utf8)
  }
}

extension String {
  /// Whether a text has one spelling only, so that it can be processed by characters.
  package var isASCII: Bool { utf8.allSatisfy { $0 < 0x80 } }

  package func begins(with prefix: String) -> Bool { utf8.starts(with: prefix.utf8) }

  /// Whether it has the form of ISO 4217's currencies and ISO 3166-1's countries (alpha-3).
  package var isThreeCapitals: Bool { utf8.count == 3 && utf8.allSatisfy { 0x41...0x5A ~= $0 } }
}

extension RawRepresentable where Self: CaseIterable, RawValue == String {
  /// The case with a name from outside; Swift's own `init(rawValue:)` compares canonical forms.
  package init?(exactly name: String) {
    let name = ExactText(name)
    guard let found = Self.allCases.first(where: { ExactText($0.rawValue) == name }) else {
      return nil
    }
    self = found
  }
}

extension String {
  /// The name nearest to a misspelled one; nil if none is as near as a third of its length.
  package func nearest(in names: some Sequence<String>) -> String? {
    names.sorted().map { ($0, distance(to: $0)) }.filter { $0.1 * 3 <= count }
      .min { $0.1 < $1.1 }?.0
  }

  private func distance(to other: String) -> Int {
    let other = Array(other)
    var row = Array(0...other.count)
    for (line, character) in enumerated() {
      var diagonal = row[0]
      row[0] = line + 1
      for (column, next) in other.enumerated() {
        let replaced = diagonal + (character == next ? 0 : 1)
        diagonal = row[column + 1]
        row[column + 1] = Swift.min(replaced, row[column] + 1, diagonal + 1)
      }
    }
    return row[other.count]
  }
}
