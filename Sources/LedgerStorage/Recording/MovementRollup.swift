package import Postgres
package import Subscriptions

extension Maintenance {
  /// Some tens of milliseconds' work.
  private static let rollupBatch = 1000
  /// The limit of one job, so that it ends before its lease does.
  private static let rollupBatches = 200
  /// The time to the next run after changes that could not be rolled up.
  private static let intervalAfterFaults: Duration = .minutes(1)

  /// Rolls up changes of movements and charges into the sums by day, and schedules the next run.
  ///
  /// Recordings only add rows, so that none waits for another's sum. A change is either part of the
  /// sums or still to be added, never both. Changes that can't be rolled up stay, and their errors
  /// are returned.
  ///
  /// - Throws: Database errors that concern no single change.
  @discardableResult
  package func rollUpMovements(
    _ job: Job, every interval: Duration, at now: Timestamp
  ) async throws -> [PostgresError] {
    var movements = Rollup(table: "movement_change", summing: Self.movementSums)
    var charges = Rollup(table: "charge_change", summing: ChargeSums.rollUp)
    var isDone = false
    for _ in 0..<Self.rollupBatches where !isDone {
      let page = max(try await rollUp(&movements), try await rollUp(&charges))
      isDone = page < Self.rollupBatch
    }
    let faults = movements.faults + charges.faults
    let pause: Duration =
      !isDone ? .zero : faults.isEmpty ? interval : Self.intervalAfterFaults
    _ = try await database.batch(job.repetition(at: now + pause, now: now))
    return faults.map(\.error)
  }

  private struct Rollup {
    typealias Change = (line: OriginalTransactionID, id: Int64)

    let table: String
    /// The statement that adds up changes.
    let summing: ([OriginalTransactionID], [Int64]) -> SQL
    var faults: [(change: Int64, error: PostgresError)] = []
  }

  /// Rolls up one page of changes, and returns its size.
  private func rollUp(_ rollup: inout Rollup) async throws -> Int {
    let page = try await database.query(
      """
      SELECT original_transaction_id, change_id FROM tenure.\(unescaped: rollup.table)
      WHERE change_id <> ALL(\(rollup.faults.map(\.change)))
      LIMIT \(Self.rollupBatch)
      """
    ).decode(OriginalTransactionID.self, Int64.self).map { (line: $0, id: $1) }
    try await rollUp(page[...], &rollup)
    return page.count
  }

  /// Rolls up changes together; after an error, each half separately.
  private func rollUp(_ changes: ArraySlice<Rollup.Change>, _ rollup: inout Rollup) async throws {
    guard let first = changes.first else { return }
    do {
      try await take(changes, rollup)
    } catch let error as PostgresError where error.sqlState?.errorClass == "22" {
      guard changes.count > 1 else {
        rollup.faults.append((first.id, error))
        return
      }
      try await rollUp(changes.prefix(changes.count / 2), &rollup)
      try await rollUp(changes.dropFirst(changes.count / 2), &rollup)
    }
  }

  /// Deletes changes and adds them to the sums, unless another worker took one of them.
  ///
  /// Separate statements, because changes are in the shards of their original transactions, and
  /// sums are not sharded.
  private func take(_ changes: ArraySlice<Rollup.Change>, _ rollup: Rollup) async throws {
    let (lines, ids) = (Array(Set(changes.map(\.line))), changes.map(\.id))
    try await database.withTransaction(isolation: .readCommitted) { transaction in
      let taken = try await transaction.batch([
        rollup.summing(lines, ids),
        """
        DELETE FROM tenure.\(unescaped: rollup.table)
        WHERE original_transaction_id = ANY(\(lines)) AND change_id = ANY(\(ids))
        """,
      ])[1].affectedRows
      if taken != changes.count { await transaction.rollBack() }
    }
  }

  /// The movements that each change added, less those that it closed.
  private static func movementSums(of lines: [OriginalTransactionID], in changes: [Int64]) -> SQL {
    """
    INSERT INTO tenure.movement_day AS d (environment, basis, kind, day, cohort, cause,
      product_id, ownership_type, period_type, currency, price_source, number,
      amount_milliunits, mrr_twelfths)
    SELECT m.environment, b.basis, m.kind, b.day, b.cohort, b.summed_cause, m.product_id,
      m.ownership_type, m.period_type, coalesce(m.currency, ''), coalesce(m.price_source, ''),
      sum(s.sign * m.number), sum(s.sign * m.amount_milliunits), sum(s.sign * m.mrr_twelfths)
    \(changedMovements)
    WHERE c.original_transaction_id = ANY(\(lines)) AND c.change_id = ANY(\(changes))
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    \(addingToSums)
    """
  }

  /// Each change `c` with its movements `m`, their signs `s` and how they are summed up, `b`.
  static let changedMovements: SQL = """
    FROM tenure.movement_change AS c
    JOIN tenure.movement AS m ON m.environment = c.environment
      AND m.original_transaction_id = c.original_transaction_id
      AND c.change_id IN (m.opened_by, m.closed_by)
    CROSS JOIN LATERAL (
      SELECT CASE WHEN m.opened_by = c.change_id THEN 1::bigint ELSE -1 END AS sign
    ) AS s
    CROSS JOIN LATERAL tenure.movement_basis(m.kind, m.at, m.origin_at, m.cause, m.mrr_twelfths)
      AS b
    """

  static let addingToSums: SQL = """
    ON CONFLICT (environment, basis, kind, day, cohort, cause, product_id, ownership_type,
      period_type, currency, price_source)
    DO UPDATE SET number = d.number + excluded.number,
      amount_milliunits = d.amount_milliunits + excluded.amount_milliunits,
      mrr_twelfths = d.mrr_twelfths + excluded.mrr_twelfths
    """
}

/// A charge's values in reports, from a row of `store_transaction`: the arguments of
/// `charge_basis`.
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

  /// Nil for an alias, which is not counted.
  init?(_ row: TransactionRow, _ fulfilment: Fulfilment?) {
    guard let recorded = row.recorded else { return nil }
    rule = recorded.decision.rule
    decidedAt = recorded.decidedAt
    correctedAt = recorded.correctedAt
    chargedAt = row.transaction.chargedAt
    kind =
      recorded.decision.isAutomaticRenewal(row.transaction.kind) ? .renewal : row.transaction.kind
    productType = row.transaction.productType
    ownershipType = row.transaction.ownershipType
    isOwned = recorded.decision.owner != nil
    isRevoked = row.revokedAt != nil
    isOrdered = fulfilment?.orderID != nil
    isDelivered = fulfilment?.deliveredAt != nil
  }

  fileprivate func values(_ key: TransactionKey, _ number: Int) -> SQL {
    """
    (\(key.line.environment), \(key.line.originalTransactionID), \(key.productID), \(number),
      \(rule), \(decidedAt), \(correctedAt), \(chargedAt), \(kind), \(productType),
      \(ownershipType), \(isOwned), \(isRevoked), \(isOrdered), \(isDelivered))
    """
  }
}

/// The sums of charges that movements do not give.
///
/// Every write of a row of `store_transaction` also records the change of the sums.
///
/// A row is added for the new values of a charge, and one for the old ones; only if reports count
/// the difference. Recordings only add rows, so that none waits for another's sum.
enum ChargeSums {
  /// A transaction of a locked original transaction, with its values before and after.
  typealias Change = (key: TransactionKey, old: CountedCharge?, new: CountedCharge?)

  /// Records changes of charges' values; no statement where nothing changes.
  static func changes(_ changes: [Change]) -> [SQL] {
    changes.filter { $0.old != $0.new }.flatMap { change in
      [change.old?.values(change.key, -1), change.new?.values(change.key, 1)].compactMap(\.self)
    }.rowLists.map { "\(insert) VALUES \($0)" }
  }

  static func deletion(of key: TransactionKey) -> SQL {
    """
    WITH old AS (
      DELETE FROM tenure.store_transaction WHERE \(key.condition)
      RETURNING \(counted)
    )
    \(insert)
    SELECT \(key.line.environment), \(key.line.originalTransactionID), \(key.productID), -1,
      \(names)
    FROM old
    WHERE rule IS NOT NULL
    """
  }

  /// The kind of a charge, see ``Decision/isAutomaticRenewal(_:)``.
  private static let kind: SQL = """
    CASE WHEN kind = 'unknown'
        AND reason IN ('renewed_at_period_end', 'recovered_from_billing_problem')
      THEN 'renewal' ELSE kind END
    """

  /// The arguments of `charge_basis`, from a row of `store_transaction`.
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

  // MARK: Sums

  static func rollUp(of lines: [OriginalTransactionID], in changes: [Int64]) -> SQL {
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

  static let repair: SQL = """
    INSERT INTO tenure.charge_day AS d (environment, measure, day, cause, product_id,
      ownership_type, number)
    \(differing)
    \(adding)
    """

  private static let adding: SQL = """
    ON CONFLICT (environment, measure, day, cause, product_id, ownership_type)
    DO UPDATE SET number = d.number + excluded.number
    """

  /// The difference between charges and stored sums, as of one moment.
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
