-- From version 3 of the schema to version 4, in one transaction with the row that says so.
--
-- schema.sql describes version 4 as a whole; a test compares what both come to. The programs' roles
-- may be missing: see the privileges in schema.sql.

SET LOCAL search_path TO tenure;

-- Imports: lines that are placed as a whole, and what Apple can be asked about them with.
ALTER TABLE placement
    ALTER COLUMN transaction_id DROP NOT NULL,
    ALTER COLUMN product_id DROP NOT NULL,
    ADD CONSTRAINT placement_of_a_charge_or_a_line CHECK (
        (transaction_id IS NULL) = (product_id IS NULL)
        AND (transaction_id IS NOT NULL OR account_key IS NOT NULL));
CREATE TABLE imported_source (
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    account_key             uuid        NOT NULL,
    transaction_id          text        CHECK (length(transaction_id) BETWEEN 1 AND 128),
    receipt_data            text        CHECK (length(receipt_data) BETWEEN 1 AND 16777216),
    PRIMARY KEY (environment, original_transaction_id),
    CONSTRAINT imported_source_is_something
        CHECK (transaction_id IS NOT NULL OR receipt_data IS NOT NULL)
);
COMMENT ON TABLE imported_source IS
    'What imports named for asking Apple about lines. [by original_transaction_id]';
CREATE INDEX imported_source_by_account ON imported_source (account_key);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_program') THEN
        -- It is a view of grants, which are written in their table.
        REVOKE INSERT, UPDATE, DELETE ON grant_movement FROM tenure_program;
        GRANT SELECT, INSERT, UPDATE, DELETE ON imported_source TO tenure_program;
    END IF;
END
$$;
