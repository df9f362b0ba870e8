-- From version 4 of the schema to version 5, in one transaction with the row that says so.
--
-- schema.sql describes version 5 as a whole; a test compares what both come to. The programs' roles
-- may be missing: see the privileges in schema.sql.

SET LOCAL search_path TO tenure;

-- Telling Apple: who lets it be told of consumption, what it was told, and the jobs that do.

CREATE TABLE consumption_consent (
    account_key  uuid        NOT NULL PRIMARY KEY,
    is_given     boolean     NOT NULL,
    decided_at   timestamptz NOT NULL
);
COMMENT ON TABLE consumption_consent IS
    'Who lets Apple be told of consumption. [by account_key]';

CREATE TABLE apple_telling (
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    telling_id              bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    kind                    text        NOT NULL CHECK (kind IN ('ownership', 'consumption')),
    told_at                 timestamptz NOT NULL,
    bundle_id               text        CHECK (length(bundle_id) BETWEEN 1 AND 255),
    transaction_id          text        CHECK (length(transaction_id) BETWEEN 1 AND 128),
    notification_id         text        CHECK (length(notification_id) BETWEEN 1 AND 128),
    account_key             uuid,
    outcome                 text        NOT NULL
        CHECK (outcome IN ('accepted', 'refused', 'skipped')),
    reason                  text        CHECK (length(reason) BETWEEN 1 AND 64),
    http_status             integer,
    error_code              bigint,
    delivery_status         text        CHECK (length(delivery_status) BETWEEN 1 AND 64),
    PRIMARY KEY (environment, original_transaction_id, telling_id),
    CONSTRAINT apple_telling_of_a_kind CHECK (
        (kind = 'consumption') = (notification_id IS NOT NULL)
        AND (kind = 'consumption') = (transaction_id IS NOT NULL)),
    CONSTRAINT apple_telling_skipped_has_reason
        CHECK ((outcome = 'skipped') = (reason IS NOT NULL)),
    CONSTRAINT apple_telling_sent_is_of_an_account
        CHECK (outcome = 'skipped' OR account_key IS NOT NULL),
    CONSTRAINT apple_telling_refused_by_apple
        CHECK (outcome = 'refused' OR http_status IS NULL AND error_code IS NULL)
);
COMMENT ON TABLE apple_telling IS
    'What Apple was told, and what was not sent. Only ever appended. [by original_transaction_id]';
CREATE INDEX apple_telling_by_account
    ON apple_telling (account_key, telling_id) WHERE account_key IS NOT NULL;
CREATE INDEX apple_telling_by_day
    ON apple_telling (((told_at AT TIME ZONE 'UTC')::date));

ALTER TABLE job
    DROP CONSTRAINT job_kind_check,
    ADD CONSTRAINT job_kind_check CHECK (kind IN (
        'verify_submission', 'process_notification', 'poll_line', 'compare_notifications',
        'tell_account', 'expire_order', 'deliver_events', 'survey', 'trim_events',
        'fold_movements', 'merge_account', 'write_ownership', 'answer_consumption')),
    DROP CONSTRAINT job_lane_check,
    ADD CONSTRAINT job_lane_check CHECK (lane IN (
        'submissions', 'notifications', 'clock', 'polls', 'sandbox_polls', 'webhooks',
        'upkeep', 'tellings', 'sandbox_tellings'));

CREATE OR REPLACE VIEW report_intake_item AS
SELECT 'submissions_open' AS measure, s.environment, s.bundle_id, s.problem AS cause,
    NULL::date AS day, s.submission_id::text AS subject, s.received_at AS at, 1::bigint AS number,
    s.attempts::bigint AS attempts, NULL::bigint AS delay_ms, s.problem_detail AS detail
FROM job AS j
JOIN submission AS s
    ON s.submission_id = CASE WHEN j.kind = 'verify_submission' THEN j.subject::uuid END
WHERE j.kind = 'verify_submission' AND s.status = 'pending'
UNION ALL
SELECT 'submissions_rejected', environment, bundle_id, concat_ws(' ', problem, apple_status),
    (decided_at AT TIME ZONE 'UTC')::date, submission_id::text, decided_at, 1, attempts, NULL,
    problem_detail
FROM submission
WHERE status = 'rejected'
UNION ALL
SELECT 'apple_failures', NULL, NULL, coalesce(fault, 'HTTP ' || http_status),
    (asked_at AT TIME ZONE 'UTC')::date, submission_id::text, asked_at, 1, 1, NULL, endpoint
FROM submission_exchange
WHERE fault IS NOT NULL OR http_status <> 200
UNION ALL
SELECT 'apple_failures', NULL, NULL, coalesce(fault, 'HTTP ' || http_status),
    (asked_at AT TIME ZONE 'UTC')::date, notification_id, asked_at, 1, 1, NULL, endpoint
FROM notification_exchange
WHERE fault IS NOT NULL OR http_status <> 200
UNION ALL
SELECT 'notifications_open', n.environment, n.bundle_id, n.problem, NULL, n.notification_id,
    n.received_at, 1, n.attempts, NULL, n.notification_type
FROM job AS j
JOIN notification AS n ON n.notification_id = j.subject
WHERE j.kind = 'process_notification' AND n.processed_at IS NULL
UNION ALL
SELECT 'notifications_rejected', environment, bundle_id, problem,
    (processed_at AT TIME ZONE 'UTC')::date, notification_id, processed_at, 1, attempts, NULL,
    notification_type
FROM notification
WHERE outcome = 'rejected'
UNION ALL
SELECT 'notifications_refused', NULL, NULL, reason, (hour AT TIME ZONE 'UTC')::date,
    'version ' || version, last_at, refusals, NULL, NULL, last_detail
FROM notification_refusal
UNION ALL
SELECT 'notifications_listed', environment, bundle_id, NULL,
    (compared_at AT TIME ZONE 'UTC')::date, comparison_id::text, compared_at, listed, NULL, NULL,
    NULL
FROM notification_comparison
UNION ALL
SELECT 'notifications_missed', environment, bundle_id, notification_type,
    (received_at AT TIME ZONE 'UTC')::date, notification_id, received_at, 1, NULL,
    (extract(epoch FROM received_at - signed_at) * 1000)::bigint, subtype
FROM notification
WHERE arrival = 'history'
UNION ALL
SELECT 'notifications_unbelievable', environment, bundle_id, NULL,
    (compared_at AT TIME ZONE 'UTC')::date, comparison_id::text, compared_at, refused, NULL, NULL,
    NULL
FROM notification_comparison
WHERE refused > 0
UNION ALL
SELECT CASE WHEN parked_at IS NULL THEN 'deliveries_waiting' ELSE 'deliveries_parked' END, NULL,
    NULL, last_error, NULL, event_id::text, coalesce(parked_at, due_since), 1, attempts, NULL,
    stream
FROM webhook_delivery
UNION ALL
SELECT CASE WHEN parked_at IS NULL THEN 'jobs_overdue' ELSE 'jobs_parked' END, NULL, NULL, kind,
    NULL, subject, coalesce(parked_at, run_at), 1, attempts, NULL, last_error
FROM job
WHERE parked_at IS NOT NULL OR run_at <= now() AND locked_until IS NULL
UNION ALL
SELECT 'tellings_open', split_part(subject, '/', 1), NULL, kind, NULL, subject, created_at, 1,
    attempts, NULL, last_error
FROM job
WHERE kind IN ('write_ownership', 'answer_consumption')
UNION ALL
SELECT 'tellings_' || outcome, environment, bundle_id,
    concat_ws(' ', kind, coalesce(reason, delivery_status), coalesce(error_code, http_status)),
    (told_at AT TIME ZONE 'UTC')::date, original_transaction_id, told_at, 1, NULL, NULL,
    transaction_id
FROM apple_telling;

COMMENT ON VIEW report_intake IS
    'How intake does: one row for each measure, environment, app, cause and day (UTC). Open now, and '
    'without a day: submissions_open and notifications_open (not decided or processed yet, with the '
    'cause of their retries), deliveries_waiting and deliveries_parked (events for the webhook), '
    'jobs_overdue (due by the database''s clock, and not taken up), jobs_parked (given up) and '
    'tellings_open (what Apple is still to be told, by the kind of job). By the '
    'day of the verdict: submissions_rejected and notifications_rejected (Apple does not vouch for '
    'them, by its code). By the day: apple_failures (requests about receipts to which no answer of use '
    'came), notifications_refused (what was posted and is no notification of Apple''s), '
    'notifications_listed (in Apple''s history, each reading of it counted; readings overlap), '
    'notifications_missed (of those what had not arrived, late by the time since Apple signed it), '
    'notifications_unbelievable (of those what has wrong signatures), and of what Apple was told of '
    'ownership and consumption tellings_accepted, tellings_refused (with Apple''s code) and '
    'tellings_skipped (not sent, and why). Environment and app are null where they are not known (yet).';

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_program') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON consumption_consent TO tenure_program;
        GRANT SELECT, INSERT ON apple_telling TO tenure_program;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA tenure TO tenure_program;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_reader') THEN
        GRANT SELECT ON consumption_consent, apple_telling TO tenure_reader;
    END IF;
    EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON apple_telling FROM %I', current_user);
END
$$;
