-- From version 5 of the schema to version 6, serving programs since 5.
--
-- schema.sql describes version 6 as a whole; a test compares what both come to. What a program of
-- version 5 records meanwhile of renewals that Apple names no kind of, it counts as before: an audit
-- tells of it, and `tenure rebuild` mends it.
--
-- part: transaction
SET LOCAL search_path TO tenure;

-- What was renewed without anybody's buying is no charge without an order, though Apple names no kind.
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
    WHERE t.environment = charge_item.environment AND t.rule IS NOT NULL
        AND t.decided_at >= from_day::timestamp AT TIME ZONE time_zone
        AND t.decided_at < (to_day + 1)::timestamp AT TIME ZONE time_zone
        AND t.decided_at <= moment
        AND (include_family_shared OR t.ownership_type = 'purchased')
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'corrected', t.corrected_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    WHERE t.environment = charge_item.environment AND t.rule IS NOT NULL
        AND t.corrected_at >= from_day::timestamp AT TIME ZONE time_zone
        AND t.corrected_at < (to_day + 1)::timestamp AT TIME ZONE time_zone
        AND t.corrected_at <= moment
        AND (include_family_shared OR t.ownership_type = 'purchased')
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'paid_without_order', t.charged_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    WHERE t.environment = charge_item.environment AND t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased' AND t.order_id IS NULL AND t.kind <> 'renewal'
        -- What Apple names no kind of, and was renewed without anybody's buying, as charge_change has it.
        AND NOT (t.kind = 'unknown'
            AND t.ground IN ('renewed_at_period_end', 'recovered_from_billing_problem'))
        AND t.charged_at >= from_day::timestamp AT TIME ZONE time_zone
        AND t.charged_at < (to_day + 1)::timestamp AT TIME ZONE time_zone
        AND t.charged_at <= moment AND (known_at IS NULL OR t.recorded_at <= known_at)
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'not_delivered', t.charged_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    WHERE t.environment = charge_item.environment AND t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased' AND t.revoked_at IS NULL
        -- The first condition is the index's, and follows from the second.
        AND (t.kind <> 'renewal' OR t.order_id IS NOT NULL
            OR coalesce(t.product_type, 'consumable') = 'consumable')
        AND (t.order_id IS NOT NULL OR coalesce(t.product_type, (
            SELECT p.type FROM product AS p WHERE p.product_id = t.product_id
            ORDER BY p.valid_from DESC LIMIT 1)) = 'consumable')
        AND (t.delivered_at IS NULL OR t.delivered_at > known_at)
        AND t.charged_at >= from_day::timestamp AT TIME ZONE time_zone
        AND t.charged_at < (to_day + 1)::timestamp AT TIME ZONE time_zone
        AND t.charged_at <= moment AND (known_at IS NULL OR t.recorded_at <= known_at)
        AND (product IS NULL OR t.product_id = product);
END;

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
-- part: index
CREATE INDEX CONCURRENTLY IF NOT EXISTS store_transaction_unclaimed_by_date
    ON tenure.store_transaction (environment, coalesce(expires_at <= recorded_at, false), charged_at)
    WHERE rule IS NOT NULL AND owner_account_key IS NULL;
