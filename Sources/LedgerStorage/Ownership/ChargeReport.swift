package import Foundation
package import Subscriptions

/// A charge as people and app servers are told of it.
package struct ChargeReport: Sendable {
  package let charge: Charge
  package let transaction: StoreTransaction
  package let productType: ProductType?
  package let recorded: Line.RecordedDecision
  package let ownerAccountID: String?
  /// Why the charge is whose it is, in one sentence.
  package var because: String
  package let orderID: UUID?
  package let deliveredAt: Timestamp?
  /// Whether the submission that is answered made the asking account the owner.
  package var isNewlyOwned: Bool
  /// The id that was sent, where it is an alias of the charge: the app must finish that one.
  package var submittedTransactionID: TransactionID?

  /// Describes the charge that a transaction reports; nil if the family doesn't know it.
  package init?(
    of key: TransactionKey, in family: RecordedFamily, catalogue: Catalogue,
    isNewlyOwned: Bool = false
  ) {
    guard let (charge, recorded) = family.charge(of: key),
      let transaction = family.line.history[charge.id]
    else { return nil }
    self.charge = charge
    self.transaction = transaction
    self.recorded = recorded
    productType = charge.type(in: catalogue)
    ownerAccountID = recorded.decision.owner.map { family.names[$0] ?? "erased" }
    because = family.explanation(of: recorded.decision)
    orderID = family.orders[charge.id]
    deliveredAt = family.deliveries[charge.id]
    self.isNewlyOwned = isNewlyOwned
    submittedTransactionID = key == charge.id ? nil : key.transactionID
  }
}
