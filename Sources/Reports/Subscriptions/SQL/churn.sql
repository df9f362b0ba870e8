-- The cause under which report_churn counts a movement; null: it does not.
CREATE OR REPLACE FUNCTION churn_cause(kind text, cause text)
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN kind = 'ended' THEN cause
    -- A revoked trial is not a refund.
    WHEN kind = 'trial_ended' AND cause = 'refunded' THEN 'unknown'
    WHEN kind = 'trial_ended' AND cause NOT IN ('converted', 'recovered') THEN cause END;

CREATE OR REPLACE FUNCTION report_churn(from_date date DEFAULT NULL, to_date date DEFAULT NULL,
    bucket text DEFAULT 'month', time_zone text DEFAULT 'UTC', product text DEFAULT NULL,
    environment text DEFAULT 'production', include_family_shared boolean DEFAULT false,
    include_trials boolean DEFAULT false, by text DEFAULT NULL, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (from_day date, to_day date, segment text, active_at_start bigint, voluntary bigint,
    price_not_consented bigint, involuntary bigint, product_withdrawn bigint, unknown bigint,
    expired bigint, refunded bigint, churned bigint, resubscribed bigint, churn_rate numeric,
    expiry_rate numeric)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    WITH flow AS (
        SELECT s.from_day, s.segment,
            -sum(s.number) FILTER (WHERE c.cause IN ('voluntary', 'price_not_consented'))
                AS voluntary,
            -sum(s.number) FILTER (WHERE c.cause = 'price_not_consented') AS price_not_consented,
            -sum(s.number) FILTER (WHERE c.cause = 'billing') AS involuntary,
            -sum(s.number) FILTER (WHERE c.cause = 'product_withdrawn') AS product_withdrawn,
            -sum(s.number) FILTER (WHERE c.cause = 'unknown') AS unknown
        FROM movement_flow(ARRAY['ended'] || CASE WHEN include_trials THEN ARRAY['trial_ended'] END,
            'at', false, false, from_date, to_date, bucket, time_zone, product, environment,
            include_family_shared, known_at, as_of, by) AS s
        CROSS JOIN LATERAL (SELECT churn_cause(s.kind, s.cause) AS cause) AS c
        GROUP BY 1, 2
    )
    SELECT a.from_day, a.to_day, a.segment, a.opening, coalesce(f.voluntary, 0)::bigint,
        coalesce(f.price_not_consented, 0)::bigint, coalesce(f.involuntary, 0)::bigint,
        coalesce(f.product_withdrawn, 0)::bigint, coalesce(f.unknown, 0)::bigint, a.expired,
        a.refunded, a.churned, a.resubscribed,
        round(a.churned::numeric / nullif(a.opening, 0), 6),
        round(a.expired::numeric / nullif(a.opening, 0), 6)
    FROM report_active(from_date, to_date, bucket, time_zone, product, environment,
        include_family_shared, include_trials, false, by, known_at, as_of) AS a
    LEFT JOIN flow AS f ON f.from_day = a.from_day AND f.segment IS NOT DISTINCT FROM a.segment
    ORDER BY a.from_day, a.segment;
END;
COMMENT ON FUNCTION report_churn IS
    'Paid subscriptions that churned in each day, week or month, compared with those active at its '
    'start (active_at_start, as in report_active). expired: the effective end came without a paid '
    'period that follows; it has a cause. voluntary: the customer cancelled or, counted again in '
    'price_not_consented, did not consent to a price; involuntary: billing; product_withdrawn: it '
    'could not be bought any more; unknown: Apple gave no reason, or revoked a trial. refunded: '
    'ended by a refund. churned = expired + refunded. resubscribed: paid again after a lapse, as in '
    'report_active; not taken off. churn_rate = churned / active_at_start, rounded to 6 digits; '
    'null if none was active. expiry_rate = expired / active_at_start, likewise. include_trials '
    'adds trials; a conversion is not churn. by splits the rows by the product of the time, or by '
    'the storefront, offer_type or period_type of the charge with which the paid time began '
    '(segment; null: not reported). A change of product is not churn.';

CREATE OR REPLACE FUNCTION report_churn_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (measure text, from_day date, product_id text, storefront text, offer_type text,
    period_type text, original_transaction_id text, transaction_id text, at timestamptz,
    origin_at timestamptz, cause text, number bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT m.measure, i.from_day, i.product_id, i.storefront, i.offer_type, i.period_type,
        i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.cause, abs(i.number),
        i.account_id
    FROM movement_row(
        ARRAY['ended', 'resumed'] || CASE WHEN include_trials THEN ARRAY['trial_ended'] END, false,
        from_date, to_date, bucket, time_zone, product, environment, include_family_shared,
        known_at, as_of) AS i
    CROSS JOIN LATERAL unnest(CASE
        WHEN active_measure(i.kind, i.cause) = 'resubscribed' THEN ARRAY['resubscribed']
        ELSE CASE churn_cause(i.kind, i.cause)
            WHEN 'refunded' THEN ARRAY['refunded']
            WHEN 'voluntary' THEN ARRAY['voluntary', 'expired']
            WHEN 'price_not_consented' THEN ARRAY['voluntary', 'price_not_consented', 'expired']
            WHEN 'billing' THEN ARRAY['involuntary', 'expired']
            WHEN 'product_withdrawn' THEN ARRAY['product_withdrawn', 'expired']
            WHEN 'unknown' THEN ARRAY['unknown', 'expired'] END END) AS m (measure)
    UNION ALL
    SELECT 'active_at_start', s.from_day, s.product_id, s.storefront, s.offer_type, s.period_type,
        s.original_transaction_id, s.transaction_id, s.since, s.origin_at, NULL, s.number,
        s.account_id
    FROM movement_stock(active_kinds(include_trials), true, false, from_date, to_date, bucket,
        time_zone, product, environment, include_family_shared, known_at, as_of) AS s;
END;
COMMENT ON FUNCTION report_churn_item IS
    'What report_churn counts: each end, once for each of its columns, and each return; under '
    'active_at_start each subscription, at the start of the first row only. churned is expired and '
    'refunded.';
