import JSONText
package import Subscriptions

/// An unverified iOS 6 transaction receipt.
///
/// A property list around another one with the purchase. Its signature has a format of its own,
/// over a certificate that expired long ago.
package struct TransactionReceipt: Hashable, Sendable {
  /// Apple's name; missing in production.
  package let environmentName: String?
  package let bundleID: String?
  package let transactionID: String
  package let originalTransactionID: String?

  /// Nil for anything else, or without a transaction ID.
  init?(parsing bytes: [UInt8]) {
    guard let outer = OldStylePropertyList(bytes),
      let purchaseInfo = outer["purchase-info"],
      let innerBytes = Base64.decode(standard: purchaseInfo.utf8),
      let inner = OldStylePropertyList(innerBytes),
      let transactionID = inner.identifier("transaction-id", upTo: AppleIdentifier.longestNumber)
    else { return nil }
    self.transactionID = transactionID
    originalTransactionID = inner.identifier(
      "original-transaction-id", upTo: AppleIdentifier.longestNumber)
    environmentName = outer["environment"]
    bundleID = inner.identifier("bid")
  }

  /// Nil for an unknown name.
  package var environment: Environment? {
    switch environmentName.map(ExactText.init(_:)) {
    case nil, "Production"?: .production
    case "Sandbox"?: .sandbox
    default: nil
    }
  }
}

extension OldStylePropertyList {
  /// A text that can be part of a key; see ``AppleIdentifier``.
  fileprivate func identifier(
    _ key: String, upTo limit: Int = AppleIdentifier.longest
  ) -> String? {
    guard let text = self[key], !text.isEmpty, AppleIdentifier.fault(of: text, upTo: limit) == nil
    else { return nil }
    return text
  }
}

/// Unity's wrapper around a receipt: JSON with the members `Store`, `TransactionID` and `Payload`.
///
/// Servers of Unity apps forward it as it is or in base64. Apple only accepts its payload.
package enum UnityReceipt {
  /// Unity's names of Apple's stores; receipts of other stores are left unchanged.
  private static let stores: [JSONValue] = ["AppleAppStore", "MacAppStore"]

  /// The receipt inside the wrapper, or the text itself if it is not wrapped.
  package static func unwrapping(_ text: String) -> String {
    guard let json = json(in: text), let payload = json["Payload"]?.string,
      json["Store"].map(stores.contains) ?? false
    else { return text }
    return payload
  }

  private static func json(in text: String) -> JSONValue? {
    // Avoids useless decoding: base64 of a brace begins with this letter.
    switch text.utf8.first(where: { !OldStylePropertyList.isSpace($0) }) {
    case UInt8(ascii: "{"): return try? JSONValue(parsing: text.utf8)
    case UInt8(ascii: "e"):
      let digits = text.utf8.filter { !OldStylePropertyList.isSpace($0) }
      return Base64.decode(standard: digits).flatMap { try? JSONValue(parsing: $0) }
    default: return nil
    }
  }
}

/// A NeXTSTEP-style property list, limited to the receipts' form: one dictionary of strings.
///
/// `{ "key" = "value"; key = value; }`, with any white space between.
struct OldStylePropertyList {
  private static let longest = 1024 * 1024  // In bytes; real ones have a few thousand
  private static let longestKey = 256  // In bytes; real ones have about twenty

  private var values: [ExactText: String] = [:]

  subscript(key: String) -> String? { values[ExactText(key)] }

  /// Nil for anything else, a repeated key, or invalid UTF-8.
  init?(_ bytes: [UInt8]) {
    guard bytes.count <= Self.longest else { return nil }
    var reader = Reader(rest: bytes[...])
    guard reader.skip("{") else { return nil }
    while !reader.skip("}") {
      guard let key = reader.string(), reader.skip("="), let value = reader.string(),
        reader.skip(";"), key.utf8.count <= Self.longestKey,
        values.updateValue(value, forKey: ExactText(key)) == nil
      else { return nil }
    }
    guard reader.rest.allSatisfy(Self.isSpace) else { return nil }
  }

  static func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || (0x09...0x0d).contains(byte) }

  private struct Reader {
    var rest: ArraySlice<UInt8>

    mutating func skip(_ character: Unicode.Scalar) -> Bool {
      rest = rest.drop(while: OldStylePropertyList.isSpace)
      guard let first = rest.first, UInt32(first) == character.value else { return false }
      rest.removeFirst()
      return true
    }

    /// A quoted string or an unquoted word.
    mutating func string() -> String? {
      guard skip("\"") else { return word() }
      var text: [UInt8] = []
      while let byte = rest.popFirst() {
        switch byte {
        case UInt8(ascii: "\""): return String(validating: text, as: UTF8.self)
        case UInt8(ascii: "\\"):
          // No receipt is known to use escapes, so only the two necessary ones are supported.
          guard let escaped = rest.popFirst(),
            escaped == UInt8(ascii: "\"") || escaped == UInt8(ascii: "\\")
          else { return nil }
          text.append(escaped)
        default: text.append(byte)
        }
      }
      return nil
    }

    private mutating func word() -> String? {
      let word = rest.prefix { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"):
          true
        default: "_-.:/$+".utf8.contains(byte)
        }
      }
      rest = rest.dropFirst(word.count)
      return word.isEmpty ? nil : String(decoding: word, as: UTF8.self)
    }
  }
}

/// The unverified contents of a submitted receipt of either format, to be used only to choose the
/// transactions to request from Apple.
package enum ReceiptForm: Hashable, Sendable {
  /// Since iOS 7.
  case app(AppReceipt)
  /// Until iOS 6.
  case transaction(TransactionReceipt)

  /// Reads a receipt in base64.
  package init(_ receiptData: String) throws {
    let bytes = try Self.bytes(of: receiptData)
    switch try Self.kind(of: bytes) {
    case .app:
      let container = try ReceiptContainer(parsing: bytes[...])
      do {
        self = .app(try AppReceipt(parsing: container.content))
      } catch let fault as ReceiptFault {
        throw LocalReceiptRefusal(.malformed, "The receipt can't be read: \(fault).")
      }
    case .transaction:
      guard let receipt = TransactionReceipt(parsing: bytes) else {
        throw LocalReceiptRefusal(
          .notAReceipt, "The submitted data is not a receipt's property list.")
      }
      self = .transaction(receipt)
    }
  }

  /// The transactions to request from Apple, one per original transaction, newest first.
  ///
  /// Original transaction IDs are used if present, because one returns the whole history.
  package var transactionIDs: [TransactionID] {
    switch self {
    case .transaction(let receipt):
      return [receipt.originalTransactionID ?? receipt.transactionID].compactMap { $0 }
        .map { TransactionID($0) }
    case .app(let receipt):
      var newest: [TransactionID: Timestamp] = [:]
      for purchase in receipt.inApp {
        let line = TransactionID(purchase.line)
        newest[line] = max(newest[line] ?? purchase.purchaseDate, purchase.purchaseDate)
      }
      return newest.map { (id: $0.key, date: $0.value) }
        .sorted { ($1.date, $1.id) < ($0.date, $0.id) }.map(\.id)
    }
  }

  /// The environment that the receipt names, to be asked first.
  package var environment: Environment? {
    switch self {
    case .app(let receipt): receipt.environment
    case .transaction(let receipt): receipt.environment
    }
  }

  package var bundleID: String? {
    switch self {
    case .app(let receipt): receipt.bundleID
    case .transaction(let receipt): receipt.bundleID
    }
  }

  enum Kind { case app, transaction }

  /// Determined by the first byte: ASN.1's SEQUENCE or a property list's brace.
  static func kind(of bytes: [UInt8]) throws(LocalReceiptRefusal) -> Kind {
    switch bytes.first(where: { !OldStylePropertyList.isSpace($0) }) {
    case 0x30: return .app
    case UInt8(ascii: "{"): return .transaction
    default: throw LocalReceiptRefusal(.notAReceipt, "The submitted data is not a receipt.")
    }
  }

  static func bytes(of receiptData: String) throws(LocalReceiptRefusal) -> [UInt8] {
    // Four characters for three bytes.
    guard receiptData.utf8.count <= ReceiptBER.largestReceipt / 3 * 4 else {
      throw LocalReceiptRefusal(.tooLarge, "The receipt is too large.")
    }
    guard !receiptData.isEmpty, let bytes = Base64.decode(standard: receiptData.utf8) else {
      throw LocalReceiptRefusal(.notBase64, "The receipt is not base64.")
    }
    return bytes
  }
}
