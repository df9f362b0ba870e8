-- From version 5 of the schema to version 6, serving programs since 5: an index, made beside those who
-- write.
--
-- schema.sql describes version 6 as a whole; a test compares what both come to.
--
-- part: index
CREATE INDEX CONCURRENTLY IF NOT EXISTS store_transaction_unclaimed_by_date
    ON tenure.store_transaction (environment, coalesce(expires_at <= recorded_at, false), charged_at)
    WHERE rule IS NOT NULL AND owner_account_key IS NULL;
