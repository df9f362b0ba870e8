package import Subscriptions

/// The signed data of a version 2 notification, with one of ``data``, ``summary``,
/// ``externalPurchaseToken`` and ``appData``:
/// https://developer.apple.com/documentation/appstoreservernotifications.
package typealias ResponseBodyV2DecodedPayload = JSONPayload<NotificationFields>

package struct NotificationFields: JSONFields {
  package let notificationType = JSONField<NotificationTypeV2>("notificationType")
  package let subtype = JSONField<NotificationSubtype>("subtype")
  /// The same in every delivery attempt.
  package let notificationUUID = JSONField<String>("notificationUUID")
  package let data = JSONField<NotificationData>("data")
  package let summary = JSONField<NotificationSummary>("summary")
  package let externalPurchaseToken = JSONField<ExternalPurchaseToken>("externalPurchaseToken")
  package let appData = JSONField<AppData>("appData")
  package let version = JSONField<String>("version")  // "2.0"
  package let signedDate = JSONField<Timestamp>("signedDate")  // Absent in notifications of 2022
  package static let schema = JSONSchema(Self())
}

/// The content of most notifications: a transaction and its renewal info.
package typealias NotificationData = JSONPayload<NotificationDataFields>

package struct NotificationDataFields: JSONFields {
  package let environment = JSONField<SignedEnvironment>("environment")
  package let appAppleID = JSONField<Int64>("appAppleId")  // Absent in the sandbox
  package let bundleID = JSONField<String>("bundleId")
  package let bundleVersion = JSONField<String>("bundleVersion")
  package let signedTransactionInfo = JSONField<String>("signedTransactionInfo")  // JWS
  /// A JWS of a ``JWSRenewalInfoDecodedPayload``, for subscriptions only.
  package let signedRenewalInfo = JSONField<String>("signedRenewalInfo")
  /// For subscriptions, 1: active, 2: expired, 3: billing retry, 4: grace period, 5: revoked.
  package let status = JSONField<Int64>("status")
  package let consumptionRequestReason = JSONField<String>("consumptionRequestReason")
  package static let schema = JSONSchema(Self())
}

/// The result of a mass extension of renewal dates.
package typealias NotificationSummary = JSONPayload<NotificationSummaryFields>

package struct NotificationSummaryFields: JSONFields {
  package let environment = JSONField<SignedEnvironment>("environment")
  package let appAppleID = JSONField<Int64>("appAppleId")
  package let bundleID = JSONField<String>("bundleId")
  package let productID = JSONField<String>("productId")
  package let requestIdentifier = JSONField<String>("requestIdentifier")
  package let storefrontCountryCodes = JSONField<[String]>("storefrontCountryCodes")
  package let succeededCount = JSONField<Int64>("succeededCount")
  package let failedCount = JSONField<Int64>("failedCount")
  package static let schema = JSONSchema(Self())
}

/// A purchase outside of the App Store that must be reported to Apple.
package typealias ExternalPurchaseToken = JSONPayload<ExternalPurchaseTokenFields>

package struct ExternalPurchaseTokenFields: JSONFields {
  /// Begins with `SANDBOX` in the sandbox.
  package let externalPurchaseID = JSONField<String>("externalPurchaseId")
  package let tokenCreationDate = JSONField<Timestamp>("tokenCreationDate")
  package let appAppleID = JSONField<Int64>("appAppleId")
  package let bundleID = JSONField<String>("bundleId")
  package let tokenType = JSONField<String>("tokenType")
  package let tokenExpirationDate = JSONField<Timestamp>("tokenExpirationDate")
  package static let schema = JSONSchema(Self())
}

/// A download of the app for which a guardian has withdrawn consent.
package typealias AppData = JSONPayload<AppDataFields>

package struct AppDataFields: JSONFields {
  package let appAppleID = JSONField<Int64>("appAppleId")
  package let bundleID = JSONField<String>("bundleId")
  package let environment = JSONField<SignedEnvironment>("environment")
  package let signedAppTransactionInfo = JSONField<String>("signedAppTransactionInfo")  // JWS
  package static let schema = JSONSchema(Self())
}

/// Apple's `notificationType` of version 2, as of 2026-06; unknown types are kept:
/// https://developer.apple.com/documentation/appstoreservernotifications/notificationtype.
package struct NotificationTypeV2: OpenEnumeration, CaseIterable {
  package var rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  package static let subscribed = Self(rawValue: "SUBSCRIBED")
  package static let didRenew = Self(rawValue: "DID_RENEW")
  package static let didChangeRenewalPref = Self(rawValue: "DID_CHANGE_RENEWAL_PREF")
  package static let didChangeRenewalStatus = Self(rawValue: "DID_CHANGE_RENEWAL_STATUS")
  package static let didFailToRenew = Self(rawValue: "DID_FAIL_TO_RENEW")
  package static let gracePeriodExpired = Self(rawValue: "GRACE_PERIOD_EXPIRED")
  package static let expired = Self(rawValue: "EXPIRED")
  package static let offerRedeemed = Self(rawValue: "OFFER_REDEEMED")
  package static let priceIncrease = Self(rawValue: "PRICE_INCREASE")
  package static let refund = Self(rawValue: "REFUND")
  package static let refundDeclined = Self(rawValue: "REFUND_DECLINED")
  package static let refundReversed = Self(rawValue: "REFUND_REVERSED")
  package static let consumptionRequest = Self(rawValue: "CONSUMPTION_REQUEST")
  package static let revoke = Self(rawValue: "REVOKE")
  package static let renewalExtended = Self(rawValue: "RENEWAL_EXTENDED")
  package static let renewalExtension = Self(rawValue: "RENEWAL_EXTENSION")
  package static let oneTimeCharge = Self(rawValue: "ONE_TIME_CHARGE")
  package static let externalPurchaseToken = Self(rawValue: "EXTERNAL_PURCHASE_TOKEN")
  package static let rescindConsent = Self(rawValue: "RESCIND_CONSENT")
  package static let metadataUpdate = Self(rawValue: "METADATA_UPDATE")
  /// Spelled ``migrate`` in Apple's changelog.
  package static let migration = Self(rawValue: "MIGRATION")
  package static let migrate = Self(rawValue: "MIGRATE")
  package static let priceChange = Self(rawValue: "PRICE_CHANGE")
  package static let test = Self(rawValue: "TEST")

  package static let allCases: [Self] = [
    .subscribed, .didRenew, .didChangeRenewalPref, .didChangeRenewalStatus, .didFailToRenew,
    .gracePeriodExpired, .expired, .offerRedeemed, .priceIncrease, .refund, .refundDeclined,
    .refundReversed, .consumptionRequest, .revoke, .renewalExtended, .renewalExtension,
    .oneTimeCharge, .externalPurchaseToken, .rescindConsent, .metadataUpdate, .migration, .migrate,
    .priceChange, .test,
  ]
}

/// See <https://developer.apple.com/documentation/appstoreservernotifications/subtype>.
package struct NotificationSubtype: OpenEnumeration {
  package var rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  package static let upgrade = Self(rawValue: "UPGRADE")
}
