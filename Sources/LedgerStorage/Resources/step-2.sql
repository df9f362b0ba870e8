-- From version 1 of the schema to version 2, in one transaction with the row that says so.
--
-- schema.sql describes version 2 as a whole; a test compares what both come to. The programs' roles
-- may be missing: see the privileges in schema.sql.

SET LOCAL search_path TO tenure;

-- Signed transactions can be submitted, too: what was submitted is one of two kinds.
ALTER TABLE submission_payload
    ALTER COLUMN receipt_data DROP NOT NULL,
    ADD COLUMN signed_transactions text[] CHECK (
        cardinality(signed_transactions) BETWEEN 1 AND 1000
        AND array_position(signed_transactions, NULL) IS NULL
        AND length(array_to_string(signed_transactions, '')) BETWEEN 1 AND 16777216),
    ADD COLUMN signed_renewal_info text[] CHECK (
        cardinality(signed_renewal_info) BETWEEN 0 AND 1000
        AND array_position(signed_renewal_info, NULL) IS NULL
        AND length(array_to_string(signed_renewal_info, '')) <= 16777216),
    ADD CONSTRAINT submission_payload_is_of_one_kind CHECK (
        (receipt_data IS NULL) <> (signed_transactions IS NULL)
        AND (signed_transactions IS NULL) = (signed_renewal_info IS NULL));
COMMENT ON TABLE submission_payload IS
    'What was submitted, apart from the submission so that it can be aged out. [by submission_id]';

-- The inbox of notifications: what reports and pages ask about it, and what became of it.
ALTER TABLE notification
    ADD COLUMN notification_type text CHECK (length(notification_type) BETWEEN 1 AND 128),
    ADD COLUMN subtype text CHECK (length(subtype) BETWEEN 1 AND 128),
    ADD COLUMN environment text CHECK (environment IN ('production', 'sandbox')),
    ADD COLUMN bundle_id text CHECK (length(bundle_id) BETWEEN 1 AND 255),
    ADD COLUMN original_transaction_id text
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    ADD COLUMN transaction_id text CHECK (length(transaction_id) BETWEEN 1 AND 128),
    ADD COLUMN signed_at timestamptz,
    ADD COLUMN attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    ADD COLUMN outcome text CHECK (outcome IN
        ('recorded', 'known', 'nothing_to_record', 'rejected'));
-- No program of version 1 wrote here; a row of anybody else's counts as it stands.
UPDATE notification SET outcome = 'nothing_to_record' WHERE processed_at IS NOT NULL;
ALTER TABLE notification
    ADD CONSTRAINT notification_processed_has_outcome
        CHECK ((processed_at IS NULL) = (outcome IS NULL)),
    ADD CONSTRAINT notification_rejected_has_problem
        CHECK (outcome <> 'rejected' OR problem IS NOT NULL);
CREATE INDEX notification_by_time ON notification (received_at);

CREATE TABLE notification_exchange (
    notification_id text        NOT NULL REFERENCES notification,
    number          integer     NOT NULL CHECK (number > 0),
    endpoint        text        NOT NULL CHECK (length(endpoint) BETWEEN 1 AND 255),
    asked_at        timestamptz NOT NULL,
    duration_ms     bigint      NOT NULL CHECK (duration_ms >= 0),
    http_status     integer,
    answer          bytea,
    fault           text        CHECK (length(fault) BETWEEN 1 AND 1000),
    PRIMARY KEY (notification_id, number)
);
COMMENT ON TABLE notification_exchange IS
    'The exchanges with Apple about a notification, in order. [by notification_id]';

CREATE TABLE notification_refusal (
    hour             timestamptz NOT NULL,
    version          smallint    NOT NULL CHECK (version IN (0, 1, 2)),
    reason           text        NOT NULL CHECK (length(reason) BETWEEN 1 AND 64),
    refusals         bigint      NOT NULL CHECK (refusals > 0),
    last_at          timestamptz NOT NULL,
    last_detail      text        NOT NULL CHECK (length(last_detail) BETWEEN 1 AND 1000),
    last_body_bytes  bigint      NOT NULL CHECK (last_body_bytes >= 0),
    last_body_sha256 bytea       CHECK (length(last_body_sha256) = 32),
    PRIMARY KEY (hour, version, reason)
);
COMMENT ON TABLE notification_refusal IS
    'Refused notifications, counted by hour and reason; never their content. [local]';

ALTER TABLE job
    DROP CONSTRAINT job_kind_check,
    ADD CONSTRAINT job_kind_check CHECK (kind IN ('verify_submission', 'process_notification'));

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_program') THEN
        GRANT SELECT, INSERT ON notification_exchange TO tenure_program;
        GRANT SELECT, INSERT, UPDATE, DELETE ON notification_refusal TO tenure_program;
        GRANT UPDATE (processed_at, problem, attempts, outcome) ON notification TO tenure_program;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_reader') THEN
        GRANT SELECT ON notification_refusal TO tenure_reader;
    END IF;
END
$$;
