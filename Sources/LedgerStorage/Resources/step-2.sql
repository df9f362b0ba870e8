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
    ADD COLUMN notification_type text CHECK (length(notification_type) BETWEEN 1 AND 255),
    ADD COLUMN subtype text CHECK (length(subtype) BETWEEN 1 AND 255),
    ADD COLUMN environment text CHECK (environment IN ('production', 'sandbox')),
    ADD COLUMN bundle_id text CHECK (length(bundle_id) BETWEEN 1 AND 255),
    ADD COLUMN original_transaction_id text
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    ADD COLUMN transaction_id text CHECK (length(transaction_id) BETWEEN 1 AND 128),
    ADD COLUMN signed_at timestamptz,
    ADD COLUMN attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    ADD COLUMN arrival text NOT NULL DEFAULT 'delivered'
        CHECK (arrival IN ('delivered', 'history')),
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

CREATE TABLE history_revision (
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    history                 text        NOT NULL CHECK (history IN ('transactions', 'refunds')),
    revision                text        NOT NULL CHECK (length(revision) BETWEEN 1 AND 1024),
    polled_at               timestamptz NOT NULL,
    PRIMARY KEY (environment, original_transaction_id, history)
);
COMMENT ON TABLE history_revision IS
    'How far Apple''s histories were read. [by original_transaction_id]';

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

-- Provisional grants are tied to the submission that waits for Apple. No program of version 1 made
-- any; one of anybody else's could be tied to nothing.
DELETE FROM account_grant WHERE source = 'provisional';
ALTER TABLE account_grant
    ADD COLUMN submission_id uuid,
    ADD COLUMN environment text CHECK (environment IN ('production', 'sandbox')),
    ADD COLUMN original_transaction_id text
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    ADD CONSTRAINT account_grant_provisional_has_submission CHECK (
        (source = 'provisional') = (submission_id IS NOT NULL)
        AND (submission_id IS NULL) = (environment IS NULL)
        AND (submission_id IS NULL) = (original_transaction_id IS NULL));
CREATE UNIQUE INDEX account_grant_of_submission
    ON account_grant (account_id, submission_id, entitlement);
CREATE INDEX account_grant_of_line
    ON account_grant (original_transaction_id) WHERE source = 'provisional';

-- The view says where a provisional grant comes from, and keeps sandbox access for those who have it.
CREATE OR REPLACE VIEW current_entitlement AS
WITH version AS (
    -- The versions of each product, each with the time that it describes; the first one also
    -- describes all time before it.
    SELECT product_id, valid_from, type, period,
        CASE WHEN lag(valid_from) OVER versions IS NULL THEN '-infinity' ELSE valid_from END AS since,
        coalesce(lead(valid_from) OVER versions, 'infinity') AS until
    FROM product
    WINDOW versions AS (PARTITION BY product_id ORDER BY valid_from)
),
part AS NOT MATERIALIZED (
    -- Holdings of described products that entitle to something, with their end ('infinity': never).
    SELECT held.*,
        coalesce(is_revoked, false) AS revoked,
        least(ends, revoked_at) AS access_ends,
        CASE
            WHEN now() < ends THEN 'active'
            WHEN phase = 'grace_period' AND now() < grace_ends_at THEN 'in_grace_period'
            WHEN phase = 'billing_retry' THEN 'in_billing_retry'
            ELSE 'expired'
        END AS own_state
    FROM (
        SELECT h.account_id, h.environment,
            coalesce(h.family_id, h.original_transaction_id) AS family,
            h.original_transaction_id, h.transaction_id, h.product_id, h.period_type, h.starts_at,
            h.revoked_at, h.auto_renews, h.phase, h.grace_ends_at, latest.valid_from,
            h.revoked_at <= now() AS is_revoked,
            coalesce(least(h.superseded_at, coalesce(h.ends_at,
                CASE coalesce(h.product_type, latest.type)
                    WHEN 'non_consumable' THEN NULL
                    WHEN 'non_renewing' THEN coalesce(
                        (h.starts_at AT TIME ZONE 'UTC' + bought.period::interval)
                            AT TIME ZONE 'UTC', h.starts_at)
                    ELSE h.starts_at
                END)), 'infinity') AS ends
        FROM holding AS h
        JOIN version AS latest ON latest.product_id = h.product_id AND latest.until = 'infinity'
        JOIN version AS bought ON bought.product_id = h.product_id
            AND bought.since <= h.starts_at AND h.starts_at < bought.until
        CROSS JOIN sandbox_access AS sandbox
        WHERE coalesce(h.product_type, latest.type) <> 'consumable'
            AND (h.environment = 'production' OR sandbox.everybody
                OR h.account_id = ANY (sandbox.account_ids))
    ) AS held
),
deciding AS (
    -- Of each account's holdings on a line the one that is shown: the unrevoked one that lasts
    -- longest, if it is not over; else a revoked one that would cover now; else whichever was last.
    SELECT DISTINCT ON (account_id, environment, family) *,
        CASE class WHEN 0 THEN own_state WHEN 1 THEN 'revoked' ELSE 'expired' END AS state
    FROM (
        SELECT *,
            CASE
                WHEN NOT revoked AND rank = 1 AND own_state <> 'expired' THEN 0
                WHEN revoked AND now() < ends THEN 1
                WHEN NOT revoked THEN 2
                ELSE 3
            END AS class
        FROM (
            SELECT *,
                row_number() OVER (
                    PARTITION BY account_id, environment, family, revoked
                    ORDER BY ends DESC, starts_at DESC,
                        octet_length(transaction_id) DESC, transaction_id COLLATE "C" DESC,
                        octet_length(original_transaction_id) DESC,
                        original_transaction_id COLLATE "C" DESC,
                        octet_length(product_id) DESC, product_id COLLATE "C" DESC) AS rank
            FROM part
            WHERE starts_at <= now()
        ) AS ranked
    ) AS classed
    ORDER BY account_id, environment, family, class, rank
),
chain AS (
    -- Each entitlement of it, with whatever else on the line grants the same and may prolong it:
    -- what begins no later than everything before it ends.
    SELECT d.*, granted.entitlement, f.ends AS last_ends, f.phase AS last_phase,
        f.grace_ends_at AS last_grace_ends_at, f.is_first,
        f.starts_at AS last_starts_at, f.position,
        coalesce(f.starts_at <= max(CASE WHEN f.is_first THEN f.access_ends ELSE f.ends END)
            OVER (links ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true) AS joins
    FROM deciding AS d
    JOIN product_entitlement AS granted
        ON granted.product_id = d.product_id AND granted.valid_from = d.valid_from
    CROSS JOIN LATERAL (
        SELECT p.*, is_same AS is_first,
            row_number() OVER (ORDER BY is_same DESC, p.starts_at,
                octet_length(p.transaction_id), p.transaction_id COLLATE "C",
                octet_length(p.original_transaction_id), p.original_transaction_id COLLATE "C",
                octet_length(p.product_id), p.product_id COLLATE "C") AS position
        FROM part AS p
        CROSS JOIN LATERAL (
            SELECT (p.original_transaction_id, p.transaction_id, p.product_id)
                = (d.original_transaction_id, d.transaction_id, d.product_id) AS is_same
        ) AS same
        WHERE p.account_id = d.account_id AND p.environment = d.environment
            AND p.family = d.family
            AND (is_same OR d.class = 0 AND p.revoked_at IS NULL AND EXISTS (
                SELECT FROM product_entitlement AS other
                WHERE other.product_id = p.product_id AND other.valid_from = p.valid_from
                    AND other.entitlement = granted.entitlement))
    ) AS f
    WINDOW links AS (
        PARTITION BY d.account_id, d.environment, d.family, granted.entitlement
        ORDER BY f.position)
),
bought AS (
    -- The last of the unbroken ones tells the end.
    SELECT DISTINCT ON (account_id, environment, family, entitlement) *,
        CASE WHEN is_first THEN access_ends ELSE last_ends END AS last_access_ends
    FROM (
        SELECT *,
            bool_and(joins) OVER (
                PARTITION BY account_id, environment, family, entitlement
                ORDER BY position ROWS UNBOUNDED PRECEDING) AS is_unbroken
        FROM chain
    ) AS spans
    WHERE is_unbroken
    ORDER BY account_id, environment, family, entitlement,
        CASE WHEN is_first THEN access_ends ELSE last_ends END DESC, position
),
offered AS (
    SELECT b.account_id, b.entitlement, b.state IN ('active', 'in_grace_period') AS active, b.state,
        b.product_id, b.last_ends AS expires_at,
        least(
            CASE b.last_phase
                WHEN 'grace_period' THEN greatest(b.last_ends, b.last_grace_ends_at)
                ELSE b.last_ends
            END,
            CASE WHEN b.is_first THEN b.revoked_at END) AS access_ends_at,
        b.state NOT IN ('revoked', 'expired') AND EXISTS (
            SELECT FROM part AS p
            JOIN product_entitlement AS other ON other.product_id = p.product_id
                AND other.valid_from = p.valid_from AND other.entitlement = b.entitlement
            WHERE p.account_id = b.account_id AND p.environment = b.environment
                AND p.family = b.family AND p.auto_renews AND p.phase <> 'expired'
                AND p.revoked_at IS NULL AND p.starts_at <= b.last_access_ends
                AND p.own_state <> 'expired') AS will_renew,
        b.period_type, b.environment, b.original_transaction_id, b.transaction_id,
        'app_store'::text AS source
    FROM bought AS b
    UNION ALL
    SELECT account_id, entitlement, now() < coalesce(ends_at, 'infinity'),
        CASE WHEN now() < coalesce(ends_at, 'infinity') THEN 'active' ELSE 'expired' END,
        NULL, coalesce(ends_at, 'infinity'), coalesce(ends_at, 'infinity'), false, 'normal',
        given.environment, given.original_transaction_id, NULL, source
    FROM account_grant AS given
    CROSS JOIN sandbox_access AS sandbox
    WHERE starts_at <= now()
        AND (given.environment IS DISTINCT FROM 'sandbox' OR sandbox.everybody
            OR given.account_id = ANY (sandbox.account_ids))
)
SELECT DISTINCT ON (account_id, entitlement) account_id, entitlement, active, state, product_id,
    nullif(expires_at, 'infinity') AS expires_at,
    nullif(access_ends_at, 'infinity') AS access_ends_at,
    will_renew, period_type, environment, original_transaction_id, transaction_id, source
FROM offered
ORDER BY account_id, entitlement, active DESC,
    CASE WHEN active THEN 0 WHEN state = 'in_billing_retry' THEN 1 WHEN state = 'revoked' THEN 2
        ELSE 3 END,
    offered.access_ends_at DESC,
    octet_length(coalesce(transaction_id, '')) DESC,
    coalesce(transaction_id, '') COLLATE "C" DESC,
    octet_length(coalesce(original_transaction_id, '')) DESC,
    coalesce(original_transaction_id, '') COLLATE "C" DESC,
    octet_length(coalesce(product_id, '')) DESC, coalesce(product_id, '') COLLATE "C" DESC,
    coalesce(environment, '') COLLATE "C", source COLLATE "C";
COMMENT ON VIEW current_entitlement IS 'What accounts may use now.';

-- Orders expire.
ALTER TABLE purchase_order
    DROP CONSTRAINT purchase_order_status_check,
    ADD CONSTRAINT purchase_order_status_check
        CHECK (status IN ('open', 'expired', 'fulfilled', 'refunded')),
    DROP CONSTRAINT purchase_order_fulfilled_by_a_charge,
    ADD CONSTRAINT purchase_order_fulfilled_by_a_charge CHECK (
        (status IN ('open', 'expired')) = (fulfilled_at IS NULL)
        AND (fulfilled_at IS NULL) = (environment IS NULL)
        AND (fulfilled_at IS NULL) = (original_transaction_id IS NULL)
        AND (fulfilled_at IS NULL) = (transaction_id IS NULL));

-- The worker: what it needs to know, and what it does.
CREATE TABLE notification_comparison (
    comparison_id   bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    bundle_id       text        NOT NULL CHECK (length(bundle_id) BETWEEN 1 AND 255),
    environment     text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    window_start    timestamptz NOT NULL,
    window_end      timestamptz NOT NULL,
    compared_at     timestamptz NOT NULL,
    listed          bigint      NOT NULL CHECK (listed >= 0),
    missing         bigint      NOT NULL CHECK (missing BETWEEN 0 AND listed),
    refused         bigint      NOT NULL DEFAULT 0 CHECK (refused >= 0),
    first_missing_at timestamptz,
    longest_delay_ms bigint     CHECK (longest_delay_ms >= 0),
    CONSTRAINT notification_comparison_window CHECK (window_start < window_end),
    CONSTRAINT notification_comparison_missing CHECK (
        (missing = 0) = (first_missing_at IS NULL)
        AND (missing = 0) = (longest_delay_ms IS NULL))
);
COMMENT ON TABLE notification_comparison IS
    'What Apple''s notification history had that had not arrived. [local]';

CREATE TABLE program_heartbeat (
    program  text        NOT NULL PRIMARY KEY CHECK (program IN ('serve', 'work')),
    alive_at timestamptz NOT NULL
);
COMMENT ON TABLE program_heartbeat IS 'When programs were last alive. [local]';

CREATE TABLE line_source (
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    bundle_id               text        CHECK (length(bundle_id) BETWEEN 1 AND 255),
    receipt_submission_id   uuid,
    receipt_notification_id text        CHECK (length(receipt_notification_id) BETWEEN 1 AND 128),
    polled_at               timestamptz,
    PRIMARY KEY (environment, original_transaction_id)
);
COMMENT ON TABLE line_source IS
    'What Apple can be asked about a line with. [by original_transaction_id]';

CREATE TABLE apple_budget (
    name         text             NOT NULL PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 400),
    tokens       double precision NOT NULL,
    refreshed_at timestamptz      NOT NULL
);
COMMENT ON TABLE apple_budget IS 'What may still be asked of Apple, for all programs. [local]';

CREATE TABLE told_entitlement (
    account_id              text        NOT NULL CHECK (length(account_id) BETWEEN 1 AND 255),
    entitlement             text        NOT NULL CHECK (length(entitlement) BETWEEN 1 AND 255),
    access_ends_at          timestamptz,
    PRIMARY KEY (account_id, entitlement)
);
COMMENT ON TABLE told_entitlement IS
    'What the feed has told of the entitlements of accounts. [by account_id]';

DROP INDEX job_due;
ALTER TABLE job
    DROP CONSTRAINT job_kind_check,
    ADD CONSTRAINT job_kind_check CHECK (kind IN (
        'verify_submission', 'process_notification', 'poll_line', 'compare_notifications',
        'tell_account', 'expire_order', 'deliver_events', 'survey', 'trim_events')),
    DROP CONSTRAINT job_subject_check,
    ADD CONSTRAINT job_subject_check CHECK (length(subject) BETWEEN 1 AND 512),
    -- Version 1 knows jobs of one kind.
    ADD COLUMN lane text NOT NULL DEFAULT 'submissions' CHECK (lane IN (
        'submissions', 'notifications', 'clock', 'polls', 'sandbox_polls', 'webhooks',
        'upkeep')),
    ADD COLUMN priority smallint NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 2),
    ADD COLUMN generation integer NOT NULL DEFAULT 0,
    ADD COLUMN place text CHECK (length(place) BETWEEN 1 AND 512);
ALTER TABLE job ALTER COLUMN lane DROP DEFAULT;
CREATE INDEX job_due ON job (lane, priority, run_at) WHERE parked_at IS NULL;
CREATE INDEX job_parked ON job (parked_at) WHERE parked_at IS NOT NULL;
-- What accounts have was never told, and no line was ever polled: a worker makes up for both.
INSERT INTO job (kind, subject, lane, run_at, created_at)
VALUES ('survey', 'all', 'upkeep', now(), now());

-- No program of version 1 wrote here.
DROP TABLE webhook_delivery, event;
CREATE TABLE event (
    event_id       bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    position       bigint      UNIQUE CHECK (position > 0),
    type           text        NOT NULL CHECK (length(type) BETWEEN 1 AND 64),
    occurred_at    timestamptz NOT NULL,
    account_key    uuid,
    data           text        NOT NULL CHECK (length(data) BETWEEN 2 AND 100000),
    stored_at      timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE event IS 'The feed of changes. [local]';
CREATE INDEX event_unplaced ON event (event_id) WHERE position IS NULL;

CREATE TABLE feed (
    is_only_row boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (is_only_row),
    position    bigint  NOT NULL DEFAULT 0 CHECK (position >= 0),
    trimmed_to  bigint  NOT NULL DEFAULT 0 CHECK (trimmed_to BETWEEN 0 AND position),
    pushed_to   bigint  CHECK (pushed_to BETWEEN 0 AND position)
);
COMMENT ON TABLE feed IS 'How far the feed of changes goes. [local]';
INSERT INTO feed DEFAULT VALUES;

CREATE TABLE webhook_delivery (
    event_id     bigint      NOT NULL PRIMARY KEY REFERENCES event,
    stream       text        NOT NULL CHECK (length(stream) BETWEEN 1 AND 255),
    position     bigint      NOT NULL CHECK (position > 0),
    attempts     integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    due_since    timestamptz NOT NULL,
    parked_at    timestamptz,
    last_error   text        CHECK (length(last_error) BETWEEN 1 AND 1000),
    CONSTRAINT webhook_delivery_parked_has_reason
        CHECK (parked_at IS NULL OR last_error IS NOT NULL)
);
COMMENT ON TABLE webhook_delivery IS 'Where the pushing of events stands. [local]';
CREATE INDEX webhook_delivery_next
    ON webhook_delivery (stream, position) WHERE parked_at IS NULL;

-- Reports, and what they look things up by.
CREATE INDEX submission_rejected
    ON submission (((decided_at AT TIME ZONE 'UTC')::date)) WHERE status = 'rejected';
CREATE INDEX submission_exchange_failed
    ON submission_exchange (((asked_at AT TIME ZONE 'UTC')::date))
    WHERE fault IS NOT NULL OR http_status <> 200;
CREATE INDEX notification_from_history
    ON notification (((received_at AT TIME ZONE 'UTC')::date)) WHERE arrival = 'history';
CREATE INDEX notification_rejected
    ON notification (((processed_at AT TIME ZONE 'UTC')::date)) WHERE outcome = 'rejected';
CREATE VIEW report_intake_item AS
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
WHERE parked_at IS NOT NULL OR run_at <= now() AND locked_until IS NULL;
COMMENT ON VIEW report_intake_item IS
    'Report: each thing that report_intake counts. Columns as there; subject names the thing.';

CREATE VIEW report_intake AS
SELECT measure, environment, bundle_id, cause, day, sum(number)::bigint AS number,
    sum(attempts)::bigint AS attempts, min(at) AS first_at, max(at) AS last_at,
    max(delay_ms) AS longest_delay_ms,
    (array_agg(detail ORDER BY at DESC, subject))[1] AS last_detail
FROM report_intake_item
GROUP BY measure, environment, bundle_id, cause, day;
COMMENT ON VIEW report_intake IS
    'Report: backlog, retries, rejections, missed notifications, and what was given up.';

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_program') THEN
        GRANT SELECT, INSERT ON notification_exchange TO tenure_program;
        GRANT SELECT, INSERT, UPDATE, DELETE
            ON notification_refusal, history_revision, notification_comparison, program_heartbeat,
                line_source, apple_budget, told_entitlement, event, feed, webhook_delivery,
                report_intake_item, report_intake
            TO tenure_program;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA tenure TO tenure_program;
        GRANT UPDATE (processed_at, problem, attempts, outcome) ON notification TO tenure_program;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_reader') THEN
        GRANT SELECT
            ON notification_refusal, history_revision, notification_comparison, program_heartbeat,
                line_source, apple_budget, told_entitlement, event, feed, webhook_delivery,
                report_intake_item, report_intake
            TO tenure_reader;
    END IF;
END
$$;
