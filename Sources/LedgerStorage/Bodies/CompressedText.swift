import Postgres

/// JSON in a column of bytes: compressed, or as it is.
///
/// The first byte tells which: that of a compressed text is no bracket or brace.
package struct CompressedText: Hashable, Sendable {
  package let text: String
  private let isPlain: Bool

  init(_ text: String, isPlain: Bool = false) {
    (self.text, self.isPlain) = (text, isPlain)
  }
}

extension CompressedText: RawRepresentable, PostgresEncodable, PostgresDecodable {
  /// Nil if the text is damaged or was compressed with an unknown dictionary.
  package init?(rawValue bytes: [UInt8]) {
    let isPlain = bytes.first == UInt8(ascii: "{") || bytes.first == UInt8(ascii: "[")
    guard let plain = isPlain ? bytes : Deflate.entries.decompress(bytes[...]),
      let text = String(validating: plain, as: UTF8.self)
    else { return nil }
    self.init(text, isPlain: isPlain)
  }

  package var rawValue: [UInt8] {
    isPlain ? Array(text.utf8) : Deflate.entries.compress(Array(text.utf8))
  }

  package var isPostgresNull: Bool { false }
}
