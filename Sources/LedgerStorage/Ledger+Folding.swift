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
      let movements = try await foldChanges()
      let charges = try await database.query(ChargeSums.fold(limit: Self.foldingBatch))
        .decodeOnly(Int.self)
      guard max(movements, charges) == Self.foldingBatch else {
        _ = try await database.batch(
          job.repetition(at: now + Self.foldingInterval, now: now))
        return
      }
    }
    _ = try await database.batch(job.repetition(at: now, now: now))
  }

  /// - Returns: How many changes were folded.
  private func foldChanges() async throws -> Int {
    try await database.query(
      """
      WITH taken AS (
        DELETE FROM tenure.movement_change
        WHERE (original_transaction_id, change_id) IN (
          SELECT original_transaction_id, change_id FROM tenure.movement_change
          LIMIT \(Self.foldingBatch))
        RETURNING environment, original_transaction_id, change_id
      ), folded AS (
        INSERT INTO tenure.movement_day AS d (environment, basis, kind, day, cohort, cause,
          product_id, ownership_type, period_type, currency, price_source, number,
          amount_milliunits, mrr_twelfths)
        SELECT environment, basis, kind, day, cohort, cause, product_id, ownership_type,
          period_type, currency, price_source, sum(number), sum(amount_milliunits),
          sum(mrr_twelfths)
        FROM taken CROSS JOIN LATERAL tenure.movement_effect(
          environment, original_transaction_id, change_id)
        GROUP BY environment, basis, kind, day, cohort, cause, product_id, ownership_type,
          period_type, currency, price_source
        ORDER BY environment, basis, kind, day, cohort, cause, product_id, ownership_type,
          period_type, currency, price_source
        \(Self.addingToSums)
      )
      SELECT count(*) FROM taken
      """
    ).decodeOnly(Int.self)
  }

  /// What becomes of a sum that is there already.
  static let addingToSums: SQL = """
    ON CONFLICT (environment, basis, kind, day, cohort, cause, product_id, ownership_type,
      period_type, currency, price_source)
    DO UPDATE SET number = d.number + excluded.number,
      amount_milliunits = d.amount_milliunits + excluded.amount_milliunits,
      mrr_twelfths = d.mrr_twelfths + excluded.mrr_twelfths
    """
}
