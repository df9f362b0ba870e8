/// Text as it stands in a page.
///
/// The templates name it as their content type, `PAGE`, in place of swift-mustache's own `HTML`:
/// that one compares whole characters, and a quotation mark which is followed by a combining accent
/// is another character than a quotation mark. It passes unescaped, and ends the attribute in which
/// it stands.
enum PageText {
  /// Escapes what means something in HTML, within elements and within quoted attributes.
  static func escaped(_ text: String) -> String {
    guard text.utf8.contains(where: { entity($0) != nil }) else { return text }
    var bytes: [UInt8] = []
    bytes.reserveCapacity(text.utf8.count + 32)
    for byte in text.utf8 {
      if let entity = entity(byte) {
        bytes.append(contentsOf: entity.utf8)
      } else {
        bytes.append(byte)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  /// All five are ASCII, and no byte of another character looks like them.
  private static func entity(_ byte: UInt8) -> String? {
    switch byte {
    case UInt8(ascii: "<"): "&lt;"
    case UInt8(ascii: ">"): "&gt;"
    case UInt8(ascii: "&"): "&amp;"
    case UInt8(ascii: "\""): "&quot;"
    case UInt8(ascii: "'"): "&#39;"
    default: nil
    }
  }
}
