CREATE OR REPLACE FUNCTION report_retention(from_date date DEFAULT NULL, to_date date DEFAULT NULL,
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (cohort date, period integer, to_day date, cohort_size bigint, retained bigint,
    retention_rate numeric)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    WITH shown AS (
        SELECT * FROM calendar_months(from_date, to_date, time_zone, least(as_of, known_at))
    ),
    flow AS (
        SELECT s.cohort, date_trunc('month', s.day::timestamp)::date AS month,
            sum(s.number) AS number, sum(s.number) FILTER (WHERE s.kind = 'started') AS started
        FROM shown
        CROSS JOIN LATERAL movement_sum(active_kinds(false), 'cohort', shown.first_day, NULL,
            time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS s
        WHERE s.cohort BETWEEN shown.first_day AND shown.last_day
        GROUP BY 1, 2
    )
    SELECT r.cohort, (row_number() OVER (PARTITION BY r.cohort ORDER BY r.month))::integer - 1,
        least((r.month + interval '1 month')::date - 1,
            (least(as_of, known_at) AT TIME ZONE time_zone)::date),
        r.size::bigint, r.retained::bigint, round(r.retained / nullif(r.size, 0), 6)
    FROM (
        SELECT c.month::date AS cohort, m.month::date AS month,
            sum(coalesce(f.started, 0)) OVER (PARTITION BY c.month) AS size,
            sum(coalesce(f.number, 0)) OVER (PARTITION BY c.month ORDER BY m.month) AS retained
        FROM shown
        CROSS JOIN LATERAL generate_series(
            shown.first_day::timestamp, shown.last_day, interval '1 month') AS c (month)
        CROSS JOIN LATERAL generate_series(
            c.month, least(as_of, known_at) AT TIME ZONE time_zone, interval '1 month') AS m (month)
        LEFT JOIN flow AS f ON f.cohort = c.month::date AND f.month = m.month::date
    ) AS r
    ORDER BY 1, 2;
END;
COMMENT ON FUNCTION report_retention IS
    'By the month of the first payment, the cohort. cohort_size: subscriptions first paid in that '
    'month. retained: those of them that are paid and unexpired at the end of that month (period '
    '0) and of each following one (period 1, 2, …). The last period ends at as_of. A trial is in '
    'no cohort until its first charge. Customers who resubscribe count as retained in their '
    'original cohort. retention_rate = retained / cohort_size, rounded to 6 digits. from_date and '
    'to_date choose the cohorts, by whole months. With product only starts with that product and '
    'subscriptions to it count: changes to it are retained, changes from it are not.';

CREATE OR REPLACE FUNCTION report_retention_item(from_date date DEFAULT NULL,
    to_date date DEFAULT NULL, time_zone text DEFAULT 'UTC', product text DEFAULT NULL,
    environment text DEFAULT 'production', include_family_shared boolean DEFAULT false,
    period integer DEFAULT NULL, known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (measure text, cohort date, product_id text, original_transaction_id text,
    transaction_id text, at timestamptz, number bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    WITH span AS (
        SELECT * FROM calendar_months(from_date, to_date, time_zone, least(as_of, known_at))
    )
    SELECT c.measure, c.cohort, c.product_id, c.original_transaction_id, c.transaction_id, c.at,
        c.number, a.account_id
    FROM (
        SELECT 'cohort_size' AS measure, i.cohort, i.product_id, i.original_transaction_id,
            i.transaction_id, i.at, i.number, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['started'], 'cohort', span.first_day, NULL, time_zone,
            product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        WHERE i.cohort BETWEEN span.first_day AND span.last_day
        UNION ALL
        SELECT 'retained', s.cohort, s.product_id, s.original_transaction_id,
            (array_agg(s.transaction_id ORDER BY s.at DESC, s.number DESC))[1], max(s.at),
            sum(s.number)::bigint, (array_agg(s.account_key ORDER BY s.at DESC, s.number DESC))[1]
        FROM span
        CROSS JOIN LATERAL movement_item(active_kinds(false), 'cohort', span.first_day, NULL, time_zone,
            product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS s
        WHERE s.cohort BETWEEN span.first_day AND span.last_day
            AND (report_retention_item.period IS NULL OR s.day < s.cohort
                + make_interval(months => report_retention_item.period + 1))
        GROUP BY s.cohort, s.product_id, s.original_transaction_id
        HAVING sum(s.number) <> 0
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key;
END;
COMMENT ON FUNCTION report_retention_item IS
    'What report_retention counts: under cohort_size each start, under retained each subscription '
    'that is paid at the end of the given period, or at as_of without one.';
