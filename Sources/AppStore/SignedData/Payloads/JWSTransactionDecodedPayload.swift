package import JSONText
package import Subscriptions

/// The signed data of one transaction; prices are in thousandths of the currency's unit.
///
/// https://developer.apple.com/documentation/appstoreserverapi/jwstransactiondecodedpayload, and
/// later changelogs. Every field is optional.
package struct JWSTransactionDecodedPayload: JSONPayload {
  package var originalTransactionID: String?
  package var transactionID: String?
  package var webOrderLineItemID: String?
  /// The original transaction that this one continues, after a migration or a move into a bundle.
  package var previousOriginalTransactionID: String?
  package var bundleID: String?
  package var productID: String?
  package var subscriptionGroupIdentifier: String?
  /// The start of the period for a renewal, which may be after ``signedDate``.
  package var purchaseDate: Timestamp?
  package var originalPurchaseDate: Timestamp?
  package var expiresDate: Timestamp?
  package var quantity: Int64?
  package var type: ProductTypeName?
  package var appAccountToken: String?  // A UUID in either case; see RFC 9562
  package var inAppOwnershipType: InAppOwnershipType?
  package var signedDate: Timestamp?
  /// 1: a problem with the app; 0: another reason, or Family Sharing.
  package var revocationReason: Int64?
  package var revocationDate: Timestamp?
  package var revocationType: String?
  package var revocationPercentage: Int64?  // In thousandths of a percent
  /// Replaced by an upgrade, and so no entitlement, whatever ``expiresDate`` is.
  package var isUpgraded: Bool?
  package var offerType: Int64?  // 1: introductory, 2: promotional, 3: offer code, 4: win-back
  package var offerIdentifier: String?
  package var environment: SignedEnvironment?
  package var transactionReason: TransactionReason?
  package var storefront: String?  // ISO 3166-1 alpha-3
  package var storefrontID: String?
  package var price: Int64?
  package var currency: String?  // ISO 4217
  package var offerDiscountType: OfferDiscountType?
  package var appTransactionID: String?
  package var offerPeriod: String?  // ISO 8601
  package var advancedCommerceInfo: AdvancedCommerceInfo?
  package var billingPlanType: BillingPlanType?
  package var commitmentInfo: CommitmentInfo?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("originalTransactionId", \.originalTransactionID),
    JSONField("transactionId", \.transactionID),
    JSONField("webOrderLineItemId", \.webOrderLineItemID),
    JSONField("previousOriginalTransactionId", \.previousOriginalTransactionID),
    JSONField("bundleId", \.bundleID),
    JSONField("productId", \.productID),
    JSONField("subscriptionGroupIdentifier", \.subscriptionGroupIdentifier),
    JSONField("purchaseDate", \.purchaseDate),
    JSONField("originalPurchaseDate", \.originalPurchaseDate),
    JSONField("expiresDate", \.expiresDate),
    JSONField("quantity", \.quantity),
    JSONField("type", \.type),
    JSONField("appAccountToken", \.appAccountToken),
    JSONField("inAppOwnershipType", \.inAppOwnershipType),
    JSONField("signedDate", \.signedDate),
    JSONField("revocationReason", \.revocationReason),
    JSONField("revocationDate", \.revocationDate),
    JSONField("revocationType", \.revocationType),
    JSONField("revocationPercentage", \.revocationPercentage),
    JSONField("isUpgraded", \.isUpgraded),
    JSONField("offerType", \.offerType),
    JSONField("offerIdentifier", \.offerIdentifier),
    JSONField("environment", \.environment),
    JSONField("transactionReason", \.transactionReason),
    JSONField("storefront", \.storefront),
    JSONField("storefrontId", \.storefrontID),
    JSONField("price", \.price),
    JSONField("currency", \.currency),
    JSONField("offerDiscountType", \.offerDiscountType),
    JSONField("appTransactionId", \.appTransactionID),
    JSONField("offerPeriod", \.offerPeriod),
    JSONField("advancedCommerceInfo", \.advancedCommerceInfo),
    JSONField("billingPlanType", \.billingPlanType),
    JSONField("commitmentInfo", \.commitmentInfo),
  ])

  /// The position of a payment in an annual commitment billed monthly.
  package struct CommitmentInfo: JSONPayload {
    package var billingPeriodNumber: Int64?
    package var totalBillingPeriods: Int64?
    package var commitmentPrice: Int64?
    package var commitmentExpiresDate: Timestamp?
    package var unknownFields: [JSONValue.Member] = []

    package init() {}

    package static let fields = JSONFields<Self>([
      JSONField("billingPeriodNumber", \.billingPeriodNumber),
      JSONField("totalBillingPeriods", \.totalBillingPeriods),
      JSONField("commitmentPrice", \.commitmentPrice),
      JSONField("commitmentExpiresDate", \.commitmentExpiresDate),
    ])
  }
}

package struct TransactionReason: OpenEnumeration {
  package var rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  /// The customer acted.
  package static let purchase = TransactionReason(rawValue: "PURCHASE")
  /// Apple renewed.
  package static let renewal = TransactionReason(rawValue: "RENEWAL")
}

package struct InAppOwnershipType: OpenEnumeration {
  package var rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  package static let purchased = InAppOwnershipType(rawValue: "PURCHASED")
  package static let familyShared = InAppOwnershipType(rawValue: "FAMILY_SHARED")
}

package struct ProductTypeName: OpenEnumeration {
  package var rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  package static let autoRenewable = ProductTypeName(rawValue: "Auto-Renewable Subscription")
  package static let nonConsumable = ProductTypeName(rawValue: "Non-Consumable")
  package static let consumable = ProductTypeName(rawValue: "Consumable")
  package static let nonRenewing = ProductTypeName(rawValue: "Non-Renewing Subscription")
}

package struct OfferDiscountType: OpenEnumeration {
  package var rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  package static let freeTrial = OfferDiscountType(rawValue: "FREE_TRIAL")
  package static let payAsYouGo = OfferDiscountType(rawValue: "PAY_AS_YOU_GO")
  package static let payUpFront = OfferDiscountType(rawValue: "PAY_UP_FRONT")
  package static let oneTime = OfferDiscountType(rawValue: "ONE_TIME")
}

package struct BillingPlanType: OpenEnumeration {
  package var rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  package static let billedUpfront = BillingPlanType(rawValue: "BILLED_UPFRONT")
  /// An annual commitment billed monthly.
  package static let monthly = BillingPlanType(rawValue: "MONTHLY")
}

/// Apple's name of the environment.
package struct SignedEnvironment: OpenEnumeration {
  package var rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  package static let production = SignedEnvironment(rawValue: "Production")
  package static let sandbox = SignedEnvironment(rawValue: "Sandbox")
  /// StoreKit Testing in Xcode, not signed by Apple.
  package static let xcode = SignedEnvironment(rawValue: "Xcode")
  /// StoreKit Testing on a device, not signed by Apple.
  package static let localTesting = SignedEnvironment(rawValue: "LocalTesting")

  /// Nil for an unknown name; data from Xcode counts as sandbox where it is accepted.
  package var environment: Environment? {
    switch self {
    case .production: .production
    case .sandbox, .xcode, .localTesting: .sandbox
    default: nil
    }
  }

  package var isSignedByApple: Bool { self == .production || self == .sandbox }
}
