import Subscriptions

/// What Apple plans for a line: an entry of `pending_renewal_info`, or an old answer's top level.
///
/// https://developer.apple.com/documentation/appstorereceipts/responsebody/pending_renewal_info
struct PendingRenewal: Decodable, Hashable, Sendable {
  let originalTransactionID: String?
  let productID: String?
  let autoRenewProductID: String?
  let autoRenews: Bool?
  let expirationIntent: Int?
  let isInBillingRetryPeriod: Bool?
  let gracePeriodExpiresDate: Timestamp?

  init(from decoder: any Decoder) throws {
    let fields = try decoder.container(keyedBy: AnswerKey.self)
    originalTransactionID = try fields.transactionIdentifier("original_transaction_id")
    productID = try fields.identifier("product_id")
    autoRenewProductID = try fields.identifier("auto_renew_product_id")
    autoRenews = try fields.flag("auto_renew_status")
    expirationIntent = try fields.integer("expiration_intent", in: 0...Int(Int16.max))
    isInBillingRetryPeriod = try fields.flag("is_in_billing_retry_period")
    gracePeriodExpiresDate = try fields.moment("grace_period_expires_date")
  }

  /// Whether anything is said at all; an iOS 7 style answer says nothing at its top level.
  var isSilent: Bool {
    autoRenewProductID == nil && autoRenews == nil && expirationIntent == nil
      && isInBillingRetryPeriod == nil && gracePeriodExpiresDate == nil
  }

  /// An order that depends on the contents only.
  var sortKey: [String] {
    [
      productID, autoRenewProductID, autoRenews?.description, expirationIntent?.description,
      isInBillingRetryPeriod?.description, gracePeriodExpiresDate?.description,
    ].map { $0 ?? "" }
  }
}
