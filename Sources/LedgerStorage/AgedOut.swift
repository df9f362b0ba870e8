package import Subscriptions

/// What is left of a raw body that was aged out.
package struct AgedOut: Hashable, Sendable {
  package let at: Timestamp
  /// Of the body as it was.
  package let sha256: [UInt8]
  /// The length of the body in bytes.
  package let bytes: Int64

  /// Nil: the body is there.
  init?(at: Timestamp?, sha256: [UInt8]?, bytes: Int64?) {
    guard let at, let sha256, let bytes else { return nil }
    self.at = at
    self.sha256 = sha256
    self.bytes = bytes
  }
}
