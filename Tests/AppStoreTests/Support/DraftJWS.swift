import AppStore
import Crypto
import Foundation
import JSONText
import Subscriptions

/// A JWS in the making: genuine unless a test changes something.
struct DraftJWS: Sendable {
  var leaf = TestLeaf.apple
  /// Written instead of what `leaf` brings.
  var certificates: [JSONValue]?
  var algorithm: JSONValue = "ES256"
  /// Members of the header besides `alg` and `x5c`.
  var headerMembers: [(String, JSONValue)] = []
  /// The whole header, instead of all above.
  var header: [UInt8]?
  var payload: [UInt8]
  /// The payload's part as it stands, instead of `payload` encoded.
  var payloadText: String?
  /// Signs in place of the leaf's key.
  var sign: (@Sendable ([UInt8]) throws -> [UInt8])?

  init(_ payload: JSONValue) { self.payload = payload.bytes }

  init(_ payload: String) { self.payload = Array(payload.utf8) }

  /// The draft with some changes.
  func with(_ change: (inout DraftJWS) -> Void) -> DraftJWS {
    var copy = self
    change(&copy)
    return copy
  }

  var headerJSON: JSONValue {
    let x5c = certificates ?? leaf.certificates.map { .string($0.base64) }
    let members = [("alg", algorithm), ("x5c", .array(x5c))] + headerMembers
    return .object(members.map { JSONValue.Member(key: $0.0, value: $0.1) })
  }

  /// The compact form.
  var text: String {
    get throws {
      let encoded = payloadText ?? Self.base64url(payload)
      let input = Self.base64url(header ?? headerJSON.bytes) + "." + encoded
      let bytes = Array(input.utf8)
      let signature = try sign?(bytes) ?? Array(leaf.key.signature(for: bytes).rawRepresentation)
      return input + "." + Self.base64url(signature)
    }
  }

  static func base64url(_ bytes: [UInt8]) -> String {
    Data(bytes).base64EncodedString().replacing("+", with: "-").replacing("/", with: "_")
      .replacing("=", with: "")
  }
}

extension JSONValue {
  /// This object with those members set; nil removes one.
  func with(_ changes: [String: JSONValue?]) -> JSONValue {
    guard case .object(var members) = self else { return self }
    for (key, value) in changes.sorted(by: { $0.key < $1.key }) {
      let index = members.firstIndex { $0.key.rawValue == key }
      switch (index, value) {
      case (let index?, let value?): members[index].value = value
      case (let index?, nil): members.remove(at: index)
      case (nil, let value?): members.append(Member(key: key, value: value))
      case (nil, nil): break
      }
    }
    return .object(members)
  }

  /// The same, whatever the order of members.
  var sorted: JSONValue {
    switch self {
    case .object(let members):
      .object(
        members.map { Member(key: $0.key.rawValue, value: $0.value.sorted) }.sorted {
          $0.key < $1.key
        })
    case .array(let elements): .array(elements.map(\.sorted))
    default: self
    }
  }
}

/// Sample payloads, and their date: one while ``TestLeaf/apple`` is valid.
enum Signed {
  /// 2025-06-01T12:00:00Z.
  static let now = Timestamp(milliseconds: 1_748_779_200_000)
  static let date = JSONValue.integer(1_748_779_199_000)

  /// One month of a subscription, bought.
  static let transaction: JSONValue = [
    "transactionId": "11", "originalTransactionId": "10", "webOrderLineItemId": "900",
    "bundleId": "com.example.app", "productId": "monthly",
    "subscriptionGroupIdentifier": "20000001", "purchaseDate": 1_748_779_000_000,
    "originalPurchaseDate": 1_740_000_000_000, "expiresDate": 1_751_371_000_000, "quantity": 1,
    "type": "Auto-Renewable Subscription", "inAppOwnershipType": "PURCHASED",
    "signedDate": date, "environment": "Production", "transactionReason": "PURCHASE",
    "storefront": "USA", "storefrontId": "143441", "price": 9990, "currency": "USD",
  ]

  static let renewalInfo: JSONValue = [
    "originalTransactionId": "10", "autoRenewProductId": "monthly", "productId": "monthly",
    "autoRenewStatus": 1, "renewalPrice": 9990, "currency": "USD", "signedDate": date,
    "environment": "Production", "recentSubscriptionStartDate": 1_740_000_000_000,
    "renewalDate": 1_751_371_000_000,
  ]

  static let appTransaction: JSONValue = [
    "receiptType": "Production", "appAppleId": 41234, "bundleId": "com.example.app",
    "applicationVersion": "1", "receiptCreationDate": date, "appTransactionId": "71134",
  ]

  /// A notification about the two, each signed.
  static func notification(
    _ type: JSONValue = "DID_RENEW", subtype: JSONValue? = nil,
    transaction: JSONValue? = transaction, renewalInfo: JSONValue? = renewalInfo,
    data changes: [String: JSONValue?] = [:]
  ) throws -> JSONValue {
    let data: JSONValue = [
      "environment": "Production", "appAppleId": 41234, "bundleId": "com.example.app",
      "bundleVersion": "1", "status": 1,
    ]
    let parts: [String: JSONValue?] = [
      "signedTransactionInfo": try transaction.map { .string(try DraftJWS($0).text) },
      "signedRenewalInfo": try renewalInfo.map { .string(try DraftJWS($0).text) },
    ]
    let notification: JSONValue = [
      "notificationType": type, "notificationUUID": "002e14d5-51f5-4503-b5a8-c3a1af68eb20",
      "data": data.with(parts).with(changes), "version": "2.0", "signedDate": date,
    ]
    return notification.with(["subtype": subtype])
  }

  /// Believes ``TestAuthority/apple``, and serves `com.example.app`, whose Apple ID is 41234.
  static func verifier(
    roots: TrustedRoots? = nil, acceptsXcode: Bool = false,
    now: @escaping @Sendable () -> Timestamp = { now }
  ) throws -> SignedDataVerifier {
    let apps = try AppStoreApps([
      AppStoreApp(bundleID: "com.example.app", appleID: 41234),
      AppStoreApp(bundleID: "com.example.other"),
    ])
    return SignedDataVerifier(
      roots: try roots ?? TestAuthority.apple.roots, apps: apps, acceptsXcode: acceptsXcode,
      now: now)
  }
}

extension Result where Failure == SignedDataError {
  /// Nil where it was accepted.
  var reason: SignedDataError.Reason? {
    guard case .failure(let refusal) = self else { return nil }
    return refusal.reason
  }
}
