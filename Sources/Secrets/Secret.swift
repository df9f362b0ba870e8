/// A value that is never printed, such as a key, a password or a URL with a token.
///
/// Descriptions, interpolations, mirrors and `dump` show a placeholder, so a type that contains a
/// secret can be logged safely, also by a library.
package struct Secret<Value: Sendable>: Sendable {
  /// The value; read it only to send, compare or sign.
  package let revealed: Value

  package init(_ value: Value) { revealed = value }
}

extension Secret: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
  package var description: String { "<secret>" }
  package var debugDescription: String { description }
  package var customMirror: Mirror { Mirror(self, children: []) }
}

/// Compared byte by byte, so canonically equivalent spellings differ.
extension Secret: Hashable, Equatable where Value == String {
  package static func == (lhs: Secret, rhs: Secret) -> Bool {
    lhs.revealed.utf8.elementsEqual(rhs.revealed.utf8)
  }

  package func hash(into hasher: inout Hasher) {
    for byte in revealed.utf8 { hasher.combine(byte) }
  }
}

/// For tests and other literals in the source.
extension Secret: ExpressibleByStringLiteral, ExpressibleByUnicodeScalarLiteral,
  ExpressibleByExtendedGraphemeClusterLiteral
where Value == String {
  package init(stringLiteral text: String) { self.init(text) }
}
