import Postgres
package import Subscriptions

package struct UnclaimedCharge: Hashable, Sendable {
  package let charge: Charge.ID
  package let chargedAt: Timestamp
  package let firstSeenAt: Timestamp
  /// When it was first seen, or lost its owner.
  package let unclaimedSince: Timestamp
  package let expiresAt: Timestamp?
  package let amountMilliunits: Int64
  package let currency: String?
  package let decision: Decision
  /// The account that had it before.
  package let lastOwner: AccountKey?
}

extension OwnershipStore {
  /// The position of a charge in ``unclaimedCharges(wasOver:after:limit:)``.
  package typealias UnclaimedPlace = (firstSeenAt: Timestamp, charge: Charge.ID)

  /// Reads unclaimed charges of both environments, those first seen last first.
  ///
  /// - Parameter wasOver: Selects the charges whose period had ended before they were recorded, or
  ///   the others.
  package func unclaimedCharges(
    wasOver: Bool, after last: UnclaimedPlace? = nil, limit: Int
  ) async throws -> [UnclaimedCharge] {
    let rows = try await database.query(
      """
      (\(Self.unclaimed(in: .production, wasOver: wasOver, after: last, limit: limit)))
      UNION ALL
      (\(Self.unclaimed(in: .sandbox, wasOver: wasOver, after: last, limit: limit)))
      ORDER BY recorded_at DESC, environment DESC, original_transaction_id DESC, transaction_id DESC,
        product_id DESC
      LIMIT \(limit)
      """
    ).decode(
      TransactionKey.self, Timestamp.self, Timestamp.self, Timestamp?.self, Decision.Rule.self,
      RenewalEvidence.Reason.self, OriginalTransactionID?.self, TransactionID?.self,
      ProductID?.self,
      Timestamp?.self, Timestamp?.self, AccountKey?.self, Timestamp.self)
    let prices = try await pricesOfUnclaimed(at: rows.map(\.1))
    return rows.map {
      charge, chargedAt, recordedAt, expiresAt, rule, reason, previousOriginal,
      previousTransaction, previousProduct, statusAsOf, switchedOffAt, lastOwner, since in
      let price = prices[charge]
      var previous: Charge.ID?
      if let previousOriginal, let previousTransaction, let previousProduct {
        previous = TransactionKey(
          charge.line.environment, previousOriginal, previousTransaction, previousProduct)
      }
      return UnclaimedCharge(
        charge: charge, chargedAt: chargedAt, firstSeenAt: recordedAt, unclaimedSince: since,
        expiresAt: expiresAt,
        amountMilliunits: price?.amountMilliunits ?? 0, currency: price?.currency,
        decision: Decision(
          owner: nil, rule: rule,
          renewal: RenewalEvidence(
            reason: reason, previous: previous, statusAsOf: statusAsOf,
            switchedOffAt: switchedOffAt)),
        lastOwner: lastOwner)
    }
  }

  /// A page of one environment, served by a partial index.
  private static func unclaimed(
    in environment: Environment, wasOver: Bool, after last: UnclaimedPlace?, limit: Int
  ) -> SQL {
    let rest =
      last.map { place in
        """
        (recorded_at, environment, original_transaction_id, transaction_id, product_id)
          < (\(place.firstSeenAt), \(place.charge.line.environment),
            \(place.charge.line.originalTransactionID), \(place.charge.transactionID),
            \(place.charge.productID))
        """ as SQL
      } ?? "true"
    return """
      SELECT environment, original_transaction_id, transaction_id, product_id, charged_at,
        recorded_at, expires_at, rule, reason, previous_original_transaction_id,
        previous_transaction_id, previous_product_id, status_as_of, switched_off_at,
        lost_by_keys[cardinality(lost_by_keys)], greatest(decided_at, corrected_at)
      FROM tenure.store_transaction
      WHERE environment = \(environment) AND rule IS NOT NULL AND owner_account_key IS NULL
        AND coalesce(expires_at <= recorded_at, false) = \(wasOver) AND \(rest)
      ORDER BY recorded_at DESC, original_transaction_id DESC, transaction_id DESC, product_id DESC
      LIMIT \(limit)
      """
  }

  /// Counts the charges whose customers wait for access, among the latest unclaimed ones, with the
  /// date since which the first of them is unclaimed: when it was first seen, or lost its owner.
  ///
  /// One whose period has ended stays in the list, because the payment still needs an owner; but it
  /// raises no alert, because there is no access left to give.
  static func countOfWaiting(in environment: Environment, limit: Int64, at now: Timestamp) -> SQL {
    """
    SELECT count(*), min(greatest(decided_at, corrected_at)) FROM (
      SELECT expires_at, decided_at, corrected_at FROM tenure.store_transaction
      WHERE environment = \(environment) AND rule IS NOT NULL AND owner_account_key IS NULL
        AND coalesce(expires_at <= recorded_at, false) = false
      ORDER BY recorded_at DESC LIMIT \(limit)
    ) AS latest
    WHERE coalesce(expires_at > \(now), true)
    """
  }

  /// The prices of unclaimed charges with some dates, from Apple or the catalogue.
  ///
  /// A separate query, because movements of linked original transactions may be on another shard
  /// than the charge.
  private func pricesOfUnclaimed(
    at dates: [Timestamp]
  ) async throws -> [Charge.ID: (amountMilliunits: Int64, currency: String?)] {
    guard !dates.isEmpty else { return [:] }
    let prices = try await database.query(
      """
      SELECT environment, charge_original_transaction_id, transaction_id, product_id,
        amount_milliunits, currency
      FROM tenure.movement
      WHERE environment = ANY(\(Environment.allCases)) AND at = ANY(\(dates)) AND kind = 'charged'
        AND account_key IS NULL AND known_until = 'infinity'
      """
    ).decode(TransactionKey.self, Int64.self, String?.self)
    return Dictionary(prices.map { ($0, ($1, $2)) }) { first, _ in first }
  }
}
