-- Subscriptions that are in_grace_period or in_billing_retry at the end of a day, since when and
-- until when. Each entry into such a state has an exit, if only an expected one: in it are those
-- that leave it later less those that enter it later. Those are few and would be looked up one by
-- one, if the others were not read at once.
CREATE OR REPLACE FUNCTION billing_issue_stock(
    state text, last_day date, time_zone text, product text, environment text,
    include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (product_id text, storefront text, offer_type text, period_type text,
    original_transaction_id text, transaction_id text, since timestamptz, until timestamptz,
    number bigint, account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    WITH ending AS (
        SELECT least(
            day_start(last_day + 1, time_zone) - interval '1 microsecond', moment) AS at
    ),
    trouble AS NOT MATERIALIZED (
        SELECT m.product_id, m.original_transaction_id, m.transaction_id, m.at, m.number,
            m.account_key, m.storefront, m.offer_type, m.period_type
        FROM movement AS m
        WHERE m.environment = billing_issue_stock.environment AND m.kind = 'state'
            -- The first condition is that of the index, and follows from the second.
            AND m.cause IN ('in_grace_period', 'in_billing_retry')
            AND m.cause = billing_issue_stock.state
            AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
                ELSE m.known_from <= known_at AND known_at < m.known_until END
            AND (include_family_shared OR m.ownership_type = 'purchased')
            AND (product IS NULL OR m.product_id = product)
    ),
    begun AS MATERIALIZED (
        SELECT t.*
        FROM ending
        JOIN trouble AS t ON t.at <= ending.at
        WHERE t.number = 1
    )
    SELECT DISTINCT ON (s.product_id, s.original_transaction_id)
        s.product_id, b.storefront, b.offer_type, b.period_type, s.original_transaction_id,
        b.transaction_id, b.at, s.until, s.number, b.account_key
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

CREATE OR REPLACE FUNCTION report_billing_issues_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (measure text, from_day date, product_id text, storefront text, offer_type text,
    period_type text, original_transaction_id text, transaction_id text, since timestamptz,
    until timestamptz, number bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    -- What has begun has an end, which may be expected and lie ahead. The kinds are constants, so
    -- that their index is used.
    SELECT m.measure, i.from_day, i.product_id, i.storefront, i.offer_type, i.period_type,
        i.original_transaction_id, i.transaction_id, i.origin_at, i.at, i.number, i.account_id
    FROM movement_row(ARRAY['billing_recovered', 'billing_lost'], true, from_date, to_date, bucket,
        time_zone, product, environment, include_family_shared, known_at, as_of, 'infinity') AS i
    CROSS JOIN LATERAL unnest(CASE WHEN i.at > least(as_of, known_at) THEN ARRAY['entered']
        WHEN i.kind = 'billing_recovered' THEN ARRAY['entered', 'cohort_recovered']
        ELSE ARRAY['entered', 'cohort_lost'] END) AS m (measure)
    WHERE i.origin_at <= least(as_of, known_at)
    UNION ALL
    SELECT CASE i.kind WHEN 'billing_recovered' THEN 'recovered' ELSE 'lost' END, i.from_day,
        i.product_id, i.storefront, i.offer_type, i.period_type, i.original_transaction_id,
        i.transaction_id, i.origin_at, i.at, i.number, i.account_id
    FROM movement_row(ARRAY['billing_recovered', 'billing_lost'], false, from_date, to_date, bucket,
        time_zone, product, environment, include_family_shared, known_at, as_of) AS i
    UNION ALL
    SELECT k.measure, span.last_row, s.product_id, s.storefront, s.offer_type, s.period_type,
        s.original_transaction_id, s.transaction_id, s.since, s.until, s.number, a.account_id
    FROM calendar_span(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
    CROSS JOIN (VALUES ('in_grace_period'), ('in_billing_retry')) AS k (measure)
    CROSS JOIN LATERAL billing_issue_stock(k.measure, span.last_day, time_zone, product,
        environment, include_family_shared, known_at, least(as_of, known_at)) AS s
    LEFT JOIN account_by_key AS a ON a.account_key = s.account_key;
END;
COMMENT ON FUNCTION report_billing_issues_item IS
    'What report_billing_issues counts. Under in_grace_period and in_billing_retry each '
    'subscription at the end of the last row, since when it is in that state and until when it is '
    'expected to be; under the others each event, with the start and end of the billing issue.';

CREATE OR REPLACE FUNCTION report_billing_issues(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, by text DEFAULT NULL,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (from_day date, to_day date, segment text, in_grace_period bigint,
    in_billing_retry bigint, entered bigint, recovered bigint, lost bigint, cohort_recovered bigint,
    cohort_lost bigint, recovery_rate numeric)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    WITH flow AS (
        SELECT c.from_day, c.segment,
            sum(c.number) FILTER (WHERE c.measure = 'in_grace_period') AS in_grace_period,
            sum(c.number) FILTER (WHERE c.measure = 'in_billing_retry') AS in_billing_retry,
            sum(c.number) FILTER (WHERE c.measure = 'entered') AS entered,
            sum(c.number) FILTER (WHERE c.measure = 'recovered') AS recovered,
            sum(c.number) FILTER (WHERE c.measure = 'lost') AS lost,
            sum(c.number) FILTER (WHERE c.measure = 'cohort_recovered') AS cohort_recovered,
            sum(c.number) FILTER (WHERE c.measure = 'cohort_lost') AS cohort_lost
        FROM (
            SELECT s.from_day, s.segment, s.cause AS measure, s.number
            FROM movement_flow(ARRAY['state'], 'at', false, true, from_date, to_date, bucket,
                time_zone, product, environment, include_family_shared, known_at, as_of, by) AS s
            WHERE s.cause IN ('in_grace_period', 'in_billing_retry')
            UNION ALL
            SELECT s.from_day, s.segment,
                CASE s.kind WHEN 'billing_recovered' THEN 'recovered' ELSE 'lost' END, s.number
            FROM movement_flow(ARRAY['billing_recovered', 'billing_lost'], 'at', false, false,
                from_date, to_date, bucket, time_zone, product, environment, include_family_shared,
                known_at, as_of, by) AS s
            UNION ALL
            SELECT s.from_day, s.segment,
                CASE s.kind WHEN 'billing_recovered' THEN 'cohort_recovered' ELSE 'cohort_lost' END,
                s.number
            FROM movement_flow(ARRAY['billing_recovered', 'billing_lost'], 'origin', true, false,
                from_date, to_date, bucket, time_zone, product, environment, include_family_shared,
                known_at, as_of, by) AS s
            UNION ALL
            -- What has begun has an end, which may be expected and lie ahead.
            SELECT s.from_day, s.segment, 'entered', s.number
            FROM movement_flow(ARRAY['billing_recovered', 'billing_lost'], 'origin', true, false,
                from_date, to_date, bucket, time_zone, product, environment, include_family_shared,
                known_at, as_of, by, 'infinity') AS s
            WHERE s.cohort < (least(as_of, known_at) AT TIME ZONE time_zone)::date
            UNION ALL
            SELECT calendar_bucket_start(i.cohort, span.first_day, bucket),
                segment_of(by, i.product_id, i.storefront, i.offer_type, i.period_type), 'entered',
                i.number
            FROM calendar_span(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
            CROSS JOIN LATERAL movement_item(ARRAY['billing_recovered', 'billing_lost'], 'origin',
                (least(as_of, known_at) AT TIME ZONE time_zone)::date, NULL, time_zone, product,
                environment, include_family_shared, known_at, 'infinity') AS i
            WHERE i.cohort = (least(as_of, known_at) AT TIME ZONE time_zone)::date
                AND i.cohort <= span.last_day AND i.origin_at <= least(as_of, known_at)
        ) AS c
        GROUP BY 1, 2
    )
    SELECT span.from_day, span.to_day, p.segment,
        (coalesce(o.in_grace_period, 0) + sum(coalesce(f.in_grace_period, 0)) OVER days)::bigint,
        (coalesce(o.in_billing_retry, 0) + sum(coalesce(f.in_billing_retry, 0)) OVER days)::bigint,
        coalesce(f.entered, 0)::bigint, coalesce(f.recovered, 0)::bigint,
        coalesce(f.lost, 0)::bigint, coalesce(f.cohort_recovered, 0)::bigint,
        coalesce(f.cohort_lost, 0)::bigint,
        round(coalesce(f.cohort_recovered, 0) / nullif(f.entered, 0), 6)
    FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
    CROSS JOIN (SELECT flow.segment FROM flow UNION SELECT NULL WHERE by IS NULL) AS p
    LEFT JOIN flow AS f ON f.from_day = span.from_day AND f.segment IS NOT DISTINCT FROM p.segment
    LEFT JOIN flow AS o ON o.from_day IS NULL AND o.segment IS NOT DISTINCT FROM p.segment
    WINDOW days AS (PARTITION BY p.segment ORDER BY span.from_day)
    ORDER BY span.from_day, p.segment;
END;
COMMENT ON FUNCTION report_billing_issues IS
    'Subscriptions whose renewal Apple could not charge, including the first one after a trial. '
    'in_grace_period: those with access, at the end of each day, week or month; in_billing_retry: '
    'those without, also if Apple did not report it, but charged the renewal within 60 days (90 on '
    'a commitment). entered: how many billing issues began; a retry that follows a grace period is '
    'the same issue. recovered: Apple charged after all; lost: Apple gave up or the customer '
    'cancelled; both by their own date. cohort_recovered and cohort_lost are the same by the day on '
    'which the issue began; the others of those entered are still open. recovery_rate = '
    'cohort_recovered / entered, rounded to 6 digits; final only when none is open. by splits the '
    'rows by the product, storefront, offer_type or period_type of the charge (segment; null: not '
    'reported).';
