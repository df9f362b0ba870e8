package import Subscriptions
import SwiftASN1

/// The contents of an app receipt, trusted or not, with the attribute types, of which some are
/// documented
/// (https://developer.apple.com/documentation/appstorereceipts/validating_receipts_on_the_device).
package struct AppReceipt: Hashable, Sendable {
  package let environmentName: String?  // 0: "Production", "ProductionSandbox", "Xcode"
  package let bundleID: String?  // 2
  package let creationDate: Timestamp?  // 12: when Apple created and signed it
  /// 17, in order.
  package let inApp: [ReceiptItem]
  /// 21: the end of a volume purchase; Xcode writes the year 4001.
  package let expirationDate: Timestamp?
  package let unreadable: [UnreadableRecord]

  /// Reads a receipt in base64 without verifying it.
  package init(unverified receiptData: String) throws {
    try self.init(parsing: try ReceiptContainer(base64: receiptData).content)
  }

  /// Fails for bytes that are no set of attributes, or an unreadable app, environment or date.
  init(parsing bytes: ArraySlice<UInt8>) throws {
    let attributes = try ReceiptAttributes(parsing: bytes)
    environmentName = try attributes.text(0)
    bundleID = try attributes.identifier(2)
    creationDate = try attributes.moment(12)
    var inApp: [ReceiptItem] = []
    var unreadable: [UnreadableRecord] = []
    for bytes in attributes.all(17) {
      do {
        inApp.append(try ReceiptItem(ReceiptAttributes(parsing: bytes)))
      } catch {
        let fault = error as? ReceiptFault ?? ReceiptFault("an attribute is malformed")
        unreadable.append(UnreadableRecord(list: "receipt", reason: "\(fault)"))
      }
    }
    (self.inApp, self.unreadable) = (inApp, unreadable)
    expirationDate = (try? attributes.moment(21)) ?? nil
  }

  /// Nil for an unknown name; receipts from Xcode count as sandbox where they are accepted.
  package var environment: Environment? {
    switch environmentName.map(ExactText.init(_:)) {
    case "Production"?, "ProductionVPP"?: .production
    case "ProductionSandbox"?, "ProductionVPPSandbox"?, "Xcode"?: .sandbox
    default: nil
    }
  }

  /// Whether StoreKit Testing in Xcode made it, without Apple's signature.
  package var isFromXcode: Bool { environmentName.map(ExactText.init(_:)) == "Xcode" }
}

extension ReceiptItem {
  /// Reads the content of attribute 17; fails if the product, transaction or date is missing, or a
  /// known attribute can't be read.
  ///
  /// Types 1707 and 1713 are not documented, but known from receipts with a verifyReceipt response.
  init(_ attributes: ReceiptAttributes) throws {
    func required<Value>(_ value: Value?, _ attribute: String) throws -> Value {
      guard let value else { throw ReceiptFault("attribute \(attribute) is missing") }
      return value
    }
    let longest = AppleIdentifier.longestNumber
    productID = try required(attributes.identifier(1702), "1702 (product)")
    transactionID = try required(attributes.identifier(1703, upTo: longest), "1703 (transaction)")
    purchaseDate = try required(attributes.moment(1704), "1704 (purchase date)")
    quantity = try attributes.integer(1701).flatMap { Int(exactly: $0) }.map { max($0, 1) }
    // Missing in Xcode's receipts.
    originalTransactionID = try attributes.identifier(1705, upTo: longest) ?? transactionID
    originalPurchaseDate = try attributes.moment(1706)
    productType =
      switch try attributes.integer(1707) {
      case 0: .nonConsumable
      case 1: .consumable
      case 2: .nonRenewing
      case 3: .autoRenewable
      default: nil
      }
    expiresDate = try attributes.moment(1708)
    webOrderLineItemID = WebOrderLineItemID(reported: try attributes.integer(1711).map(String.init))
    cancellationDate = try attributes.moment(1712)
    isTrialPeriod = try attributes.flag(1713)
    isInIntroOfferPeriod = try attributes.flag(1719)
    promotionalOfferID = try attributes.identifier(1721)
  }
}

/// The attributes of a receipt or a purchase, by type; missing and empty ones are nil, and a
/// repeated one or another format is an error, because it must not count as absent.
struct ReceiptAttributes {
  private var values: [Int64: [ArraySlice<UInt8>]] = [:]

  /// Parses `SET OF SEQUENCE { type INTEGER, version INTEGER, value OCTET STRING }`.
  init(parsing bytes: ArraySlice<UInt8>) throws {
    for node in try ReceiptBER.parse(bytes, "the set of attributes")
      .elements(of: .set, "the set of attributes")
    {
      var fields = try node.elements(of: .sequence, "an attribute").makeIterator()
      guard let type = fields.next(), let version = fields.next(), let value = fields.next() else {
        throw ReceiptFault("an attribute is incomplete")
      }
      let number = try type.integer("an attribute's type")
      _ = try version.integer("an attribute's version")
      let octets = try ASN1OctetString(berEncoded: value).bytes
      // No known type exceeds 64 bits.
      if let number { values[number, default: []].append(octets) }
    }
  }

  func all(_ type: Int64) -> [ArraySlice<UInt8>] { values[type] ?? [] }

  func text(_ type: Int64) throws -> String? {
    guard let bytes = try value(type) else { return nil }
    let node = try ReceiptBER.parse(bytes, "attribute \(type)")
    guard [.utf8String, .ia5String, .printableString].contains(node.identifier),
      case .primitive(let characters) = node.content,
      let text = String(validating: characters, as: UTF8.self)
    else { throw ReceiptFault("attribute \(type) is not a string") }
    return text.isEmpty ? nil : text
  }

  /// A text that can be part of a key; see ``AppleIdentifier``.
  func identifier(_ type: Int64, upTo limit: Int = AppleIdentifier.longest) throws -> String? {
    guard let text = try text(type) else { return nil }
    if let fault = AppleIdentifier.fault(of: text, upTo: limit) {
      throw ReceiptFault("attribute \(type) \(fault)")
    }
    return text
  }

  /// A date in RFC 3339; UTC if it has no offset.
  func moment(_ type: Int64) throws -> Timestamp? {
    guard let text = try text(type) else { return nil }
    guard let moment = Timestamp(receiptDate: text) else {
      throw ReceiptFault("attribute \(type) is not a date")
    }
    return moment
  }

  func integer(_ type: Int64) throws -> Int64? {
    guard let bytes = try value(type) else { return nil }
    guard let number = try ReceiptBER.parse(bytes, "attribute \(type)").integer("attribute \(type)")
    else { throw ReceiptFault("attribute \(type) exceeds 64 bits") }
    return number
  }

  func flag(_ type: Int64) throws -> Bool? {
    guard let number = try integer(type) else { return nil }
    guard (0...1).contains(number) else { throw ReceiptFault("attribute \(type) is not 0 or 1") }
    return number == 1
  }

  private func value(_ type: Int64) throws -> ArraySlice<UInt8>? {
    let found = all(type)
    guard found.count <= 1 else { throw ReceiptFault("attribute \(type) appears twice") }
    return found.first.flatMap { $0.isEmpty ? nil : $0 }
  }
}

extension Timestamp {
  private static let longestReceiptDate = 40

  /// Parses a date in the formats seen in receipts: with `Z`, with an offset such as `+01:00` or
  /// `+0100` (Xcode, 2020), or with neither, meaning UTC.
  init?(receiptDate text: String) {
    guard text.utf8.count <= Self.longestReceiptDate else { return nil }
    let forms = [text, text + "Z", "\(text.dropLast(2)):\(text.suffix(2))"]
    guard let moment = forms.lazy.compactMap({ Timestamp(rfc3339: $0) }).first else { return nil }
    self = moment
  }
}
