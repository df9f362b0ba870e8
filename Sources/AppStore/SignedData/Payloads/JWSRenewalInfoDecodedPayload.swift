package import JSONText
package import Subscriptions

/// The signed data of a subscription's renewal; prices are in thousandths of the currency's unit.
///
/// https://developer.apple.com/documentation/appstoreserverapi/jwsrenewalinfodecodedpayload, and
/// later changelogs. It names neither app nor transaction, so it only has meaning together with a
/// transaction of the same original transaction.
package struct JWSRenewalInfoDecodedPayload: JSONPayload {
  package var originalTransactionID: String?
  /// The current product.
  package var productID: String?
  /// The product of the next renewal.
  package var autoRenewProductID: String?
  package var autoRenewStatus: Int64?  // 0: off, 1: on
  /// Why the subscription ended or will end, 1 to 5; see `RenewalStatus.expirationIntent`.
  package var expirationIntent: Int64?
  package var isInBillingRetryPeriod: Bool?
  package var gracePeriodExpiresDate: Timestamp?
  package var priceIncreaseStatus: Int64?  // 0: no response yet, 1: consented or only informed
  /// The end of the current period.
  package var renewalDate: Timestamp?
  package var renewalPrice: Int64?
  package var currency: String?
  package var offerType: Int64?
  package var offerIdentifier: String?
  package var offerDiscountType: OfferDiscountType?
  package var offerPeriod: String?  // ISO 8601
  package var signedDate: Timestamp?
  package var environment: SignedEnvironment?
  /// The start of the current run of periods, ignoring gaps of less than 60 days.
  package var recentSubscriptionStartDate: Timestamp?
  package var eligibleWinBackOfferIDs: [String]?  // Best first
  package var appTransactionID: String?
  package var appAccountToken: String?  // A UUID in either case
  package var advancedCommerceInfo: AdvancedCommerceInfo?
  package var renewalBillingPlanType: BillingPlanType?
  package var commitmentInfo: CommitmentInfo?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("originalTransactionId", \.originalTransactionID),
    JSONField("productId", \.productID),
    JSONField("autoRenewProductId", \.autoRenewProductID),
    JSONField("autoRenewStatus", \.autoRenewStatus),
    JSONField("expirationIntent", \.expirationIntent),
    JSONField("isInBillingRetryPeriod", \.isInBillingRetryPeriod),
    JSONField("gracePeriodExpiresDate", \.gracePeriodExpiresDate),
    JSONField("priceIncreaseStatus", \.priceIncreaseStatus),
    JSONField("renewalDate", \.renewalDate),
    JSONField("renewalPrice", \.renewalPrice),
    JSONField("currency", \.currency),
    JSONField("offerType", \.offerType),
    JSONField("offerIdentifier", \.offerIdentifier),
    JSONField("offerDiscountType", \.offerDiscountType),
    JSONField("offerPeriod", \.offerPeriod),
    JSONField("signedDate", \.signedDate),
    JSONField("environment", \.environment),
    JSONField("recentSubscriptionStartDate", \.recentSubscriptionStartDate),
    JSONField("eligibleWinBackOfferIds", \.eligibleWinBackOfferIDs),
    JSONField("appTransactionId", \.appTransactionID),
    JSONField("appAccountToken", \.appAccountToken),
    JSONField("advancedCommerceInfo", \.advancedCommerceInfo),
    JSONField("renewalBillingPlanType", \.renewalBillingPlanType),
    JSONField("commitmentInfo", \.commitmentInfo),
  ])

  /// The terms after an annual commitment billed monthly.
  package struct CommitmentInfo: JSONPayload {
    package var commitmentAutoRenewProductID: String?
    package var commitmentAutoRenewStatus: Int64?  // 0: off, 1: on
    package var commitmentRenewalBillingPlanType: BillingPlanType?
    package var commitmentRenewalDate: Timestamp?
    package var commitmentRenewalPrice: Int64?
    package var unknownFields: [JSONValue.Member] = []

    package init() {}

    package static let fields = JSONFields<Self>([
      JSONField("commitmentAutoRenewProductId", \.commitmentAutoRenewProductID),
      JSONField("commitmentAutoRenewStatus", \.commitmentAutoRenewStatus),
      JSONField("commitmentRenewalBillingPlanType", \.commitmentRenewalBillingPlanType),
      JSONField("commitmentRenewalDate", \.commitmentRenewalDate),
      JSONField("commitmentRenewalPrice", \.commitmentRenewalPrice),
    ])
  }
}
