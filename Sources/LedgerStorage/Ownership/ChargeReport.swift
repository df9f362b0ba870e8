package import Foundation
package import Subscriptions

package struct ChargeReport: Sendable {
  package let charge: Charge
  package let transaction: StoreTransaction
  package let productType: ProductType?
  /// The catalogue's version at the charge's date.
  package let product: Product?
  package let recorded: OriginalTransaction.RecordedDecision
  package let ownerAccountID: String?
  /// The date of the charge before, by which the owner was decided; nil without one.
  package let previousDate: Timestamp?
  /// One sentence that explains the ownership.
  package var because: String
  package let orderID: UUID?
  package let deliveredAt: Timestamp?
  /// Whether the answered submission made the account the owner.
  package var isNewlyOwned: Bool
  /// The submitted ID if it is an alias of the charge: the app must finish that transaction.
  package var submittedTransactionID: TransactionID?

  /// Nil if `key` is not a transaction of the original transaction.
  package init?(
    of key: TransactionKey, in original: RecordedOriginalTransaction, catalogue: Catalogue,
    isNewlyOwned: Bool = false
  ) {
    guard let (charge, recorded) = original.charge(of: key),
      let transaction = original.line.history[charge.id]
    else { return nil }
    self.charge = charge
    self.transaction = transaction
    self.recorded = recorded
    productType = charge.type(in: catalogue)
    product = catalogue.product(charge.productID, at: charge.date)
    ownerAccountID = recorded.decision.owner.map { original.names[$0] ?? "erased" }
    previousDate = recorded.decision.renewal.previous
      .flatMap { original.charge(of: $0)?.charge.date }
    because = original.explanation(of: recorded.decision)
    orderID = original.orders[charge.id]
    deliveredAt = original.deliveries[charge.id]
    self.isNewlyOwned = isNewlyOwned
    submittedTransactionID = key == charge.id ? nil : key.transactionID
  }
}
