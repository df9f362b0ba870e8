/// A page of a customer's transactions:
/// <https://developer.apple.com/documentation/appstoreserverapi/historyresponse>.
///
/// One of refunded or revoked transactions names neither app nor environment.
package typealias HistoryResponse = JSONPayload<HistoryFields>

package struct HistoryFields: JSONFields {
  package let appAppleID = JSONField<Int64>("appAppleId")
  package let bundleID = JSONField<String>("bundleId")
  package let environment = JSONField<SignedEnvironment>("environment")
  package let hasMore = JSONField<Bool>("hasMore")
  /// The token for the next page, and later for changes.
  package let revision = JSONField<String>("revision")
  package let signedTransactions = JSONField<[String]>("signedTransactions")  // JWS
  package static let schema = JSONSchema(Self())
}

/// The statuses of a customer's subscriptions:
/// <https://developer.apple.com/documentation/appstoreserverapi/statusresponse>.
package typealias StatusResponse = JSONPayload<StatusFields>

package struct StatusFields: JSONFields {
  package let environment = JSONField<SignedEnvironment>("environment")
  package let appAppleID = JSONField<Int64>("appAppleId")
  package let bundleID = JSONField<String>("bundleId")
  package let data = JSONField<[SubscriptionGroupItem]>("data")  // Unordered
  package static let schema = JSONSchema(Self())
}

package typealias SubscriptionGroupItem = JSONPayload<SubscriptionGroupFields>

package struct SubscriptionGroupFields: JSONFields {
  package let subscriptionGroupIdentifier = JSONField<String>("subscriptionGroupIdentifier")
  /// Unordered; several if the family also shares a purchase.
  package let lastTransactions = JSONField<[LastTransactionsItem]>("lastTransactions")
  package static let schema = JSONSchema(Self())
}

package typealias LastTransactionsItem = JSONPayload<LastTransactionFields>

package struct LastTransactionFields: JSONFields {
  package let status = JSONField<SubscriptionStatus>("status")
  package let originalTransactionID = JSONField<String>("originalTransactionId")
  package let signedTransactionInfo = JSONField<String>("signedTransactionInfo")  // JWS
  package let signedRenewalInfo = JSONField<String>("signedRenewalInfo")  // JWS
  package static let schema = JSONSchema(Self())
}

package struct SubscriptionStatus: OpenEnumeration {
  package var rawValue: Int64
  package init(rawValue: Int64) { self.rawValue = rawValue }

  package static let active = Self(rawValue: 1)
  package static let expired = Self(rawValue: 2)
  package static let billingRetry = Self(rawValue: 3)
  package static let gracePeriod = Self(rawValue: 4)
  package static let revoked = Self(rawValue: 5)
}

/// A response with a single text, whichever the call asked for.
package typealias SingleTextResponse = JSONPayload<SingleTextFields>

package struct SingleTextFields: JSONFields {
  package let signedTransactionInfo = JSONField<String>("signedTransactionInfo")  // JWS
  package let signedAppTransactionInfo = JSONField<String>("signedAppTransactionInfo")  // JWS
  package let testNotificationToken = JSONField<String>("testNotificationToken")
  package static let schema = JSONSchema(Self())
}

/// The transactions of an order:
/// <https://developer.apple.com/documentation/appstoreserverapi/orderlookupresponse>.
package typealias OrderLookupResponse = JSONPayload<OrderLookupFields>

package struct OrderLookupFields: JSONFields {
  /// 0: the order ID belongs to the app, 1: it does not.
  package let status = JSONField<Int64>("status")
  package let signedTransactions = JSONField<[String]>("signedTransactions")  // JWS
  package static let schema = JSONSchema(Self())
}
