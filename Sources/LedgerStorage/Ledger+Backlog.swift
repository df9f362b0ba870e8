import Postgres
package import Subscriptions

extension Ledger {
  /// Whether a job is due by a moment and not done: nobody has begun it, or somebody is at it.
  ///
  /// - Throws: What the database says.
  package func hasBacklog(at now: Timestamp) async throws -> Bool {
    try await database.query(
      """
      SELECT EXISTS (SELECT FROM tenure.job WHERE parked_at IS NULL AND run_at <= \(now))
      """
    ).decodeOnly(Bool.self)
  }

  /// Wakes workers that sleep until the next job is due, because a clock has jumped.
  package func wakeWorkers() {
    bell.ring(.jobs)
  }
}
