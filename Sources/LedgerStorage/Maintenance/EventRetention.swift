import Postgres
package import Subscriptions

extension Maintenance {
  /// Events examined or deleted per statement: some tens of milliseconds.
  private static let trimmingBatch = 5000
  /// Batches per run, so that a job ends before its lease.
  private static let trimmingBatches = 200

  /// Deletes events older than the retention and reschedules the job.
  ///
  /// Events with pending webhook deliveries are kept until delivered; parked deliveries are deleted
  /// with their event. Events not yet pushed are kept longer, by the webhook's retry window,
  /// because the pruning process doesn't know whether a webhook is configured.
  package func pruneEvents(
    _ job: Job, olderThan age: Duration, every interval: Duration, at now: Timestamp
  ) async throws {
    // Without readers of the feed, no other process assigns positions; events without one stay.
    try await events.placeEvents()
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

  /// Advances the feed's oldest position before anything is deleted, so that readers with an older
  /// cursor get an error instead of a gap, and returns whether there may be more to prune.
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
        -- The foreign key keeps the event of a delivery that is just retried.
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

  // MARK: Account changes

  /// Starts the log of account changes where there is none, if all triggers are there.
  static let beginAccountChanges: SQL = """
    INSERT INTO tenure.account_change_log (is_only_row)
    SELECT true WHERE 6 = (
      SELECT count(*) FROM pg_trigger
      WHERE tgenabled = 'A' AND (tgname = 'account_change_of_all'
          AND tgrelid IN ('tenure.product'::regclass, 'tenure.product_entitlement'::regclass)
        OR tgname IN ('account_change', 'account_change_of_all')
          AND tgrelid IN ('tenure.holding'::regclass, 'tenure.account_grant'::regclass)))
    ON CONFLICT DO NOTHING
    """

  /// Deletes the account changes of before the last run, so that each stays for `interval`.
  package func trimAccountChanges(_ job: Job, every interval: Duration, at now: Timestamp)
    async throws
  {
    try await database.batch(Self.trimAccountChanges + job.repetition(at: now + interval, now: now))
  }

  static let trimAccountChanges: [SQL] = [
    beginAccountChanges,
    """
    UPDATE tenure.account_change_log
    SET trimmed_to = trims_to, trims_to = pg_snapshot_xmin(pg_current_snapshot())
    """,
    """
    DELETE FROM tenure.account_change
    WHERE xid < (SELECT trimmed_to FROM tenure.account_change_log)
    """,
  ]
}
