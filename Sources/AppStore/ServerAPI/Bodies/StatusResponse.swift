package import JSONText

/// Where each of a customer's subscriptions stands.
///
/// https://developer.apple.com/documentation/appstoreserverapi/statusresponse
package struct StatusResponse: JSONPayload {
  package var environment: SignedEnvironment?
  package var appAppleID: Int64?
  package var bundleID: String?
  /// In no order.
  package var data: [SubscriptionGroupIdentifierItem]?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("environment", \.environment),
    JSONField("bundleId", \.bundleID),
    JSONField("appAppleId", \.appAppleID),
    JSONField("data", \.data),
  ])
}

/// One subscription group.
package struct SubscriptionGroupIdentifierItem: JSONPayload {
  package var subscriptionGroupIdentifier: String?
  /// In no order, and several where the family shares what the customer has bought, too.
  package var lastTransactions: [LastTransactionsItem]?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("subscriptionGroupIdentifier", \.subscriptionGroupIdentifier),
    JSONField("lastTransactions", \.lastTransactions),
  ])
}

/// One line of a subscription group.
package struct LastTransactionsItem: JSONPayload {
  package var status: SubscriptionStatus?
  package var originalTransactionID: String?
  /// A JWS of a ``JWSTransactionDecodedPayload``.
  package var signedTransactionInfo: String?
  /// A JWS of a ``JWSRenewalInfoDecodedPayload``.
  package var signedRenewalInfo: String?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("status", \.status),
    JSONField("originalTransactionId", \.originalTransactionID),
    JSONField("signedTransactionInfo", \.signedTransactionInfo),
    JSONField("signedRenewalInfo", \.signedRenewalInfo),
  ])
}

/// Apple's `status` of a subscription.
package struct SubscriptionStatus: OpenEnumeration {
  package var rawValue: Int64
  package init(rawValue: Int64) { self.rawValue = rawValue }

  package static let active = SubscriptionStatus(rawValue: 1)
  package static let expired = SubscriptionStatus(rawValue: 2)
  package static let billingRetry = SubscriptionStatus(rawValue: 3)
  package static let gracePeriod = SubscriptionStatus(rawValue: 4)
  package static let revoked = SubscriptionStatus(rawValue: 5)
}
