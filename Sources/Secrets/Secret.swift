/// A value that is never printed: a key, a password, an address with a token in it.
///
/// Descriptions, debug descriptions, interpolations, mirrors and `dump` all show a placeholder, so
/// that a type that holds a secret can be logged, by us or by a library, without disclosing it. The
/// value is read where it is sent, compared or used to sign.
package struct Secret<Value: Sendable>: Sendable {
  /// The value, for what sends, compares or signs with it.
  package let revealed: Value

  /// Hides a value.
  package init(_ value: Value) {
    revealed = value
  }
}

extension Secret: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
  package var description: String { "<secret>" }
  package var debugDescription: String { description }
  package var customMirror: Mirror { Mirror(self, children: []) }
}

/// Texts are compared byte by byte: two spellings of one character are two secrets.
extension Secret: Hashable, Equatable where Value == String {
  package static func == (lhs: Secret, rhs: Secret) -> Bool {
    lhs.revealed.utf8.elementsEqual(rhs.revealed.utf8)
  }

  package func hash(into hasher: inout Hasher) {
    for byte in revealed.utf8 { hasher.combine(byte) }
  }
}

/// For tests and other places where the text is in the source.
extension Secret: ExpressibleByStringLiteral, ExpressibleByUnicodeScalarLiteral,
  ExpressibleByExtendedGraphemeClusterLiteral
where Value == String {
  package init(stringLiteral text: String) {
    self.init(text)
  }
}
