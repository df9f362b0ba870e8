package import JSONText

/// A page of a customer's transactions.
///
/// https://developer.apple.com/documentation/appstoreserverapi/historyresponse
package struct HistoryResponse: JSONPayload {
  package var appAppleID: Int64?
  package var bundleID: String?
  package var environment: SignedEnvironment?
  package var hasMore: Bool?
  /// Where the next page begins, and later the news.
  package var revision: String?
  /// Each a JWS of a ``JWSTransactionDecodedPayload``.
  package var signedTransactions: [String]?
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

/// A page of a customer's transactions that were refunded or revoked.
///
/// https://developer.apple.com/documentation/appstoreserverapi/refundhistoryresponse
package struct RefundHistoryResponse: JSONPayload {
  package var hasMore: Bool?
  /// Where the next page begins, and later the news.
  package var revision: String?
  /// Each a JWS of a ``JWSTransactionDecodedPayload``.
  package var signedTransactions: [String]?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("signedTransactions", \.signedTransactions),
    JSONField("revision", \.revision),
    JSONField("hasMore", \.hasMore),
  ])
}
