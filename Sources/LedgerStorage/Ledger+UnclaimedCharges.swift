import Postgres
package import Subscriptions

/// A charge that no account owns.
package struct UnclaimedCharge: Hashable, Sendable {
  package let charge: Charge.ID
  package let chargedAt: Timestamp
  /// When it was recorded first.
  package let firstSeenAt: Timestamp
  package let expiresAt: Timestamp?
  package let amountMilliunits: Int64
  /// Nil: no price is known.
  package let currency: String?
  /// Why nobody owns it.
  package let decision: Decision
}

extension Ledger {
  /// The place of an unclaimed charge in the list of all.
  package typealias UnclaimedPlace = (chargedAt: Timestamp, charge: Charge.ID)

  /// Charges that no account owns, the latest first, of both environments.
  ///
  /// - Parameters:
  ///   - wasOver: Those whose period was over when they were first seen, or the others.
  ///   - last: Only those behind this place; nil: from the first one on.
  ///   - limit: How many at the most.
  /// - Returns: The charges.
  /// - Throws: What the database says.
  package func unclaimedCharges(
    wasOver: Bool, after last: UnclaimedPlace? = nil, limit: Int
  ) async throws -> [UnclaimedCharge] {
    let rest =
      last.map { place in
        """
        (m.at, m.environment, m.charge_original_transaction_id, m.transaction_id, m.product_id)
          < (\(place.chargedAt), \(place.charge.line.environment),
            \(place.charge.line.originalTransactionID), \(place.charge.transactionID),
            \(place.charge.productID))
        """ as SQL
      } ?? "true"
    // Each environment by itself, for there is an index by it and the time; and each transaction by
    // itself: planners think that next to none is found, and would read all instead of a page.
    return try await database.query(
      """
      SELECT c.environment, c.charge_original_transaction_id, c.transaction_id, c.product_id, c.at,
        c.recorded_at, c.expires_at, c.amount_milliunits, c.currency, c.rule, c.ground,
        c.previous_original_transaction_id, c.previous_transaction_id, c.previous_product_id,
        c.ground_status_as_of, c.switched_off_at
      FROM (VALUES ('production'), ('sandbox')) AS e (environment)
      CROSS JOIN LATERAL (
        SELECT m.environment, m.charge_original_transaction_id, m.transaction_id, m.product_id,
          m.at, t.recorded_at, t.expires_at, m.amount_milliunits, m.currency, t.rule, t.ground,
          t.previous_original_transaction_id, t.previous_transaction_id, t.previous_product_id,
          t.ground_status_as_of, t.switched_off_at
        FROM tenure.movement AS m
        CROSS JOIN LATERAL (
          SELECT * FROM tenure.store_transaction AS t
          WHERE t.environment = m.environment
            AND t.original_transaction_id = m.charge_original_transaction_id
            AND t.transaction_id = m.transaction_id AND t.product_id = m.product_id
          LIMIT 1
        ) AS t
        WHERE m.environment = e.environment AND m.kind = 'charged' AND m.account_key IS NULL
          AND m.known_until = 'infinity' AND t.rule IS NOT NULL AND t.owner_account_key IS NULL
          AND coalesce(t.expires_at <= t.recorded_at, false) = \(wasOver) AND \(rest)
        ORDER BY m.at DESC, m.charge_original_transaction_id DESC, m.transaction_id DESC,
          m.product_id DESC
        LIMIT \(limit)
      ) AS c
      ORDER BY c.at DESC, c.environment DESC, c.charge_original_transaction_id DESC,
        c.transaction_id DESC, c.product_id DESC
      LIMIT \(limit)
      """
    ).decode(
      Environment.self, OriginalTransactionID.self, TransactionID.self, ProductID.self,
      Timestamp.self, Timestamp.self, Timestamp?.self, Int64.self, String?.self, String.self,
      String.self,
      OriginalTransactionID?.self, TransactionID?.self, ProductID?.self, Timestamp?.self,
      Timestamp?.self
    ).map {
      environment, original, transaction, product, chargedAt, recordedAt, expiresAt, amount,
      currency, rule, ground, previousOriginal, previousTransaction, previousProduct, statusAsOf,
      switchedOffAt in
      var previous: Charge.ID?
      if let previousOriginal, let previousTransaction, let previousProduct {
        previous = TransactionKey(
          line: LineID(environment, previousOriginal), transactionID: previousTransaction,
          productID: previousProduct)
      }
      return UnclaimedCharge(
        charge: TransactionKey(
          line: LineID(environment, original), transactionID: transaction, productID: product),
        chargedAt: chargedAt, firstSeenAt: recordedAt, expiresAt: expiresAt,
        amountMilliunits: amount, currency: currency,
        decision: Decision(
          owner: nil, rule: Decision.Rule(rawValue: rule) ?? .unclaimed,
          finding: RenewalFinding(
            ground: RenewalFinding.Ground(rawValue: ground) ?? .noEarlierCharge,
            previous: previous, statusAsOf: statusAsOf, switchedOffAt: switchedOffAt)))
    }
  }
}
