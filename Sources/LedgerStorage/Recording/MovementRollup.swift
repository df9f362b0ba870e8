package import Postgres
package import Subscriptions

extension Maintenance {
  /// Some tens of milliseconds' work.
  private static let rollupBatch = 1000
  /// The limit of one job, so that it ends before its lease does.
  private static let rollupBatches = 200
  /// The time to the next run after changes that could not be rolled up.
  private static let intervalAfterFaults: Duration = .minutes(1)

  /// Rolls up changes of movements into the sums by day, and schedules the next run.
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
    var faults: [RollupFault] = []
    var isDone = false
    for _ in 0..<Self.rollupBatches where !isDone {
      let page = try await database.query(
        """
        SELECT original_transaction_id, change_id FROM tenure.movement_change
        WHERE change_id <> ALL(\(faults.map(\.change)))
        LIMIT \(Self.rollupBatch)
        """
      ).decode(OriginalTransactionID.self, Int64.self).map { (line: $0, id: $1) }
      try await rollUp(page[...], &faults)
      isDone = page.count < Self.rollupBatch
    }
    let pause: Duration =
      !isDone ? .zero : faults.isEmpty ? interval : Self.intervalAfterFaults
    _ = try await database.batch(job.repetition(at: now + pause, now: now))
    return faults.map(\.error)
  }

  private typealias Change = (line: OriginalTransactionID, id: Int64)
  private typealias RollupFault = (change: Int64, error: PostgresError)

  /// Rolls up changes together; after an error, each half separately.
  private func rollUp(_ changes: ArraySlice<Change>, _ faults: inout [RollupFault]) async throws {
    guard let first = changes.first else { return }
    do {
      try await take(changes)
    } catch let error as PostgresError where error.sqlState?.errorClass == "22" {
      guard changes.count > 1 else {
        faults.append((first.id, error))
        return
      }
      try await rollUp(changes.prefix(changes.count / 2), &faults)
      try await rollUp(changes.dropFirst(changes.count / 2), &faults)
    }
  }

  /// Deletes changes and adds the movements that each added, less those that it closed, to the
  /// sums, unless another worker took one of them.
  ///
  /// Separate statements, because changes are in the shards of their original transactions, and
  /// sums are not sharded.
  private func take(_ changes: ArraySlice<Change>) async throws {
    let (lines, ids) = (Array(Set(changes.map(\.line))), changes.map(\.id))
    try await database.withTransaction(isolation: .readCommitted) { transaction in
      let taken = try await transaction.batch([
        """
        INSERT INTO tenure.movement_day AS d (environment, basis, kind, day, cohort, cause,
          product_id, ownership_type, period_type, currency, price_source, number,
          amount_milliunits, mrr_twelfths)
        SELECT m.environment, b.basis, m.kind, b.day, b.cohort, b.summed_cause, m.product_id,
          m.ownership_type, m.period_type, coalesce(m.currency, ''), coalesce(m.price_source, ''),
          sum(s.sign * m.number), sum(s.sign * m.amount_milliunits), sum(s.sign * m.mrr_twelfths)
        \(Self.changedMovements)
        WHERE c.original_transaction_id = ANY(\(lines)) AND c.change_id = ANY(\(ids))
        GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
        ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
        \(Self.addingToSums)
        """,
        """
        DELETE FROM tenure.movement_change
        WHERE original_transaction_id = ANY(\(lines)) AND change_id = ANY(\(ids))
        """,
      ])[1].affectedRows
      if taken != changes.count { await transaction.rollBack() }
    }
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
    \(summedBases)
    """

  /// How a movement `m` is summed up, `b`.
  static let summedBases: SQL = """
    CROSS JOIN LATERAL tenure.movement_basis(m.kind, m.at, m.origin_at, m.cause, m.mrr_twelfths,
      m.rule, m.decided_at, m.corrected_at) AS b
    """

  static let addingToSums: SQL = """
    ON CONFLICT (environment, basis, kind, day, cohort, cause, product_id, ownership_type,
      period_type, currency, price_source)
    DO UPDATE SET number = d.number + excluded.number,
      amount_milliunits = d.amount_milliunits + excluded.amount_milliunits,
      mrr_twelfths = d.mrr_twelfths + excluded.mrr_twelfths
    """
}
