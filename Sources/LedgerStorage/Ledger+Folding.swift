package import Postgres
package import Subscriptions

extension Ledger {
  /// How many changes are folded at once: some tens of milliseconds' work.
  private static let foldingBatch = 1000
  /// How many batches one job does, so that it ends before its lease does.
  private static let foldingBatches = 200
  /// How often changes are folded: until then reports add them up themselves.
  private static let foldingInterval: Duration = .seconds(10)

  /// The same after changes that could not be folded.
  private static let foldingIntervalAfterFaults: Duration = .minutes(1)

  /// Folds the changes of sums that recordings left into the sums by the day, of movements and of
  /// charges, and plans the next time.
  ///
  /// Recordings only ever add rows, so that none waits for another's sum. What a change comes to is
  /// among the sums or still to be added up at any moment, and never both. A change that can't be
  /// folded stays, and the others are folded without it.
  ///
  /// - Parameters:
  ///   - job: The claimed job.
  ///   - now: The time from which the next run is planned.
  /// - Returns: The errors of the changes that could not be folded.
  /// - Throws: Database errors that concern no single change.
  @discardableResult
  package func foldMovements(_ job: Job, at now: Timestamp) async throws -> [PostgresError] {
    var movements = Folding(table: "movement_change", summing: Self.movementSums)
    var charges = Folding(table: "charge_change", summing: ChargeSums.fold)
    var isDone = false
    for _ in 0..<Self.foldingBatches where !isDone {
      let page = max(try await fold(&movements), try await fold(&charges))
      isDone = page < Self.foldingBatch
    }
    let faults = movements.faults + charges.faults
    let pause: Duration =
      !isDone ? .zero : faults.isEmpty ? Self.foldingInterval : Self.foldingIntervalAfterFaults
    _ = try await database.batch(job.repetition(at: now + pause, now: now))
    return faults.map(\.error)
  }

  /// The changes of one table that are folded.
  private struct Folding {
    struct Change {
      var line: OriginalTransactionID
      var id: Int64
    }

    let table: String
    /// The statement that adds up some changes of some lines.
    let summing: ([OriginalTransactionID], [Int64]) -> SQL
    var faults: [(change: Int64, error: PostgresError)] = []
  }

  /// Folds one page of changes, and returns how many changes it has.
  private func fold(_ folding: inout Folding) async throws -> Int {
    let page = try await database.query(
      """
      SELECT original_transaction_id, change_id FROM tenure.\(unescaped: folding.table)
      WHERE change_id <> ALL(\(folding.faults.map(\.change)))
      LIMIT \(Self.foldingBatch)
      """
    ).decode(OriginalTransactionID.self, Int64.self).map { Folding.Change(line: $0, id: $1) }
    try await fold(page[...], &folding)
    return page.count
  }

  /// Folds some changes together; if one of them can't be folded, each half without the other.
  private func fold(_ changes: ArraySlice<Folding.Change>, _ folding: inout Folding) async throws {
    guard let first = changes.first else { return }
    do {
      try await take(changes, folding)
    } catch let error as PostgresError where error.sqlState?.errorClass == "22" {
      guard changes.count > 1 else {
        folding.faults.append((first.id, error))
        return
      }
      try await fold(changes.prefix(changes.count / 2), &folding)
      try await fold(changes.dropFirst(changes.count / 2), &folding)
    }
  }

  /// Takes some changes and adds what they come to.
  ///
  /// Statements of their own, because changes are in the shards of their lines, where there are
  /// shards, and sums are not. If another worker took one of the changes, nothing is done.
  private func take(_ changes: ArraySlice<Folding.Change>, _ folding: Folding) async throws {
    let (lines, ids) = (Array(Set(changes.map(\.line))), changes.map(\.id))
    try await database.withTransaction(isolation: .readCommitted) { transaction in
      let taken = try await transaction.batch([
        folding.summing(lines, ids),
        """
        DELETE FROM tenure.\(unescaped: folding.table)
        WHERE original_transaction_id = ANY(\(lines)) AND change_id = ANY(\(ids))
        """,
      ])[1].affectedRows
      if taken != changes.count { await transaction.rollBack() }
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
