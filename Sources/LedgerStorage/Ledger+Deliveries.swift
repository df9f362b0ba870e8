import Postgres
package import Subscriptions

extension Ledger {
  /// Acknowledges that what a charge paid for was delivered: once, whichever of its transactions
  /// was delivered.
  ///
  /// - Parameters:
  ///   - transaction: The charge, or an alias of it.
  ///   - account: Who got it.
  ///   - now: When.
  /// - Returns: When it was delivered, first of all; `isFirst` in the one call that set it. Nil if
  ///   the account does not own the charge.
  /// - Throws: What the database says.
  package func acknowledgeDelivery(
    of transaction: TransactionKey, by account: AccountKey, at now: Timestamp
  ) async throws -> (deliveredAt: Timestamp, isFirst: Bool)? {
    try await database.withTransaction { database in
      // Locked, lest a transaction become the charge's alias meanwhile that was delivered, too.
      var reader = FamilyReader(isLocking: true)
      try await reader.read([transaction.line], in: database)
      guard let family = reader.families.first,
        let charge = family.rule.position(of: transaction).map({ family.rule.charges[$0] }),
        family.line.decisions[charge.id]?.decision.owner == account
      else { return nil }
      if let deliveredAt = family.fulfilment(of: charge).deliveredAt { return (deliveredAt, false) }
      try await database.commit(with: [
        ChargeSums.noting(
          """
          UPDATE tenure.store_transaction SET delivered_at = \(now)
          WHERE environment = \(charge.id.line.environment)
            AND original_transaction_id = \(charge.id.line.originalTransactionID)
            AND transaction_id = \(charge.id.transactionID)
            AND product_id = \(charge.id.productID)
          """, of: charge.id)
      ])
      return (now, true)
    }
  }
}
