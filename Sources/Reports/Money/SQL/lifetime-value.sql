-- Subscriptions by the month of their first payment (cohort), and what was charged and refunded for
-- them, with the segment in which they began.
CREATE OR REPLACE FUNCTION lifetime_item(
    first_day date, last_day date, time_zone text, product text, environment text,
    include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (measure text, cohort date, period integer, day date, charged_on date,
    product_id text, storefront text, offer_type text, period_type text, charged_product_id text,
    original_transaction_id text, transaction_id text, at timestamptz, number bigint, currency text,
    amount_milliunits bigint, price_source text, account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    WITH start AS (
        SELECT *
        FROM movement_item(ARRAY['started'], 'cohort', first_day, NULL, time_zone, product,
            environment, include_family_shared, known_at, moment) AS i
        WHERE i.cohort BETWEEN first_day AND last_day
    )
    SELECT 'cohort_size', s.cohort, 0, s.day, s.day, s.product_id, s.storefront, s.offer_type,
        s.period_type, s.product_id, s.original_transaction_id, s.transaction_id, s.at, s.number,
        s.currency, 0::bigint, s.price_source, s.account_key
    FROM start AS s
    UNION ALL
    SELECT 'revenue', s.cohort,
        ((extract(year FROM i.day) - extract(year FROM s.cohort)) * 12
            + extract(month FROM i.day) - extract(month FROM s.cohort))::integer,
        i.day, coalesce(i.cohort, i.day), s.product_id, s.storefront, s.offer_type, s.period_type,
        i.product_id, i.original_transaction_id, i.transaction_id, i.at, abs(i.number), i.currency,
        i.amount_milliunits, i.price_source, i.account_key
    FROM start AS s
    JOIN movement_item(ARRAY['charged', 'refunded'], 'origin', first_day, NULL, time_zone, NULL,
        environment, include_family_shared, known_at, moment) AS i
        -- What was refunded at once was never paid time, and may be earlier.
        ON i.original_transaction_id = s.original_transaction_id AND i.day >= s.cohort
    WHERE i.amount_milliunits <> 0;
END;

CREATE OR REPLACE FUNCTION report_lifetime_value(from_date date DEFAULT NULL,
    to_date date DEFAULT NULL, time_zone text DEFAULT 'UTC', product text DEFAULT NULL,
    environment text DEFAULT 'production', include_family_shared boolean DEFAULT false,
    by text DEFAULT NULL, reporting_currency text DEFAULT NULL, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (cohort date, period integer, to_day date, segment text, currency text,
    cohort_size bigint, revenue_milliunits bigint, proceeds_milliunits bigint,
    arpu_milliunits bigint, ltv_milliunits bigint)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    WITH counted AS (
        SELECT i.cohort, i.period, i.day, i.charged_on, i.charged_product_id AS product_id,
            segment_of(by, i.product_id, i.storefront, i.offer_type, i.period_type) AS segment,
            i.currency, sum(i.number) FILTER (WHERE i.measure = 'cohort_size') AS size,
            sum(i.amount_milliunits) AS amount
        FROM calendar_months(from_date, to_date, time_zone, least(as_of, known_at)) AS shown
        CROSS JOIN LATERAL lifetime_item(shown.first_day, shown.last_day, time_zone, product,
            environment, include_family_shared, known_at, least(as_of, known_at)) AS i
        GROUP BY 1, 2, 3, 4, 5, 6, 7
    ),
    converted AS (
        SELECT d.day, d.currency, exchange_rate_on(report_lifetime_value.reporting_currency,
                d.currency, d.day, known_at) AS rate
        FROM (SELECT DISTINCT c.day, c.currency FROM counted AS c) AS d
        WHERE report_lifetime_value.reporting_currency IS NOT NULL
    ),
    -- A cohort is converted as a whole or not at all: a part of it has no LTV.
    rated AS (
        SELECT c.*, CASE WHEN count(*) OVER cohort = count(x.rate) OVER cohort THEN x.rate END
            AS rate
        FROM counted AS c
        LEFT JOIN converted AS x ON x.day = c.day AND x.currency = c.currency
        WINDOW cohort AS (PARTITION BY c.cohort, c.currency)
    ),
    kept AS (
        SELECT d.product_id, d.charged_on,
            1 - commission_on(d.product_id, d.charged_on, known_at) / 100 AS share
        FROM (SELECT DISTINCT c.product_id, c.charged_on FROM counted AS c) AS d
    ),
    flow AS (
        SELECT c.cohort, c.period, c.segment,
            CASE WHEN c.rate IS NULL THEN c.currency
                ELSE report_lifetime_value.reporting_currency END AS currency,
            sum(c.size) AS size, sum(c.amount * coalesce(c.rate, 1)) AS revenue,
            sum(c.amount * coalesce(c.rate, 1) * k.share) AS proceeds
        FROM rated AS c
        JOIN kept AS k ON k.product_id = c.product_id AND k.charged_on = c.charged_on
        GROUP BY 1, 2, 3, 4
    )
    SELECT r.cohort, r.period,
        least((r.cohort + make_interval(months => r.period + 1))::date - 1,
            (least(as_of, known_at) AT TIME ZONE time_zone)::date),
        r.segment, r.currency, r.size::bigint, round(r.revenue)::bigint, round(r.proceeds)::bigint,
        round(r.revenue / nullif(r.size, 0))::bigint, round(r.total / nullif(r.size, 0))::bigint
    FROM (
        SELECT g.cohort, m.number::integer - 1 AS period, g.segment, g.currency,
            coalesce(f.revenue, 0) AS revenue, coalesce(f.proceeds, 0) AS proceeds,
            sum(coalesce(f.size, 0)) OVER (PARTITION BY g.cohort, g.segment, g.currency) AS size,
            sum(coalesce(f.revenue, 0)) OVER (
                PARTITION BY g.cohort, g.segment, g.currency ORDER BY m.number) AS total
        FROM (SELECT DISTINCT flow.cohort, flow.segment, flow.currency FROM flow) AS g
        CROSS JOIN LATERAL generate_series(g.cohort::timestamp, least(as_of, known_at)
            AT TIME ZONE time_zone, interval '1 month') WITH ORDINALITY AS m (month, number)
        LEFT JOIN flow AS f ON f.cohort = g.cohort AND f.period = m.number - 1
            AND f.segment IS NOT DISTINCT FROM g.segment AND f.currency = g.currency
        WHERE g.currency IS NOT NULL
    ) AS r
    ORDER BY r.cohort, r.period, r.segment, r.currency;
END;
COMMENT ON FUNCTION report_lifetime_value IS
    'Revenue per subscription, by the month of its first payment, the cohort. cohort_size: '
    'subscriptions first paid in that month, in that currency. period: months since then, the last '
    'one up to as_of. revenue: what was charged for them in that month, whatever the '
    'product, less what was refunded in it; proceeds: the same less Apple''s commission, as in '
    'report_revenue. arpu = revenue / cohort_size; ltv: the revenue from the first month on / '
    'cohort_size, which is the sum of arpu_milliunits so far. Both are null if no subscription began in '
    'that currency. from_date and to_date choose the cohorts, by whole months. The product and '
    'segment (null: not reported) are those of the first payment. Never summed across '
    'currencies, unless reporting_currency is given, as in report_revenue; a cohort that has days '
    'without a rate stays in its own currency. Amounts are milliunits, rounded last, half away from '
    'zero.';

CREATE OR REPLACE FUNCTION report_lifetime_value_item(from_date date DEFAULT NULL,
    to_date date DEFAULT NULL, time_zone text DEFAULT 'UTC', product text DEFAULT NULL,
    environment text DEFAULT 'production', include_family_shared boolean DEFAULT false,
    period integer DEFAULT NULL, known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, cohort date, product_id text, storefront text, offer_type text, period_type text,
    charged_product_id text, original_transaction_id text, transaction_id text, at timestamptz,
    number bigint, currency text, amount_milliunits bigint, price_source text, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT i.measure, i.cohort, i.product_id, i.storefront, i.offer_type, i.period_type,
        i.charged_product_id, i.original_transaction_id, i.transaction_id, i.at, i.number,
        i.currency, i.amount_milliunits, i.price_source, a.account_id
    FROM calendar_months(from_date, to_date, time_zone, least(as_of, known_at)) AS shown
    CROSS JOIN LATERAL lifetime_item(shown.first_day, shown.last_day, time_zone, product,
        environment, include_family_shared, known_at, least(as_of, known_at)) AS i
    LEFT JOIN account_by_key AS a ON a.account_key = i.account_key
    WHERE i.measure = 'cohort_size' OR report_lifetime_value_item.period IS NULL
        OR i.period = report_lifetime_value_item.period;
END;
COMMENT ON FUNCTION report_lifetime_value_item IS
    'What report_lifetime_value counts: under cohort_size each first payment, under revenue each '
    'charge and refund (negative) of those subscriptions, of one period or of all. product_id and '
    'the others are those of the first payment, charged_product_id is that of the charge.';
