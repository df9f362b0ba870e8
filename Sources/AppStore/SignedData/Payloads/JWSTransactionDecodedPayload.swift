package import JSONText
package import Subscriptions

/// The signed data of one transaction, all optional; prices are in thousandths of the unit
/// (https://developer.apple.com/documentation/appstoreserverapi/jwstransactiondecodedpayload).
package typealias JWSTransactionDecodedPayload = JSONPayload<TransactionFields>

package struct TransactionFields: JSONFields {
  package let originalTransactionID = JSONField<String>("originalTransactionId")
  package let transactionID = JSONField<String>("transactionId")
  package let webOrderLineItemID = JSONField<String>("webOrderLineItemId")
  /// The original transaction that this one continues, after a migration or a move into a bundle.
  package let previousOriginalTransactionID = JSONField<String>("previousOriginalTransactionId")
  package let bundleID = JSONField<String>("bundleId")
  package let productID = JSONField<String>("productId")
  package let subscriptionGroupIdentifier = JSONField<String>("subscriptionGroupIdentifier")
  /// The start of the period for a renewal, which may be after ``signedDate``.
  package let purchaseDate = JSONField<Timestamp>("purchaseDate")
  package let originalPurchaseDate = JSONField<Timestamp>("originalPurchaseDate")
  package let expiresDate = JSONField<Timestamp>("expiresDate")
  package let quantity = JSONField<Int64>("quantity")
  package let type = JSONField<ProductTypeName>("type")
  /// A UUID in either case; see RFC 9562.
  package let appAccountToken = JSONField<String>("appAccountToken")
  package let inAppOwnershipType = JSONField<InAppOwnershipType>("inAppOwnershipType")
  package let signedDate = JSONField<Timestamp>("signedDate")
  /// 1: a problem with the app; 0: another reason, or Family Sharing.
  package let revocationReason = JSONField<Int64>("revocationReason")
  package let revocationDate = JSONField<Timestamp>("revocationDate")
  package let revocationType = JSONField<String>("revocationType")
  /// In thousandths of a percent.
  package let revocationPercentage = JSONField<Int64>("revocationPercentage")
  /// Replaced by an upgrade, and so no entitlement, whatever ``expiresDate`` is.
  package let isUpgraded = JSONField<Bool>("isUpgraded")
  /// 1: introductory, 2: promotional, 3: offer code, 4: win-back.
  package let offerType = JSONField<Int64>("offerType")
  package let offerIdentifier = JSONField<String>("offerIdentifier")
  package let environment = JSONField<SignedEnvironment>("environment")
  package let transactionReason = JSONField<TransactionReason>("transactionReason")
  package let storefront = JSONField<String>("storefront")  // ISO 3166-1 alpha-3
  package let storefrontID = JSONField<String>("storefrontId")
  package let price = JSONField<Int64>("price")
  package let currency = JSONField<String>("currency")  // ISO 4217
  package let offerDiscountType = JSONField<OfferDiscountType>("offerDiscountType")
  package let appTransactionID = JSONField<String>("appTransactionId")
  package let offerPeriod = JSONField<String>("offerPeriod")  // ISO 8601
  package let advancedCommerceInfo = JSONField<JSONValue>("advancedCommerceInfo")
  package let billingPlanType = JSONField<String>("billingPlanType")
  package let commitmentInfo = JSONField<TransactionCommitment>("commitmentInfo")
  package static let schema = JSONSchema(Self())
}

/// The position of a payment in an annual commitment billed monthly.
package typealias TransactionCommitment = JSONPayload<TransactionCommitmentFields>

package struct TransactionCommitmentFields: JSONFields {
  package let billingPeriodNumber = JSONField<Int64>("billingPeriodNumber")
  package let totalBillingPeriods = JSONField<Int64>("totalBillingPeriods")
  package let commitmentPrice = JSONField<Int64>("commitmentPrice")
  package let commitmentExpiresDate = JSONField<Timestamp>("commitmentExpiresDate")
  package static let schema = JSONSchema(Self())
}

package struct TransactionReason: OpenEnumeration {
  package var rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  /// The customer acted.
  package static let purchase = Self(rawValue: "PURCHASE")
  /// Apple renewed.
  package static let renewal = Self(rawValue: "RENEWAL")
}

package struct InAppOwnershipType: OpenEnumeration {
  package var rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  package static let purchased = Self(rawValue: "PURCHASED")
  package static let familyShared = Self(rawValue: "FAMILY_SHARED")
}

package struct ProductTypeName: OpenEnumeration {
  package var rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  package static let autoRenewable = Self(rawValue: "Auto-Renewable Subscription")
  package static let nonConsumable = Self(rawValue: "Non-Consumable")
  package static let consumable = Self(rawValue: "Consumable")
  package static let nonRenewing = Self(rawValue: "Non-Renewing Subscription")
}

package struct OfferDiscountType: OpenEnumeration {
  package var rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  package static let freeTrial = Self(rawValue: "FREE_TRIAL")
  package static let payUpFront = Self(rawValue: "PAY_UP_FRONT")
  package static let oneTime = Self(rawValue: "ONE_TIME")
}

package struct SignedEnvironment: OpenEnumeration {
  package var rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  package static let production = Self(rawValue: "Production")
  package static let sandbox = Self(rawValue: "Sandbox")
  /// StoreKit Testing in Xcode, not signed by Apple.
  package static let xcode = Self(rawValue: "Xcode")
  /// StoreKit Testing on a device, not signed by Apple.
  package static let localTesting = Self(rawValue: "LocalTesting")

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
