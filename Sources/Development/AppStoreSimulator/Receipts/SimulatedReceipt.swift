import AppStore
import Foundation
import struct Foundation.Data
import JSONText
import Subscriptions
import SwiftASN1

/// A device's receipt; for the simulation, a reference to a snapshot.
///
/// A receipt's mark contains the customer, the time and the restoration. The simulation keeps its
/// whole history, so it can derive the receipt's contents at any later time. An app receipt also
/// lists its purchases, signed, for local verification.
struct SimulatedReceipt: Hashable, Sendable {
  enum Style: Hashable, Sendable {
    /// Since iOS 7: all purchases of an Apple ID in the app.
    case app
    /// Until iOS 6: one transaction, with the ID used on the device.
    case transaction(TransactionID)
  }

  var style: Style
  var environment: Environment
  var bundleID: String
  var appleID: AppleID
  var madeAt: Timestamp
  /// The customer's restoration whose transaction IDs it uses.
  var restoration: Int?

  enum Reading {
    case receipt(SimulatedReceipt)
    case malformed
    /// It looks like a receipt, but not from this simulation.
    case notAuthentic
  }
}

extension SimulatedReceipt {
  /// The customer, time and restoration, marked with the simulation's seed.
  func mark(seed: UInt64) -> [UInt8] { JSONValue.object(members(seed: seed)).bytes }

  static func reading(_ text: String, seed: UInt64) -> Reading {
    // Without options Foundation rejects white space, as Apple does: a receipt in which a form
    // turned "+" into a space is malformed.
    guard !text.isEmpty, let data = Data(base64Encoded: text) else { return .malformed }
    if let mark = ReceiptContents.mark(in: Array(data)) {
      guard let json = try? JSONValue(parsing: mark) else { return .notAuthentic }
      return reading(json, style: .app, signature: json["signature"]?.string, seed: seed)
    }
    let list = PropertyList(String(decoding: data, as: UTF8.self))
    guard let purchaseInfo = list["purchase-info"], let inner = Data(base64Encoded: purchaseInfo)
    else { return .malformed }
    let info = PropertyList(String(decoding: inner, as: UTF8.self))
    guard let id = info["transaction-id"], let identifier = info["unique-vendor-identifier"],
      let members = Data(base64Encoded: identifier), let json = try? JSONValue(parsing: members)
    else { return .malformed }
    return reading(
      json, style: .transaction(TransactionID(id)), signature: list["signature"], seed: seed)
  }

  private static func reading(
    _ json: JSONValue, style: Style, signature: String?, seed: UInt64
  ) -> Reading {
    guard let environment = json["environment"]?.string.flatMap(Environment.init(rawValue:)),
      let bundleID = json["bundle_id"]?.string, let appleID = json["apple_id"]?.string,
      let madeAt = json["made_at_ms"]?.integer
    else { return .malformed }
    let receipt = SimulatedReceipt(
      style: style, environment: environment, bundleID: bundleID, appleID: AppleID(appleID),
      madeAt: Timestamp(milliseconds: madeAt),
      restoration: json["restoration"]?.integer.flatMap(Int.init(exactly:)))
    return receipt.signature(seed: seed) == signature ? .receipt(receipt) : .notAuthentic
  }

  private func members(seed: UInt64) -> [JSONValue.Member] {
    var members: [JSONValue.Member] = []
    members.append("environment", environment.rawValue)
    members.append("bundle_id", bundleID)
    members.append("apple_id", appleID.rawValue)
    members.append("made_at_ms", .integer(madeAt.milliseconds))
    if let restoration { members.append("restoration", .integer(Int64(restoration))) }
    members.append("signature", signature(seed: seed))
    return members
  }

  /// An iOS 6 receipt: an old-style property list around another one.
  func transactionReceipt(
    _ id: TransactionID, _ details: [(key: String, value: String)], seed: UInt64
  ) -> String {
    let info = PropertyList.text(
      [
        ("transaction-id", id.rawValue), ("bid", bundleID),
        ("unique-vendor-identifier", Self.base64(mark(seed: seed))),
      ] + details)
    var outer = [
      ("signature", signature(seed: seed)), ("purchase-info", Self.base64(Array(info.utf8))),
    ]
    if environment == .sandbox { outer.append(("environment", "Sandbox")) }
    outer += [("pod", "100"), ("signing-status", "0")]
    return Self.base64(Array(PropertyList.text(outer).utf8))
  }

  /// A signature that differs between simulations; it protects against mistakes, not forgery.
  private func signature(seed: UInt64) -> String {
    var fields = [
      environment.rawValue, bundleID, appleID.rawValue, madeAt.milliseconds.description,
      restoration?.description ?? "-",
    ]
    if case .transaction(let id) = style { fields.append(id.rawValue) }
    // FNV-1a, 64 bit.
    var hash: UInt64 = 0xcbf2_9ce4_8422_2325 ^ seed
    for byte in fields.joined(separator: "\n").utf8 {
      hash = (hash ^ UInt64(byte)) &* 0x0000_0100_0000_01b3
    }
    return String(hash, radix: 16)
  }

  private static func base64(_ bytes: [UInt8]) -> String {
    Data(bytes).base64EncodedString()
  }
}

/// A NeXTSTEP-style property list, limited to the receipts' form: one dictionary of strings.
struct PropertyList {
  private var values: [String: String] = [:]

  subscript(key: String) -> String? { values[key] }

  init(_ text: String) {
    for entry in text.split(separator: ";") {
      // No key or value of a receipt contains a quotation mark.
      let quoted = entry.split(separator: "\"", omittingEmptySubsequences: false)
      if quoted.count == 5 { values[String(quoted[1])] = String(quoted[3]) }
    }
  }

  static func text(_ pairs: [(key: String, value: String)]) -> String {
    "{\n" + pairs.map { "\t\"\($0.key)\" = \"\($0.value)\";\n" }.joined() + "}"
  }
}

/// The contents of an app receipt: a set of numbered attributes, each an octet string around a
/// value.
///
/// https://developer.apple.com/documentation/appstorereceipts/validating_receipts_on_the_device
struct ReceiptContents {
  /// One of Apple's undocumented attributes, used for the simulation's mark.
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

  /// In whole seconds; nil is an empty text.
  mutating func append(_ type: Int, date: Timestamp?) {
    let text = date.map { "\($0.wholeSecond.description.prefix(19))Z" } ?? ""
    append(type, bytes: DERBytes.element(.ia5String, Array(text.utf8)))
  }

  var bytes: [UInt8] { DERBytes.element(.set, attributes) }
}

extension ReceiptContents {
  /// The mark in a receipt; nil if there is none.
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

  /// The signed contents of a receipt in DER; nil for anything else.
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
  /// The signed app receipt of a device, with the Apple ID's purchases.
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

/// A charge with the transaction IDs and dates shown by a particular receipt.
struct AnswerItem {
  let charge: Charge
  let line: SimulatedSubscription
  var transactionID: TransactionID
  var purchaseDate: Timestamp
  var originalPurchaseDate: Timestamp
  /// The revocation shown by the item; the receipt's own list is as old as the receipt.
  var revocation: Charge.Revocation?

  /// The fields common to the old and the new format.
  var namesAndDates: [JSONValue.Member] {
    var members: [JSONValue.Member] = []
    members.append("quantity", String(charge.quantity))
    members.append("product_id", charge.product.id.rawValue)
    members.append("transaction_id", transactionID.rawValue)
    members.append("original_transaction_id", line.id.rawValue)
    members.append(date: "purchase_date", purchaseDate)
    members.append(date: "original_purchase_date", originalPurchaseDate)
    return members
  }

  /// An element of `in_app`, or of `latest_receipt_info`, which contains more.
  ///
  /// https://developer.apple.com/documentation/appstorereceipts/responsebody
  func json(isLatest: Bool, quirks: Set<Quirk>) -> JSONValue {
    var members = namesAndDates
    if let expiresDate = charge.expiresDate {
      members.append(date: "expires_date", expiresDate)
    }
    if let lineItem = charge.webOrderLineItemID, !quirks.contains(.withoutLineItemIDs) {
      members.append("web_order_line_item_id", lineItem.rawValue)
    }
    members.append("is_trial_period", String(charge.periodType == .trial))
    if line.group != nil {
      members.append("is_in_intro_offer_period", String(charge.periodType == .intro))
    }
    appendCancellation(to: &members, isLatest: isLatest, quirks: quirks)
    if !quirks.contains(.withoutOwnershipType) {
      members.append(
        "in_app_ownership_type", line.ownership == .purchased ? "PURCHASED" : "FAMILY_SHARED")
    }
    if isLatest, let group = line.group {
      members.append("subscription_group_identifier", group)
    }
    if let offer = charge.offer {
      members.append(offer.kind.receiptKey, offer.name)
    }
    if let token = charge.appAccountToken {
      members.append("app_account_token", token.text)
    }
    return JSONValue.object(members).with(quirks)
  }

  private func appendCancellation(
    to members: inout [JSONValue.Member], isLatest: Bool, quirks: Set<Quirk>
  ) {
    if let revocation {
      members.append(date: "cancellation_date", revocation.at)
      members.append("cancellation_reason", revocation.reason)
    } else if let upgradedAt = charge.upgradedAt, isLatest {
      if quirks.contains(.upgradesAsCancellations) {
        members.append(date: "cancellation_date", upgradedAt)
        members.append("cancellation_reason", "0")
      } else {
        members.append("is_upgraded", "true")
      }
    }
  }
}

extension JSONValue {
  private static let nativeNumbers: Set<ExactText> = [
    "quantity", "transaction_id", "original_transaction_id", "web_order_line_item_id",
    "auto_renew_status", "is_in_billing_retry_period", "expiration_intent",
  ]

  /// The object with native numbers and Booleans, if that quirk is enabled.
  func with(_ quirks: Set<Quirk>) -> JSONValue {
    guard quirks.contains(.nativeValues), case .object(let members) = self else { return self }
    return .object(
      members.map { member in
        guard let text = member.value.string else { return member }
        var member = member
        if text == "true" || text == "false" {
          member.value = .bool(text == "true")
        } else if member.key.rawValue.hasSuffix("_ms") || Self.nativeNumbers.contains(member.key),
          let number = Int64(text)
        {
          member.value = .integer(number)
        }
        return member
      })
  }
}

/// A quirk seen in real verifyReceipt responses.
package enum Quirk: String, Hashable, Codable, CaseIterable, Sendable {
  case shuffled
  /// Some list items appear twice.
  case doubled
  /// Some charges are only in `in_app`, some only in `latest_receipt_info`, some in both.
  case split
  /// `in_app` is empty although the receipt is valid.
  case emptyInApp = "empty_in_app"
  /// Receipts restored before 2015: the purchase date is that of the restore, often after the
  /// expiry.
  case restoredPurchaseDates = "restored_purchase_dates"
  /// Older responses: an upgrade appears as a cancellation at its time, without `is_upgraded`.
  case upgradesAsCancellations = "upgrades_as_cancellations"
  /// Numbers and Booleans where Apple uses strings today.
  case nativeValues = "native_values"
  /// `latest_receipt_info` is one object, the latest item, instead of an array.
  case latestInfoAsObject = "latest_info_as_object"
  /// `receipt` is an array with one element.
  case receiptAsArray = "receipt_as_array"
  /// Before 2020: items without `in_app_ownership_type`.
  case withoutOwnershipType = "without_ownership_type"
  case withoutLineItemIDs = "without_line_item_ids"
  /// 21007 and 21008 include the decoded receipt, which must be ignored.
  case receiptWithWrongEnvironment = "receipt_with_wrong_environment"
}
