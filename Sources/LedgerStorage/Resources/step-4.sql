-- From version 3 of the schema to version 4, in one transaction with the row that says so.
--
-- schema.sql describes version 4 as a whole; a test compares what both come to. The programs' roles
-- may be missing: see the privileges in schema.sql.

SET LOCAL search_path TO tenure;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_program') THEN
        -- It is a view of grants, which are written in their table.
        REVOKE INSERT, UPDATE, DELETE ON grant_movement FROM tenure_program;
    END IF;
END
$$;
