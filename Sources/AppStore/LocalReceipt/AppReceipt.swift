package import Subscriptions
import SwiftASN1

/// The contents of an app receipt, trusted or not.
///
/// Numbers are attribute types. Apple documents some of them, others are known from receipts:
/// https://developer.apple.com/documentation/appstorereceipts/validating_receipts_on_the_device.
package struct AppReceipt: Hashable, Sendable {
  package let environmentName: String?  // 0: "Production", "ProductionSandbox", "Xcode"
  package let bundleID: String?  // 2
  package let applicationVersion: String?  // 3
  package let opaqueValue: [UInt8]?  // 4: the salt of the device's hash
  /// 5: binds the receipt to a device, which a server does not know.
  package let deviceHash: [UInt8]?
  package let date: Timestamp?  // 8; often empty
  package let ageRating: String?  // 10
  package let creationDate: Timestamp?  // 12: when Apple created and signed it
  /// 17, in order.
  package let inApp: [InAppReceipt]
  package let originalPurchaseDate: Timestamp?  // 18
  package let originalApplicationVersion: String?  // 19
  /// 21: the end of a volume purchase; Xcode writes the year 4001.
  package let expirationDate: Timestamp?
  package let otherAttributes: [ReceiptAttribute]  // All others, in order
  /// Purchases that could not be read.
  package let unreadable: [UnreadableRecord]

  /// Fails if the bytes are not a set of attributes, or if the app, environment or date can't be
  /// read.
  init(parsing bytes: ArraySlice<UInt8>) throws {
    var attributes = try ReceiptAttributes(parsing: bytes)
    environmentName = try attributes.text(0)
    bundleID = try attributes.identifier(2)
    creationDate = try attributes.moment(12)
    var inApp: [InAppReceipt] = []
    var unreadable: [UnreadableRecord] = []
    for bytes in attributes.all(17) {
      do {
        inApp.append(try InAppReceipt(parsing: bytes))
      } catch {
        unreadable.append(UnreadableRecord(list: "receipt", reason: "\(error)"))
      }
    }
    self.inApp = inApp
    self.unreadable = unreadable
    // Optional: attributes in another format remain among the others.
    applicationVersion = (try? attributes.text(3)) ?? nil
    opaqueValue = (try? attributes.bytes(4)) ?? nil
    deviceHash = (try? attributes.bytes(5)) ?? nil
    date = (try? attributes.moment(8)) ?? nil
    ageRating = (try? attributes.text(10)) ?? nil
    originalPurchaseDate = (try? attributes.moment(18)) ?? nil
    originalApplicationVersion = (try? attributes.text(19)) ?? nil
    expirationDate = (try? attributes.moment(21)) ?? nil
    otherAttributes = attributes.rest
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

/// One purchase in an app receipt, the content of attribute 17.
///
/// Apple documents some of the types; 1707 and 1713 are known from receipts with a matching
/// verifyReceipt response (https://developer.apple.com/documentation/appstorereceipts).
package struct InAppReceipt: Hashable, Sendable {
  package let quantity: Int64?  // 1701
  package let productID: String  // 1702
  package let transactionID: String  // 1703
  package let purchaseDate: Timestamp  // 1704
  package let originalTransactionID: String?  // 1705; missing in Xcode's receipts
  package let originalPurchaseDate: Timestamp?  // 1706
  /// 1707, Apple's number for ``productType``.
  package let productTypeNumber: Int64?
  package let expiresDate: Timestamp?  // 1708
  package let webOrderLineItemID: Int64?  // 1711; nil for 0
  package let cancellationDate: Timestamp?  // 1712
  package let isTrialPeriod: Bool?  // 1713
  package let isInIntroOfferPeriod: Bool?  // 1719
  package let promotionalOfferID: String?  // 1721
  package let otherAttributes: [ReceiptAttribute]  // All others, in order

  /// Fails if the product, transaction or date is missing, or a known attribute can't be read.
  init(parsing bytes: ArraySlice<UInt8>) throws {
    var attributes = try ReceiptAttributes(parsing: bytes)
    guard let productID = try attributes.identifier(1702) else {
      throw ReceiptFault("attribute 1702 (product) is missing")
    }
    guard
      let transactionID = try attributes.identifier(1703, upTo: AppleIdentifier.longestNumber)
    else { throw ReceiptFault("attribute 1703 (transaction) is missing") }
    guard let purchaseDate = try attributes.moment(1704) else {
      throw ReceiptFault("attribute 1704 (purchase date) is missing")
    }
    self.productID = productID
    self.transactionID = transactionID
    self.purchaseDate = purchaseDate
    quantity = try attributes.integer(1701)
    originalTransactionID = try attributes.identifier(1705, upTo: AppleIdentifier.longestNumber)
    originalPurchaseDate = try attributes.moment(1706)
    productTypeNumber = try attributes.integer(1707)
    expiresDate = try attributes.moment(1708)
    let lineItem = try attributes.integer(1711)
    webOrderLineItemID = lineItem == 0 ? nil : lineItem
    cancellationDate = try attributes.moment(1712)
    isTrialPeriod = try attributes.flag(1713)
    isInIntroOfferPeriod = try attributes.flag(1719)
    promotionalOfferID = try attributes.identifier(1721)
    otherAttributes = attributes.rest
  }

  /// Nil for an unknown number.
  package var productType: ProductType? {
    switch productTypeNumber {
    case 0: .nonConsumable
    case 1: .consumable
    case 2: .nonRenewing
    case 3: .autoRenewable
    default: nil
    }
  }

  /// The original transaction's ID; without one, the purchase is the original transaction.
  package var line: String { originalTransactionID ?? transactionID }
}

/// An attribute of a receipt or a purchase.
package struct ReceiptAttribute: Hashable, Sendable {
  /// Nil if it exceeds 64 bits, which no known type does.
  package let type: Int64?
  /// Nil if it exceeds 64 bits.
  package let version: Int64?
  /// The value's bytes, in most cases an ASN.1 element.
  package let value: ArraySlice<UInt8>

  fileprivate init(_ node: ASN1Node) throws {
    var fields = try node.elements(of: .sequence, "an attribute").makeIterator()
    guard let type = fields.next(), let version = fields.next(), let value = fields.next() else {
      throw ReceiptFault("an attribute is incomplete")
    }
    self.type = try type.integer("an attribute's type").flatMap { Int64(exactly: $0) }
    self.version = try version.integer("an attribute's version").flatMap { Int64(exactly: $0) }
    self.value = try value.octets("an attribute's value")
  }
}

/// Takes attributes out of a set one by one; those not taken or unreadable remain.
///
/// Missing and empty attributes are nil. An attribute that appears twice or has another format
/// throws ``ReceiptFault``: it must not count as absent.
struct ReceiptAttributes {
  private var attributes: [ReceiptAttribute?]
  private var positions: [Int64: [Int]] = [:]

  /// Parses `SET OF SEQUENCE { type INTEGER, version INTEGER, value OCTET STRING }`.
  init(parsing bytes: ArraySlice<UInt8>) throws {
    attributes = try ReceiptBER.parse(bytes).elements(of: .set, "the set of attributes")
      .map { try ReceiptAttribute($0) }
    for (position, attribute) in attributes.enumerated() {
      guard let type = attribute?.type else { continue }
      positions[type, default: []].append(position)
    }
  }

  /// The remaining attributes, in order.
  var rest: [ReceiptAttribute] { attributes.compactMap(\.self) }

  /// All values of a type that may be repeated.
  mutating func all(_ type: Int64) -> [ArraySlice<UInt8>] {
    (positions[type] ?? []).compactMap { position in
      defer { attributes[position] = nil }
      return attributes[position]?.value
    }
  }

  mutating func bytes(_ type: Int64) throws -> [UInt8]? {
    try take(type) { $0.isEmpty ? nil : Array($0) }
  }

  mutating func text(_ type: Int64) throws -> String? {
    try take(type) { try Self.text($0, type) }
  }

  /// A text that can be part of a key; see ``AppleIdentifier``.
  mutating func identifier(
    _ type: Int64, upTo limit: Int = AppleIdentifier.longest
  ) throws -> String? {
    try take(type) { bytes in
      guard let text = try Self.text(bytes, type) else { return nil }
      if let fault = AppleIdentifier.fault(of: text, upTo: limit) {
        throw ReceiptFault("attribute \(type) \(fault)")
      }
      return text
    }
  }

  /// A date in RFC 3339; UTC if it has no offset.
  mutating func moment(_ type: Int64) throws -> Timestamp? {
    try take(type) { bytes in
      guard let text = try Self.text(bytes, type) else { return nil }
      guard let moment = Timestamp(receiptDate: text) else {
        throw ReceiptFault("attribute \(type) is not a date")
      }
      return moment
    }
  }

  mutating func integer(_ type: Int64) throws -> Int64? {
    try take(type) { bytes in
      guard !bytes.isEmpty else { return nil }
      let number = try Self.element(bytes, type).integer("attribute \(type)")
      guard let number = number.flatMap({ Int64(exactly: $0) }) else {
        throw ReceiptFault("attribute \(type) exceeds 64 bits")
      }
      return number
    }
  }

  /// 0 or 1.
  mutating func flag(_ type: Int64) throws -> Bool? {
    guard let number = try integer(type) else { return nil }
    guard (0...1).contains(number) else { throw ReceiptFault("attribute \(type) is not 0 or 1") }
    return number == 1
  }

  private mutating func take<Value>(
    _ type: Int64, _ read: (ArraySlice<UInt8>) throws -> Value?
  ) throws -> Value? {
    guard let found = positions[type], let position = found.first,
      let value = attributes[position]?.value
    else { return nil }
    guard found.count == 1 else { throw ReceiptFault("attribute \(type) appears twice") }
    let result = try read(value)
    attributes[position] = nil
    return result
  }

  private static func text(_ bytes: ArraySlice<UInt8>, _ type: Int64) throws -> String? {
    guard !bytes.isEmpty else { return nil }
    let node = try element(bytes, type)
    guard [.utf8String, .ia5String, .printableString].contains(node.identifier),
      case .primitive(let characters) = node.content,
      let text = String(validating: characters, as: UTF8.self)
    else { throw ReceiptFault("attribute \(type) is not a string") }
    return text.isEmpty ? nil : text
  }

  private static func element(_ bytes: ArraySlice<UInt8>, _ type: Int64) throws -> ASN1Node {
    do {
      return try ReceiptBER.parse(bytes)
    } catch {
      throw ReceiptFault("attribute \(type) is not one element")
    }
  }
}

extension Timestamp {
  private static let longestReceiptDate = 40

  /// Parses a date in the formats seen in receipts: with `Z`, with an offset such as `+01:00` or
  /// `+0100` (Xcode, 2020), or with neither, meaning UTC.
  init?(receiptDate text: String) {
    let characters = Array(text.utf8)
    guard characters.count <= Self.longestReceiptDate else { return nil }
    let signs = [UInt8(ascii: "+"), UInt8(ascii: "-")]
    let offset = characters.suffix(5)
    let hasShortOffset =
      offset.count == 5 && offset.first.map(signs.contains) == true
      && offset.dropFirst().allSatisfy { (0x30...0x39).contains($0) }
    let forms =
      hasShortOffset ? ["\(text.dropLast(2)):\(text.suffix(2))"] : [text, text + "Z"]
    for form in forms {
      if let moment = Timestamp(rfc3339: form) {
        self = moment
        return
      }
    }
    return nil
  }
}
