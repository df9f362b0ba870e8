CREATE OR REPLACE FUNCTION report_revenue(from_date date DEFAULT NULL, to_date date DEFAULT NULL,
    bucket text DEFAULT 'month', time_zone text DEFAULT 'UTC', product text DEFAULT NULL,
    environment text DEFAULT 'production', include_family_shared boolean DEFAULT false,
    by text DEFAULT NULL, reporting_currency text DEFAULT NULL, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (from_day date, to_day date, segment text, currency text, charges bigint,
    offers bigint, trials bigint, family_shared bigint, charged_milliunits bigint,
    from_catalogue_milliunits bigint, refunds bigint, refunded_milliunits bigint,
    refunds_of_charges bigint, refunded_of_charges_milliunits bigint,
    net_by_charge_milliunits bigint, net_by_refund_milliunits bigint, proceeds_milliunits bigint)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    WITH shown AS (
        SELECT * FROM calendar_span(from_date, to_date, bucket, time_zone, least(as_of, known_at))
    ),
    counted AS (
        SELECT s.day, s.day AS charged_on, s.product_id, s.segment, s.currency, s.kind AS measure,
            s.period_type, s.ownership_type, s.price_source, s.number, s.amount_milliunits AS amount
        FROM shown
        CROSS JOIN LATERAL movement_sum(ARRAY['charged'], 'at', shown.first_day,
            shown.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at), by) AS s
        UNION ALL
        SELECT CASE m.measure WHEN 'refunded' THEN s.day ELSE s.cohort END, s.cohort, s.product_id,
            s.segment, s.currency, m.measure, s.period_type, s.ownership_type, s.price_source,
            s.number, s.amount_milliunits
        FROM shown
        CROSS JOIN LATERAL movement_sum(ARRAY['refunded'], 'origin', NULL, NULL, time_zone, product,
            environment, include_family_shared, known_at, least(as_of, known_at), by) AS s
        CROSS JOIN (VALUES ('refunded'), ('of_charges')) AS m (measure)
        WHERE CASE m.measure WHEN 'refunded' THEN s.day ELSE s.cohort END
            BETWEEN shown.first_day AND shown.last_day
    ),
    -- Once for each day, because a look-up takes longer than a sum.
    converted AS (
        SELECT d.day, d.currency,
            exchange_rate_on(report_revenue.reporting_currency, d.currency, d.day, known_at) AS rate
        FROM (SELECT DISTINCT c.day, c.currency FROM counted AS c) AS d
        WHERE report_revenue.reporting_currency IS NOT NULL
    ),
    kept AS (
        SELECT d.product_id, d.charged_on,
            1 - commission_on(d.product_id, d.charged_on, known_at) / 100 AS share
        FROM (SELECT DISTINCT c.product_id, c.charged_on FROM counted AS c) AS d
    )
    SELECT span.from_day, span.to_day, c.segment, m.currency,
        coalesce(sum(c.number) FILTER (WHERE c.measure = 'charged' AND c.period_type <> 'trial'
            AND c.ownership_type = 'purchased'), 0)::bigint,
        coalesce(sum(c.number) FILTER (WHERE c.measure = 'charged'
            AND c.period_type IN ('intro', 'offer') AND c.ownership_type = 'purchased'), 0)::bigint,
        coalesce(sum(c.number) FILTER (WHERE c.measure = 'charged' AND c.period_type = 'trial'
            AND c.ownership_type = 'purchased'), 0)::bigint,
        coalesce(sum(c.number) FILTER (WHERE c.measure = 'charged'
            AND c.ownership_type = 'family_shared'), 0)::bigint,
        coalesce(round(sum(m.amount) FILTER (WHERE c.measure = 'charged')), 0)::bigint,
        coalesce(round(sum(m.amount) FILTER (WHERE c.measure = 'charged'
            AND c.price_source = 'catalogue')), 0)::bigint,
        coalesce(-sum(c.number) FILTER (WHERE c.measure = 'refunded'
            AND c.period_type <> 'trial'), 0)::bigint,
        coalesce(round(sum(m.amount) FILTER (WHERE c.measure = 'refunded')), 0)::bigint,
        coalesce(-sum(c.number) FILTER (WHERE c.measure = 'of_charges'
            AND c.period_type <> 'trial'), 0)::bigint,
        coalesce(round(sum(m.amount) FILTER (WHERE c.measure = 'of_charges')), 0)::bigint,
        coalesce(round(sum(m.amount) FILTER (WHERE c.measure <> 'refunded')), 0)::bigint,
        coalesce(round(sum(m.amount) FILTER (WHERE c.measure <> 'of_charges')), 0)::bigint,
        coalesce(round(sum(m.amount * k.share) FILTER (WHERE c.measure <> 'of_charges')), 0)::bigint
    FROM counted AS c
    CROSS JOIN shown
    JOIN calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
        ON span.from_day = calendar_bucket_start(c.day, shown.first_day, bucket)
    JOIN kept AS k ON k.product_id = c.product_id AND k.charged_on = c.charged_on
    LEFT JOIN converted AS x ON x.day = c.day AND x.currency = c.currency
    CROSS JOIN LATERAL (
        SELECT c.amount * coalesce(x.rate, 1) AS amount, CASE WHEN x.rate IS NULL THEN c.currency
            ELSE report_revenue.reporting_currency END AS currency
    ) AS m
    GROUP BY 1, 2, 3, 4
    ORDER BY 1, 3, 4;
END;
COMMENT ON FUNCTION report_revenue IS
    'Charges by the date of the transaction (Apple does not report the settlement date), of '
    'products of every type, per currency. charges: paid by the purchaser, whatever the price; '
    'offers: those of them at an introductory or other offer. trials and family_shared: without a '
    'price, and separate; what another member of the family paid for is left out, unless included. '
    'charged: what was paid, before Apple''s commission and taxes; if Apple gave no price the '
    'catalogue''s of that date, which is the part from_catalogue; without either 0, in the row '
    'without a currency. refunds and refunded: by the date of the refund; refunds_of_charges and '
    'refunded_of_charges: those of this row''s charges, refunded at any time up to as_of. Amounts '
    'of refunds are negative, and a revoked trial is not a refund. net_by_refund = charged + '
    'refunded; net_by_charge = charged + refunded_of_charges. proceeds: net_by_refund less '
    'Apple''s commission, which is that of the product on the day of the charge (30 percent unless '
    'another one is set) and which Apple gives back with a refund; taxes, which '
    'Apple does not report, are not taken off. Upgrades are not refunds. Never summed across '
    'currencies, unless reporting_currency is given: each currency with an exchange rate is '
    'then converted at the rate of the day on which it counts, and summed up exactly; others keep '
    'rows of their own. Rates are those known at known_at; before the first was known, that first '
    'one. Amounts are milliunits, rounded last, half away from zero. by splits the rows by '
    'the product, storefront, offer_type or period_type of the charge (segment; null: not '
    'reported).';

CREATE OR REPLACE FUNCTION report_revenue_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (measure text, from_day date, product_id text, storefront text, offer_type text,
    period_type text, original_transaction_id text, transaction_id text, at timestamptz,
    origin_at timestamptz, cause text, offer_id text, ownership_type text, number bigint,
    currency text, amount_milliunits bigint, price_source text, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT m.measure, i.from_day, i.product_id, i.storefront, i.offer_type, i.period_type,
        i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.cause, i.offer_id,
        i.ownership_type, abs(i.number), i.currency, i.amount_milliunits, i.price_source,
        i.account_id
    FROM movement_row(ARRAY['charged', 'refunded'], false, from_date, to_date, bucket, time_zone,
        product, environment, include_family_shared, known_at, as_of) AS i
    CROSS JOIN LATERAL unnest(CASE
        WHEN i.kind = 'refunded' AND i.period_type = 'trial' THEN ARRAY[]::text[]
        WHEN i.kind = 'refunded' THEN ARRAY['refunds']
        WHEN i.ownership_type = 'family_shared' THEN ARRAY['family_shared']
        WHEN i.period_type = 'trial' THEN ARRAY['trials']
        WHEN i.period_type IN ('intro', 'offer') THEN ARRAY['charges', 'offers']
        ELSE ARRAY['charges'] END) AS m (measure)
    UNION ALL
    SELECT 'refunds_of_charges', i.from_day, i.product_id, i.storefront, i.offer_type,
        i.period_type, i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.cause,
        i.offer_id, i.ownership_type, abs(i.number), i.currency, i.amount_milliunits,
        i.price_source, i.account_id
    FROM movement_row(ARRAY['refunded'], true, from_date, to_date, bucket, time_zone, product,
        environment, include_family_shared, known_at, as_of) AS i
    WHERE i.period_type <> 'trial';
END;
COMMENT ON FUNCTION report_revenue_item IS
    'What report_revenue counts, in each charge''s own currency: charges (offers again under '
    'offers), trials, family_shared, and each refund under refunds by its own date and under '
    'refunds_of_charges by that of its charge. charged is the sum of the amounts of charges, '
    'trials and family_shared, refunded that of refunds, refunded_of_charges that of '
    'refunds_of_charges.';
