import Postgres
package import Subscriptions

extension Ledger {
  /// How many changes are folded at once: some tens of milliseconds' work.
  private static let foldingBatch = 5000
  /// How many batches one job does, so that it ends before its lease does.
  private static let foldingBatches = 200
  /// How often changes are folded: until then reports add them up themselves.
  private static let foldingInterval: Duration = .minutes(1)

  /// Folds the changes of sums that recordings left into the sums by the day, and plans the next
  /// time.
  ///
  /// Recordings only ever add rows, so that none waits for another's sum. A change is in one of the
  /// two tables at any moment.
  ///
  /// - Parameters:
  ///   - job: Claimed.
  ///   - now: From when on the next time counts.
  /// - Throws: What the database says.
  package func foldMovements(_ job: Job, at now: Timestamp) async throws {
    for _ in 0..<Self.foldingBatches {
      guard try await foldOldestChanges() == Self.foldingBatch else {
        _ = try await database.batch(
          job.repetition(at: now + Self.foldingInterval, now: now))
        return
      }
    }
    _ = try await database.batch(job.repetition(at: now, now: now))
  }

  /// - Returns: How many changes were folded.
  private func foldOldestChanges() async throws -> Int {
    try await database.query(
      """
      WITH taken AS (
        DELETE FROM tenure.movement_change
        WHERE change_id IN (
          SELECT change_id FROM tenure.movement_change ORDER BY change_id
          LIMIT \(Self.foldingBatch))
        RETURNING *
      ), folded AS (
        INSERT INTO tenure.movement_day AS d (environment, basis, kind, day, cohort, cause,
          product_id, ownership_type, period_type, currency, price_source, number,
          amount_milliunits, mrr_twelfths)
        SELECT environment, basis, kind, day, cohort, cause, product_id, ownership_type,
          period_type, currency, price_source, sum(number), sum(amount_milliunits),
          sum(mrr_twelfths)
        FROM taken
        GROUP BY environment, basis, kind, day, cohort, cause, product_id, ownership_type,
          period_type, currency, price_source
        ORDER BY environment, basis, kind, day, cohort, cause, product_id, ownership_type,
          period_type, currency, price_source
        ON CONFLICT (environment, basis, kind, day, cohort, cause, product_id, ownership_type,
          period_type, currency, price_source)
        DO UPDATE SET number = d.number + excluded.number,
          amount_milliunits = d.amount_milliunits + excluded.amount_milliunits,
          mrr_twelfths = d.mrr_twelfths + excluded.mrr_twelfths
      )
      SELECT count(*) FROM taken
      """
    ).decodeOnly(Int.self)
  }
}
