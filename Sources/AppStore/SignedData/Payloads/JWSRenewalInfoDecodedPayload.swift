package import JSONText
package import Subscriptions

/// The signed data of a subscription's renewal; prices are in thousandths of the currency's unit.
///
/// See https://developer.apple.com/documentation/appstoreserverapi/jwsrenewalinfodecodedpayload and
/// later changelogs. It names neither app nor transaction.
package typealias JWSRenewalInfoDecodedPayload = JSONPayload<RenewalInfoFields>

package struct RenewalInfoFields: JSONFields {
  package let originalTransactionID = JSONField<String>("originalTransactionId")
  /// The current product.
  package let productID = JSONField<String>("productId")
  package let autoRenewProductID = JSONField<String>("autoRenewProductId")
  package let autoRenewStatus = JSONField<Int64>("autoRenewStatus")  // 0: off, 1: on
  /// Why the subscription ended or will end, 1 to 5; see `RenewalStatus.expirationIntent`.
  package let expirationIntent = JSONField<Int64>("expirationIntent")
  package let isInBillingRetryPeriod = JSONField<Bool>("isInBillingRetryPeriod")
  package let gracePeriodExpiresDate = JSONField<Timestamp>("gracePeriodExpiresDate")
  /// 0: no response yet, 1: consented or only informed.
  package let priceIncreaseStatus = JSONField<Int64>("priceIncreaseStatus")
  /// The end of the current period.
  package let renewalDate = JSONField<Timestamp>("renewalDate")
  package let renewalPrice = JSONField<Int64>("renewalPrice")
  package let currency = JSONField<String>("currency")
  package let offerType = JSONField<Int64>("offerType")
  package let offerIdentifier = JSONField<String>("offerIdentifier")
  package let offerDiscountType = JSONField<OfferDiscountType>("offerDiscountType")
  package let offerPeriod = JSONField<String>("offerPeriod")  // ISO 8601
  package let signedDate = JSONField<Timestamp>("signedDate")
  package let environment = JSONField<SignedEnvironment>("environment")
  /// The start of the current run of periods, ignoring gaps of less than 60 days.
  package let recentSubscriptionStartDate = JSONField<Timestamp>("recentSubscriptionStartDate")
  /// Best first.
  package let eligibleWinBackOfferIDs = JSONField<[String]>("eligibleWinBackOfferIds")
  package let appTransactionID = JSONField<String>("appTransactionId")
  package let appAccountToken = JSONField<String>("appAccountToken")  // A UUID in either case
  package let advancedCommerceInfo = JSONField<JSONValue>("advancedCommerceInfo")
  package let renewalBillingPlanType = JSONField<String>("renewalBillingPlanType")
  package let commitmentInfo = JSONField<RenewalCommitment>("commitmentInfo")
  package static let schema = JSONSchema(Self())
}

/// The terms after an annual commitment billed monthly.
package typealias RenewalCommitment = JSONPayload<RenewalCommitmentFields>

package struct RenewalCommitmentFields: JSONFields {
  package let commitmentAutoRenewProductID = JSONField<String>("commitmentAutoRenewProductId")
  /// 0: off, 1: on.
  package let commitmentAutoRenewStatus = JSONField<Int64>("commitmentAutoRenewStatus")
  package let commitmentRenewalBillingPlanType = JSONField<String>(
    "commitmentRenewalBillingPlanType")
  package let commitmentRenewalDate = JSONField<Timestamp>("commitmentRenewalDate")
  package let commitmentRenewalPrice = JSONField<Int64>("commitmentRenewalPrice")
  package static let schema = JSONSchema(Self())
}
