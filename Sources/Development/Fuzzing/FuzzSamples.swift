import AppStore
import AppStoreSimulator
import Foundation
import JSONText
import Subscriptions

/// The samples that inputs are derived from: JSON objects as Apple writes them.
package struct FuzzSamples: Sendable {
  private(set) var transactions: [JSONValue] = [transaction]
  private(set) var renewalInfos: [JSONValue] = [renewalInfo]
  private(set) var appTransactions: [JSONValue] = [appTransaction]
  private(set) var notifications: [JSONValue] = [notification]
  private(set) var receiptAnswers: [JSONValue] = [oldReceiptAnswer]

  /// Built-in samples, and all files with the extension `json` in a folder and its subfolders.
  ///
  /// - Throws: ``FuzzFinding`` if there is no such folder.
  package init(folder: String? = nil) throws {
    let answer = PreparedAppStore().answer(about: SampleSubmission(number: 1, orderID: nil))
    receiptAnswers.append(try JSONValue(parsing: answer))
    guard let folder else { return }
    guard let names = FileManager.default.enumerator(atPath: folder) else {
      throw FuzzFinding("\(folder) is not a folder: name one with samples.")
    }
    let paths = names.compactMap { $0 as? String }.filter { $0.hasSuffix(".json") }
    for path in paths.sorted() {
      guard let data = FileManager.default.contents(atPath: folder + "/" + path),
        let json = try? JSONValue(parsing: data)
      else { continue }
      add(json)
    }
  }

  var all: [JSONValue] {
    transactions + renewalInfos + appTransactions + notifications + receiptAnswers
  }

  /// Adds a sample; its environment is changed to one that is accepted.
  private mutating func add(_ json: JSONValue) {
    if json["notificationUUID"] != nil {
      let data = json["data"]?.setting("environment", "Production")
        .setting("appAppleId", 1_234_567_890)
      notifications.append(data.map { json.setting("data", $0) } ?? json)
    } else if json["transactionId"] != nil {
      transactions.append(json.setting("environment", "Production"))
    } else if json["autoRenewStatus"] != nil {
      renewalInfos.append(json.setting("environment", "Production"))
    } else if json["receiptType"] != nil {
      appTransactions.append(json.setting("receiptType", "Production"))
    } else if json["status"] != nil {
      receiptAnswers.append(json)
    }
  }

  static let bundleID = "com.example.tenure"
  static let signedAt = Timestamp(milliseconds: 1_748_779_199_000)

  private static let transaction: JSONValue = [
    "transactionId": "2000000000000001", "originalTransactionId": "1000000000000001",
    "webOrderLineItemId": "900", "bundleId": .string(bundleID), "productId": "monthly",
    "subscriptionGroupIdentifier": "20345678", "purchaseDate": 1_748_779_000_000,
    "originalPurchaseDate": 1_740_000_000_000, "expiresDate": 1_751_371_000_000, "quantity": 1,
    "type": "Auto-Renewable Subscription", "inAppOwnershipType": "PURCHASED",
    "appAccountToken": "7e3fb20b-4cdb-47cc-936d-99d65f608138",
    "signedDate": .integer(signedAt.milliseconds), "environment": "Production",
    "transactionReason": "RENEWAL", "storefront": "USA", "storefrontId": "143441", "price": 9990,
    "currency": "USD", "offerType": 1, "offerDiscountType": "FREE_TRIAL", "offerPeriod": "P1M",
    "isUpgraded": false, "revocationDate": 1_748_779_000_001, "revocationReason": 1,
    "previousOriginalTransactionId": "1000000000000000",
    "commitmentInfo": ["billingPeriodNumber": 3, "totalBillingPeriods": 12],
  ]

  private static let renewalInfo: JSONValue = [
    "originalTransactionId": "1000000000000001", "autoRenewProductId": "yearly",
    "productId": "monthly", "autoRenewStatus": 1, "expirationIntent": 1,
    "isInBillingRetryPeriod": false, "gracePeriodExpiresDate": 1_751_471_000_000,
    "signedDate": .integer(signedAt.milliseconds), "environment": "Production",
    "renewalDate": 1_751_371_000_000, "eligibleWinBackOfferIds": ["a", "b"],
    "appAccountToken": "7e3fb20b-4cdb-47cc-936d-99d65f608138",
  ]

  private static let appTransaction: JSONValue = [
    "receiptType": "Production", "appAppleId": 1_234_567_890, "bundleId": .string(bundleID),
    "applicationVersion": "1", "receiptCreationDate": .integer(signedAt.milliseconds),
    "appTransactionId": "704123456789012345",
  ]

  private static let notification: JSONValue = [
    "notificationType": "DID_RENEW", "notificationUUID": "002e14d5-51f5-4503-b5a8-c3a1af68eb20",
    "data": [
      "environment": "Production", "appAppleId": 1_234_567_890, "bundleId": .string(bundleID),
      "bundleVersion": "1", "status": 1,
    ],
    "version": "2.0", "signedDate": .integer(signedAt.milliseconds),
  ]

  /// A response about a receipt in the format of iOS 6.
  private static let oldReceiptAnswer: JSONValue = [
    "status": 21006, "auto_renew_status": 0, "auto_renew_product_id": "monthly",
    "expiration_intent": "1", "is_in_billing_retry_period": "0",
    "cancellation_date_ms": "1748779000001", "cancellation_reason": "1",
    "receipt": [
      "bid": .string(bundleID), "product_id": "monthly", "quantity": "1",
      "transaction_id": "2000000000000001", "original_transaction_id": "1000000000000001",
      "purchase_date": "2025-06-01 11:56:40 Etc/GMT", "purchase_date_ms": "1748779000000",
      "expires_date": "1751371000000", "expires_date_formatted": "2025-07-01 11:56:40 Etc/GMT",
    ],
    "latest_expired_receipt_info": [
      "bid": .string(bundleID), "product_id": "monthly", "transaction_id": "2000000000000001",
      "original_transaction_id": "1000000000000001", "purchase_date_ms": "1748779000000",
      "expires_date": "1751371000000", "is_trial_period": "true",
      "web_order_line_item_id": "900",
    ],
  ]
}

extension JSONValue {
  /// A copy of this object with one member replaced.
  func setting(_ key: String, _ value: JSONValue) -> JSONValue {
    guard case .object(var members) = self else { return self }
    members.removeAll { $0.key.rawValue == key }
    return .object(members + [Member(key: key, value: value)])
  }
}

/// Mutations of texts, as by a careless or malicious sender.
extension SplitMix64 {
  mutating func element<Element>(_ elements: [Element]) -> Element {
    elements[number(in: 0...elements.count - 1)]
  }

  // MARK: Bytes

  /// Byte sequences that parsers are prone to mishandle.
  private static let fragments: [[UInt8]] =
    [
      [0], [0xFF], [0xC0, 0x80], [0xED, 0xA0, 0x80], [0xEF, 0xBB, 0xBF], [0x80], [0x30, 0x80],
      [0x30, 0x84, 0xFF, 0xFF, 0xFF, 0xFF], [0x24, 0x80], [0x00, 0x00],
    ]
    + [
      "", ".", "..", "=", "==", "{", "}", "[", "]", "\"", "\\", "\\u", "\\ud800", ",", ":", "-",
      "e",
      "1e999", "null", "0", "99999999999999999999", "\n", " ", "AAAA", "{\"a\":",
    ].map { Array($0.utf8) }

  /// A copy with one to four random changes.
  mutating func mutated(_ text: [UInt8]) -> [UInt8] {
    var text = text
    for _ in 0..<number(in: 1...4) { mutate(&text) }
    return text
  }

  private mutating func mutate(_ text: inout [UInt8]) {
    guard !text.isEmpty else {
      text = element(Self.fragments)
      return
    }
    let place = number(in: 0...text.count - 1)
    let end = min(text.count, place + number(in: 1...(chance(0.2) ? 200 : 4)))
    switch number(in: 0...7) {
    case 0: text[place] ^= 1 << UInt8(number(in: 0...7))
    case 1: text[place] = UInt8(truncatingIfNeeded: next())
    case 2: text.removeSubrange(place..<end)
    case 3: text.insert(contentsOf: text[place..<end], at: number(in: 0...text.count))
    case 4: text.insert(contentsOf: element(Self.fragments), at: place)
    case 5: text.replaceSubrange(place..<end, with: element(Self.fragments))
    case 6: text.removeSubrange((chance(0.5) ? place : 0)..<(chance(0.5) ? text.count : place + 1))
    default:
      let fragment = element(Self.fragments)
      let count = chance(0.05) ? 20_000 : number(in: 1...60)
      text.insert(contentsOf: (0..<count).flatMap { _ in fragment }, at: place)
    }
  }

  // MARK: JSON

  /// An unexpected value.
  private mutating func surprise() -> JSONValue {
    switch number(in: 0...9) {
    case 0:
      .integer(
        element([
          0, 1, -1, 2, 255, 1 << 31, 1 << 53, .max, .min + 1, 253_402_300_799_999,
          253_402_300_800_000, 1_748_779_199_000, -62_135_596_800_000,
        ]))
    case 1:
      .number(element([0.5, -0.0, 1e300, -1e300, .leastNonzeroMagnitude, 1_748_779_199_000.7297]))
    case 2: .bool(chance(0.5))
    case 3: .null
    case 4: .array([])
    case 5: .object([])
    case 6:
      (0..<number(in: 1...40)).reduce(into: JSONValue.null) { value, _ in value = .array([value]) }
    case 7:
      .string(String(repeating: element(["A", "9", "ä", "\u{0}"]), count: number(in: 1...400)))
    default:
      .string(
        element([
          "", "0", "1", "-1", "true", "\u{0}", "e\u{301}", "\u{feff}", "9223372036854775808",
          "Production", "Sandbox", "Xcode", "PURCHASE", "RENEWAL", "Consumable", "FREE_TRIAL",
          "2019-08-20 04:28:57 Etc/GMT", "9999-12-31 23:59:60 Etc/GMT", "com.example.other",
          "7e3fb20b-4cdb-47cc-936d-99d65f608138", "SANDBOX_1", "DID_RENEW", "REFUND", "..", "a.b.c",
        ]))
    }
  }

  /// A copy with one to three random changes, with members from other samples and invalid values.
  mutating func mutated(_ value: JSONValue, donors: [JSONValue]) -> JSONValue {
    (0..<number(in: 1...3)).reduce(into: value) { value, _ in
      value = changed(value, donor: element(donors))
    }
  }

  private mutating func changed(_ value: JSONValue, donor: JSONValue) -> JSONValue {
    switch value {
    case .object(var members) where !members.isEmpty:
      let index = number(in: 0...members.count - 1)
      switch number(in: 0...9) {
      case 0: members.remove(at: index)
      case 1: members.append(members[index])
      case 2:
        members[index].key = ExactText(element(donor.keys + ["", "environment", "signedDate"]))
      case 3:
        if case .object(let others) = donor, !others.isEmpty { members.append(element(others)) }
      case 4: return surprise()
      default: members[index].value = changed(members[index].value, donor: donor)
      }
      return .object(members)
    case .array(var elements) where !elements.isEmpty:
      let index = number(in: 0...elements.count - 1)
      switch number(in: 0...5) {
      case 0: elements.remove(at: index)
      case 1: elements += Array(repeating: elements[index], count: number(in: 1...20))
      case 2: elements.append(surprise())
      case 3: return elements[index]
      default: elements[index] = changed(elements[index], donor: donor)
      }
      return .array(elements)
    default: return surprise()
    }
  }
}
