import AppStore
import Foundation
import JSONText
import Subscriptions

/// What inputs are made of: JSON objects such as Apple writes.
struct FuzzSamples: Sendable {
  private(set) var transactions: [JSONValue] = [transaction]
  private(set) var renewalInfos: [JSONValue] = [renewalInfo]
  private(set) var appTransactions: [JSONValue] = [appTransaction]
  private(set) var notifications: [JSONValue] = [notification]
  private(set) var receiptAnswers: [JSONValue] = [oldReceiptAnswer]

  /// Those that are built in, and any in a folder.
  ///
  /// - Parameter folder: Its files whose names end in `.json`, however deep; nil for none.
  /// - Throws: ``FuzzFinding`` where the folder is none.
  init(folder: String? = nil) throws {
    let answer = PreparedAppStore().answer(about: SampleSubmission(number: 1, orderID: nil))
    receiptAnswers.append(try JSONValue(parsing: answer))
    guard let folder else { return }
    guard let names = FileManager.default.enumerator(atPath: folder) else {
      throw FuzzFinding("\(folder) is no folder: name one with samples.")
    }
    let paths = names.compactMap { $0 as? String }.filter { $0.hasSuffix(".json") }
    for path in paths.sorted() {
      guard let data = FileManager.default.contents(atPath: folder + "/" + path),
        let json = try? JSONValue(parsing: data)
      else { continue }
      add(json)
    }
  }

  /// Everything.
  var all: [JSONValue] {
    transactions + renewalInfos + appTransactions + notifications + receiptAnswers
  }

  /// A published payload is of no environment that would be accepted.
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

  /// In the shape of iOS 6.
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
  /// This object with one member set.
  func setting(_ key: String, _ value: JSONValue) -> JSONValue {
    guard case .object(var members) = self else { return self }
    members.removeAll { $0.key.rawValue == key }
    return .object(members + [Member(key: key, value: value)])
  }
}
