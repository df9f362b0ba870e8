package import JSONText
package import Subscriptions

/// The signed data of a version 2 notification, Apple's `responseBodyV2DecodedPayload`.
///
/// https://developer.apple.com/documentation/appstoreservernotifications. Exactly one of ``data``,
/// ``summary``, ``externalPurchaseToken`` and ``appData`` is present.
package struct ResponseBodyV2DecodedPayload: JSONPayload {
  package var notificationType: NotificationTypeV2?
  package var subtype: NotificationSubtype?
  /// The same in every delivery attempt.
  package var notificationUUID: String?
  package var data: NotificationData?
  package var summary: NotificationSummary?
  package var externalPurchaseToken: ExternalPurchaseToken?
  package var appData: AppData?
  package var version: String?  // "2.0"
  package var signedDate: Timestamp?  // Absent in notifications of 2022
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("notificationType", \.notificationType),
    JSONField("subtype", \.subtype),
    JSONField("notificationUUID", \.notificationUUID),
    JSONField("data", \.data),
    JSONField("summary", \.summary),
    JSONField("externalPurchaseToken", \.externalPurchaseToken),
    JSONField("appData", \.appData),
    JSONField("version", \.version),
    JSONField("signedDate", \.signedDate),
  ])
}

/// The content of most notifications: a transaction and its renewal info.
package struct NotificationData: JSONPayload {
  package var environment: SignedEnvironment?
  package var appAppleID: Int64?  // Absent in the sandbox
  package var bundleID: String?
  package var bundleVersion: String?
  package var signedTransactionInfo: String?  // A JWS of a `JWSTransactionDecodedPayload`
  /// A JWS of a ``JWSRenewalInfoDecodedPayload``, for subscriptions only.
  package var signedRenewalInfo: String?
  /// For subscriptions, 1: active, 2: expired, 3: billing retry, 4: grace period, 5: revoked.
  package var status: Int64?
  package var consumptionRequestReason: String?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("environment", \.environment),
    JSONField("appAppleId", \.appAppleID),
    JSONField("bundleId", \.bundleID),
    JSONField("bundleVersion", \.bundleVersion),
    JSONField("signedTransactionInfo", \.signedTransactionInfo),
    JSONField("signedRenewalInfo", \.signedRenewalInfo),
    JSONField("status", \.status),
    JSONField("consumptionRequestReason", \.consumptionRequestReason),
  ])
}

/// The result of a mass extension of renewal dates.
package struct NotificationSummary: JSONPayload {
  package var environment: SignedEnvironment?
  package var appAppleID: Int64?
  package var bundleID: String?
  package var productID: String?
  package var requestIdentifier: String?
  package var storefrontCountryCodes: [String]?
  package var succeededCount: Int64?
  package var failedCount: Int64?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("environment", \.environment),
    JSONField("appAppleId", \.appAppleID),
    JSONField("bundleId", \.bundleID),
    JSONField("productId", \.productID),
    JSONField("requestIdentifier", \.requestIdentifier),
    JSONField("storefrontCountryCodes", \.storefrontCountryCodes),
    JSONField("succeededCount", \.succeededCount),
    JSONField("failedCount", \.failedCount),
  ])
}

/// A purchase outside of the App Store that must be reported to Apple.
package struct ExternalPurchaseToken: JSONPayload {
  /// Begins with `SANDBOX` in the sandbox.
  package var externalPurchaseID: String?
  package var tokenCreationDate: Timestamp?
  package var appAppleID: Int64?
  package var bundleID: String?
  package var tokenType: String?
  package var tokenExpirationDate: Timestamp?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("externalPurchaseId", \.externalPurchaseID),
    JSONField("tokenCreationDate", \.tokenCreationDate),
    JSONField("appAppleId", \.appAppleID),
    JSONField("bundleId", \.bundleID),
    JSONField("tokenType", \.tokenType),
    JSONField("tokenExpirationDate", \.tokenExpirationDate),
  ])
}

/// A download of the app for which a guardian has withdrawn consent.
package struct AppData: JSONPayload {
  package var appAppleID: Int64?
  package var bundleID: String?
  package var environment: SignedEnvironment?
  package var signedAppTransactionInfo: String?  // A JWS of a `JWSAppTransactionDecodedPayload`
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("appAppleId", \.appAppleID),
    JSONField("bundleId", \.bundleID),
    JSONField("environment", \.environment),
    JSONField("signedAppTransactionInfo", \.signedAppTransactionInfo),
  ])
}

/// Apple's `notificationType` of version 2, as of 2026-06; unknown types are kept.
///
/// https://developer.apple.com/documentation/appstoreservernotifications/notificationtype
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

  package static let initialBuy = NotificationSubtype(rawValue: "INITIAL_BUY")
  package static let resubscribe = NotificationSubtype(rawValue: "RESUBSCRIBE")
  package static let billingRecovery = NotificationSubtype(rawValue: "BILLING_RECOVERY")
  package static let upgrade = NotificationSubtype(rawValue: "UPGRADE")
  package static let downgrade = NotificationSubtype(rawValue: "DOWNGRADE")
  package static let autoRenewDisabled = NotificationSubtype(rawValue: "AUTO_RENEW_DISABLED")
  package static let autoRenewEnabled = NotificationSubtype(rawValue: "AUTO_RENEW_ENABLED")
  package static let gracePeriod = NotificationSubtype(rawValue: "GRACE_PERIOD")
  package static let voluntary = NotificationSubtype(rawValue: "VOLUNTARY")
  package static let billingRetry = NotificationSubtype(rawValue: "BILLING_RETRY")
  package static let priceIncrease = NotificationSubtype(rawValue: "PRICE_INCREASE")
  package static let productNotForSale = NotificationSubtype(rawValue: "PRODUCT_NOT_FOR_SALE")
  package static let pending = NotificationSubtype(rawValue: "PENDING")
  package static let accepted = NotificationSubtype(rawValue: "ACCEPTED")
  package static let summary = NotificationSubtype(rawValue: "SUMMARY")
  package static let failure = NotificationSubtype(rawValue: "FAILURE")
  package static let unreported = NotificationSubtype(rawValue: "UNREPORTED")
  package static let created = NotificationSubtype(rawValue: "CREATED")
  package static let activeTokenReminder = NotificationSubtype(rawValue: "ACTIVE_TOKEN_REMINDER")
}
