package import Subscriptions

package import struct Foundation.UUID

/// The truth about one charge, to compare other people's conclusions with.
package struct SimulatedCharge: Hashable, Sendable {
  /// Why it was charged.
  package enum Kind: String, Sendable {
    case purchase
    case renewal
    case recovery
  }

  package let environment: Environment
  package let bundleID: String
  package let appleID: AppleID
  package let originalTransactionID: OriginalTransactionID
  /// The charge's own id first, then those that restores gave it.
  package let transactionIDs: [TransactionID]
  package let webOrderLineItemID: WebOrderLineItemID?
  package let productID: ProductID
  package let productType: ProductType
  package let group: String?
  package let kind: Kind
  package let ownership: OwnershipType
  /// When Apple took the money: up to a day before a renewal's `purchaseDate`.
  package let madeAt: Timestamp
  package let purchaseDate: Timestamp
  package let expiresDate: Timestamp?
  package let priceMilliunits: Int64
  package let currency: String
  package let quantity: Int
  package let appAccountToken: UUID?
  /// Who really acted: logged in where it was bought; of a renewal, whoever last bought on the
  /// line.
  ///
  /// Nil where nobody was logged in, as in the Settings app.
  package let account: AppAccountID?
  package let upgradedAt: Timestamp?
  package let revokedAt: Timestamp?
  /// What the customer's invoice calls it; a family member has none.
  package let orderID: String?

  /// The charge's own id.
  package var transactionID: TransactionID { transactionIDs[0] }
  /// The line that it is on.
  package var line: LineID { LineID(environment, originalTransactionID) }
}
