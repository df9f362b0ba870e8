import Postgres
package import Subscriptions

extension Maintenance {
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
