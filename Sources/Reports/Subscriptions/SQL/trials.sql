CREATE OR REPLACE FUNCTION report_trials(from_date date DEFAULT NULL, to_date date DEFAULT NULL,
    bucket text DEFAULT 'month', time_zone text DEFAULT 'UTC', product text DEFAULT NULL,
    environment text DEFAULT 'production', include_family_shared boolean DEFAULT false,
    by text DEFAULT NULL, known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (from_day date, to_day date, segment text, opening bigint, started bigint,
    recovered bigint, converted bigint, expired bigint, trials bigint, cohort_started bigint,
    cohort_converted bigint, cohort_expired bigint, conversion_rate numeric)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    WITH flow AS (
        SELECT c.from_day, c.segment,
            sum(c.number) FILTER (WHERE NOT c.is_cohort) AS number,
            sum(c.number) FILTER (WHERE c.kind = 'trial_started') AS started,
            sum(c.number) FILTER (WHERE NOT c.is_cohort AND c.cause = 'recovered') AS recovered,
            -sum(c.number) FILTER (WHERE NOT c.is_cohort AND c.cause = 'converted') AS converted,
            -sum(c.number) FILTER (WHERE NOT c.is_cohort AND c.kind = 'trial_ended'
                AND c.cause NOT IN ('converted', 'recovered')) AS expired,
            -sum(c.number) FILTER (WHERE c.is_cohort AND c.cause = 'converted')
                AS cohort_converted,
            -sum(c.number) FILTER (WHERE c.is_cohort AND c.cause <> 'converted') AS cohort_expired
        FROM (
            SELECT s.from_day, s.segment, s.kind, s.cause, s.number, false AS is_cohort
            FROM movement_flow(ARRAY['trial_started', 'trial_ended'], 'at', false, true, from_date,
                to_date, bucket, time_zone, product, environment, include_family_shared, known_at,
                as_of, by) AS s
            UNION ALL
            SELECT s.from_day, s.segment, s.kind, s.cause, s.number, true
            FROM movement_flow(ARRAY['trial_ended'], 'origin', true, false, from_date, to_date,
                bucket, time_zone, product, environment, include_family_shared, known_at, as_of,
                by) AS s
        ) AS c
        GROUP BY 1, 2
    )
    SELECT span.from_day, span.to_day, p.segment,
        (coalesce(o.number, 0) + sum(coalesce(f.number, 0)) OVER days - coalesce(f.number, 0))::bigint,
        coalesce(f.started, 0)::bigint, coalesce(f.recovered, 0)::bigint,
        coalesce(f.converted, 0)::bigint, coalesce(f.expired, 0)::bigint,
        (coalesce(o.number, 0) + sum(coalesce(f.number, 0)) OVER days)::bigint,
        coalesce(f.started, 0)::bigint, coalesce(f.cohort_converted, 0)::bigint,
        coalesce(f.cohort_expired, 0)::bigint,
        round(coalesce(f.cohort_converted, 0) / nullif(f.started, 0), 6)
    FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
    CROSS JOIN (SELECT flow.segment FROM flow UNION SELECT NULL WHERE by IS NULL) AS p
    LEFT JOIN flow AS f ON f.from_day = span.from_day AND f.segment IS NOT DISTINCT FROM p.segment
    LEFT JOIN flow AS o ON o.from_day IS NULL AND o.segment IS NOT DISTINCT FROM p.segment
    WINDOW days AS (PARTITION BY p.segment ORDER BY span.from_day)
    ORDER BY span.from_day, p.segment;
END;
COMMENT ON FUNCTION report_trials IS
    'Free trials that are unexpired at the end of each day, week or month, and how that number '
    'came about. trials = opening + started + recovered - converted - expired, each counted when '
    'it happened. converted: a paid period followed. expired: the trial ended without one, or was '
    'revoked. If Apple succeeds in charging later, after retrying, the trial counts on that day '
    'both as recovered and as converted. cohort_started, cohort_converted, cohort_expired: by the '
    'day on which the trial began, whenever it ended: the trials started in this row, and those of '
    'them that have converted or expired by as_of; the others are still open. conversion_rate = '
    'cohort_converted / cohort_started, rounded to 6 digits; final only when none is open. by '
    'splits the rows by the product, storefront, offer_type or period_type of the charge (segment; '
    'null: not reported).';

CREATE OR REPLACE FUNCTION report_trials_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (measure text, from_day date, product_id text, storefront text, offer_type text,
    period_type text, original_transaction_id text, transaction_id text, at timestamptz,
    origin_at timestamptz, cause text, number bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT m.measure, i.from_day, i.product_id, i.storefront, i.offer_type, i.period_type,
        i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.cause, abs(i.number),
        i.account_id
    FROM movement_row(ARRAY['trial_started', 'trial_ended'], false, from_date, to_date, bucket,
        time_zone, product, environment, include_family_shared, known_at, as_of) AS i
    CROSS JOIN LATERAL unnest(CASE
        WHEN i.kind = 'trial_started' THEN ARRAY['started', 'cohort_started']
        WHEN i.cause IN ('recovered', 'converted') THEN ARRAY[i.cause]
        ELSE ARRAY['expired'] END) AS m (measure)
    UNION ALL
    SELECT CASE i.cause WHEN 'converted' THEN 'cohort_converted' ELSE 'cohort_expired' END,
        i.from_day, i.product_id, i.storefront, i.offer_type, i.period_type,
        i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.cause, -i.number,
        i.account_id
    FROM movement_row(ARRAY['trial_ended'], true, from_date, to_date, bucket, time_zone, product,
        environment, include_family_shared, known_at, as_of) AS i
    UNION ALL
    SELECT 'trials', s.from_day, s.product_id, s.storefront, s.offer_type, s.period_type,
        s.original_transaction_id, s.transaction_id, s.since, s.origin_at, NULL, s.number,
        s.account_id
    FROM movement_stock(ARRAY['trial_started', 'trial_ended'], false, false, from_date, to_date,
        bucket, time_zone, product, environment, include_family_shared, known_at, as_of) AS s;
END;
COMMENT ON FUNCTION report_trials_item IS
    'What report_trials counts: each start and end of a trial, by its own date and (cohort_*) by '
    'that of the start; under cohort_expired a trial that Apple charged after all has a negative '
    'number. Under trials each that is unexpired at the end of the last row.';
