package import JSONText
package import Subscriptions

/// The signed data about an app's download by an Apple account.
///
/// https://developer.apple.com/documentation/appstoreserverapi/jwsapptransactiondecodedpayload
package struct JWSAppTransactionDecodedPayload: JSONPayload {
  /// The environment, under its name from receipts.
  package var receiptType: SignedEnvironment?
  package var appAppleID: Int64?
  package var bundleID: String?
  package var applicationVersion: String?
  package var versionExternalIdentifier: Int64?
  /// The signing date.
  package var receiptCreationDate: Timestamp?
  package var originalPurchaseDate: Timestamp?
  package var originalApplicationVersion: String?
  package var deviceVerification: String?
  package var deviceVerificationNonce: String?
  package var preorderDate: Timestamp?
  package var appTransactionID: String?
  package var originalPlatform: String?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("receiptType", \.receiptType),
    JSONField("appAppleId", \.appAppleID),
    JSONField("bundleId", \.bundleID),
    JSONField("applicationVersion", \.applicationVersion),
    JSONField("versionExternalIdentifier", \.versionExternalIdentifier),
    JSONField("receiptCreationDate", \.receiptCreationDate),
    JSONField("originalPurchaseDate", \.originalPurchaseDate),
    JSONField("originalApplicationVersion", \.originalApplicationVersion),
    JSONField("deviceVerification", \.deviceVerification),
    JSONField("deviceVerificationNonce", \.deviceVerificationNonce),
    JSONField("preorderDate", \.preorderDate),
    JSONField("appTransactionId", \.appTransactionID),
    JSONField("originalPlatform", \.originalPlatform),
  ])
}
