package import Subscriptions

/// One purchase in an app receipt: what attribute 17 holds.
///
/// Apple documents some of the types; 1707 and 1713 are known from receipts whose verifyReceipt
/// answer says the same (https://developer.apple.com/documentation/appstorereceipts).
package struct InAppReceipt: Hashable, Sendable {
  /// 1701.
  package let quantity: Int64?
  /// 1702.
  package let productID: String
  /// 1703.
  package let transactionID: String
  /// 1704.
  package let purchaseDate: Timestamp
  /// 1705; Xcode leaves it out.
  package let originalTransactionID: String?
  /// 1706.
  package let originalPurchaseDate: Timestamp?
  /// 1707, in Apple's numbers: see ``productType``.
  package let productTypeNumber: Int64?
  /// 1708.
  package let expiresDate: Timestamp?
  /// 1711; nil for 0.
  package let webOrderLineItemID: Int64?
  /// 1712.
  package let cancellationDate: Timestamp?
  /// 1713.
  package let isTrialPeriod: Bool?
  /// 1719.
  package let isInIntroOfferPeriod: Bool?
  /// 1721.
  package let promotionalOfferID: String?
  /// Everything else, in its order.
  package let otherAttributes: [ReceiptAttribute]

  /// Throws ``ReceiptFault`` where it isn't said what was bought and when, or a known attribute
  /// can't be read.
  init(parsing bytes: ArraySlice<UInt8>) throws {
    var attributes = try ReceiptAttributes(parsing: bytes)
    guard let productID = try attributes.identifier(1702) else {
      throw ReceiptFault("attribute 1702 (product) is missing")
    }
    guard
      let transactionID = try attributes.identifier(1703, upTo: AppleIdentifier.longestNumber)
    else { throw ReceiptFault("attribute 1703 (transaction) is missing") }
    guard let purchaseDate = try attributes.moment(1704) else {
      throw ReceiptFault("attribute 1704 (purchase date) is missing")
    }
    self.productID = productID
    self.transactionID = transactionID
    self.purchaseDate = purchaseDate
    quantity = try attributes.integer(1701)
    originalTransactionID = try attributes.identifier(1705, upTo: AppleIdentifier.longestNumber)
    originalPurchaseDate = try attributes.moment(1706)
    productTypeNumber = try attributes.integer(1707)
    expiresDate = try attributes.moment(1708)
    let lineItem = try attributes.integer(1711)
    webOrderLineItemID = lineItem == 0 ? nil : lineItem
    cancellationDate = try attributes.moment(1712)
    isTrialPeriod = try attributes.flag(1713)
    isInIntroOfferPeriod = try attributes.flag(1719)
    promotionalOfferID = try attributes.identifier(1721)
    otherAttributes = attributes.rest
  }

  /// The type of the product, where its number is known.
  package var productType: ProductType? {
    switch productTypeNumber {
    case 0: .nonConsumable
    case 1: .consumable
    case 2: .nonRenewing
    case 3: .autoRenewable
    default: nil
    }
  }

  /// The line that the purchase is on: where there is no original, it is the first itself.
  package var line: String { originalTransactionID ?? transactionID }
}
