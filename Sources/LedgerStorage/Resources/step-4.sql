-- From version 3 of the schema to version 4, in one transaction with the row that says so.
--
-- schema.sql describes version 4 as a whole; a test compares what both come to. The programs' roles
-- may be missing: see the privileges in schema.sql.

SET LOCAL search_path TO tenure;

-- Accounts that administrators merge into others.
ALTER TABLE account ADD COLUMN merged_into_key uuid;
ALTER TABLE account_by_key
    ADD COLUMN merged_into_key uuid,
    ADD COLUMN merged_at timestamptz,
    ADD CONSTRAINT account_by_key_merged
        CHECK (merged_at IS NULL OR merged_into_key IS NOT NULL);
CREATE INDEX account_by_key_merged_into
    ON account_by_key (merged_into_key) WHERE merged_into_key IS NOT NULL;
ALTER TABLE purchase_order ADD COLUMN opened_by_key uuid;
ALTER TABLE job
    DROP CONSTRAINT job_kind_check,
    ADD CONSTRAINT job_kind_check CHECK (kind IN (
        'verify_submission', 'process_notification', 'poll_line', 'compare_notifications',
        'tell_account', 'expire_order', 'deliver_events', 'survey', 'trim_events',
        'fold_movements', 'merge_account'));

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_program') THEN
        -- It is a view of grants, which are written in their table.
        REVOKE INSERT, UPDATE, DELETE ON grant_movement FROM tenure_program;
    END IF;
END
$$;
