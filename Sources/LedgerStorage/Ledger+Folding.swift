import Postgres
package import Subscriptions

extension Ledger {
  /// How many changes are folded at once: some tens of milliseconds' work.
  private static let foldingBatch = 1000
  /// How many batches one job does, so that it ends before its lease does.
  private static let foldingBatches = 200
  /// How often changes are folded: until then reports add them up themselves.
  private static let foldingInterval: Duration = .seconds(10)

  /// Folds the changes of sums that recordings left into the sums by the day, of movements and of
  /// charges, and plans the next time.
  ///
  /// Recordings only ever add rows, so that none waits for another's sum. What a change comes to is
  /// among the sums or still to be added up at any moment, and never both.
  ///
  /// - Parameters:
  ///   - job: Claimed.
  ///   - now: From when on the next time counts.
  /// - Throws: What the database says.
  package func foldMovements(_ job: Job, at now: Timestamp) async throws {
    for _ in 0..<Self.foldingBatches {
      let movements = try await fold(from: "movement_change", summing: Self.movementSums)
      let charges = try await fold(from: "charge_change", summing: ChargeSums.fold)
      guard max(movements, charges) == Self.foldingBatch else {
        _ = try await database.batch(
          job.repetition(at: now + Self.foldingInterval, now: now))
        return
      }
    }
    _ = try await database.batch(job.repetition(at: now, now: now))
  }

  /// Takes some changes and adds what they come to.
  ///
  /// Statements of their own, for changes are in the shards of their lines, where there are shards,
  /// and sums are not. If somebody else took one of the changes meanwhile, nothing is done.
  ///
  /// - Parameters:
  ///   - table: Where the changes are.
  ///   - summing: Adds up some changes of some lines.
  /// - Returns: How many changes were folded.
  /// - Throws: What the database says.
  private func fold(
    from table: String, summing: ([OriginalTransactionID], [Int64]) -> SQL
  ) async throws -> Int {
    try await database.withTransaction(isolation: .readCommitted) { transaction in
      let page = try await transaction.query(
        """
        SELECT original_transaction_id, change_id FROM tenure.\(unescaped: table)
        LIMIT \(Self.foldingBatch)
        """
      ).decode(OriginalTransactionID.self, Int64.self)
      guard !page.isEmpty else { return 0 }
      let (lines, changes) = (Array(Set(page.map(\.0))), page.map(\.1))
      let taken = try await transaction.batch([
        summing(lines, changes),
        """
        DELETE FROM tenure.\(unescaped: table)
        WHERE original_transaction_id = ANY(\(lines)) AND change_id = ANY(\(changes))
        """,
      ])[1].affectedRows
      guard taken == page.count else {
        await transaction.rollBack()
        return 0
      }
      return taken
    }
  }

  /// What changes come to: the movements that each added, less those that it closed.
  private static func movementSums(
    of lines: [OriginalTransactionID], in changes: [Int64]
  ) -> SQL {
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

  /// What becomes of a sum that is there already.
  static let addingToSums: SQL = """
    ON CONFLICT (environment, basis, kind, day, cohort, cause, product_id, ownership_type,
      period_type, currency, price_source)
    DO UPDATE SET number = d.number + excluded.number,
      amount_milliunits = d.amount_milliunits + excluded.amount_milliunits,
      mrr_twelfths = d.mrr_twelfths + excluded.mrr_twelfths
    """
}
