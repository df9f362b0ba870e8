import AppStore
import JSONText
import Subscriptions

import struct Foundation.Data

/// What a device sends to its app's server: to the simulation, a snapshot's name.
///
/// The mark in a receipt says who, when and under which names: the simulation forgets nothing, so
/// that is enough to say at any later time what the receipt held when it was made. An app receipt
/// also lists its purchases, signed, for those who don't ask Apple.
struct SimulatedReceipt: Hashable, Sendable {
  enum Style: Hashable, Sendable {
    /// Since iOS 7: everything an Apple ID has in the app.
    case app
    /// Until iOS 6: one transaction, under the name that the device knows.
    case transaction(TransactionID)
  }

  var style: Style
  var environment: Environment
  var bundleID: String
  var appleID: AppleID
  var madeAt: Timestamp
  /// The customer's restoration whose names it uses.
  var restoration: Int?

  /// What a text turns out to be.
  enum Reading {
    case receipt(SimulatedReceipt)
    case malformed
    /// It looks like a receipt, but no device of this simulation made it.
    case notAuthentic
  }
}

extension SimulatedReceipt {
  /// Who, when and under which names, marked with the simulation's seed.
  func mark(seed: UInt64) -> [UInt8] { JSONValue.object(members(seed: seed)).bytes }

  static func reading(_ text: String, seed: UInt64) -> Reading {
    // Without options Foundation refuses white space, as Apple does: a "+" that a form turned into
    // a space makes a receipt malformed.
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

  /// An iOS 6 receipt: a property list in the old style around another one.
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

  /// A mark that no other simulation makes; it protects against mistakes, not against forgers.
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

/// A property list in NeXTSTEP's style, as far as receipts use it: one dictionary of strings.
struct PropertyList {
  private var values: [String: String] = [:]

  subscript(key: String) -> String? { values[key] }

  init(_ text: String) {
    for entry in text.split(separator: ";") {
      // No key and no value of a receipt contains a quotation mark.
      let quoted = entry.split(separator: "\"", omittingEmptySubsequences: false)
      if quoted.count == 5 { values[String(quoted[1])] = String(quoted[3]) }
    }
  }

  static func text(_ pairs: [(key: String, value: String)]) -> String {
    "{\n" + pairs.map { "\t\"\($0.key)\" = \"\($0.value)\";\n" }.joined() + "}"
  }
}
