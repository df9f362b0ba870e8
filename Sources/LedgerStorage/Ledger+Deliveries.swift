import Postgres
package import Subscriptions

extension Ledger {
  /// Acknowledges that what a charge paid for was delivered: once for a charge and its aliases.
  ///
  /// A delivery that was acknowledged before a refund stays so, and repeating the call says when.
  ///
  /// - Parameters:
  ///   - transaction: The charge, or an alias of it.
  ///   - account: The account that it was delivered to.
  ///   - now: The time of the delivery.
  /// - Returns: The time of the first acknowledgement; `isFirst` in the one call that set it. Nil
  ///   if the account does not own the charge.
  /// - Throws: ``LedgerError/revokedCharge(_:)`` for the first acknowledgement of a revoked charge.
  package func acknowledgeDelivery(
    of transaction: TransactionKey, by account: AccountKey, at now: Timestamp
  ) async throws -> (deliveredAt: Timestamp, isFirst: Bool)? {
    try await database.withTransaction { database in
      // Locked, because another transaction that was delivered may just become an alias.
      var reader = FamilyReader(isLocking: true)
      try await reader.read([transaction.line], in: database)
      guard let family = reader.families.first,
        let charge = family.rule.position(of: transaction).map({ family.rule.charges[$0] }),
        family.line.decisions[charge.id]?.decision.owner == account
      else { return nil }
      if let deliveredAt = family.fulfilment(of: charge).deliveredAt { return (deliveredAt, false) }
      guard charge.revocation == nil else { throw LedgerError.revokedCharge(charge.id) }
      guard let row = family.rows[charge.id] else {
        preconditionFailure("The transaction that names a charge has a row.")
      }
      var fulfilment = family.members[charge.id.line]?.fulfilments[charge.id] ?? Fulfilment()
      let counted = CountedCharge(row, fulfilment)
      fulfilment.deliveredAt = now
      try await database.commit(
        with: [
          """
          UPDATE tenure.store_transaction SET delivered_at = \(now)
          WHERE environment = \(charge.id.line.environment)
            AND original_transaction_id = \(charge.id.line.originalTransactionID)
            AND transaction_id = \(charge.id.transactionID)
            AND product_id = \(charge.id.productID)
          """
        ] + ChargeSums.change(of: charge.id, from: counted, to: CountedCharge(row, fulfilment)))
      return (now, true)
    }
  }
}
