-- From version 5 of the schema to version 6, serving programs since 5.
--
-- schema.sql describes version 6 as a whole; a test compares what both come to. What version 5
-- recorded, and goes on to record beside this one, counts as before: renewals that Apple names no kind
-- of, where a program of version 5 records them; trials that were paid for after Apple had tried for a
-- while, and why others were not; subscriptions that Apple recovered so; and the product of a renewal
-- that was announced before the latest charge. An audit tells of it, a survey brings the journal up to date
-- once a worker of version 6 does it, and `tenure rebuild` mends everything.
--
-- part: transaction
-- The journal notes how a charge came to its owner; and the end of a trial can be taken back, and tells
-- why. What is there keeps the old conditions, too: it is looked through later.
ALTER TABLE tenure.movement
    ADD COLUMN IF NOT EXISTS rule text,
    ADD COLUMN IF NOT EXISTS decided_at timestamptz,
    ADD COLUMN IF NOT EXISTS corrected_at timestamptz,
    ADD COLUMN IF NOT EXISTS has_moved boolean,
    ADD COLUMN IF NOT EXISTS moved_from_key uuid,
    ADD COLUMN IF NOT EXISTS shared_with_key uuid,
    ADD COLUMN IF NOT EXISTS is_renewal boolean,
    DROP CONSTRAINT movement_number,
    DROP CONSTRAINT movement_cause,
    DROP CONSTRAINT IF EXISTS movement_rule_check,
    DROP CONSTRAINT IF EXISTS movement_ownership,
    ADD CONSTRAINT movement_number CHECK (CASE
        WHEN kind IN ('refunded', 'ended', 'changed_from') THEN number = -1
        WHEN kind = 'repriced' THEN number = 0
        -- The end of a trial is taken back where it is paid after all.
        WHEN kind IN ('state', 'trial_ended') THEN number IN (-1, 1)
        ELSE number = 1
    END) NOT VALID,
    ADD CONSTRAINT movement_cause CHECK (CASE kind
        WHEN 'state' THEN cause IN ('active_renewing', 'active_cancelled', 'trial_renewing',
            'trial_cancelled', 'in_grace_period', 'in_billing_retry', 'expired', 'revoked')
        WHEN 'ended' THEN cause IN ('voluntary', 'price_not_consented', 'billing',
            'product_withdrawn', 'refunded', 'unknown')
        -- Until version 5 a trial that was not paid for had 'lapsed', for whatever reason.
        WHEN 'trial_ended' THEN cause IN ('converted', 'voluntary', 'price_not_consented', 'billing',
            'product_withdrawn', 'refunded', 'unknown', 'lapsed')
        WHEN 'resumed' THEN cause IN ('', 'recovered')
        WHEN 'repriced' THEN cause IN ('', 'from', 'to')
        ELSE true
    END) NOT VALID,
    ADD CONSTRAINT movement_rule_check CHECK (rule IN ('administrator', 'actively_auto_renewing',
        'submitter', 'app_account_token', 'unclaimed')) NOT VALID,
    ADD CONSTRAINT movement_ownership CHECK (CASE
        WHEN rule IS NULL THEN num_nonnulls(decided_at, corrected_at, has_moved, moved_from_key,
            shared_with_key, is_renewal) = 0
        ELSE kind = 'charged' AND num_nulls(decided_at, has_moved, is_renewal) = 0
            AND (has_moved OR num_nonnulls(moved_from_key, shared_with_key) = 0)
    END) NOT VALID;

-- part: index
CREATE INDEX CONCURRENTLY IF NOT EXISTS store_transaction_delivered
    ON tenure.store_transaction (environment, delivered_at) WHERE delivered_at IS NOT NULL;

-- part: index
CREATE INDEX CONCURRENTLY IF NOT EXISTS movement_charged_before ON tenure.movement (environment, known_until)
    WHERE kind = 'charged' AND known_until < 'infinity';

-- part: index
CREATE INDEX CONCURRENTLY IF NOT EXISTS store_transaction_unclaimed_by_date
    ON tenure.store_transaction (environment, coalesce(expires_at <= recorded_at, false), charged_at)
    WHERE rule IS NOT NULL AND owner_account_key IS NULL;

-- part: transaction
SET LOCAL search_path TO tenure;

-- Two reports have a parameter more. Whoever built views of his own on them drops these first.
DROP FUNCTION report_churn;
DROP FUNCTION report_churn_item;

CREATE OR REPLACE FUNCTION day_start(day date, time_zone text)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN NOT isfinite(day) THEN day::timestamp AT TIME ZONE time_zone
    WHEN ((day::timestamp - (((((day::timestamp AT TIME ZONE time_zone) AT TIME ZONE 'UTC')
        - interval '3 hours') AT TIME ZONE 'UTC') AT TIME ZONE time_zone)
        + ((day::timestamp AT TIME ZONE time_zone) AT TIME ZONE 'UTC') - interval '3 hours')
        AT TIME ZONE 'UTC' AT TIME ZONE time_zone)::date = day
    THEN least(day::timestamp AT TIME ZONE time_zone,
        (day::timestamp - (((((day::timestamp AT TIME ZONE time_zone) AT TIME ZONE 'UTC')
        - interval '3 hours') AT TIME ZONE 'UTC') AT TIME ZONE time_zone)
        + ((day::timestamp AT TIME ZONE time_zone) AT TIME ZONE 'UTC') - interval '3 hours')
        AT TIME ZONE 'UTC')
    ELSE day::timestamp AT TIME ZONE time_zone
END;
COMMENT ON FUNCTION day_start IS
    'The moment with which a day begins in a time zone: the first one that is of that day.';

CREATE OR REPLACE FUNCTION movement_item(
    kinds text[], basis text, from_day date, to_day date, time_zone text, product text,
    environment text, include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    kind text, cause text, at timestamptz, day date, cohort date, origin_at timestamptz,
    original_transaction_id text, transaction_id text, product_id text, ownership_type text,
    period_type text, offer_id text, quantity integer, currency text, price_source text,
    number bigint, amount_milliunits bigint, mrr_twelfths bigint, account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT m.kind, movement_summed_cause(m.kind, m.cause, m.mrr_twelfths), m.at,
        (m.at AT TIME ZONE time_zone)::date, movement_cohort(basis, m.origin_at, time_zone),
        m.origin_at, m.original_transaction_id, m.transaction_id, m.product_id, m.ownership_type,
        m.period_type, m.offer_id, m.quantity, m.currency, m.price_source, m.number::bigint,
        m.amount_milliunits, m.mrr_twelfths, m.account_key
    FROM movement AS m
    WHERE m.environment = movement_item.environment AND m.kind = ANY (kinds)
        AND m.at >= coalesce(day_start(from_day, time_zone), '-infinity')
        AND m.at < coalesce(day_start(to_day + 1, time_zone), 'infinity')
        AND m.at <= moment
        AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
            ELSE m.known_from <= known_at AND known_at < m.known_until END
        AND (include_family_shared OR m.ownership_type = 'purchased')
        AND (product IS NULL OR m.product_id = product);
END;
COMMENT ON FUNCTION movement_item IS
    'Movements of some kinds and days, as known now or at known_at, up to a moment.';

CREATE OR REPLACE FUNCTION movement_item_of_origin(
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
    WHERE i.origin_at >= day_start(from_day, time_zone)
        AND i.origin_at < day_start(to_day + 1, time_zone);
END;
COMMENT ON FUNCTION movement_item_of_origin IS
    'Movements of some kinds that go back to some days, as known now or at known_at, up to a moment.';

CREATE OR REPLACE FUNCTION movement_stock(
    kinds text[], to_day date, by_currency boolean, time_zone text, product text, environment text,
    include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    original_transaction_id text, transaction_id text, product_id text, state text,
    since timestamptz, origin_at timestamptz, number bigint, currency text, price_source text,
    mrr_twelfths bigint, account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT i.original_transaction_id,
        (array_agg(i.transaction_id ORDER BY i.at DESC, i.kind = 'trial_ended', i.number DESC))[1],
        i.product_id, CASE i.kind WHEN 'state' THEN i.cause END,
        max(i.at) FILTER (WHERE i.number >= 0), max(i.origin_at), sum(i.number)::bigint,
        CASE WHEN by_currency THEN i.currency END, CASE WHEN by_currency THEN i.price_source END,
        sum(i.mrr_twelfths)::bigint,
        (array_agg(i.account_key ORDER BY i.at DESC, i.kind = 'trial_ended', i.number DESC))[1]
    FROM movement_item(kinds, 'at', NULL, to_day, time_zone, product, environment,
        include_family_shared, known_at, moment) AS i
    GROUP BY i.original_transaction_id, i.product_id, CASE i.kind WHEN 'state' THEN i.cause END,
        CASE WHEN by_currency THEN i.currency END, CASE WHEN by_currency THEN i.price_source END
    HAVING sum(i.number) <> 0 AND NOT by_currency OR sum(i.mrr_twelfths) <> 0 AND by_currency;
END;
COMMENT ON FUNCTION movement_stock IS
    'What movements come to for each subscription, product and state at the end of a day; by_currency: '
    'what they come to in revenue.';

COMMENT ON FUNCTION report_active IS
    'Paid, unexpired subscriptions at the end of each day, week or month (active), and how it came '
    'from those at its beginning (opening): active = opening + new - churned + changed_in - '
    'changed_out, and churned = expired - resubscribed. Unexpired: the effective end is not reached, '
    'which is the expiry, or the end of a grace period while in it, or the date of a refund; whoever '
    'has switched renewal off counts until the end. new: paid for the first time. expired: ended '
    'without a paid period that follows, for whatever reason, refunds included. resubscribed: paid '
    'again after a lapse. changed_in, changed_out: changed to another product while paid; all products '
    'together they are equal. With include_trials a trial counts from its start: new then are its '
    'start and not its conversion, and expired its end without one, until it is taken back, as '
    'report_trials says. With include_grants also what administrators granted, without a product. '
    'by_product: a row for each product.';

COMMENT ON FUNCTION report_trials IS
    'Free trials that are unexpired at the end of each day, week or month (trials), and how it came: '
    'trials = opening + started - converted - expired, each counted when it happened. converted: a '
    'paid period followed. expired: the trial ended without one, or was revoked; where Apple is able '
    'to charge for what follows only later, after trying for a while, that is taken back on the day of '
    'the charge, and counts as converted from then on. The columns cohort_* are by the day on which '
    'the trial began, whenever it ended: of the trials started in this row (cohort_started) those that '
    'have converted and those that have expired by as_of; the others are still open. conversion_rate = '
    'cohort_converted / cohort_started, rounded to 6 digits; it is final only when none is open. '
    'by_product: a row for each product.';

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
            CASE i.kind WHEN 'trial_ended' THEN -i.number ELSE i.number END AS number, i.account_key
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
            i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.cause, -i.number,
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
COMMENT ON FUNCTION report_trials_item IS
    'What report_trials counts: each start and each end of a trial, by its own date and (cohort_*) by '
    'that of its start, an end that is taken back with a number below zero; for trials each that is '
    'unexpired at the end of the last row.';

CREATE OR REPLACE FUNCTION churn_cause(kind text, cause text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN kind = 'ended' OR kind = 'trial_ended' AND cause <> 'converted'
    THEN CASE cause WHEN 'lapsed' THEN 'unknown' ELSE cause END END;
COMMENT ON FUNCTION churn_cause IS 'Why a movement is counted by report_churn; null: it is not.';

CREATE OR REPLACE FUNCTION report_churn(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    by_product boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, to_day date, product_id text, active_at_start bigint, voluntary bigint,
    price_not_consented bigint, involuntary bigint, product_withdrawn bigint, unknown bigint,
    expired bigint, resubscribed bigint, churned bigint, refunded bigint, churn_rate numeric,
    expiry_rate numeric)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT * FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at))
    ),
    shown AS (
        SELECT min(span.from_day) AS first_day, max(span.to_day) AS last_day FROM span
    ),
    flow AS (
        SELECT calendar_bucket_start(s.day, shown.first_day, bucket) AS from_day,
            CASE WHEN by_product THEN s.product_id END AS product_id, sum(s.number) AS number,
            -sum(s.number) FILTER (WHERE churn_cause(s.kind, s.cause)
                IN ('voluntary', 'price_not_consented')) AS voluntary,
            -sum(s.number) FILTER (WHERE churn_cause(s.kind, s.cause) = 'price_not_consented')
                AS price_not_consented,
            -sum(s.number) FILTER (WHERE churn_cause(s.kind, s.cause) = 'billing') AS involuntary,
            -sum(s.number) FILTER (WHERE churn_cause(s.kind, s.cause) = 'product_withdrawn')
                AS product_withdrawn,
            -sum(s.number) FILTER (WHERE churn_cause(s.kind, s.cause) = 'unknown') AS unknown,
            -sum(s.number) FILTER (WHERE churn_cause(s.kind, s.cause) = 'refunded') AS refunded,
            sum(s.number) FILTER (WHERE s.kind = 'resumed') AS resubscribed
        FROM shown
        CROSS JOIN LATERAL movement_sum(active_kinds(include_trials), 'at', NULL, shown.last_day,
            time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS s
        GROUP BY 1, 2
    )
    SELECT b.from_day, b.to_day, b.product_id, b.opening::bigint, b.voluntary::bigint,
        b.price_not_consented::bigint, b.involuntary::bigint, b.product_withdrawn::bigint,
        b.unknown::bigint, b.expired::bigint, b.resubscribed::bigint,
        (b.expired - b.resubscribed)::bigint, b.refunded::bigint,
        round((b.expired - b.resubscribed) / nullif(b.opening, 0), 6),
        round(b.expired / nullif(b.opening, 0), 6)
    FROM (
        SELECT span.from_day, span.to_day, p.product_id,
            coalesce(o.number, 0)
                + sum(coalesce(f.number, 0)) OVER (PARTITION BY p.product_id ORDER BY span.from_day)
                - coalesce(f.number, 0) AS opening,
            coalesce(f.voluntary, 0) AS voluntary,
            coalesce(f.price_not_consented, 0) AS price_not_consented,
            coalesce(f.involuntary, 0) AS involuntary,
            coalesce(f.product_withdrawn, 0) AS product_withdrawn,
            coalesce(f.unknown, 0) AS unknown,
            coalesce(f.voluntary, 0) + coalesce(f.involuntary, 0) + coalesce(f.product_withdrawn, 0)
                + coalesce(f.unknown, 0) AS expired,
            coalesce(f.resubscribed, 0) AS resubscribed, coalesce(f.refunded, 0) AS refunded
        FROM span
        CROSS JOIN (
            SELECT flow.product_id FROM flow UNION SELECT NULL WHERE NOT by_product
        ) AS p
        LEFT JOIN flow AS f ON f.from_day = span.from_day
            AND f.product_id IS NOT DISTINCT FROM p.product_id
        LEFT JOIN flow AS o ON o.from_day IS NULL AND o.product_id IS NOT DISTINCT FROM p.product_id
    ) AS b
    ORDER BY b.from_day, b.product_id;
END;
COMMENT ON FUNCTION report_churn IS
    'Paid subscriptions that churned in each day, week or month, compared with those active at its '
    'start (active_at_start, as in report_active). Expired are those whose effective end came without '
    'a paid period that follows, by cause: voluntary (the customer cancelled, or, as '
    'price_not_consented says, did not consent to a price), involuntary (billing), product_withdrawn, '
    'unknown (Apple never said). churned = expired - resubscribed (paid again after a lapse). Ends by '
    'a refund stand apart (refunded) and are in neither. churn_rate = churned / active_at_start, '
    'expiry_rate = expired / active_at_start, rounded to 6 digits; null without anybody at the start. '
    'With include_trials also trials, whose conversion is no churn. by_product: a row for each '
    'product; a change to another product is no churn.';

CREATE OR REPLACE FUNCTION report_churn_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, product_id text, original_transaction_id text, transaction_id text,
    at timestamptz, origin_at timestamptz, cause text, number bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT min(b.from_day) AS first_day, max(b.to_day) AS last_day, min(b.from_day) AS first_row
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    )
    SELECT c.measure, c.from_day, c.product_id, c.original_transaction_id, c.transaction_id, c.at,
        c.origin_at, c.cause, c.number, a.account_id
    FROM (
        SELECT m.measure, calendar_bucket_start(i.day, span.first_day, bucket) AS from_day,
            i.product_id, i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.cause,
            CASE i.kind WHEN 'resumed' THEN i.number ELSE -i.number END AS number, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(
            ARRAY['ended', 'resumed'] || CASE WHEN include_trials THEN ARRAY['trial_ended'] END, 'at',
            span.first_day, span.last_day, time_zone, product, environment, include_family_shared,
            known_at, least(as_of, known_at)) AS i
        CROSS JOIN LATERAL unnest(CASE
            WHEN i.kind = 'resumed' THEN ARRAY['resubscribed']
            ELSE CASE churn_cause(i.kind, i.cause)
                WHEN 'refunded' THEN ARRAY['refunded']
                WHEN 'voluntary' THEN ARRAY['voluntary', 'expired']
                WHEN 'price_not_consented' THEN ARRAY['voluntary', 'price_not_consented', 'expired']
                WHEN 'billing' THEN ARRAY['involuntary', 'expired']
                WHEN 'product_withdrawn' THEN ARRAY['product_withdrawn', 'expired']
                WHEN 'unknown' THEN ARRAY['unknown', 'expired'] END END) AS m (measure)
        UNION ALL
        SELECT 'active_at_start', span.first_row, s.product_id, s.original_transaction_id,
            s.transaction_id, s.since, s.origin_at, NULL, s.number, s.account_key
        FROM span
        CROSS JOIN LATERAL movement_stock(active_kinds(include_trials), span.first_day - 1, false,
            time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS s
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key;
END;
COMMENT ON FUNCTION report_churn_item IS
    'What report_churn counts: each end, once for each column that it is in (with a number below zero '
    'where it is taken back), and each return; for active_at_start each subscription, at the start of '
    'the first row alone.';

CREATE OR REPLACE FUNCTION report_renewals_due_item(
    days integer DEFAULT 30, time_zone text DEFAULT 'UTC', product text DEFAULT NULL,
    environment text DEFAULT 'production', include_family_shared boolean DEFAULT false,
    include_trials boolean DEFAULT false, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (
    day date, product_id text, renews_as text, original_transaction_id text, transaction_id text,
    due_at timestamptz, number bigint, currency text, amount_milliunits bigint, price_source text,
    account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT d.day, d.product_id, next.product_id, d.original_transaction_id, d.transaction_id, d.at,
        -d.number, price.currency, price.amount_milliunits, price.price_source, a.account_id
    FROM movement_item(ARRAY['state'], 'at',
        (least(as_of, known_at) AT TIME ZONE time_zone)::date, NULL, time_zone, product, environment,
        include_family_shared, coalesce(known_at, as_of),
        least(as_of, known_at) + make_interval(hours => 24 * report_renewals_due_item.days)) AS d
    -- The charge whose period ends then.
    LEFT JOIN LATERAL (
        SELECT m.amount_milliunits, m.currency, m.price_source, m.period_type, m.product_id,
            m.ownership_type, m.charge_original_transaction_id, m.transaction_id, m.at
        FROM movement AS m
        WHERE m.environment = report_renewals_due_item.environment
            AND m.original_transaction_id = d.original_transaction_id AND m.kind = 'charged'
            AND m.known_from <= coalesce(known_at, as_of)
            AND coalesce(known_at, as_of) < m.known_until
            AND m.product_id = d.product_id AND m.at < d.at
        ORDER BY m.at DESC LIMIT 1
    ) AS latest ON true
    -- What it is to be renewed as, by Apple's word.
    LEFT JOIN LATERAL (
        SELECT coalesce(
            CASE WHEN known_at IS NULL THEN (
                SELECT o.auto_renew_product_id FROM original_transaction AS o
                WHERE o.environment = report_renewals_due_item.environment
                    AND o.original_transaction_id = latest.charge_original_transaction_id)
            ELSE (
                SELECT r.auto_renew_product_id
                FROM renewal_status AS r
                JOIN ledger_entry AS e ON e.environment = r.environment
                    AND e.original_transaction_id = r.original_transaction_id
                    AND e.number = r.number
                WHERE r.environment = report_renewals_due_item.environment
                    AND r.original_transaction_id = latest.charge_original_transaction_id
                    AND r.auto_renew_product_id IS NOT NULL
                    AND r.as_of <= least(report_renewals_due_item.as_of, known_at)
                    -- What was said before the charge is about that one: Apple renews up to a day early.
                    AND r.as_of >= latest.at - CASE WHEN EXISTS (
                        SELECT FROM store_transaction AS t
                        LEFT JOIN store_transaction AS p ON p.environment = t.environment
                            AND p.original_transaction_id = t.original_transaction_id
                            AND p.charged_at < t.charged_at
                            AND p.expires_at BETWEEN t.charged_at - interval '60 seconds'
                                AND t.charged_at + interval '60 seconds'
                        WHERE t.environment = report_renewals_due_item.environment
                            AND t.original_transaction_id = latest.charge_original_transaction_id
                            AND t.transaction_id = latest.transaction_id
                            AND t.product_id = latest.product_id
                            AND (t.kind = 'renewal' OR t.kind = 'unknown' AND p.kind IS NOT NULL))
                        THEN interval '24 hours' ELSE interval '0' END
                    AND e.recorded_at <= known_at
                ORDER BY r.as_of DESC, r.number DESC LIMIT 1)
            END, d.product_id) AS product_id
    ) AS next ON true
    LEFT JOIN LATERAL (
        SELECT latest.amount_milliunits, latest.currency, latest.price_source
        WHERE next.product_id = latest.product_id AND latest.period_type = 'normal'
            AND latest.currency IS NOT NULL
        UNION ALL
        (SELECT CASE latest.ownership_type WHEN 'family_shared' THEN 0 ELSE p.price_milliunits END,
            p.currency, 'catalogue'
        FROM product AS p
        WHERE p.product_id = next.product_id AND p.valid_from <= least(d.at, coalesce(known_at, as_of))
            AND (next.product_id = latest.product_id AND latest.period_type = 'normal'
                AND latest.currency IS NOT NULL) IS NOT TRUE
        ORDER BY p.valid_from DESC LIMIT 1)
    ) AS price ON true
    LEFT JOIN account_by_key AS a ON a.account_key = d.account_key
    WHERE d.number = -1 AND d.at > least(as_of, known_at)
        AND (d.cause = 'active_renewing' OR include_trials AND d.cause = 'trial_renewing')
        -- Apple charges up to a day early: what goes on was renewed already.
        AND NOT EXISTS (
            SELECT FROM movement AS m
            WHERE m.environment = report_renewals_due_item.environment
                AND m.original_transaction_id = d.original_transaction_id AND m.kind = 'state'
                AND m.at = d.at AND m.number = 1
                AND m.cause IN ('active_renewing', 'active_cancelled')
                AND m.known_from <= coalesce(known_at, as_of)
                AND coalesce(known_at, as_of) < m.known_until);
END;
COMMENT ON FUNCTION report_renewals_due_item IS
    'Each subscription that report_renewals_due counts, with the charge whose period ends, what it '
    'renews as, and the money expected.';

COMMENT ON FUNCTION report_renewals_due IS
    'Subscriptions that at the moment as_of are paid and set to renew, and whose period ends within so '
    'many days of 24 hours after it, per day and product, with the money expected. renews_as: the '
    'product of the next period, by Apple''s latest word since the latest charge. The money is the '
    'price of the latest charge where the same product renews at its normal price, else (after an '
    'introductory or other offer, a trial or a change of product, and where the charge has no price) '
    'the catalogue''s as described then, which is the part from_catalogue; currency and money are null '
    'where neither knows. With include_trials also trials set to renew. It is as known at as_of, or at '
    'known_at if that is given: what is known by now of renewals since would leave only those that '
    'failed. Without known_at the product of the next period is Apple''s latest word now.';

CREATE OR REPLACE FUNCTION billing_issue_stock(
    state text, last_day date, time_zone text, product text, environment text,
    include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    product_id text, original_transaction_id text, transaction_id text, since timestamptz,
    until timestamptz, number bigint, account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH ending AS (
        SELECT least(
            day_start(last_day + 1, time_zone) - interval '1 microsecond', moment) AS at
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

COMMENT ON FUNCTION report_billing_issues IS
    'Subscriptions whose renewal Apple could not charge, be it the first one after a trial. '
    'in_grace_period (access goes on) and in_billing_retry (it does not) at the end of each day, week '
    'or month. entered: in how many such trouble began; a retry that follows a grace period is the '
    'same trouble. recovered: Apple was able to charge after all; lost: it gave up, or the customer '
    'did; both by their own date. cohort_recovered and cohort_lost are the same by the day on which '
    'the trouble began; the others of those entered are still open. recovery_rate = cohort_recovered / '
    'entered, rounded to 6 digits; it is final only when none is open. Since when and until when: '
    'report_billing_issues_item.';

COMMENT ON FUNCTION report_retention IS
    'Of the subscriptions that were first paid in a month (cohort, cohort_size) those that are paid '
    'and unexpired at the end of that month (period 0) and of each following one (period 1, 2, ..; '
    'to_day): retained. The last period ends with the moment as_of. A trial is in no cohort: the first '
    'charge is. Whoever lapsed and paid again is retained again, in the cohort of the first time. '
    'retention_rate = retained / cohort_size, rounded to 6 digits. from_date and to_date choose the '
    'cohorts, by whole months. With product only starts with that product and whoever is on it then '
    'are counted: changes to it are retained, changes from it are not.';

-- A trial that was taken back is no refund.
CREATE OR REPLACE FUNCTION report_revenue(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, by_product boolean DEFAULT false,
    reporting_currency text DEFAULT NULL, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, to_day date, product_id text, currency text, charges bigint, offers bigint,
    trials bigint, family_shared bigint, charged_milliunits bigint,
    from_catalogue_milliunits bigint, refunds bigint, refunded_milliunits bigint,
    refunds_of_charges bigint, refunded_of_charges_milliunits bigint,
    net_by_charge_milliunits bigint, net_by_refund_milliunits bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT * FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at))
    ),
    shown AS (
        SELECT min(span.from_day) AS first_day, max(span.to_day) AS last_day FROM span
    ),
    counted AS (
        -- By the day, for the rates of currencies.
        SELECT c.day, c.product_id, c.currency,
            sum(c.number) FILTER (WHERE c.measure = 'charged' AND c.period_type <> 'trial'
                AND c.ownership_type = 'purchased') AS charges,
            sum(c.number) FILTER (WHERE c.measure = 'charged' AND c.period_type IN ('intro', 'offer')
                AND c.ownership_type = 'purchased') AS offers,
            sum(c.number) FILTER (WHERE c.measure = 'charged' AND c.period_type = 'trial'
                AND c.ownership_type = 'purchased') AS trials,
            sum(c.number) FILTER (WHERE c.measure = 'charged'
                AND c.ownership_type = 'family_shared') AS family_shared,
            sum(c.amount_milliunits) FILTER (WHERE c.measure = 'charged') AS charged,
            sum(c.amount_milliunits) FILTER (WHERE c.measure = 'charged'
                AND c.price_source = 'catalogue') AS from_catalogue,
            -sum(c.number) FILTER (WHERE c.measure = 'refunded' AND c.period_type <> 'trial') AS refunds,
            sum(c.amount_milliunits) FILTER (WHERE c.measure = 'refunded') AS refunded,
            -sum(c.number) FILTER (WHERE c.measure = 'of_charges' AND c.period_type <> 'trial')
                AS refunds_of_charges,
            sum(c.amount_milliunits) FILTER (WHERE c.measure = 'of_charges') AS refunded_of_charges
        FROM (
            SELECT CASE WHEN report_revenue.reporting_currency IS NULL
                    THEN calendar_bucket_start(s.day, shown.first_day, bucket)
                    ELSE s.day END AS day,
                CASE WHEN by_product THEN s.product_id END AS product_id, s.currency, s.kind AS measure,
                s.period_type, s.ownership_type, s.price_source, s.number, s.amount_milliunits
            FROM shown
            CROSS JOIN LATERAL movement_sum(ARRAY['charged', 'refunded'], 'at',
                shown.first_day, shown.last_day,
                time_zone, product, environment, include_family_shared, known_at,
                least(as_of, known_at)) AS s
            UNION ALL
            SELECT CASE WHEN report_revenue.reporting_currency IS NULL
                    THEN calendar_bucket_start(s.cohort, shown.first_day, bucket)
                    ELSE s.cohort END,
                CASE WHEN by_product THEN s.product_id END, s.currency, 'of_charges', s.period_type,
                s.ownership_type, s.price_source, s.number, s.amount_milliunits
            FROM shown
            CROSS JOIN LATERAL movement_sum(ARRAY['refunded'], 'origin', NULL, NULL, time_zone, product,
                environment, include_family_shared, known_at, least(as_of, known_at)) AS s
            WHERE s.cohort BETWEEN shown.first_day AND shown.last_day
        ) AS c
        CROSS JOIN shown
        GROUP BY c.day, c.product_id, c.currency
    ),
    rated AS (
        SELECT CASE WHEN rate.rate IS NULL THEN c.currency ELSE report_revenue.reporting_currency END
                AS currency,
            coalesce(rate.rate, 1) AS rate, c.day, c.product_id, c.charges, c.offers, c.trials,
            c.family_shared, c.charged, c.from_catalogue, c.refunds, c.refunded,
            c.refunds_of_charges, c.refunded_of_charges
        FROM counted AS c
        LEFT JOIN LATERAL (
            SELECT exchange_rate_on(report_revenue.reporting_currency, c.currency, c.day) AS rate
        ) AS rate ON report_revenue.reporting_currency IS NOT NULL
    )
    SELECT r.from_day, span.to_day, r.product_id, r.currency, r.charges::bigint,
        r.offers::bigint, r.trials::bigint, r.family_shared::bigint, round(r.charged)::bigint,
        round(r.from_catalogue)::bigint, r.refunds::bigint, round(r.refunded)::bigint,
        r.refunds_of_charges::bigint, round(r.refunded_of_charges)::bigint,
        round(r.charged + r.refunded_of_charges)::bigint, round(r.charged + r.refunded)::bigint
    FROM (
        SELECT calendar_bucket_start(c.day, shown.first_day, bucket) AS from_day,
            c.product_id, c.currency, coalesce(sum(c.charges), 0) AS charges,
            coalesce(sum(c.offers), 0) AS offers, coalesce(sum(c.trials), 0) AS trials,
            coalesce(sum(c.family_shared), 0) AS family_shared,
            coalesce(sum(c.charged * c.rate), 0) AS charged,
            coalesce(sum(c.from_catalogue * c.rate), 0) AS from_catalogue,
            coalesce(sum(c.refunds), 0) AS refunds, coalesce(sum(c.refunded * c.rate), 0) AS refunded,
            coalesce(sum(c.refunds_of_charges), 0) AS refunds_of_charges,
            coalesce(sum(c.refunded_of_charges * c.rate), 0) AS refunded_of_charges
        FROM rated AS c
        CROSS JOIN shown
        GROUP BY 1, 2, 3
    ) AS r
    JOIN span ON span.from_day = r.from_day
    ORDER BY r.from_day, r.product_id, r.currency;
END;
COMMENT ON FUNCTION report_revenue IS
    'Charges by the date of the transaction (Apple never tells the one of its settlement), of products '
    'of every type, per currency. charges: paid ones of the purchaser, whatever the price; of these '
    'offers: introductory or other offers that are no trial. trials and what somebody else of the family '
    'paid for (family_shared, if it is included) have no price and stand apart. charged: what was paid, '
    'before Apple''s commission and taxes; where Apple gave no price the catalogue''s of that date, which '
    'is the part from_catalogue; where there is none, 0, in the row without a currency. Refunds both '
    'ways: refunds and refunded by the date of the refund, refunds_of_charges and refunded_of_charges '
    'those of the charges in this row, whenever they were refunded by as_of; amounts are negative, and a '
    'trial that was taken back is no refund. '
    'net_by_refund = charged + refunded, net_by_charge = charged + refunded_of_charges. Upgrades are '
    'not refunds. Never summed across currencies, unless reporting_currency is given: then each '
    'currency with a rate in exchange_rate is converted at that of the day on which it counts, and '
    'summed up exactly; others stay in rows of their own. Rates are those that stand in the table now, '
    'whatever known_at says. Amounts are milliunits, rounded last, half away from zero. by_product: a row '
    'for each product.';

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
            WHEN i.kind = 'refunded' AND i.period_type = 'trial' THEN ARRAY[]::text[]
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
        WHERE i.period_type <> 'trial'
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key;
END;
COMMENT ON FUNCTION report_revenue_item IS
    'What report_revenue counts, in each charge''s own currency: charges (offers once more under '
    'offers), trials, family_shared, and each refund under refunds by its own date and under '
    'refunds_of_charges by that of its charge. charged is the sum of the amounts of charges, trials and '
    'family_shared, refunded that of refunds, refunded_of_charges that of refunds_of_charges.';

CREATE OR REPLACE FUNCTION report_reactivations(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    by_product boolean DEFAULT false, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, to_day date, product_id text, switched_off bigint, switched_on bigint,
    resubscribed bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT * FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at))
    ),
    shown AS (
        SELECT min(span.from_day) AS first_day, max(span.to_day) AS last_day FROM span
    ),
    flow AS (
        SELECT calendar_bucket_start(s.day, shown.first_day, bucket) AS from_day,
            CASE WHEN by_product THEN s.product_id END AS product_id,
            reactivation_measure(s.kind) AS measure, sum(s.number) AS number
        FROM shown
        CROSS JOIN LATERAL movement_sum(ARRAY['auto_renew_off', 'auto_renew_on', 'resumed'], 'at',
            shown.first_day, shown.last_day, time_zone,
            product, environment, include_family_shared, known_at, least(as_of, known_at)) AS s
        WHERE (include_trials OR s.period_type <> 'trial')
            AND NOT (s.kind = 'resumed' AND s.cause = 'recovered')
        GROUP BY 1, 2, 3
    )
    SELECT span.from_day, span.to_day, p.product_id,
        coalesce(sum(f.number) FILTER (WHERE f.measure = 'switched_off'), 0)::bigint,
        coalesce(sum(f.number) FILTER (WHERE f.measure = 'switched_on'), 0)::bigint,
        coalesce(sum(f.number) FILTER (WHERE f.measure = 'resubscribed'), 0)::bigint
    FROM span
    CROSS JOIN (SELECT flow.product_id FROM flow UNION SELECT NULL WHERE NOT by_product) AS p
    LEFT JOIN flow AS f ON f.from_day = span.from_day
        AND f.product_id IS NOT DISTINCT FROM p.product_id
    GROUP BY span.from_day, span.to_day, p.product_id
    ORDER BY span.from_day, p.product_id;
END;
COMMENT ON FUNCTION report_reactivations IS
    'Two things that are called reactivation, and are not the same: switched_on: the customer switched '
    'renewal on again before the subscription ended, by Apple''s date of the switch; resubscribed: it '
    'had lapsed and the customer paid again, by the date of that charge (as in report_active, but '
    'without those whom Apple was able to charge after trying for a while: nobody reactivated '
    'anything, and report_billing_issues has them as recovered). And switched_off, from which the '
    'first one comes back. Switches while in a trial are left out, unless included. by_product: a row '
    'for each product.';

CREATE OR REPLACE FUNCTION report_reactivations_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, product_id text, original_transaction_id text, transaction_id text,
    at timestamptz, origin_at timestamptz, number bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT reactivation_measure(i.kind), calendar_bucket_start(i.day, span.first_day, bucket),
        i.product_id, i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.number,
        a.account_id
    FROM (
        SELECT min(b.from_day) AS first_day, max(b.to_day) AS last_day
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    ) AS span
    CROSS JOIN LATERAL movement_item(ARRAY['auto_renew_off', 'auto_renew_on', 'resumed'], 'at',
        span.first_day, span.last_day, time_zone, product, environment, include_family_shared,
        known_at, least(as_of, known_at)) AS i
    LEFT JOIN account_by_key AS a ON a.account_key = i.account_key
    WHERE (include_trials OR i.period_type <> 'trial')
        AND NOT (i.kind = 'resumed' AND i.cause = 'recovered');
END;
COMMENT ON FUNCTION report_reactivations_item IS
    'Each switch and each return that report_reactivations counts.';

-- What was renewed without anybody's buying is no charge without an order, though Apple names no kind.
CREATE OR REPLACE FUNCTION charge_then(known_at timestamptz)
RETURNS TABLE (
    environment text, original_transaction_id text, transaction_id text, product_id text,
    charged_at timestamptz, kind text, product_type text, ownership_type text, period_type text,
    price_milliunits bigint, currency text, owner_account_key uuid, rule text, ground text,
    decided_at timestamptz, corrected_at timestamptz, is_revoked boolean, order_id uuid,
    delivered_at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT c.environment, c.original_transaction_id, c.transaction_id, c.product_id, c.charged_at,
        c.kind, c.product_type, c.ownership_type, c.period_type, c.price_milliunits, c.currency,
        c.owner_account_key, c.rule, c.ground, c.decided_at, c.corrected_at,
        EXISTS (
            SELECT FROM movement AS r
            WHERE r.environment = c.environment AND r.kind = 'refunded'
                AND r.origin_at = c.charged_at AND r.transaction_id = c.transaction_id
                AND r.product_id = c.product_id
                AND r.charge_original_transaction_id = c.original_transaction_id
                AND r.known_from <= known_at AND known_at < r.known_until)
        OR c.revoked_as_of IS NOT NULL AND c.revoked_as_of <= known_at AND NOT EXISTS (
            SELECT FROM movement AS r
            WHERE r.environment = c.environment AND r.kind = 'refunded'
                AND r.origin_at = c.charged_at AND r.transaction_id = c.transaction_id
                AND r.product_id = c.product_id
                AND r.charge_original_transaction_id = c.original_transaction_id
                AND r.known_until = 'infinity'),
        CASE WHEN c.order_id IS NOT NULL AND EXISTS (
            SELECT FROM purchase_order_account AS l
            JOIN purchase_order AS o ON o.account_key = l.account_key AND o.order_id = l.order_id
            WHERE l.order_id = c.order_id AND o.fulfilled_at <= known_at)
            THEN c.order_id END,
        c.delivered_at
    FROM (
        SELECT t.environment, t.original_transaction_id, t.transaction_id, t.product_id,
            t.charged_at, t.kind, t.product_type, t.ownership_type, t.period_type,
            t.price_milliunits, t.currency, t.owner_account_key, t.rule, t.ground, t.decided_at,
            t.corrected_at, CASE WHEN t.revoked_at IS NOT NULL THEN t.revocation_as_of END
                AS revoked_as_of, t.order_id, t.delivered_at
        FROM store_transaction AS t
        WHERE t.recorded_at <= known_at
            AND NOT EXISTS (
                SELECT FROM movement AS m
                WHERE m.environment = t.environment AND m.kind = 'charged'
                    AND m.charge_original_transaction_id = t.original_transaction_id
                    AND m.transaction_id = t.transaction_id AND m.product_id = t.product_id
                    AND m.known_from <= known_at AND known_at < m.known_until
                    AND m.known_until < 'infinity')
        UNION ALL
        SELECT m.environment, m.charge_original_transaction_id, m.transaction_id, m.product_id,
            m.at, CASE WHEN m.is_renewal THEN 'renewal' WHEN m.is_renewal IS NULL THEN t.kind
                ELSE 'purchase' END,
            coalesce(m.product_type, 'unknown'), m.ownership_type, m.period_type,
            t.price_milliunits, t.currency, m.account_key, coalesce(m.rule, t.rule), t.ground,
            CASE WHEN m.rule IS NULL THEN t.decided_at ELSE m.decided_at END,
            CASE WHEN m.rule IS NULL THEN t.corrected_at ELSE m.corrected_at END,
            CASE WHEN t.revoked_at IS NOT NULL THEN t.revocation_as_of END, t.order_id, t.delivered_at
        FROM movement AS m
        JOIN store_transaction AS t ON t.environment = m.environment
            AND t.original_transaction_id = m.charge_original_transaction_id
            AND t.transaction_id = m.transaction_id AND t.product_id = m.product_id
        WHERE m.kind = 'charged' AND m.known_from <= known_at AND known_at < m.known_until
            AND m.known_until < 'infinity'
    ) AS c;
END;
COMMENT ON FUNCTION charge_then IS
    'Charges with their owners, orders and deliveries, as was known at a moment.';

CREATE OR REPLACE FUNCTION charge_item_then(
    from_day date, to_day date, time_zone text, product text, environment text,
    include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    measure text, at timestamptz, rule text, product_id text, original_transaction_id text,
    transaction_id text, order_id uuid, period_type text, currency text, amount_milliunits bigint,
    account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT 'decided', t.decided_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM charge_then(known_at) AS t
    WHERE t.environment = charge_item_then.environment AND t.rule IS NOT NULL
        AND t.decided_at >= day_start(from_day, time_zone)
        AND t.decided_at < day_start(to_day + 1, time_zone)
        AND t.decided_at <= moment
        AND (include_family_shared OR t.ownership_type = 'purchased')
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'corrected', t.corrected_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM charge_then(known_at) AS t
    WHERE t.environment = charge_item_then.environment AND t.rule IS NOT NULL
        AND t.corrected_at >= day_start(from_day, time_zone)
        AND t.corrected_at < day_start(to_day + 1, time_zone)
        AND t.corrected_at <= moment
        AND (include_family_shared OR t.ownership_type = 'purchased')
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'paid_without_order', t.charged_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM charge_then(known_at) AS t
    WHERE t.environment = charge_item_then.environment AND t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased' AND t.order_id IS NULL AND t.kind <> 'renewal'
        -- What Apple names no kind of, and was renewed without anybody's buying, as charge_change has it.
        AND NOT (t.kind = 'unknown'
            AND t.ground IN ('renewed_at_period_end', 'recovered_from_billing_problem'))
        AND t.charged_at >= day_start(from_day, time_zone)
        AND t.charged_at < day_start(to_day + 1, time_zone)
        AND t.charged_at <= moment
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'not_delivered', t.charged_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM charge_then(known_at) AS t
    WHERE t.environment = charge_item_then.environment AND t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased' AND NOT t.is_revoked
        -- The first condition is the index's, and follows from the second.
        AND (t.kind <> 'renewal' OR t.order_id IS NOT NULL
            OR coalesce(t.product_type, 'consumable') = 'consumable')
        AND (t.order_id IS NOT NULL OR coalesce(t.product_type, (
            SELECT p.type FROM product AS p WHERE p.product_id = t.product_id
            ORDER BY p.valid_from DESC LIMIT 1)) = 'consumable')
        AND (t.delivered_at IS NULL OR t.delivered_at > moment)
        AND t.charged_at >= day_start(from_day, time_zone)
        AND t.charged_at < day_start(to_day + 1, time_zone)
        AND t.charged_at <= moment
        AND (product IS NULL OR t.product_id = product);
END;
COMMENT ON FUNCTION charge_item_then IS 'What charge_item lists, as it was known at a moment.';

CREATE OR REPLACE FUNCTION charge_item(
    from_day date, to_day date, time_zone text, product text, environment text,
    include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    measure text, at timestamptz, rule text, product_id text, original_transaction_id text,
    transaction_id text, order_id uuid, period_type text, currency text, amount_milliunits bigint,
    account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT 'decided', t.decided_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    WHERE known_at IS NULL AND t.environment = charge_item.environment AND t.rule IS NOT NULL
        AND t.decided_at >= day_start(from_day, time_zone)
        AND t.decided_at < day_start(to_day + 1, time_zone)
        AND t.decided_at <= moment
        AND (include_family_shared OR t.ownership_type = 'purchased')
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'corrected', t.corrected_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    WHERE known_at IS NULL AND t.environment = charge_item.environment AND t.rule IS NOT NULL
        AND t.corrected_at >= day_start(from_day, time_zone)
        AND t.corrected_at < day_start(to_day + 1, time_zone)
        AND t.corrected_at <= moment
        AND (include_family_shared OR t.ownership_type = 'purchased')
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'paid_without_order', t.charged_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    WHERE known_at IS NULL AND t.environment = charge_item.environment AND t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased' AND t.order_id IS NULL AND t.kind <> 'renewal'
        -- What Apple names no kind of, and was renewed without anybody's buying, as charge_change has it.
        AND NOT (t.kind = 'unknown'
            AND t.ground IN ('renewed_at_period_end', 'recovered_from_billing_problem'))
        AND t.charged_at >= day_start(from_day, time_zone)
        AND t.charged_at < day_start(to_day + 1, time_zone)
        AND t.charged_at <= moment
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'not_delivered', t.charged_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    WHERE known_at IS NULL AND t.environment = charge_item.environment AND t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased' AND t.revoked_at IS NULL
        -- The first condition is the index's, and follows from the second.
        AND (t.kind <> 'renewal' OR t.order_id IS NOT NULL
            OR coalesce(t.product_type, 'consumable') = 'consumable')
        AND (t.order_id IS NOT NULL OR coalesce(t.product_type, (
            SELECT p.type FROM product AS p WHERE p.product_id = t.product_id
            ORDER BY p.valid_from DESC LIMIT 1)) = 'consumable')
        AND (t.delivered_at IS NULL OR t.delivered_at > moment)
        AND t.charged_at >= day_start(from_day, time_zone)
        AND t.charged_at < day_start(to_day + 1, time_zone)
        AND t.charged_at <= moment
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    -- Of those once more what was delivered after the moment: the sums by the day lack it.
    SELECT 'delivered_since', t.charged_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    WHERE known_at IS NULL AND t.environment = charge_item.environment AND t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased' AND t.revoked_at IS NULL
        AND (t.order_id IS NOT NULL OR coalesce(t.product_type, (
            SELECT p.type FROM product AS p WHERE p.product_id = t.product_id
            ORDER BY p.valid_from DESC LIMIT 1)) = 'consumable')
        AND t.delivered_at > moment
        AND t.charged_at >= day_start(from_day, time_zone)
        AND t.charged_at < day_start(to_day + 1, time_zone)
        AND t.charged_at <= moment
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT i.measure, i.at, i.rule, i.product_id, i.original_transaction_id, i.transaction_id, i.order_id,
        i.period_type, i.currency, i.amount_milliunits, i.account_key
    FROM charge_item_then(from_day, to_day, time_zone, product, environment, include_family_shared,
        known_at, moment) AS i
    WHERE known_at IS NOT NULL;
END;
COMMENT ON FUNCTION charge_item IS
    'Charges, once for each measure of charge_day under which they are counted, of some days and up to '
    'a moment; and under delivered_since those not_delivered then that were delivered since.';

INSERT INTO charge_day AS d (environment, measure, day, cause, product_id, ownership_type, number)
SELECT environment, 'paid_without_order', (charged_at AT TIME ZONE 'UTC')::date, '', product_id,
    ownership_type, -count(*)
FROM store_transaction
WHERE owner_account_key IS NOT NULL AND ownership_type = 'purchased' AND order_id IS NULL
    AND kind = 'unknown' AND ground IN ('renewed_at_period_end', 'recovered_from_billing_problem')
GROUP BY 1, 3, 5, 6
ORDER BY 1, 3, 5, 6
ON CONFLICT (environment, measure, day, cause, product_id, ownership_type)
DO UPDATE SET number = d.number + excluded.number;

CREATE OR REPLACE FUNCTION charge_sum(
    measures text[], from_day date, to_day date, time_zone text, product text, environment text,
    include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (measure text, day date, rule text, product_id text, number bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT d.measure, d.day, d.cause, d.product_id, d.number
    FROM (
        SELECT s.environment, s.measure, s.day, s.cause, s.product_id, s.ownership_type, s.number
        FROM charge_day AS s
        UNION ALL
        SELECT c.environment, b.measure, b.day, b.cause, c.product_id, c.ownership_type,
            c.number::bigint
        FROM charge_change AS c
        CROSS JOIN LATERAL charge_basis(c.rule, c.decided_at, c.corrected_at, c.charged_at, c.kind,
            c.product_type, c.ownership_type, c.is_owned, c.is_revoked, c.is_ordered,
            c.is_delivered) AS b
    ) AS d
    WHERE known_at IS NULL AND time_zone = 'UTC'
        AND d.environment = charge_sum.environment AND d.measure = ANY (measures)
        AND d.day BETWEEN from_day AND to_day AND d.day < (moment AT TIME ZONE 'UTC')::date
        AND (include_family_shared OR d.ownership_type = 'purchased')
        AND (product IS NULL OR d.product_id = product)
        -- What is of no known type is the catalogue's to name.
        AND (d.measure <> 'not_delivered' OR d.cause <> 'unknown' OR (
            SELECT p.type FROM product AS p WHERE p.product_id = d.product_id
            ORDER BY p.valid_from DESC LIMIT 1) = 'consumable')
    UNION ALL
    SELECT i.measure, (i.at AT TIME ZONE time_zone)::date, i.rule, i.product_id, 1
    FROM charge_item(
        CASE WHEN known_at IS NULL AND time_zone = 'UTC'
            THEN greatest(from_day, (moment AT TIME ZONE 'UTC')::date) ELSE from_day END,
        to_day, time_zone, product, environment, include_family_shared, known_at, moment) AS i
    WHERE i.measure = ANY (measures)
    UNION ALL
    -- The sums are those of now.
    SELECT 'not_delivered', (i.at AT TIME ZONE 'UTC')::date, i.rule, i.product_id, 1
    FROM charge_item(from_day, least(to_day, (moment AT TIME ZONE 'UTC')::date - 1), 'UTC', product,
        environment, include_family_shared, NULL, moment) AS i
    WHERE known_at IS NULL AND time_zone = 'UTC' AND 'not_delivered' = ANY (measures)
        AND i.measure = 'delivered_since';
END;
COMMENT ON FUNCTION charge_sum IS
    'What charge_item lists, from the sums by the day where these can answer: for days of UTC, as known '
    'now.';

CREATE OR REPLACE FUNCTION report_ownership_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'day',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, rule text, product_id text, original_transaction_id text,
    transaction_id text, at timestamptz, number bigint, account_id text, from_account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT c.measure, calendar_bucket_start((c.at AT TIME ZONE time_zone)::date, span.first_day, bucket),
        c.rule, c.product_id, c.original_transaction_id, c.transaction_id, c.at, 1::bigint,
        a.account_id, f.account_id
    FROM (
        SELECT day_start(min(b.from_day), time_zone) AS first_moment,
            day_start(max(b.to_day) + 1, time_zone) AS last_moment,
            min(b.from_day) AS first_day, max(b.to_day) AS last_day
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    ) AS span
    CROSS JOIN LATERAL (
        SELECT t.measure, t.rule, t.product_id, t.original_transaction_id, t.transaction_id, t.at,
            t.account_key, NULL::uuid AS from_account_key
        FROM charge_item(span.first_day, span.last_day, time_zone, product, environment,
            include_family_shared, known_at, least(as_of, known_at)) AS t
        WHERE t.measure IN ('decided', 'corrected')
        UNION ALL
        SELECT 'moved', b.rule, b.product_id, b.original_transaction_id, b.transaction_id,
            b.bound_at, b.account_key, p.account_key
        FROM account_binding AS b
        JOIN account_binding AS p ON p.environment = b.environment
            AND p.original_transaction_id = b.original_transaction_id AND p.number = b.number - 1
        WHERE (known_at IS NULL OR EXISTS (
                -- What the journal knew without noting whose it was: it is taken as it is now.
                SELECT FROM movement AS m
                WHERE m.environment = b.environment AND m.kind = 'charged' AND m.at = b.bound_at
                    AND m.transaction_id = b.transaction_id AND m.product_id = b.product_id
                    AND m.charge_original_transaction_id = b.charge_original_transaction_id
                    AND m.known_from <= known_at AND known_at < m.known_until AND m.rule IS NULL))
            AND b.environment = report_ownership_item.environment AND b.number > 1
            AND b.charge_original_transaction_id = b.original_transaction_id
            AND b.account_key IS DISTINCT FROM p.account_key
            AND (include_family_shared OR EXISTS (
                SELECT FROM store_transaction AS t
                WHERE t.environment = b.environment
                    AND t.original_transaction_id = b.original_transaction_id
                    AND t.transaction_id = b.transaction_id AND t.product_id = b.product_id
                    AND t.ownership_type = 'purchased'))
            AND b.bound_at >= span.first_moment AND b.bound_at < span.last_moment
            AND b.bound_at <= least(as_of, known_at)
            AND (product IS NULL OR b.product_id = product)
        UNION ALL
        -- Where a second account comes in.
        SELECT 'shared', b.rule, b.product_id, b.original_transaction_id, b.transaction_id,
            b.bound_at, b.account_key, p.account_key
        FROM account_binding AS b
        CROSS JOIN LATERAL (
            SELECT o.account_key FROM account_binding AS o
            WHERE o.environment = b.environment
                AND o.original_transaction_id = b.original_transaction_id
                AND o.number < b.number AND o.account_key IS NOT NULL
            ORDER BY o.number LIMIT 1
        ) AS p
        WHERE (known_at IS NULL OR EXISTS (
                -- What the journal knew without noting whose it was: it is taken as it is now.
                SELECT FROM movement AS m
                WHERE m.environment = b.environment AND m.kind = 'charged' AND m.at = b.bound_at
                    AND m.transaction_id = b.transaction_id AND m.product_id = b.product_id
                    AND m.charge_original_transaction_id = b.charge_original_transaction_id
                    AND m.known_from <= known_at AND known_at < m.known_until AND m.rule IS NULL))
            AND b.environment = report_ownership_item.environment AND b.number > 1
            AND b.charge_original_transaction_id = b.original_transaction_id
            AND b.account_key <> p.account_key
            AND NOT EXISTS (
                SELECT FROM account_binding AS o
                WHERE o.environment = b.environment
                    AND o.original_transaction_id = b.original_transaction_id
                    AND o.number < b.number AND o.account_key NOT IN (p.account_key))
            AND (include_family_shared OR EXISTS (
                SELECT FROM store_transaction AS t
                WHERE t.environment = b.environment
                    AND t.original_transaction_id = b.original_transaction_id
                    AND t.transaction_id = b.transaction_id AND t.product_id = b.product_id
                    AND t.ownership_type = 'purchased'))
            AND b.bound_at >= span.first_moment AND b.bound_at < span.last_moment
            AND b.bound_at <= least(as_of, known_at)
            AND (product IS NULL OR b.product_id = product)
        UNION ALL
        -- The same as it was known then.
        SELECT n.measure, m.rule, m.product_id, m.charge_original_transaction_id, m.transaction_id,
            m.at, m.account_key,
            CASE n.measure WHEN 'moved' THEN m.moved_from_key ELSE m.shared_with_key END
        FROM movement AS m
        CROSS JOIN LATERAL unnest(CASE WHEN m.shared_with_key IS NULL THEN ARRAY['moved']
            ELSE ARRAY['moved', 'shared'] END) AS n (measure)
        WHERE known_at IS NOT NULL AND m.environment = report_ownership_item.environment
            AND m.kind = 'charged' AND m.has_moved
            AND m.at >= span.first_moment AND m.at < span.last_moment
            AND m.at <= least(as_of, known_at)
            AND m.known_from <= known_at AND known_at < m.known_until
            AND (include_family_shared OR m.ownership_type = 'purchased')
            AND (product IS NULL OR m.product_id = product)
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key
    LEFT JOIN account_by_key AS f ON f.account_key = c.from_account_key;
END;
COMMENT ON FUNCTION report_ownership_item IS
    'What report_ownership counts: each charge that was decided or corrected, with its owner; each '
    'binding that moved, with the account that it moved from, the one that it moved to and the charge '
    'with which it did; for shared the charge with which a second account came in, with the first one.';

COMMENT ON FUNCTION report_ownership IS
    'How charges found their owners, per day, by the rule that decided. decided: charges by the date '
    'of the decision that holds (unclaimed: that nobody owns it); corrected: those whose owner '
    'Apple''s late evidence corrected, by the date of the correction; moved: original transactions '
    'whose binding went from one account (or nobody) to another, by the date of the charge with which '
    'it did; shared: original transactions on which that was a second account. As known at known_at: '
    'by which rule, whose and since when it was known then (of charges that were recorded before '
    'version 6 of the schema, as it is now).';

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
        SELECT day_start(min(b.from_day), time_zone) AS first_moment,
            day_start(max(b.to_day) + 1, time_zone) AS last_moment,
            min(b.from_day) AS first_day, max(b.to_day) AS last_day
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, moment) AS b
    )
    SELECT m.measure,
        calendar_bucket_start((o.created_at AT TIME ZONE time_zone)::date, span.first_day, bucket),
        o.product_id, o.order_id, t.original_transaction_id, t.transaction_id, o.created_at,
        t.charged_at, (extract(epoch FROM t.charged_at - o.created_at) * 1000)::bigint,
        t.period_type, t.currency, t.price_milliunits, o.account_key
    FROM span
    JOIN (
        SELECT p.order_id, p.product_id, p.created_at, p.account_key, p.environment,
            p.original_transaction_id, p.transaction_id,
            CASE WHEN known_at IS NULL OR p.fulfilled_at <= known_at THEN p.status ELSE 'open' END
                AS status
        FROM purchase_order AS p
        WHERE coalesce(CASE WHEN known_at IS NULL OR p.fulfilled_at <= known_at THEN p.environment END,
                order_item.environment) = order_item.environment
            AND p.created_at <= moment AND (product IS NULL OR p.product_id = product)
    ) AS o ON o.created_at >= span.first_moment AND o.created_at < span.last_moment
    LEFT JOIN store_transaction AS t ON o.status IN ('fulfilled', 'refunded')
        AND t.environment = o.environment
        AND t.original_transaction_id = o.original_transaction_id
        AND t.transaction_id = o.transaction_id AND t.product_id = o.product_id
        -- It names the order in its turn; and there is an index of those that do.
        AND t.order_id IS NOT NULL
        AND t.charged_at <= moment
    CROSS JOIN LATERAL unnest(CASE
        WHEN o.status = 'expired' THEN ARRAY['opened', 'expired']
        -- It was not paid at the moment, or is not at all.
        WHEN t.charged_at IS NULL THEN ARRAY['opened', 'open']
        WHEN CASE WHEN known_at IS NULL
            -- A refund whose date is not found has always been.
            THEN o.status = 'refunded' AND NOT EXISTS (
                SELECT FROM movement AS r
                WHERE r.environment = t.environment AND r.kind = 'refunded'
                    AND r.origin_at = t.charged_at AND r.transaction_id = t.transaction_id
                    AND r.product_id = t.product_id
                    AND r.charge_original_transaction_id = t.original_transaction_id
                    AND r.at > moment AND r.known_until = 'infinity')
            ELSE EXISTS (
                SELECT FROM movement AS r
                WHERE r.environment = t.environment AND r.kind = 'refunded'
                    AND r.origin_at = t.charged_at AND r.transaction_id = t.transaction_id
                    AND r.product_id = t.product_id
                    AND r.charge_original_transaction_id = t.original_transaction_id
                    AND r.at <= moment AND r.known_from <= known_at AND known_at < r.known_until)
            END
            THEN ARRAY['opened', 'paid', 'refunded']
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
COMMENT ON FUNCTION order_item IS
    'Orders and payments, once for each column of report_orders in which they are counted.';

CREATE OR REPLACE FUNCTION report_orders_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, product_id text, order_id uuid, original_transaction_id text,
    transaction_id text, at timestamptz, charged_at timestamptz, wait_ms bigint, number bigint,
    currency text, amount_milliunits bigint, price_source text, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT i.measure, i.from_day, i.product_id, i.order_id, i.original_transaction_id,
        i.transaction_id, i.at, i.charged_at, i.wait_ms, 1::bigint, price.currency,
        CASE WHEN price.currency IS NOT NULL THEN price.amount_milliunits END, price.price_source,
        a.account_id
    FROM order_item(from_date, to_date, bucket, time_zone, product, environment, known_at,
        least(as_of, known_at)) AS i
    -- What revenue counts of it.
    LEFT JOIN LATERAL (
        SELECT m.currency, m.amount_milliunits, m.price_source
        FROM movement AS m
        WHERE m.environment = report_orders_item.environment AND m.kind = 'charged'
            AND m.at = i.charged_at AND m.transaction_id = i.transaction_id
            AND m.product_id = i.product_id
            AND m.charge_original_transaction_id = i.original_transaction_id
            AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
                ELSE m.known_from <= known_at AND known_at < m.known_until END
        UNION ALL
        -- Of another name of a charge there is no movement.
        SELECT i.currency, i.amount_milliunits, 'app_store'
        WHERE i.currency IS NOT NULL AND i.amount_milliunits IS NOT NULL
        LIMIT 1
    ) AS price ON true
    LEFT JOIN account_by_key AS a ON a.account_key = i.account_key;
END;
COMMENT ON FUNCTION report_orders_item IS
    'What report_orders counts, once for each column that it is in: orders, with the charge that paid '
    'them, what that brought in (as in report_revenue) and the time between, and charges. at is the '
    'date that counts: of an order when it was opened, of a charge its own.';

COMMENT ON FUNCTION report_orders IS
    'Orders against payments: whoever ordered a trial has paid for it, too, and what is shared in a '
    'family nobody orders. By the date on which the order was opened: opened = open + expired (opened '
    'and never paid) + paid (matched with a charge), refunded being a part of paid; longest_wait and '
    'average_wait are the times from the order to its charge (below zero: the order came late, or '
    'clocks differ). By the date of the charge: paid_without_order: charges of an account that are no '
    'renewals and fulfilled no order; not_delivered: consumables and what fulfilled an order, owned, '
    'not revoked, and not acknowledged as delivered. An unpaid order has no environment and is counted '
    'in each. At as_of an order is open whose charge is dated later, and not delivered what was '
    'delivered later; one that expired has always expired, for that date is not kept. As known at '
    'known_at: an order that was not paid then is open, whether it had expired or not, and a charge '
    'has the owner that it had then, and neither an order nor a refund that were not recorded yet.';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['tenure_program', 'tenure_reader'] LOOP
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            EXECUTE format(
                'GRANT EXECUTE ON FUNCTION day_start, churn_cause, charge_then, charge_item_then, '
                    'report_churn, report_churn_item TO %I',
                name);
        END IF;
    END LOOP;
END
$$;

-- Brings the journal of every line up to date, if it is a worker of version 6 that does it.
INSERT INTO job (kind, subject, lane, run_at, created_at)
VALUES ('survey', 'all', 'upkeep', now(), now())
ON CONFLICT (kind, subject) DO UPDATE SET run_at = excluded.run_at,
    generation = job.generation + 1, attempts = 0, parked_at = NULL, last_error = NULL,
    created_at = excluded.created_at;

-- part: transaction
ALTER TABLE tenure.movement
    VALIDATE CONSTRAINT movement_number,
    VALIDATE CONSTRAINT movement_cause,
    VALIDATE CONSTRAINT movement_rule_check,
    VALIDATE CONSTRAINT movement_ownership;
