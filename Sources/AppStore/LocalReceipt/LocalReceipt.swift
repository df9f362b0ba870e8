package import Subscriptions

/// An app receipt that Apple signed for an app that is served, in the vocabulary of the rules.
///
/// It is as old as it is: what has happened since its creation is not in it. So it never makes a
/// charge. See <doc:LocalReceipts> for what it may be used for.
package struct LocalReceipt: Hashable, Sendable {
  package let environment: Environment
  /// The configured app that it belongs to.
  package let bundleID: String
  /// When Apple made it.
  package let createdAt: Timestamp
  /// The end of a volume purchase; nil for everybody else's receipts.
  package let expiresAt: Timestamp?
  /// Every transaction once, by purchase date.
  package let records: [TransactionRecord]
  /// What could not be read.
  package let unreadable: [UnreadableRecord]
  /// Everything that it says.
  package let contents: AppReceipt

  init(
    _ contents: AppReceipt, environment: Environment, bundleID: String, createdAt: Timestamp
  ) {
    self.environment = environment
    self.bundleID = bundleID
    self.createdAt = createdAt
    self.contents = contents
    expiresAt = contents.expirationDate
    unreadable = contents.unreadable
    var records: [TransactionKey: TransactionRecord] = [:]
    for purchase in contents.inApp {
      let record = TransactionRecord(purchase, environment: environment, asOf: createdAt)
      // Of two that differ, which has not been seen, the one that says less counts.
      records[record.key] =
        records[record.key].map { $0.grantsMore(than: record) ? record : $0 }
        ?? record
    }
    self.records = records.values.sorted {
      ($0.purchaseDate, $0.key) < ($1.purchaseDate, $1.key)
    }
  }
}

extension TransactionRecord {
  /// A purchase in a receipt of that creation date.
  ///
  /// Receipts don't say why a charge was made, nor its price, its group or its account token. That
  /// no cancellation is named says nothing: it may have come since.
  init(_ purchase: InAppReceipt, environment: Environment, asOf: Timestamp) {
    self.init(
      key: TransactionKey(
        line: LineID(environment, OriginalTransactionID(purchase.line)),
        transactionID: TransactionID(purchase.transactionID),
        productID: ProductID(purchase.productID)),
      asOf: asOf, purchaseDate: purchase.purchaseDate,
      originalPurchaseDate: purchase.originalPurchaseDate, expiresDate: purchase.expiresDate,
      webOrderLineItemID: purchase.webOrderLineItemID.map { WebOrderLineItemID(String($0)) },
      productType: purchase.productType,
      quantity: purchase.quantity.flatMap { Int(exactly: $0) }.map { max($0, 1) } ?? 1,
      periodType: purchase.periodType, offerID: purchase.promotionalOfferID,
      revocation: purchase.cancellationDate.map { .mentioned(at: $0, reason: nil) } ?? .notSaid)
  }

  /// Whether this would let its owner use more than `other`, another report of the transaction.
  fileprivate func grantsMore(than other: TransactionRecord) -> Bool {
    if (revocation == .notSaid) != (other.revocation == .notSaid) { return revocation == .notSaid }
    return (expiresDate?.milliseconds ?? .max, chargedAt.milliseconds)
      > (other.expiresDate?.milliseconds ?? .max, other.chargedAt.milliseconds)
  }
}

extension InAppReceipt {
  fileprivate var periodType: PeriodType {
    if isTrialPeriod == true { return .trial }
    if isInIntroOfferPeriod == true { return .intro }
    return promotionalOfferID == nil ? .normal : .offer
  }
}
