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

/// The lists of unclaimed charges.
package enum UnclaimedList: CaseIterable, Sendable {
  /// The paid period lasts, or has no end: the first to end is the first of the list.
  case waiting
  /// The period has ended since: the last to end is the first of the list.
  case ended
  /// The period had ended when the charge was first seen; in the same order.
  case historical
}

extension OwnershipStore {
  /// The position of a charge in its list; without an end, nil.
  package typealias UnclaimedPlace = (expiresAt: Timestamp?, charge: Charge.ID)

  /// Reads a list of unclaimed charges in both environments.
  package func unclaimedCharges(
    _ list: UnclaimedList, after last: UnclaimedPlace? = nil, limit: Int, at now: Timestamp
  ) async throws -> [UnclaimedCharge] {
    let rows = try await database.query(
      """
      SELECT * FROM (
        (\(Self.unclaimed(list, in: .production, after: last, limit: limit, at: now)))
        UNION ALL
        (\(Self.unclaimed(list, in: .sandbox, after: last, limit: limit, at: now)))
      ) AS unclaimed
      ORDER BY \(Self.order(of: list)) LIMIT \(limit)
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

  private static func order(of list: UnclaimedList) -> SQL {
    let direction: SQL = list == .waiting ? "ASC" : "DESC"
    return """
      coalesce(expires_at, 'infinity') \(direction), environment \(direction),
      original_transaction_id \(direction), transaction_id \(direction), product_id \(direction)
      """
  }

  /// A page of one environment, served by a partial index.
  static func unclaimed(
    _ list: UnclaimedList, in environment: Environment, after last: UnclaimedPlace?, limit: Int,
    at now: Timestamp
  ) -> SQL {
    let follows: SQL = list == .waiting ? ">" : "<"
    let rest =
      last.map { place in
        """
        (coalesce(expires_at, 'infinity'), environment, original_transaction_id, transaction_id,
          product_id) \(follows)
          (coalesce(\(place.expiresAt)::timestamptz, 'infinity'), \(place.charge.line.environment),
            \(place.charge.line.originalTransactionID), \(place.charge.transactionID),
            \(place.charge.productID))
        """ as SQL
      } ?? "true"
    let end: SQL =
      switch list {
      case .waiting: "coalesce(expires_at, 'infinity') > \(now)"
      case .ended: "coalesce(expires_at, 'infinity') <= \(now)"
      case .historical: "true"
      }
    return """
      SELECT environment, original_transaction_id, transaction_id, product_id, charged_at,
        recorded_at, expires_at, rule, reason, previous_original_transaction_id,
        previous_transaction_id, previous_product_id, status_as_of, switched_off_at,
        lost_by_keys[cardinality(lost_by_keys)], greatest(decided_at, corrected_at)
      FROM tenure.store_transaction
      WHERE environment = \(environment) AND rule IS NOT NULL AND owner_account_key IS NULL
        AND coalesce(expires_at <= recorded_at, false) = \(list == .historical) AND \(end)
        AND \(rest)
      ORDER BY \(order(of: list)) LIMIT \(limit)
      """
  }

  /// Counts the charges whose customers wait for access, with the date since which the first of them
  /// is unclaimed: when it was first seen, or lost its owner.
  ///
  /// One whose period has ended stays in the list, because the payment still needs an owner; but it
  /// raises no alert, because there is no access left to give.
  static func countOfWaiting(in environment: Environment, limit: Int64, at now: Timestamp) -> SQL {
    """
    SELECT count(*), min(greatest(decided_at, corrected_at)) FROM (
      SELECT decided_at, corrected_at FROM tenure.store_transaction
      WHERE environment = \(environment) AND rule IS NOT NULL AND owner_account_key IS NULL
        AND coalesce(expires_at <= recorded_at, false) = false
        AND coalesce(expires_at, 'infinity') > \(now)
      LIMIT \(limit)
    ) AS waiting
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
