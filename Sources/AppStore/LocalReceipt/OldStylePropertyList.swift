import Subscriptions

/// A property list in NeXTSTEP's style, as far as receipts use it: one dictionary of strings.
///
/// `{ "key" = "value"; key = value; }`, with any white space between.
struct OldStylePropertyList {
  /// In bytes: real ones have a few thousand.
  private static let longest = 1024 * 1024
  /// In bytes: real ones have some twenty.
  private static let longestKey = 256

  private var values: [ExactText: String] = [:]

  subscript(key: String) -> String? { values[ExactText(key)] }

  /// Nil for anything else, for a key that stands twice, and for text that is not UTF-8.
  init?(_ bytes: [UInt8]) {
    guard bytes.count <= Self.longest else { return nil }
    var reader = Reader(bytes: bytes)
    guard reader.skip("{") else { return nil }
    while !reader.skip("}") {
      guard let key = reader.string(), reader.skip("="), let value = reader.string(),
        reader.skip(";"), key.utf8.count <= Self.longestKey,
        values.updateValue(value, forKey: ExactText(key)) == nil
      else { return nil }
    }
    guard reader.isAtEnd else { return nil }
  }

  static func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || (0x09...0x0d).contains(byte) }

  private struct Reader {
    let bytes: [UInt8]
    private var position = 0

    init(bytes: [UInt8]) { self.bytes = bytes }

    var isAtEnd: Bool {
      mutating get {
        skipSpace()
        return position == bytes.count
      }
    }

    mutating func skip(_ character: Unicode.Scalar) -> Bool {
      skipSpace()
      guard position < bytes.count, UInt32(bytes[position]) == character.value else { return false }
      position += 1
      return true
    }

    /// A text in quotation marks, or a word without.
    mutating func string() -> String? {
      guard skip("\"") else { return word() }
      var text: [UInt8] = []
      while position < bytes.count {
        let byte = bytes[position]
        position += 1
        switch byte {
        case UInt8(ascii: "\""): return String(validating: text, as: UTF8.self)
        case UInt8(ascii: "\\"):
          // No receipt has been seen to use an escape: only the two that are needed are known.
          guard position < bytes.count,
            bytes[position] == UInt8(ascii: "\"") || bytes[position] == UInt8(ascii: "\\")
          else { return nil }
          text.append(bytes[position])
          position += 1
        default: text.append(byte)
        }
      }
      return nil
    }

    private mutating func word() -> String? {
      let start = position
      while position < bytes.count, Self.isWord(bytes[position]) { position += 1 }
      guard position > start else { return nil }
      return String(decoding: bytes[start..<position], as: UTF8.self)
    }

    private static func isWord(_ byte: UInt8) -> Bool {
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"):
        true
      default: "_-.:/$+".utf8.contains(byte)
      }
    }

    private mutating func skipSpace() {
      while position < bytes.count, OldStylePropertyList.isSpace(bytes[position]) { position += 1 }
    }
  }
}
