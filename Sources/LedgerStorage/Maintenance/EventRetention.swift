import Postgres
package import Subscriptions

extension Ledger {
  /// How many events are looked at or deleted at once: some tens of milliseconds' work.
  private static let trimmingBatch = 5000
  /// How many batches one job does, so that it ends before its lease does.
  private static let trimmingBatches = 200

  /// Deletes the events that are older than the retention, and plans the next time.
  ///
  /// What webhooks are still to deliver stays until they have; what they gave up goes with its
  /// event. What is not pushed yet stays longer, by their patience: whoever trims need not know
  /// whether anybody pushes.
  ///
  /// - Parameters:
  ///   - job: Claimed.
  ///   - age: The retention, by the database's clock.
  ///   - now: From when on the next time counts.
  /// - Throws: What the database says.
  package func trim(
    _ job: Job, olderThan age: Duration, every interval: Duration, at now: Timestamp
  ) async throws {
    // Where nobody reads the feed nobody else gives events their places, and what has none stays.
    try await placeEvents()
    for _ in 0..<Self.trimmingBatches {
      let hasMore = try await moveOldestKept(olderThan: age)
      let deleted = try await deleteTrimmed()
      guard hasMore || deleted == Self.trimmingBatch else {
        let next = job.repetition(at: now + interval, now: now)
        _ = try await database.batch(next)
        return
      }
    }
    _ = try await database.batch(job.repetition(at: now, now: now))
  }

  /// Moves the place up to which the feed is forgotten, before anything is deleted: whoever reads
  /// on from before it is told so.
  ///
  /// - Returns: Whether there may be more to forget.
  private func moveOldestKept(olderThan age: Duration) async throws -> Bool {
    let seconds = Double(age.inMilliseconds) / 1000
    let unpushedSeconds = Double((age + WebhookDelivery.patience).inMilliseconds) / 1000
    return try await database.query(
      """
      WITH next AS (
        SELECT e.position, e.stored_at, e.stored_at >= now() - make_interval(secs => \(seconds))
          OR e.position > f.pushed_to
            AND e.stored_at >= now() - make_interval(secs => \(unpushedSeconds)) AS stays
        FROM tenure.feed AS f
        CROSS JOIN LATERAL (
          SELECT position, stored_at FROM tenure.event WHERE position > f.trimmed_to
          ORDER BY position LIMIT \(Self.trimmingBatch)
        ) AS e
      ), oldest AS (
        SELECT min(position) FILTER (WHERE stays) AS kept, max(position) AS looked_at, count(*)
        FROM next
      )
      UPDATE tenure.feed AS f
      SET trimmed_to = greatest(f.trimmed_to, coalesce(o.kept - 1, o.looked_at, 0)),
        trimmed_stored_at = coalesce(
          (SELECT n.stored_at FROM next AS n WHERE n.position = coalesce(o.kept - 1, o.looked_at)),
          f.trimmed_stored_at)
      FROM oldest AS o
      RETURNING o.kept IS NULL AND o.count = \(Self.trimmingBatch)
      """
    ).decodeOnly(Bool.self)
  }

  /// - Returns: How many events were deleted.
  private func deleteTrimmed() async throws -> Int {
    try await database.query(
      """
      WITH old AS (
        SELECT e.event_id FROM tenure.event AS e
        WHERE e.position <= (SELECT trimmed_to FROM tenure.feed) AND NOT EXISTS (
          SELECT FROM tenure.webhook_delivery AS d
          WHERE d.event_id = e.event_id AND d.parked_at IS NULL)
        ORDER BY e.position LIMIT \(Self.trimmingBatch)
      ), given_up AS (
        -- One that is just to be tried again keeps its event, which the foreign key sees to.
        DELETE FROM tenure.webhook_delivery
        WHERE event_id IN (SELECT event_id FROM old) AND parked_at IS NOT NULL
      ), deleted AS (
        DELETE FROM tenure.event WHERE event_id IN (SELECT event_id FROM old)
        RETURNING event_id
      )
      SELECT count(*) FROM deleted
      """
    ).decodeOnly(Int.self)
  }
}
