-- trials -----------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION report_trials(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, by_product boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, to_day date, product_id text, opening bigint, started bigint, converted bigint,
    expired bigint, trials bigint, cohort_started bigint, cohort_converted bigint,
    cohort_expired bigint, conversion_rate numeric)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT * FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at))
    ),
    shown AS (
        SELECT min(span.from_day) AS first_day, max(span.to_day) AS last_day FROM span
    ),
    flow AS (
        SELECT calendar_bucket_start(c.day, shown.first_day, bucket) AS from_day,
            c.product_id,
            sum(c.number) FILTER (WHERE NOT c.is_cohort) AS number,
            sum(c.number) FILTER (WHERE c.kind = 'trial_started') AS started,
            -sum(c.number) FILTER (WHERE c.kind = 'trial_ended' AND NOT c.is_cohort
                AND c.cause = 'converted') AS converted,
            -sum(c.number) FILTER (WHERE c.kind = 'trial_ended' AND NOT c.is_cohort
                AND c.cause <> 'converted') AS expired,
            -sum(c.number) FILTER (WHERE c.is_cohort AND c.cause = 'converted')
                AS cohort_converted,
            -sum(c.number) FILTER (WHERE c.is_cohort AND c.cause <> 'converted')
                AS cohort_expired
        FROM (
            SELECT s.day, CASE WHEN by_product THEN s.product_id END AS product_id, s.kind, s.cause,
                s.number, false AS is_cohort
            FROM shown
            CROSS JOIN LATERAL movement_sum(ARRAY['trial_started', 'trial_ended'], 'at', NULL,
                shown.last_day, time_zone, product, environment,
                include_family_shared, known_at, least(as_of, known_at)) AS s
            UNION ALL
            SELECT s.cohort, CASE WHEN by_product THEN s.product_id END, s.kind, s.cause, s.number,
                true
            FROM shown
            CROSS JOIN LATERAL movement_sum(ARRAY['trial_ended'], 'origin', shown.first_day,
                NULL, time_zone, product, environment, include_family_shared, known_at,
                least(as_of, known_at)) AS s
            WHERE s.cohort BETWEEN shown.first_day AND shown.last_day
        ) AS c
        CROSS JOIN shown
        GROUP BY 1, 2
    )
    SELECT b.from_day, b.to_day, b.product_id, (b.trials - b.number)::bigint, b.started::bigint,
        b.converted::bigint, b.expired::bigint, b.trials::bigint, b.started::bigint,
        b.cohort_converted::bigint, b.cohort_expired::bigint,
        round(b.cohort_converted / nullif(b.started, 0), 6)
    FROM (
        SELECT span.from_day, span.to_day, p.product_id, coalesce(f.number, 0) AS number,
            coalesce(f.started, 0) AS started, coalesce(f.converted, 0) AS converted,
            coalesce(f.expired, 0) AS expired, coalesce(f.cohort_converted, 0) AS cohort_converted,
            coalesce(f.cohort_expired, 0) AS cohort_expired,
            coalesce(o.number, 0)
                + sum(coalesce(f.number, 0)) OVER (PARTITION BY p.product_id ORDER BY span.from_day)
                AS trials
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
