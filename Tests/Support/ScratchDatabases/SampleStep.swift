package import LedgerStorage

extension SchemaStep {
  /// A step as the next version may have one, which programs of the current version keep working
  /// with.
  package static let sample = SchemaStep(
    version: SchemaMigrator.currentVersion + 1, servesSince: SchemaMigrator.currentVersion,
    sql: """
      -- part: transaction
      ALTER TABLE tenure.submission ADD COLUMN rehearsed_at timestamptz;
      ALTER TABLE tenure.submission ADD COLUMN rehearsals integer NOT NULL DEFAULT 0;
      -- part: transaction
      CREATE TABLE tenure.rehearsal (
          rehearsal_id bigint NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY
      );
      COMMENT ON TABLE tenure.rehearsal IS 'A table that no program uses. [local]';
      -- Replaces a function that every roll-up calls.
      DO $$
      BEGIN
          EXECUTE pg_get_functiondef('tenure.movement_basis'::regproc);
      END
      $$;
      -- part: index
      CREATE INDEX CONCURRENTLY IF NOT EXISTS submission_rehearsed
          ON tenure.submission (received_at) WHERE rehearsed_at IS NOT NULL;
      -- part: transaction
      SELECT tenure.grant_privileges();
      """)
}
