import JSONText

/// Unity's wrapper around a receipt: JSON with the members `Store`, `TransactionID` and `Payload`.
///
/// App servers of Unity apps pass it on as it is, or in base64. Apple knows only what is inside.
package enum UnityReceipt {
  /// What Unity calls Apple's stores; other stores' receipts are left as they are.
  private static let stores: [JSONValue] = ["AppleAppStore", "MacAppStore"]

  /// The receipt inside of the wrapper, or the text itself where there is none.
  package static func unwrapping(_ text: String) -> String {
    guard let json = json(in: text), let payload = json["Payload"]?.string,
      json["Store"].map(stores.contains) ?? false
    else { return text }
    return payload
  }

  private static func json(in text: String) -> JSONValue? {
    // Nothing is decoded in vain: base64 of a brace begins with this letter.
    switch text.utf8.first(where: { !OldStylePropertyList.isSpace($0) }) {
    case UInt8(ascii: "{"): return try? JSONValue(parsing: text.utf8)
    case UInt8(ascii: "e"):
      let digits = text.utf8.filter { !OldStylePropertyList.isSpace($0) }
      return Base64.decode(standard: digits).flatMap { try? JSONValue(parsing: $0) }
    default: return nil
    }
  }
}
