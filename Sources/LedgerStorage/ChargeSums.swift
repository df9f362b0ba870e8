import Postgres
import Subscriptions

/// What reports count of a charge, of a row of `store_transaction`: what `charge_basis` takes.
struct CountedCharge: Hashable, Sendable {
  private let rule: Decision.Rule
  private let decidedAt: Timestamp
  private let correctedAt: Timestamp?
  private let chargedAt: Timestamp
  private let kind: ChargeKind
  private let productType: ProductType?
  private let ownershipType: OwnershipType
  private let isOwned: Bool
  private let isRevoked: Bool
  private let isOrdered: Bool
  private let isDelivered: Bool

  /// - Returns: Nil for an alias: nothing is counted of it.
  init?(_ row: TransactionRow, _ fulfilment: Fulfilment?) {
    guard let recorded = row.recorded else { return nil }
    rule = recorded.decision.rule
    decidedAt = recorded.decidedAt
    correctedAt = recorded.correctedAt
    chargedAt = row.transaction.chargedAt
    // As ChargeSums.kind.
    let isRenewed = [.renewedAtPeriodEnd, .recoveredFromBillingProblem]
      .contains(recorded.decision.finding.ground)
    kind = row.transaction.kind == .unknown && isRenewed ? .renewal : row.transaction.kind
    productType = row.transaction.productType
    ownershipType = row.transaction.ownershipType
    isOwned = recorded.decision.owner != nil
    isRevoked = row.transaction.revocation.current != nil
    isOrdered = fulfilment?.orderID != nil
    isDelivered = fulfilment?.deliveredAt != nil
  }

  /// The values of a row of `charge_change`.
  fileprivate func values(_ key: TransactionKey, _ number: Int) -> SQL {
    """
    (\(key.line.environment), \(key.line.originalTransactionID), \(key.productID), \(number),
      \(rule), \(decidedAt), \(correctedAt), \(chargedAt), \(kind), \(productType),
      \(ownershipType), \(isOwned), \(isRevoked), \(isOrdered), \(isDelivered))
    """
  }
}

/// What reports count of charges beside the journal: who writes a row of `store_transaction` notes
/// what that changes of the sums by the day.
///
/// A row is added for each charge that is counted in another way from now on, and one for what it
/// was counted as before; of what reports do not count, nothing is noted. Recordings only ever add,
/// so that none waits for another's sum.
enum ChargeSums {
  /// Notes that a charge is counted in another way from now on.
  ///
  /// - Parameters:
  ///   - key: Its transaction, whose line is locked.
  ///   - old: What its row was counted as; nil: there was none, or it was not counted.
  ///   - new: What it is counted as.
  /// - Returns: One statement; none where nothing changes.
  static func change(
    of key: TransactionKey, from old: CountedCharge?, to new: CountedCharge?
  ) -> [SQL] {
    let rows = old == new ? [] : [old?.values(key, -1), new?.values(key, 1)].compactMap(\.self)
    return rows.isEmpty ? [] : ["\(insert) VALUES \(rows.joined(separator: ", "))"]
  }

  /// Deletes a transaction's row, and notes what that changes of the sums.
  static func deletion(of key: TransactionKey) -> SQL {
    """
    WITH old AS (
      DELETE FROM tenure.store_transaction WHERE \(condition(key))
      RETURNING \(counted)
    )
    \(insert)
    SELECT \(key.line.environment), \(key.line.originalTransactionID), \(key.productID), -1,
      \(names)
    FROM old
    WHERE rule IS NOT NULL
    """
  }

  /// The kind of a charge: one that Apple names no kind of, and that was renewed without anybody's
  /// buying, is a renewal, as ``PurchaseOrder/Payment/isAutomaticRenewal`` has it.
  private static let kind: SQL = """
    CASE WHEN kind = 'unknown'
        AND ground IN ('renewed_at_period_end', 'recovered_from_billing_problem')
      THEN 'renewal' ELSE kind END
    """

  /// What `charge_basis` takes, of a row of `store_transaction`.
  private static let counted: SQL = """
    rule, decided_at, corrected_at, charged_at, \(kind) AS kind, product_type, ownership_type,
      owner_account_key IS NOT NULL AS is_owned, revoked_at IS NOT NULL AS is_revoked,
      order_id IS NOT NULL AS is_ordered, delivered_at IS NOT NULL AS is_delivered
    """

  /// The same columns of `charge_change`.
  static let names: SQL = """
    rule, decided_at, corrected_at, charged_at, kind, product_type, ownership_type, is_owned,
      is_revoked, is_ordered, is_delivered
    """

  private static let insert: SQL = """
    INSERT INTO tenure.charge_change (environment, original_transaction_id, product_id, number,
      \(names))
    """

  private static func condition(_ key: TransactionKey) -> SQL {
    """
    environment = \(key.line.environment)
      AND original_transaction_id = \(key.line.originalTransactionID)
      AND transaction_id = \(key.transactionID) AND product_id = \(key.productID)
    """
  }

  // MARK: Folding and proof

  /// Adds some changes of some lines to the sums by the day.
  static func fold(of lines: [OriginalTransactionID], in changes: [Int64]) -> SQL {
    """
    INSERT INTO tenure.charge_day AS d (environment, measure, day, cause, product_id,
      ownership_type, number)
    SELECT c.environment, b.measure, b.day, b.cause, c.product_id, c.ownership_type,
      sum(c.number)
    FROM tenure.charge_change AS c
    CROSS JOIN LATERAL tenure.charge_basis(c.rule, c.decided_at, c.corrected_at, c.charged_at,
      c.kind, c.product_type, c.ownership_type, c.is_owned, c.is_revoked, c.is_ordered,
      c.is_delivered) AS b
    WHERE c.original_transaction_id = ANY(\(lines)) AND c.change_id = ANY(\(changes))
    GROUP BY 1, 2, 3, 4, 5, 6
    HAVING sum(c.number) <> 0
    ORDER BY 1, 2, 3, 4, 5, 6
    \(adding)
    """
  }

  /// Adds to the sums what they lack.
  static let mend: SQL = """
    INSERT INTO tenure.charge_day AS d (environment, measure, day, cause, product_id,
      ownership_type, number)
    \(differing)
    \(adding)
    """

  /// What becomes of a sum that is there already.
  private static let adding: SQL = """
    ON CONFLICT (environment, measure, day, cause, product_id, ownership_type)
    DO UPDATE SET number = d.number + excluded.number
    """

  /// What the charges come to beyond the sums that are stored: both are of one moment.
  static let differing: SQL = """
    SELECT environment, measure, day, cause, product_id, ownership_type, sum(number) AS number
    FROM (
      SELECT t.environment, b.measure, b.day, b.cause, t.product_id, t.ownership_type,
        1::bigint AS number
      FROM tenure.store_transaction AS t
      CROSS JOIN LATERAL tenure.charge_basis(t.rule, t.decided_at, t.corrected_at, t.charged_at,
        \(kind), t.product_type, t.ownership_type, t.owner_account_key IS NOT NULL,
        t.revoked_at IS NOT NULL, t.order_id IS NOT NULL, t.delivered_at IS NOT NULL) AS b
      UNION ALL
      SELECT environment, measure, day, cause, product_id, ownership_type, -number
      FROM tenure.charge_day
      UNION ALL
      SELECT environment, measure, day, cause, product_id, ownership_type, -number
      FROM tenure.charge_change CROSS JOIN LATERAL tenure.charge_basis(\(names))
    ) AS part
    GROUP BY environment, measure, day, cause, product_id, ownership_type
    HAVING sum(number) <> 0
    """
}
