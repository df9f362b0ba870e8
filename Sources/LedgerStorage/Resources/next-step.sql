-- A step as the next version may have one: from version 8 to version 9, serving programs since 8.
--
-- It belongs to no version: tests and `tenure rehearse` give it to SchemaMigrator. By hand, beside a
-- tenure that serves (psql commits each statement by itself, as an index made CONCURRENTLY asks for):
--
--   psql -v ON_ERROR_STOP=1 -f next-step.sql -c "INSERT INTO tenure.schema_version
--     (version, applied_at, serves_since) VALUES (9, now(), 8)" "$TENURE_MIGRATION_DATABASE_URL"
--
-- part: transaction
ALTER TABLE tenure.submission ADD COLUMN rehearsed_at timestamptz;
ALTER TABLE tenure.submission ADD COLUMN rehearsals integer NOT NULL DEFAULT 0;
-- part: transaction
CREATE TABLE tenure.rehearsal (
    rehearsal_id bigint NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rehearsed_at timestamptz NOT NULL
);
COMMENT ON TABLE tenure.rehearsal IS 'What nobody needs. [local]';
-- Functions that every recording calls are replaced, by others with the same signature.
DO $$
BEGIN
    EXECUTE pg_get_functiondef('tenure.charge_basis'::regproc);
    EXECUTE pg_get_functiondef('tenure.movement_effect'::regproc);
END
$$;
-- part: index
CREATE INDEX CONCURRENTLY IF NOT EXISTS submission_rehearsed
    ON tenure.submission (received_at) WHERE rehearsed_at IS NOT NULL;
-- part: transaction
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_program') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON tenure.rehearsal TO tenure_program;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_reader') THEN
        GRANT SELECT ON tenure.rehearsal TO tenure_reader;
    END IF;
END
$$;
