import JSONText
package import Subscriptions

/// A problem with a part of a response, without its values.
struct UnreadableField: Error, CustomStringConvertible {
  let description: String

  init(_ field: String, _ fault: String) { description = "\(field) \(fault)" }
}

// Reads fields in all forms that Apple has been seen to use. Missing, null and empty fields are
// nil. A field that is present but unusable throws `UnreadableField`: it must not count as absent,
// because a cancellation is a field, too.
extension JSONValue {
  /// A response, which is an object; Apple's identifiers can exceed a signed integer.
  init(parsingResponse bytes: [UInt8]) throws {
    try self.init(parsing: bytes, toleratesRepetitions: true, keepsLongIntegersAsText: true)
    guard case .object = self else { throw JSONError("is not an object") }
  }

  func text(_ key: String) throws -> String? {
    switch self[key] {
    case nil, .null?: return nil
    case .string(let text)?: return text.isEmpty ? nil : text
    case .integer(let number)?: return String(number)
    case .number(let number)?:
      // 1.0 is an integer, too.
      if let whole = Int64(exactly: number) { return String(whole) }
    default: break
    }
    throw UnreadableField(key, "is neither a string nor an integer")
  }

  /// A text that can be part of a key; see ``AppleIdentifier``.
  func identifier(_ key: String, upTo limit: Int = AppleIdentifier.longest) throws -> String? {
    guard let text = try text(key) else { return nil }
    if let fault = AppleIdentifier.fault(of: text, upTo: limit) {
      throw UnreadableField(key, fault)
    }
    return text
  }

  /// An `original_transaction_id`, `transaction_id` or `web_order_line_item_id`.
  func transactionIdentifier(_ key: String) throws -> String? {
    try identifier(key, upTo: AppleIdentifier.longestNumber)
  }

  /// A `cancellation_reason`; nil if unreadable, because the cancellation counts without it.
  func reason(_ key: String) -> String? { try? identifier(key, upTo: 64) }

  func integer(_ key: String, in range: ClosedRange<Int>) throws -> Int? {
    guard let text = try text(key) else { return nil }
    guard let number = Int(text) else { throw UnreadableField(key, "is not an integer") }
    guard range.contains(number) else { throw UnreadableField(key, "is out of range") }
    return number
  }

  /// `true`, `"true"`, `1` or `"1"`, and their opposites.
  func flag(_ key: String) throws -> Bool? {
    if let flag = self[key]?.bool { return flag }
    guard let text = try text(key) else { return nil }
    switch ExactText(text.isASCII ? text.lowercased() : text) {
    case "1", "true": return true
    case "0", "false": return false
    default: throw UnreadableField(key, "is neither true nor false")
    }
  }

  /// A date from `…_ms`, the field itself (a text such as `2019-08-20 04:28:57 Etc/GMT`, in old
  /// receipts milliseconds since 1970) or `…_formatted`, whichever is readable first.
  func moment(_ name: String) throws -> Timestamp? {
    var fault: UnreadableField?
    for key in [name + "_ms", name, name + "_formatted"] {
      do {
        guard let text = try text(key) else { continue }
        if let moment = Timestamp(appStoreDate: text) { return moment }
      } catch {}
      fault = UnreadableField(key, "is not a date")
    }
    if let fault { throw fault }
    return nil
  }
}

extension Timestamp {
  /// Parses milliseconds since 1970 or `YYYY-MM-DD HH:MM:SS Etc/GMT`, in the years 1970 to 9999.
  init?(appStoreDate text: String) {
    // Comparing long texts by characters takes quadratic time.
    guard text.utf8.count <= 40 else { return nil }
    if let milliseconds = Int64(text) {
      self.init(milliseconds: milliseconds)
    } else if text.hasSuffix(" Etc/GMT") {
      self.init(rfc3339: text.dropLast(" Etc/GMT".count) + "Z")
    } else {
      self.init(rfc3339: text)
    }
    guard Self.appStoreRange.contains(self) else { return nil }
  }
}

/// One purchase in a receipt: an entry of `in_app` or
/// [latest_receipt_info](https://developer.apple.com/documentation/appstorereceipts/responsebody/latest_receipt_info),
/// an old receipt's `receipt`, or an attribute of a receipt that was verified offline.
package struct ReceiptItem: Hashable, Sendable {
  package let productID: String
  package let transactionID: String
  /// Without one, the transaction is the original one.
  package let originalTransactionID: String
  package let purchaseDate: Timestamp
  package var webOrderLineItemID: WebOrderLineItemID?
  package var originalPurchaseDate: Timestamp?
  package var expiresDate: Timestamp?
  package var cancellationDate: Timestamp?
  var cancellationReason: String?
  package var quantity: Int?
  package var isTrialPeriod: Bool?
  package var isInIntroOfferPeriod: Bool?
  var isUpgraded: Bool?
  var ownershipType: String?
  var subscriptionGroup: String?
  package var promotionalOfferID: String?
  var offerCodeName: String?
  var appAccountToken: String?
  /// Apple does not name it in responses.
  var productType: ProductType?
  /// `bid`, only present in old receipts.
  var bundleID: String?

  /// Fails if the product, the date or both IDs are missing; for a `transaction_id`, which trimmed
  /// payloads lack, `ORIGINAL@PURCHASE_DATE_MS` is used, which identifies the charge.
  init(_ fields: JSONValue) throws {
    guard let productID = try fields.identifier("product_id") else {
      throw UnreadableField("product_id", "is missing")
    }
    guard let purchaseDate = try fields.moment("purchase_date") else {
      throw UnreadableField("purchase_date", "is missing")
    }
    let transactionID = try fields.transactionIdentifier("transaction_id")
    let original = try fields.transactionIdentifier("original_transaction_id") ?? transactionID
    guard let original else { throw UnreadableField("transaction_id", "is missing") }
    (self.productID, self.purchaseDate) = (productID, purchaseDate)
    self.originalTransactionID = original
    self.transactionID = transactionID ?? "\(original)@\(purchaseDate.milliseconds)"
    guard self.transactionID.utf8.count <= AppleIdentifier.longestNumber else {
      throw UnreadableField("transaction_id", "is missing, and the original one is too long")
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

  /// Fills missing fields from another entry, except the cancellation, whose absence says something.
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

  /// The same including the cancellation, for two entries of one list.
  mutating func fillEverything(from other: ReceiptItem) {
    fill(from: other)
    cancellationReason = cancellationReason ?? other.cancellationReason
    cancellationDate = cancellationDate ?? other.cancellationDate
  }

  /// Merges all entries of one list for one transaction, contradictory ones by contents alone.
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

/// The renewal of a subscription: an old response's top level, or an entry of
/// `pending_renewal_info`
/// (https://developer.apple.com/documentation/appstorereceipts/responsebody/pending_renewal_info).
struct PendingRenewal: Hashable, Sendable {
  let originalTransactionID: String?
  let productID: String?
  let autoRenewProductID: String?
  let autoRenews: Bool?
  let expirationIntent: Int?
  let isInBillingRetryPeriod: Bool?
  let gracePeriodExpiresDate: Timestamp?

  init(_ fields: JSONValue) throws {
    originalTransactionID = try fields.transactionIdentifier("original_transaction_id")
    productID = try fields.identifier("product_id")
    autoRenewProductID = try fields.identifier("auto_renew_product_id")
    autoRenews = try fields.flag("auto_renew_status")
    expirationIntent = try fields.integer("expiration_intent", in: 0...Int(Int16.max))
    isInBillingRetryPeriod = try fields.flag("is_in_billing_retry_period")
    gracePeriodExpiresDate = try fields.moment("grace_period_expires_date")
  }

  /// Whether no field is set, as at the top level of an iOS 7 style response.
  var isSilent: Bool {
    autoRenewProductID == nil && autoRenews == nil && expirationIntent == nil
      && isInBillingRetryPeriod == nil && gracePeriodExpiresDate == nil
  }

  /// An order that depends on the contents alone.
  var sortKey: [String] {
    [
      productID, autoRenewProductID, autoRenews?.description, expirationIntent?.description,
      isInBillingRetryPeriod?.description, gracePeriodExpiresDate?.description,
    ].map { $0 ?? "" }
  }
}
