import JSONText

/// Unity's wrapper around a receipt, JSON with the members `Store`, `TransactionID` and `Payload`,
/// or that in base64, which servers forward; Apple only accepts its payload.
package enum UnityReceipt {
  /// Unity's names of Apple's stores; receipts of other stores are left unchanged.
  private static let stores: [JSONValue] = ["AppleAppStore", "MacAppStore"]

  package static func unwrapping(_ text: String) -> String {
    guard let json = json(in: text), let payload = json["Payload"]?.string,
      json["Store"].map(stores.contains) ?? false
    else { return text }
    return payload
  }

  private static func json(in text: String) -> JSONValue? {
    // Avoids useless decoding: base64 of a brace begins with this letter.
    switch text.utf8.first(where: { !isSpace($0) }) {
    case UInt8(ascii: "{"): return try? JSONValue(parsing: text.utf8)
    case UInt8(ascii: "e"):
      let digits = text.utf8.filter { !isSpace($0) }
      return Base64.decode(standard: digits).flatMap { try? JSONValue(parsing: $0) }
    default: return nil
    }
  }

  static func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || (0x09...0x0d).contains(byte) }
}
