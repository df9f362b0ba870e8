package import JSONText

/// One transaction.
///
/// https://developer.apple.com/documentation/appstoreserverapi/transactioninforesponse
package struct TransactionInfoResponse: JSONPayload {
  /// A JWS of a ``JWSTransactionDecodedPayload``.
  package var signedTransactionInfo: String?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("signedTransactionInfo", \.signedTransactionInfo)
  ])
}

/// A customer's download of the app.
///
/// https://developer.apple.com/documentation/appstoreserverapi/apptransactioninforesponse
package struct AppTransactionInfoResponse: JSONPayload {
  /// A JWS of a ``JWSAppTransactionDecodedPayload``.
  package var signedAppTransactionInfo: String?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("signedAppTransactionInfo", \.signedAppTransactionInfo)
  ])
}

/// What was bought with one order.
///
/// https://developer.apple.com/documentation/appstoreserverapi/orderlookupresponse
package struct OrderLookupResponse: JSONPayload {
  package var status: OrderLookupStatus?
  /// Each a JWS of a ``JWSTransactionDecodedPayload``.
  package var signedTransactions: [String]?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("status", \.status),
    JSONField("signedTransactions", \.signedTransactions),
  ])
}

/// Whether an order id is one of the app's.
package struct OrderLookupStatus: OpenEnumeration {
  package var rawValue: Int64
  package init(rawValue: Int64) { self.rawValue = rawValue }

  package static let valid = OrderLookupStatus(rawValue: 0)
  package static let invalid = OrderLookupStatus(rawValue: 1)
}

/// The account that a line's purchases are to be marked with.
///
/// https://developer.apple.com/documentation/appstoreserverapi/updateappaccounttokenrequest
package struct UpdateAppAccountTokenRequest: JSONPayload {
  /// A UUID.
  package var appAccountToken: String?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("appAccountToken", \.appAccountToken)
  ])
}
