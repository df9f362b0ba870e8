-- From version 4 of the schema to version 5, in one transaction with the row that says so.
--
-- schema.sql describes version 5 as a whole; a test compares what both come to. The programs' roles
-- may be missing: see the privileges in schema.sql.

SET LOCAL search_path TO tenure;

-- Which programs a version serves, and how far a step of several parts has come.
ALTER TABLE schema_version ADD COLUMN serves_since integer
    CONSTRAINT schema_version_serves_since CHECK (serves_since BETWEEN 1 AND version);

CREATE TABLE schema_part (
    version    integer     NOT NULL CHECK (version > 0),
    part       integer     NOT NULL CHECK (part > 0),
    applied_at timestamptz NOT NULL,
    PRIMARY KEY (version, part)
);
COMMENT ON TABLE schema_part IS 'Which parts of steps of the schema were applied, and when. [reference]';

-- What the cursor at the beginning of the feed is told from others by.
ALTER TABLE feed ADD COLUMN trimmed_stored_at timestamptz;

-- Raw bodies can be aged out: what they were stays.
ALTER TABLE submission_payload ADD COLUMN aged_out_at timestamptz;
ALTER TABLE submission_payload ADD COLUMN sha256 bytea CHECK (length(sha256) = 32);
ALTER TABLE submission_payload ADD COLUMN bytes bigint CHECK (bytes >= 0);
ALTER TABLE submission_payload DROP CONSTRAINT submission_payload_is_of_one_kind;
ALTER TABLE submission_payload ADD CONSTRAINT submission_payload_is_of_one_kind CHECK (
    ((receipt_data IS NULL) <> (signed_transactions IS NULL)) = (aged_out_at IS NULL)
    AND (signed_transactions IS NULL) = (signed_renewal_info IS NULL));
ALTER TABLE submission_payload ADD CONSTRAINT submission_payload_aged_out CHECK (
    (aged_out_at IS NULL) = (sha256 IS NULL) AND (aged_out_at IS NULL) = (bytes IS NULL));
ALTER TABLE submission_exchange ADD COLUMN aged_out_at timestamptz;
ALTER TABLE submission_exchange ADD COLUMN sha256 bytea CHECK (length(sha256) = 32);
ALTER TABLE submission_exchange ADD COLUMN bytes bigint CHECK (bytes >= 0);
ALTER TABLE submission_exchange ADD CONSTRAINT submission_exchange_aged_out CHECK (
    (aged_out_at IS NULL) = (sha256 IS NULL) AND (aged_out_at IS NULL) = (bytes IS NULL)
    AND (aged_out_at IS NULL OR answer IS NULL));
ALTER TABLE notification_exchange ADD COLUMN aged_out_at timestamptz;
ALTER TABLE notification_exchange ADD COLUMN sha256 bytea CHECK (length(sha256) = 32);
ALTER TABLE notification_exchange ADD COLUMN bytes bigint CHECK (bytes >= 0);
ALTER TABLE notification_exchange ADD CONSTRAINT notification_exchange_aged_out CHECK (
    (aged_out_at IS NULL) = (sha256 IS NULL) AND (aged_out_at IS NULL) = (bytes IS NULL)
    AND (aged_out_at IS NULL OR answer IS NULL));
ALTER TABLE notification ALTER COLUMN body DROP NOT NULL;
ALTER TABLE notification ADD COLUMN aged_out_at timestamptz;
ALTER TABLE notification ADD COLUMN sha256 bytea CHECK (length(sha256) = 32);
ALTER TABLE notification ADD COLUMN bytes bigint CHECK (bytes >= 0);
ALTER TABLE notification ADD CONSTRAINT notification_aged_out CHECK (
    (aged_out_at IS NULL) = (sha256 IS NULL) AND (aged_out_at IS NULL) = (bytes IS NULL)
    AND (aged_out_at IS NULL) = (body IS NOT NULL));

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
        'fold_movements', 'merge_account', 'age_out', 'write_ownership', 'answer_consumption')),
    DROP CONSTRAINT job_lane_check,
    ADD CONSTRAINT job_lane_check CHECK (lane IN (
        'submissions', 'notifications', 'clock', 'polls', 'sandbox_polls', 'webhooks',
        'upkeep', 'tellings', 'sandbox_tellings'));

-- Ages out what was submitted, and what Apple answered about it: the bodies go, and what they were
-- stays. Of those that are named in `kept` only the answers go. The programs may change nothing of what
-- arrived: this runs with the owner's rights, and looks for itself that each is old and decided, and
-- that nothing is still to be done with it.
CREATE OR REPLACE FUNCTION age_out_submissions(
    ids uuid[], kept uuid[], before timestamptz, moment timestamptz)
RETURNS TABLE (payloads bigint, exchanges bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tenure, pg_temp
AS $$
DECLARE
    id uuid;
    changed bigint;
BEGIN
    payloads := 0;
    exchanges := 0;
    FOREACH id IN ARRAY ids LOOP
        PERFORM FROM submission
        WHERE submission_id = id AND status <> 'pending' AND received_at < before
            AND decided_at < before
        FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND OR EXISTS (
            SELECT FROM job WHERE kind = 'verify_submission' AND subject = id::text);
        UPDATE submission_exchange SET answer = NULL, aged_out_at = moment,
            sha256 = sha256(answer), bytes = octet_length(answer)
        WHERE submission_id = id AND answer IS NOT NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        exchanges := exchanges + changed;
        CONTINUE WHEN id = ANY (kept);
        UPDATE submission_payload SET receipt_data = NULL, signed_transactions = NULL,
            signed_renewal_info = NULL, aged_out_at = moment,
            sha256 = sha256(convert_to(coalesce(receipt_data,
                array_to_string(signed_transactions || signed_renewal_info, E'\n')), 'UTF8')),
            bytes = octet_length(coalesce(receipt_data,
                array_to_string(signed_transactions || signed_renewal_info, E'\n')))
        WHERE submission_id = id AND aged_out_at IS NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        payloads := payloads + changed;
    END LOOP;
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION age_out_submissions IS
    'Ages out the bodies of submissions that are old and decided, and says how many.';

-- The same for notifications. Of those that are named in `kept` the body stays.
CREATE OR REPLACE FUNCTION age_out_notifications(
    ids text[], kept text[], before timestamptz, moment timestamptz)
RETURNS TABLE (bodies bigint, exchanges bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tenure, pg_temp
AS $$
DECLARE
    id text;
    changed bigint;
BEGIN
    bodies := 0;
    exchanges := 0;
    FOREACH id IN ARRAY ids LOOP
        PERFORM FROM notification
        WHERE notification_id = id AND processed_at < before AND received_at < before
        FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND OR EXISTS (
            SELECT FROM job WHERE kind = 'process_notification' AND subject = id);
        UPDATE notification_exchange SET answer = NULL, aged_out_at = moment,
            sha256 = sha256(answer), bytes = octet_length(answer)
        WHERE notification_id = id AND answer IS NOT NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        exchanges := exchanges + changed;
        CONTINUE WHEN id = ANY (kept);
        UPDATE notification SET body = NULL, aged_out_at = moment,
            sha256 = sha256(convert_to(body, 'UTF8')), bytes = octet_length(body)
        WHERE notification_id = id AND body IS NOT NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        bodies := bodies + changed;
    END LOOP;
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION age_out_notifications IS
    'Ages out the bodies of notifications that are old and processed, and says how many.';

REVOKE EXECUTE ON FUNCTION age_out_submissions, age_out_notifications FROM PUBLIC;

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

-- Indexes and functions with which reports of a large ledger answer at once.

CREATE INDEX movement_by_origin ON movement (environment, kind, origin_at)
    WHERE kind IN ('refunded', 'trial_ended', 'billing_recovered', 'billing_lost');
DROP INDEX movement_unclaimed;
CREATE INDEX movement_unclaimed ON movement (environment, at)
    INCLUDE (charge_original_transaction_id, transaction_id, product_id, number, ownership_type,
        period_type, currency, amount_milliunits, price_source, known_from, known_until)
    WHERE kind = 'charged' AND account_key IS NULL;
CREATE INDEX movement_in_trouble ON movement (environment, cause, at)
    INCLUDE (original_transaction_id, product_id, number, ownership_type, transaction_id,
        account_key)
    WHERE kind = 'state' AND cause IN ('in_grace_period', 'in_billing_retry')
        AND known_until = 'infinity';
CREATE INDEX store_transaction_unclaimed
    ON store_transaction (environment, original_transaction_id, transaction_id, product_id)
    INCLUDE (recorded_at, expires_at) WHERE rule IS NOT NULL AND owner_account_key IS NULL;
CREATE INDEX store_transaction_ordered
    ON store_transaction (environment, original_transaction_id, transaction_id, product_id)
    INCLUDE (charged_at, period_type, price_milliunits, currency) WHERE order_id IS NOT NULL;

CREATE FUNCTION movement_item_of_origin(
    kinds text[], from_day date, to_day date, time_zone text, product text, environment text,
    include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    kind text, cause text, at timestamptz, day date, cohort date, origin_at timestamptz,
    original_transaction_id text, transaction_id text, product_id text, ownership_type text,
    period_type text, offer_id text, quantity integer, currency text, price_source text,
    number bigint, amount_milliunits bigint, mrr_twelfths bigint, account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT i.kind, i.cause, i.at, i.day, i.cohort, i.origin_at, i.original_transaction_id,
        i.transaction_id, i.product_id, i.ownership_type, i.period_type, i.offer_id, i.quantity,
        i.currency, i.price_source, i.number, i.amount_milliunits, i.mrr_twelfths, i.account_key
    FROM movement_item(kinds, 'origin', NULL, NULL, time_zone, product, environment,
        include_family_shared, known_at, moment) AS i
    WHERE i.origin_at >= (from_day - 1)::timestamp AT TIME ZONE time_zone
        AND i.origin_at < (to_day + 2)::timestamp AT TIME ZONE time_zone
        AND i.cohort BETWEEN from_day AND to_day;
END;
COMMENT ON FUNCTION movement_item_of_origin IS
    'Movements of some kinds that go back to some days, as known now or at known_at, up to a moment.';

CREATE OR REPLACE FUNCTION report_trials_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, product_id text, original_transaction_id text, transaction_id text,
    at timestamptz, origin_at timestamptz, cause text, number bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT min(b.from_day) AS first_day, max(b.to_day) AS last_day, max(b.from_day) AS last_row
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    )
    SELECT c.measure, c.from_day, c.product_id, c.original_transaction_id, c.transaction_id, c.at,
        c.origin_at, c.cause, c.number, a.account_id
    FROM (
        SELECT m.measure, calendar_bucket_start(i.day, span.first_day, bucket) AS from_day,
            i.product_id, i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.cause,
            abs(i.number) AS number, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['trial_started', 'trial_ended'], 'at', span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        CROSS JOIN LATERAL unnest(CASE
            WHEN i.kind = 'trial_started' THEN ARRAY['started', 'cohort_started']
            WHEN i.cause = 'converted' THEN ARRAY['converted']
            ELSE ARRAY['expired'] END) AS m (measure)
        UNION ALL
        SELECT CASE i.cause WHEN 'converted' THEN 'cohort_converted' ELSE 'cohort_expired' END,
            calendar_bucket_start(i.cohort, span.first_day, bucket), i.product_id,
            i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.cause, abs(i.number),
            i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item_of_origin(ARRAY['trial_ended'], span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        UNION ALL
        SELECT 'trials', span.last_row, s.product_id, s.original_transaction_id, s.transaction_id,
            s.since, s.origin_at, NULL, s.number, s.account_key
        FROM span
        CROSS JOIN LATERAL movement_stock(ARRAY['trial_started', 'trial_ended'], span.last_day,
            false, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS s
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key;
END;

CREATE FUNCTION billing_issue_stock(
    state text, last_day date, time_zone text, product text, environment text,
    include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    product_id text, original_transaction_id text, transaction_id text, since timestamptz,
    until timestamptz, number bigint, account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH ending AS (
        SELECT least(
            (last_day + 1)::timestamp AT TIME ZONE time_zone - interval '1 microsecond', moment) AS at
    ),
    trouble AS NOT MATERIALIZED (
        SELECT m.product_id, m.original_transaction_id, m.transaction_id, m.at, m.number,
            m.account_key
        FROM movement AS m
        WHERE m.environment = billing_issue_stock.environment AND m.kind = 'state'
            AND m.cause = billing_issue_stock.state
            AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
                ELSE m.known_from <= known_at AND known_at < m.known_until END
            AND (include_family_shared OR m.ownership_type = 'purchased')
            AND (product IS NULL OR m.product_id = product)
    ),
    begun AS MATERIALIZED (
        SELECT t.product_id, t.original_transaction_id, t.transaction_id, t.at, t.account_key
        FROM ending
        JOIN trouble AS t ON t.at <= ending.at
        WHERE t.number = 1
    )
    SELECT DISTINCT ON (s.product_id, s.original_transaction_id)
        s.product_id, s.original_transaction_id, b.transaction_id, b.at, s.until, s.number,
        b.account_key
    FROM (
        SELECT t.product_id, t.original_transaction_id, -sum(t.number) AS number,
            min(t.at) FILTER (WHERE t.number = -1) AS until
        FROM ending
        JOIN trouble AS t ON t.at > ending.at
        GROUP BY t.product_id, t.original_transaction_id
        HAVING sum(t.number) <> 0
    ) AS s
    JOIN begun AS b ON b.product_id = s.product_id
        AND b.original_transaction_id = s.original_transaction_id
    ORDER BY s.product_id, s.original_transaction_id, b.at DESC;
END;
COMMENT ON FUNCTION billing_issue_stock IS
    'Subscriptions that are in_grace_period or in_billing_retry at the end of a day, since when and '
    'until when.';

CREATE OR REPLACE FUNCTION report_billing_issues_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, product_id text, original_transaction_id text, transaction_id text,
    since timestamptz, until timestamptz, number bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT min(b.from_day) AS first_day, max(b.to_day) AS last_day, max(b.from_day) AS last_row
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    )
    SELECT c.measure, c.from_day, c.product_id, c.original_transaction_id, c.transaction_id,
        c.since, c.until, c.number, a.account_id
    FROM (
        -- Each measure by itself: whoever asks for one does not wait for the others.
        -- What has begun has an end, if only one that is expected: it may lie ahead.
        SELECT 'entered' AS measure,
            calendar_bucket_start(i.cohort, span.first_day, bucket) AS from_day, i.product_id,
            i.original_transaction_id, i.transaction_id, i.origin_at AS since, i.at AS until,
            i.number, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item_of_origin(ARRAY['billing_recovered', 'billing_lost'],
            span.first_day, span.last_day, time_zone, product, environment, include_family_shared,
            known_at, 'infinity') AS i
        WHERE i.origin_at <= least(as_of, known_at)
        UNION ALL
        SELECT 'recovered', calendar_bucket_start(i.day, span.first_day, bucket),
            i.product_id, i.original_transaction_id, i.transaction_id, i.origin_at, i.at, i.number,
            i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['billing_recovered'], 'at', span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        UNION ALL
        SELECT 'lost', calendar_bucket_start(i.day, span.first_day, bucket),
            i.product_id, i.original_transaction_id, i.transaction_id, i.origin_at, i.at, i.number,
            i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['billing_lost'], 'at', span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        UNION ALL
        SELECT 'cohort_recovered', calendar_bucket_start(i.cohort, span.first_day, bucket),
            i.product_id, i.original_transaction_id, i.transaction_id, i.origin_at, i.at, i.number,
            i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item_of_origin(ARRAY['billing_recovered'], span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        UNION ALL
        SELECT 'cohort_lost', calendar_bucket_start(i.cohort, span.first_day, bucket),
            i.product_id, i.original_transaction_id, i.transaction_id, i.origin_at, i.at, i.number,
            i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item_of_origin(ARRAY['billing_lost'], span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        UNION ALL
        SELECT 'in_grace_period', span.last_row, s.product_id, s.original_transaction_id,
            s.transaction_id, s.since, s.until, s.number, s.account_key
        FROM span
        CROSS JOIN LATERAL billing_issue_stock('in_grace_period', span.last_day, time_zone, product,
            environment, include_family_shared, known_at, least(as_of, known_at)) AS s
        UNION ALL
        SELECT 'in_billing_retry', span.last_row, s.product_id, s.original_transaction_id,
            s.transaction_id, s.since, s.until, s.number, s.account_key
        FROM span
        CROSS JOIN LATERAL billing_issue_stock('in_billing_retry', span.last_day, time_zone, product,
            environment, include_family_shared, known_at, least(as_of, known_at)) AS s
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key;
END;

CREATE OR REPLACE FUNCTION report_revenue_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, product_id text, original_transaction_id text, transaction_id text,
    at timestamptz, origin_at timestamptz, cause text, period_type text, offer_id text,
    ownership_type text, number bigint, currency text, amount_milliunits bigint, price_source text,
    account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT min(b.from_day) AS first_day, max(b.to_day) AS last_day
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    )
    SELECT c.measure, c.from_day, c.product_id, c.original_transaction_id, c.transaction_id, c.at,
        c.origin_at, c.cause, c.period_type, c.offer_id, c.ownership_type, c.number, c.currency,
        c.amount_milliunits, c.price_source, a.account_id
    FROM (
        SELECT m.measure, calendar_bucket_start(i.day, span.first_day, bucket) AS from_day,
            i.product_id, i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.cause,
            i.period_type, i.offer_id, i.ownership_type, abs(i.number) AS number, i.currency,
            i.amount_milliunits, i.price_source, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['charged', 'refunded'], 'at', span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        CROSS JOIN LATERAL unnest(CASE
            WHEN i.kind = 'refunded' THEN ARRAY['refunds']
            WHEN i.ownership_type = 'family_shared' THEN ARRAY['family_shared']
            WHEN i.period_type = 'trial' THEN ARRAY['trials']
            WHEN i.period_type IN ('intro', 'offer') THEN ARRAY['charges', 'offers']
            ELSE ARRAY['charges'] END) AS m (measure)
        UNION ALL
        SELECT 'refunds_of_charges', calendar_bucket_start(i.cohort, span.first_day, bucket),
            i.product_id, i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.cause,
            i.period_type, i.offer_id, i.ownership_type, abs(i.number), i.currency,
            i.amount_milliunits, i.price_source, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item_of_origin(ARRAY['refunded'], span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key;
END;

CREATE OR REPLACE FUNCTION report_refunds_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, product_id text, reason text, days_after text,
    original_transaction_id text, transaction_id text, charged_at timestamptz,
    refunded_at timestamptz, number bigint, currency text, amount_milliunits bigint,
    price_source text, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT min(b.from_day) AS first_day, max(b.to_day) AS last_day
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    )
    SELECT c.measure, c.from_day, c.product_id, c.reason, c.days_after, c.original_transaction_id,
        c.transaction_id, c.charged_at, c.refunded_at, c.number, c.currency, c.amount_milliunits,
        c.price_source, a.account_id
    FROM (
        SELECT 'refunded' AS measure, calendar_bucket_start(i.cohort, span.first_day, bucket)
                AS from_day,
            i.product_id, i.cause AS reason, refund_delay(i.day - i.cohort) AS days_after,
            i.original_transaction_id, i.transaction_id, i.origin_at AS charged_at,
            i.at AS refunded_at, -i.number AS number, i.currency, i.amount_milliunits,
            i.price_source, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item_of_origin(ARRAY['refunded'], span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        WHERE include_trials OR i.period_type <> 'trial'
        UNION ALL
        SELECT 'paid', calendar_bucket_start(i.day, span.first_day, bucket), i.product_id, NULL, NULL,
            i.original_transaction_id, i.transaction_id, i.at, NULL, i.number, i.currency,
            i.amount_milliunits, i.price_source, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['charged'], 'at', span.first_day, span.last_day,
            time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        WHERE include_trials OR i.period_type <> 'trial'
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key;
END;

CREATE OR REPLACE FUNCTION report_unclaimed_item(
    product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    was_over boolean, age text, product_id text, original_transaction_id text, transaction_id text,
    charged_at timestamptz, first_seen_at timestamptz, expires_at timestamptz, number bigint,
    currency text, amount_milliunits bigint, price_source text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(t.expires_at <= t.recorded_at, false), age.class, m.product_id,
        m.charge_original_transaction_id, m.transaction_id, m.at, t.recorded_at, t.expires_at,
        m.number::bigint, m.currency, m.amount_milliunits, m.price_source
    FROM movement AS m
    LEFT JOIN store_transaction AS u ON u.environment = m.environment
        AND u.original_transaction_id = m.charge_original_transaction_id
        AND u.transaction_id = m.transaction_id AND u.product_id = m.product_id
        AND u.rule IS NOT NULL AND u.owner_account_key IS NULL
    -- One by one those that nobody owned at known_at, and somebody does now.
    LEFT JOIN LATERAL (
        SELECT s.recorded_at, s.expires_at FROM store_transaction AS s
        WHERE known_at IS NOT NULL AND u.recorded_at IS NULL AND s.environment = m.environment
            AND s.original_transaction_id = m.charge_original_transaction_id
            AND s.transaction_id = m.transaction_id AND s.product_id = m.product_id
        LIMIT 1
    ) AS c ON true
    CROSS JOIN LATERAL (
        SELECT coalesce(u.recorded_at, c.recorded_at) AS recorded_at,
            coalesce(u.expires_at, c.expires_at) AS expires_at
    ) AS t
    -- Rows, and no condition: so that a plan knows how few classes there are.
    JOIN (VALUES
        ('1: under an hour', least(as_of, known_at) - interval '1 hour', 'infinity'),
        ('2: under a day', least(as_of, known_at) - interval '24 hours',
            least(as_of, known_at) - interval '1 hour'),
        ('3: under 7 days', least(as_of, known_at) - interval '168 hours',
            least(as_of, known_at) - interval '24 hours'),
        ('4: under 30 days', least(as_of, known_at) - interval '720 hours',
            least(as_of, known_at) - interval '168 hours'),
        ('5: 30 days and more', '-infinity', least(as_of, known_at) - interval '720 hours')
    ) AS age (class, after, until) ON t.recorded_at > age.after AND t.recorded_at <= age.until
    WHERE m.environment = report_unclaimed_item.environment AND m.kind = 'charged'
        AND m.account_key IS NULL AND m.at <= least(as_of, known_at)
        AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
            ELSE m.known_from <= known_at AND known_at < m.known_until END
        AND (include_family_shared OR m.ownership_type = 'purchased')
        AND (include_trials OR m.period_type <> 'trial')
        AND (product IS NULL OR m.product_id = product);
END;

CREATE OR REPLACE FUNCTION order_item(
    from_date date, to_date date, bucket text, time_zone text, product text, environment text,
    known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    measure text, from_day date, product_id text, order_id uuid, original_transaction_id text,
    transaction_id text, at timestamptz, charged_at timestamptz, wait_ms bigint, period_type text,
    currency text, amount_milliunits bigint, account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT min(b.from_day)::timestamp AT TIME ZONE time_zone AS first_moment,
            (max(b.to_day) + 1)::timestamp AT TIME ZONE time_zone AS last_moment,
            min(b.from_day) AS first_day, max(b.to_day) AS last_day
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, moment) AS b
    )
    SELECT m.measure,
        calendar_bucket_start((o.created_at AT TIME ZONE time_zone)::date, span.first_day, bucket),
        o.product_id, o.order_id, o.original_transaction_id, o.transaction_id, o.created_at,
        t.charged_at, (extract(epoch FROM t.charged_at - o.created_at) * 1000)::bigint,
        t.period_type, t.currency, t.price_milliunits, o.account_key
    FROM span
    JOIN (
        SELECT p.order_id, p.product_id, p.created_at, p.account_key, p.environment,
            p.original_transaction_id, p.transaction_id,
            CASE WHEN known_at IS NULL THEN p.status
                WHEN p.fulfilled_at <= known_at THEN 'fulfilled' ELSE 'open' END AS status
        FROM purchase_order AS p
        WHERE coalesce(p.environment, order_item.environment) = order_item.environment
            AND p.created_at <= moment AND (product IS NULL OR p.product_id = product)
    ) AS o ON o.created_at >= span.first_moment AND o.created_at < span.last_moment
    LEFT JOIN store_transaction AS t ON o.status IN ('fulfilled', 'refunded')
        AND t.environment = o.environment
        AND t.original_transaction_id = o.original_transaction_id
        AND t.transaction_id = o.transaction_id AND t.product_id = o.product_id
        -- It names the order in its turn; and there is an index of those that do.
        AND t.order_id IS NOT NULL
    CROSS JOIN LATERAL unnest(CASE o.status
        WHEN 'open' THEN ARRAY['opened', 'open']
        WHEN 'expired' THEN ARRAY['opened', 'expired']
        WHEN 'refunded' THEN ARRAY['opened', 'paid', 'refunded']
        ELSE ARRAY['opened', 'paid'] END) AS m (measure)
    UNION ALL
    SELECT t.measure,
        calendar_bucket_start((t.at AT TIME ZONE time_zone)::date, span.first_day, bucket),
        t.product_id, t.order_id, t.original_transaction_id, t.transaction_id, t.at, t.at, NULL,
        t.period_type, t.currency, t.amount_milliunits, t.account_key
    FROM span
    CROSS JOIN LATERAL charge_item(span.first_day, span.last_day, time_zone, product, environment,
        false, known_at, moment) AS t
    WHERE t.measure IN ('paid_without_order', 'not_delivered');
END;

CREATE OR REPLACE FUNCTION report_audit_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'day',
    time_zone text DEFAULT 'UTC', as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, administrator text, action text, at timestamptz, subject text, account_id text,
    previous_account_id text, reason text, data text, number bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT calendar_bucket_start((t.acted_at AT TIME ZONE time_zone)::date, span.first_day, bucket),
        t.administrator, t.action, t.acted_at, t.subject, a.account_id, p.account_id,
        -- Accounts stand in it by their keys.
        replace(replace(t.reason,
            coalesce('{account:' || t.account_key || '}', ''), coalesce(a.account_id, 'erased')),
            coalesce('{account:' || t.previous_account_key || '}', ''),
            coalesce(p.account_id, 'erased')),
        t.data, 1::bigint
    FROM (
        SELECT min(b.from_day) AS first_day, max(b.to_day) AS last_day
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, as_of) AS b
    ) AS span
    JOIN administrator_action AS t
        ON (t.acted_at AT TIME ZONE time_zone)::date BETWEEN span.first_day AND span.last_day
    LEFT JOIN account_by_key AS a ON a.account_key = t.account_key
    LEFT JOIN account_by_key AS p ON p.account_key = t.previous_account_key
    WHERE t.acted_at <= as_of
    ORDER BY t.acted_at DESC, t.action_id DESC;
END;

-- What reads tables keeps to what Citus can plan: no function of rows that reads other rows, and no
-- subquery in place of a value.
CREATE OR REPLACE FUNCTION movement_sum(
    kinds text[], basis text, from_day date, to_day date, time_zone text, product text,
    environment text, include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    kind text, cause text, day date, cohort date, product_id text, ownership_type text,
    period_type text, currency text, price_source text, number bigint, amount_milliunits bigint,
    mrr_twelfths bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT d.kind, d.cause, d.day, d.cohort, d.product_id, d.ownership_type, d.period_type,
        nullif(d.currency, ''), nullif(d.price_source, ''), d.number, d.amount_milliunits,
        d.mrr_twelfths
    FROM movement_day AS d
    WHERE known_at IS NULL AND time_zone = 'UTC'
        AND d.environment = movement_sum.environment AND d.basis = movement_sum.basis
        AND d.kind = ANY (kinds)
        AND d.day >= coalesce(from_day, '-infinity') AND d.day <= coalesce(to_day, 'infinity')
        AND d.day < (moment AT TIME ZONE 'UTC')::date
        AND (include_family_shared OR d.ownership_type = 'purchased')
        AND (product IS NULL OR d.product_id = product)
    UNION ALL
    -- What a change adds: the movements that it added, less those that it closed.
    SELECT m.kind, b.summed_cause, b.day, b.cohort, m.product_id, m.ownership_type, m.period_type,
        m.currency, m.price_source, s.sign * m.number, s.sign * m.amount_milliunits,
        s.sign * m.mrr_twelfths
    FROM movement_change AS c
    JOIN movement AS m ON m.environment = c.environment
        AND m.original_transaction_id = c.original_transaction_id
        AND c.change_id IN (m.opened_by, m.closed_by)
    CROSS JOIN LATERAL (
        SELECT CASE WHEN m.opened_by = c.change_id THEN 1::bigint ELSE -1 END AS sign
    ) AS s
    CROSS JOIN LATERAL movement_basis(m.kind, m.at, m.origin_at, m.cause, m.mrr_twelfths) AS b
    WHERE known_at IS NULL AND time_zone = 'UTC'
        AND c.environment = movement_sum.environment AND b.basis = movement_sum.basis
        AND m.kind = ANY (kinds)
        AND b.day >= coalesce(from_day, '-infinity') AND b.day <= coalesce(to_day, 'infinity')
        AND b.day < (moment AT TIME ZONE 'UTC')::date
        AND (include_family_shared OR m.ownership_type = 'purchased')
        AND (product IS NULL OR m.product_id = product)
    UNION ALL
    SELECT i.kind, i.cause, i.day, i.cohort, i.product_id, i.ownership_type, i.period_type,
        i.currency, i.price_source, i.number, i.amount_milliunits, i.mrr_twelfths
    FROM movement_item(
        kinds, basis,
        CASE WHEN known_at IS NULL AND time_zone = 'UTC'
            THEN greatest(from_day, (moment AT TIME ZONE 'UTC')::date) ELSE from_day END,
        to_day, time_zone, product, environment, include_family_shared, known_at, moment) AS i;
END;
CREATE OR REPLACE FUNCTION erase_submissions(erased_key uuid, moment timestamptz)
RETURNS TABLE (submissions bigint, payloads bigint, exchanges bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tenure, pg_temp
AS $$
DECLARE
    ids uuid[];
BEGIN
    PERFORM FROM account_by_key WHERE account_key = erased_key AND erased_at IS NOT NULL;
    IF FOUND THEN
        SELECT array_agg(submission_id) INTO ids FROM submission
        WHERE account_key = erased_key AND erased_at IS NULL;
    END IF;
    UPDATE submission SET erased_at = moment, retry_at = NULL,
        status = CASE status WHEN 'pending' THEN 'rejected' ELSE status END,
        decided_at = coalesce(decided_at, moment),
        problem = CASE status WHEN 'pending' THEN 'account_erased' ELSE problem END,
        problem_detail = CASE status WHEN 'pending' THEN 'The account was erased.' END
    WHERE submission_id = ANY (ids);
    GET DIAGNOSTICS submissions = ROW_COUNT;
    DELETE FROM submission_payload WHERE submission_id = ANY (ids);
    GET DIAGNOSTICS payloads = ROW_COUNT;
    DELETE FROM submission_exchange WHERE submission_id = ANY (ids);
    GET DIAGNOSTICS exchanges = ROW_COUNT;
    RETURN NEXT;
END
$$;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_program') THEN
        GRANT EXECUTE ON FUNCTION movement_item_of_origin, billing_issue_stock TO tenure_program;
        GRANT SELECT, INSERT, UPDATE, DELETE ON consumption_consent TO tenure_program;
        GRANT SELECT, INSERT ON apple_telling TO tenure_program;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA tenure TO tenure_program;
        GRANT SELECT ON schema_part TO tenure_program;
        GRANT EXECUTE ON FUNCTION age_out_submissions, age_out_notifications TO tenure_program;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_reader') THEN
        GRANT SELECT ON schema_part TO tenure_reader;
        GRANT EXECUTE ON FUNCTION movement_item_of_origin, billing_issue_stock TO tenure_reader;
        GRANT SELECT ON consumption_consent, apple_telling TO tenure_reader;
    END IF;
    EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON apple_telling FROM %I', current_user);
END
$$;
