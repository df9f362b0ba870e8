import Subscriptions

import struct Foundation.UUID

extension TransactionRecord {
  /// The entry as evidence of `asOf`; `otherwise` is what it means that no cancellation is named.
  ///
  /// Receipts don't say whether Apple renewed or the customer bought, nor the price, nor the type
  /// of the product.
  init(
    _ item: ReceiptItem, key: TransactionKey, asOf: Timestamp, otherwise: RevocationStatus
  ) {
    self.init(
      key: key, asOf: asOf, purchaseDate: item.purchaseDate,
      originalPurchaseDate: item.originalPurchaseDate, expiresDate: item.expiresDate,
      webOrderLineItemID: item.webOrderLineItemID,
      subscriptionGroup: item.subscriptionGroup, quantity: item.quantity ?? 1,
      appAccountToken: item.appAccountToken.flatMap { UUID(uuidString: $0) },
      ownershipType: item.ownershipType == "FAMILY_SHARED" ? .familyShared : .purchased,
      periodType: item.periodType, offerID: item.promotionalOfferID ?? item.offerCodeName,
      isUpgraded: item.isUpgraded ?? false,
      revocation: item.cancellationDate.map {
        .mentioned(at: $0, reason: item.cancellationReason)
      } ?? otherwise)
  }
}

extension ReceiptItem {
  /// A trial is a trial even when an offer code gave it.
  fileprivate var periodType: PeriodType {
    if isTrialPeriod == true { return .trial }
    if isInIntroOfferPeriod == true { return .intro }
    return promotionalOfferID != nil || offerCodeName != nil ? .offer : .normal
  }
}
