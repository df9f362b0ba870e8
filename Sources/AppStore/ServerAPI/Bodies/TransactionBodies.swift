package import JSONText

/// A page of a customer's transactions:
/// <https://developer.apple.com/documentation/appstoreserverapi/historyresponse>.
package struct HistoryResponse: JSONPayload {
  package var appAppleID: Int64?
  package var bundleID: String?
  package var environment: SignedEnvironment?
  package var hasMore: Bool?
  /// The token for the next page, and later for changes.
  package var revision: String?
  package var signedTransactions: [String]?  // Each a JWS of a `JWSTransactionDecodedPayload`
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("revision", \.revision),
    JSONField("hasMore", \.hasMore),
    JSONField("bundleId", \.bundleID),
    JSONField("appAppleId", \.appAppleID),
    JSONField("environment", \.environment),
    JSONField("signedTransactions", \.signedTransactions),
  ])
}

/// A page of a customer's refunded or revoked transactions:
/// <https://developer.apple.com/documentation/appstoreserverapi/refundhistoryresponse>.
package struct RefundHistoryResponse: JSONPayload {
  package var hasMore: Bool?
  /// The token for the next page, and later for changes.
  package var revision: String?
  package var signedTransactions: [String]?  // Each a JWS of a `JWSTransactionDecodedPayload`
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("signedTransactions", \.signedTransactions),
    JSONField("revision", \.revision),
    JSONField("hasMore", \.hasMore),
  ])
}

/// The statuses of a customer's subscriptions:
/// <https://developer.apple.com/documentation/appstoreserverapi/statusresponse>.
package struct StatusResponse: JSONPayload {
  package var environment: SignedEnvironment?
  package var appAppleID: Int64?
  package var bundleID: String?
  package var data: [SubscriptionGroupIdentifierItem]?  // Unordered
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("environment", \.environment),
    JSONField("bundleId", \.bundleID),
    JSONField("appAppleId", \.appAppleID),
    JSONField("data", \.data),
  ])
}

package struct SubscriptionGroupIdentifierItem: JSONPayload {
  package var subscriptionGroupIdentifier: String?
  /// Unordered; several if the family also shares a purchase.
  package var lastTransactions: [LastTransactionsItem]?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("subscriptionGroupIdentifier", \.subscriptionGroupIdentifier),
    JSONField("lastTransactions", \.lastTransactions),
  ])
}

/// One original transaction of a subscription group.
package struct LastTransactionsItem: JSONPayload {
  package var status: SubscriptionStatus?
  package var originalTransactionID: String?
  package var signedTransactionInfo: String?  // A JWS of a `JWSTransactionDecodedPayload`
  package var signedRenewalInfo: String?  // A JWS of a `JWSRenewalInfoDecodedPayload`
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("status", \.status),
    JSONField("originalTransactionId", \.originalTransactionID),
    JSONField("signedTransactionInfo", \.signedTransactionInfo),
    JSONField("signedRenewalInfo", \.signedRenewalInfo),
  ])
}

package struct SubscriptionStatus: OpenEnumeration {
  package var rawValue: Int64
  package init(rawValue: Int64) { self.rawValue = rawValue }

  package static let active = SubscriptionStatus(rawValue: 1)
  package static let expired = SubscriptionStatus(rawValue: 2)
  package static let billingRetry = SubscriptionStatus(rawValue: 3)
  package static let gracePeriod = SubscriptionStatus(rawValue: 4)
  package static let revoked = SubscriptionStatus(rawValue: 5)
}

/// See <https://developer.apple.com/documentation/appstoreserverapi/transactioninforesponse>.
package struct TransactionInfoResponse: JSONPayload {
  package var signedTransactionInfo: String?  // A JWS of a `JWSTransactionDecodedPayload`
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("signedTransactionInfo", \.signedTransactionInfo)
  ])
}

/// A customer's download of the app:
/// <https://developer.apple.com/documentation/appstoreserverapi/apptransactioninforesponse>.
package struct AppTransactionInfoResponse: JSONPayload {
  package var signedAppTransactionInfo: String?  // A JWS of a `JWSAppTransactionDecodedPayload`
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("signedAppTransactionInfo", \.signedAppTransactionInfo)
  ])
}

/// The transactions of an order:
/// <https://developer.apple.com/documentation/appstoreserverapi/orderlookupresponse>.
package struct OrderLookupResponse: JSONPayload {
  package var status: OrderLookupStatus?
  package var signedTransactions: [String]?  // Each a JWS of a `JWSTransactionDecodedPayload`
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("status", \.status),
    JSONField("signedTransactions", \.signedTransactions),
  ])
}

/// Whether an order ID belongs to the app.
package struct OrderLookupStatus: OpenEnumeration {
  package var rawValue: Int64
  package init(rawValue: Int64) { self.rawValue = rawValue }

  package static let valid = OrderLookupStatus(rawValue: 0)
  package static let invalid = OrderLookupStatus(rawValue: 1)
}

/// See <https://developer.apple.com/documentation/appstoreserverapi/updateappaccounttokenrequest>.
package struct UpdateAppAccountTokenRequest: JSONPayload {
  package var appAccountToken: String?  // A UUID
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("appAccountToken", \.appAccountToken)
  ])
}
