import Subscriptions

/// One entry of `in_app` or `latest_receipt_info`, or an old receipt's `receipt`.
///
/// https://developer.apple.com/documentation/appstorereceipts/responsebody/latest_receipt_info
struct ReceiptItem: Decodable, Hashable, Sendable {
  let productID: String
  let transactionID: String
  let originalTransactionID: String
  let purchaseDate: Timestamp
  var webOrderLineItemID: WebOrderLineItemID?
  var originalPurchaseDate: Timestamp?
  var expiresDate: Timestamp?
  var cancellationDate: Timestamp?
  var cancellationReason: String?
  var quantity: Int?
  var isTrialPeriod: Bool?
  var isInIntroOfferPeriod: Bool?
  var isUpgraded: Bool?
  var ownershipType: String?
  var subscriptionGroup: String?
  var promotionalOfferID: String?
  var offerCodeName: String?
  var appAccountToken: String?
  /// `bid`, which stands in old receipts only.
  let bundleID: String?

  /// Throws `UnreadableField` where it isn't said what was bought, when and on which line.
  ///
  /// Trimmed payloads lack `transaction_id`: a stand-in is made of what identifies the charge on
  /// its line, as `ORIGINAL@PURCHASE_DATE_MS`. Without an `original_transaction_id` the transaction
  /// is its line's first.
  init(from decoder: any Decoder) throws {
    let fields = try decoder.container(keyedBy: AnswerKey.self)
    guard let productID = try fields.identifier("product_id") else {
      throw UnreadableField("product_id", "is missing")
    }
    guard let purchaseDate = try fields.moment("purchase_date") else {
      throw UnreadableField("purchase_date", "is missing")
    }
    let transactionID = try fields.transactionIdentifier("transaction_id")
    let original =
      try fields.transactionIdentifier("original_transaction_id") ?? transactionID
    guard let original else { throw UnreadableField("transaction_id", "is missing") }
    self.productID = productID
    self.purchaseDate = purchaseDate
    self.originalTransactionID = original
    self.transactionID = transactionID ?? "\(original)@\(purchaseDate.milliseconds)"
    guard self.transactionID.utf8.count <= AppleIdentifier.longestNumber else {
      throw UnreadableField("transaction_id", "is missing, and its line's is too long")
    }
    webOrderLineItemID = WebOrderLineItemID(
      reported: try fields.transactionIdentifier("web_order_line_item_id"))
    originalPurchaseDate = try fields.moment("original_purchase_date")
    expiresDate = try fields.moment("expires_date")
    cancellationDate = try fields.moment("cancellation_date")
    cancellationReason = fields.reason("cancellation_reason")
    quantity = try fields.integer("quantity", in: 1...Int(Int32.max))
    isTrialPeriod = try fields.flag("is_trial_period")
    isInIntroOfferPeriod = try fields.flag("is_in_intro_offer_period")
    isUpgraded = try fields.flag("is_upgraded")
    ownershipType = try fields.identifier("in_app_ownership_type")
    subscriptionGroup = try fields.identifier("subscription_group_identifier")
    promotionalOfferID = try fields.identifier("promotional_offer_id")
    offerCodeName = try fields.identifier("offer_code_ref_name")
    appAccountToken = try? fields.identifier("app_account_token")
    bundleID = try fields.identifier("bid")
  }

  /// Takes from `other`, the same transaction, what this entry leaves out.
  ///
  /// Except for a cancellation: that it is gone is a statement, too, of the list that this is from.
  mutating func fill(from other: ReceiptItem) {
    webOrderLineItemID = webOrderLineItemID ?? other.webOrderLineItemID
    originalPurchaseDate = originalPurchaseDate ?? other.originalPurchaseDate
    expiresDate = expiresDate ?? other.expiresDate
    quantity = quantity ?? other.quantity
    isTrialPeriod = isTrialPeriod ?? other.isTrialPeriod
    isInIntroOfferPeriod = isInIntroOfferPeriod ?? other.isInIntroOfferPeriod
    isUpgraded = isUpgraded ?? other.isUpgraded
    ownershipType = ownershipType ?? other.ownershipType
    subscriptionGroup = subscriptionGroup ?? other.subscriptionGroup
    promotionalOfferID = promotionalOfferID ?? other.promotionalOfferID
    offerCodeName = offerCodeName ?? other.offerCodeName
    appAccountToken = appAccountToken ?? other.appAccountToken
  }

  /// The same, cancellation included: for two entries of one list.
  mutating func fillEverything(from other: ReceiptItem) {
    fill(from: other)
    cancellationReason = cancellationReason ?? other.cancellationReason
    cancellationDate = cancellationDate ?? other.cancellationDate
  }

  /// All entries of one list on one transaction as one entry; nil for none.
  ///
  /// Entries that contradict each other, which Apple has not been seen to write, are put in an
  /// order that depends on their contents only.
  static func joining(_ items: [ReceiptItem]) -> ReceiptItem? {
    let different = Set(items)
    guard different.count > 1 else { return items.first }
    let ordered = different.sorted { $1.sortKey.lexicographicallyPrecedes($0.sortKey) }
    return ordered.dropFirst().reduce(into: ordered.first) { $0?.fillEverything(from: $1) }
  }

  private var sortKey: [String] {
    [
      purchaseDate.description, expiresDate?.description, cancellationDate?.description,
      cancellationReason, originalPurchaseDate?.description, webOrderLineItemID?.rawValue,
      quantity?.description, isTrialPeriod?.description, isInIntroOfferPeriod?.description,
      isUpgraded?.description, ownershipType, subscriptionGroup, promotionalOfferID, offerCodeName,
      appAccountToken, bundleID,
    ].map { $0 ?? "" }
  }
}
