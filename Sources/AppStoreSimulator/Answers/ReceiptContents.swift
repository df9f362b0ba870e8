import Subscriptions
import SwiftASN1

/// What an app receipt says: a set of numbered attributes, each an octet string around a value.
///
/// https://developer.apple.com/documentation/appstorereceipts/validating_receipts_on_the_device
struct ReceiptContents {
  /// Of Apple's attributes that nobody outside understands, the one that holds the simulation's
  /// mark.
  static let mark = 7

  private var attributes: [UInt8] = []

  mutating func append(_ type: Int, bytes: [UInt8]) {
    attributes += DERBytes.element(
      .sequence,
      DERBytes.integer(type) + DERBytes.integer(1) + DERBytes.element(.octetString, bytes))
  }

  mutating func append(_ type: Int, text: String) {
    append(type, bytes: DERBytes.element(.utf8String, Array(text.utf8)))
  }

  mutating func append(_ type: Int, number: Int) {
    append(type, bytes: DERBytes.integer(number))
  }

  /// In whole seconds; nil is written as an empty text.
  mutating func append(_ type: Int, date: Timestamp?) {
    let text = date.map { "\($0.wholeSecond.description.prefix(19))Z" } ?? ""
    append(type, bytes: DERBytes.element(.ia5String, Array(text.utf8)))
  }

  /// The set.
  var bytes: [UInt8] { DERBytes.element(.set, attributes) }
}

extension ReceiptContents {
  /// The mark in a receipt; nil where there is none, or where it is no receipt.
  static func mark(in receipt: [UInt8]) -> [UInt8]? {
    guard let contents = signedContents(of: receipt),
      let attributes = (try? DER.parse(contents))?.children
    else { return nil }
    for attribute in attributes {
      guard let type = attribute.child(0), (try? Int(derEncoded: type)) == mark else { continue }
      return attribute.child(2).flatMap { try? ASN1OctetString(derEncoded: $0) }
        .map { Array($0.bytes) }
    }
    return nil
  }

  /// What is signed in a receipt, in DER; nil where it is none.
  static func signedContents(of receipt: [UInt8]) -> [UInt8]? {
    guard let info = try? DER.parse(receipt), let signed = info.child(1)?.child(0),
      let content = signed.child(2)?.child(1)?.child(0),
      let octets = try? ASN1OctetString(derEncoded: content)
    else { return nil }
    return Array(octets.bytes)
  }
}

extension ASN1Node {
  fileprivate var children: [ASN1Node] {
    guard case .constructed(let nodes) = content else { return [] }
    return Array(nodes)
  }

  fileprivate func child(_ position: Int) -> ASN1Node? {
    children.dropFirst(position).first
  }
}

extension AppStoreState {
  /// An app receipt as a device has it: what the Apple ID has in the app, signed.
  func appReceipt(_ receipt: SimulatedReceipt, app: Int, customer: Int) -> [UInt8] {
    let isSandbox = receipt.environment == .sandbox
    var contents = ReceiptContents()
    contents.append(0, text: isSandbox ? "ProductionSandbox" : "Production")
    contents.append(2, text: receipt.bundleID)
    contents.append(3, text: apps[app].version)
    contents.append(ReceiptContents.mark, bytes: receipt.mark(seed: configuration.seed))
    contents.append(8, date: nil)
    contents.append(10, text: "4+")
    contents.append(12, date: receipt.madeAt)
    for item in items(receipt, app: app, customer: customer, asOf: receipt.madeAt) {
      contents.append(17, bytes: item.receiptContents.bytes)
    }
    contents.append(18, date: Self.originalPurchaseDate(isSandbox, customers[customer]))
    contents.append(19, text: isSandbox ? "1.0" : apps[app].version)
    return signer.receipts.sign(contents.bytes)
  }
}

extension AnswerItem {
  /// The purchase as a receipt holds it.
  fileprivate var receiptContents: ReceiptContents {
    var contents = ReceiptContents()
    contents.append(1701, number: charge.quantity)
    contents.append(1702, text: charge.product.id.rawValue)
    contents.append(1703, text: transactionID.rawValue)
    contents.append(1704, date: purchaseDate)
    contents.append(1705, text: line.id.rawValue)
    contents.append(1706, date: originalPurchaseDate)
    contents.append(1707, number: charge.product.type.receiptNumber)
    contents.append(1708, date: charge.expiresDate)
    contents.append(1711, number: charge.webOrderLineItemID.flatMap { Int($0.rawValue) } ?? 0)
    contents.append(1712, date: revocation?.at)
    contents.append(1713, number: charge.periodType == .trial ? 1 : 0)
    contents.append(1719, number: charge.periodType == .intro ? 1 : 0)
    if let offer = charge.offer, offer.kind == .promotional {
      contents.append(1721, text: offer.name)
    }
    return contents
  }
}

extension ProductType {
  /// Attribute 1707.
  fileprivate var receiptNumber: Int {
    switch self {
    case .nonConsumable: 0
    case .consumable: 1
    case .nonRenewing: 2
    case .autoRenewable: 3
    }
  }
}
