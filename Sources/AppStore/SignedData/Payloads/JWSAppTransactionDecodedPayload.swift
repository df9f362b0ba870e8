package import Subscriptions

/// The signed data about an app's download by an Apple account:
/// https://developer.apple.com/documentation/appstoreserverapi/jwsapptransactiondecodedpayload.
package typealias JWSAppTransactionDecodedPayload = JSONPayload<AppTransactionFields>

package struct AppTransactionFields: JSONFields {
  /// The environment, under its name from receipts.
  package let receiptType = JSONField<SignedEnvironment>("receiptType")
  package let appAppleID = JSONField<Int64>("appAppleId")
  package let bundleID = JSONField<String>("bundleId")
  package let applicationVersion = JSONField<String>("applicationVersion")
  package let versionExternalIdentifier = JSONField<Int64>("versionExternalIdentifier")
  package let receiptCreationDate = JSONField<Timestamp>("receiptCreationDate")
  package let originalPurchaseDate = JSONField<Timestamp>("originalPurchaseDate")
  package let originalApplicationVersion = JSONField<String>("originalApplicationVersion")
  package let deviceVerification = JSONField<String>("deviceVerification")
  package let deviceVerificationNonce = JSONField<String>("deviceVerificationNonce")
  package let preorderDate = JSONField<Timestamp>("preorderDate")
  package let appTransactionID = JSONField<String>("appTransactionId")
  package let originalPlatform = JSONField<String>("originalPlatform")
  package static let schema = JSONSchema(Self())
}
