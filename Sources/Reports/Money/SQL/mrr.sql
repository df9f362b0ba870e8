-- The column of report_mrr in which a movement is counted; 'changed': both halves of the change of
-- product decide.
CREATE OR REPLACE FUNCTION mrr_measure(kind text, cause text, is_of_products boolean)
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE kind
    WHEN 'started' THEN 'new'
    WHEN 'resumed' THEN 'reactivated'
    WHEN 'ended' THEN 'churned'
    WHEN 'repriced' THEN CASE cause WHEN 'rise' THEN 'expansion' WHEN 'fall' THEN 'contraction'
        ELSE 'currency_changed' END
    WHEN 'changed_to' THEN CASE WHEN is_of_products THEN 'expansion' ELSE 'changed' END
    WHEN 'changed_from' THEN CASE WHEN is_of_products THEN 'contraction' ELSE 'changed' END
END;

-- The kinds of movements that change monthly revenue.
CREATE OR REPLACE FUNCTION mrr_kinds()
RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ARRAY['started', 'resumed', 'ended', 'changed_from', 'changed_to', 'repriced'];

-- Changes of product, each half under the column that both together belong to.
CREATE OR REPLACE FUNCTION mrr_change_item(from_date date, to_date date, bucket text,
    time_zone text, environment text, include_family_shared boolean, known_at timestamptz,
    as_of timestamptz)
RETURNS TABLE (measure text, kind text, at timestamptz, from_day date, origin_at timestamptz,
    original_transaction_id text, transaction_id text, product_id text, storefront text,
    offer_type text, period_type text, currency text, price_source text, mrr_twelfths bigint,
    account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT CASE WHEN min(i.currency) OVER change <> max(i.currency) OVER change
            THEN 'currency_changed'
            WHEN sum(i.mrr_twelfths) OVER change > 0 THEN 'expansion'
            ELSE 'contraction' END,
        i.kind, i.at, calendar_bucket_start(i.day, span.first_day, bucket), i.origin_at,
        i.original_transaction_id, i.transaction_id, i.product_id, i.storefront, i.offer_type,
        i.period_type, i.currency, i.price_source, i.mrr_twelfths, i.account_key
    FROM calendar_span(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
    CROSS JOIN LATERAL movement_item(ARRAY['changed_from', 'changed_to'], 'at', span.first_day,
        span.last_day, time_zone, NULL, environment, include_family_shared, known_at,
        least(as_of, known_at)) AS i
    WINDOW change AS (PARTITION BY i.original_transaction_id, i.at);
END;

CREATE OR REPLACE FUNCTION report_mrr(from_date date DEFAULT NULL, to_date date DEFAULT NULL,
    bucket text DEFAULT 'month', time_zone text DEFAULT 'UTC', product text DEFAULT NULL,
    environment text DEFAULT 'production', include_family_shared boolean DEFAULT false,
    by text DEFAULT NULL, reporting_currency text DEFAULT NULL, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (from_day date, to_day date, segment text, currency text, opening_milliunits bigint,
    new_milliunits bigint, reactivated_milliunits bigint, expansion_milliunits bigint,
    contraction_milliunits bigint, churned_milliunits bigint, currency_changed_milliunits bigint,
    exchange_milliunits bigint, mrr_milliunits bigint, from_catalogue_milliunits bigint,
    mrr_twelfths numeric)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    WITH flow AS (
        SELECT c.from_day, c.segment, c.currency, sum(c.twelfths) AS twelfths,
            sum(c.twelfths) FILTER (WHERE c.price_source = 'catalogue') AS from_catalogue,
            sum(c.twelfths) FILTER (WHERE c.measure = 'new') AS new,
            sum(c.twelfths) FILTER (WHERE c.measure = 'reactivated') AS reactivated,
            sum(c.twelfths) FILTER (WHERE c.measure = 'expansion') AS expansion,
            sum(c.twelfths) FILTER (WHERE c.measure = 'contraction') AS contraction,
            sum(c.twelfths) FILTER (WHERE c.measure = 'churned') AS churned,
            sum(c.twelfths) FILTER (WHERE c.measure = 'currency_changed') AS currency_changed
        FROM (
            SELECT s.from_day, s.segment, s.currency, s.price_source, m.measure,
                s.mrr_twelfths AS twelfths
            FROM movement_flow(mrr_kinds(), 'at', false, true, from_date, to_date, bucket,
                time_zone, product, environment, include_family_shared, known_at, as_of, by) AS s
            CROSS JOIN LATERAL (SELECT mrr_measure(s.kind, s.cause,
                by IS NOT DISTINCT FROM 'product' OR product IS NOT NULL) AS measure) AS m
            WHERE m.measure <> 'changed' OR s.from_day IS NULL
            UNION ALL
            SELECT i.from_day, segment_of(by, NULL, i.storefront, i.offer_type, i.period_type),
                i.currency, i.price_source, i.measure, i.mrr_twelfths
            FROM mrr_change_item(from_date, to_date, bucket, time_zone, environment,
                include_family_shared, known_at, as_of) AS i
            WHERE by IS DISTINCT FROM 'product' AND product IS NULL
        ) AS c
        WHERE c.currency IS NOT NULL
        GROUP BY 1, 2, 3
    ),
    stock AS (
        SELECT span.from_day, span.to_day, p.segment, p.currency,
            coalesce(f.twelfths, 0) AS twelfths, coalesce(f.new, 0) AS new,
            coalesce(f.reactivated, 0) AS reactivated, coalesce(f.expansion, 0) AS expansion,
            coalesce(f.contraction, 0) AS contraction, coalesce(f.churned, 0) AS churned,
            coalesce(f.currency_changed, 0) AS currency_changed,
            coalesce(o.twelfths, 0) + sum(coalesce(f.twelfths, 0)) OVER days AS mrr,
            coalesce(o.from_catalogue, 0) + sum(coalesce(f.from_catalogue, 0)) OVER days
                AS from_catalogue
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
        CROSS JOIN (SELECT DISTINCT flow.segment, flow.currency FROM flow) AS p
        LEFT JOIN flow AS f ON f.from_day = span.from_day AND f.currency = p.currency
            AND f.segment IS NOT DISTINCT FROM p.segment
        LEFT JOIN flow AS o ON o.from_day IS NULL AND o.currency = p.currency
            AND o.segment IS NOT DISTINCT FROM p.segment
        WINDOW days AS (PARTITION BY p.segment, p.currency ORDER BY span.from_day)
    )
    SELECT s.from_day, s.to_day, s.segment, r.currency,
        round(sum((s.mrr - s.twelfths) * r.before) / 12)::bigint,
        round(sum(s.new * r.after) / 12)::bigint, round(sum(s.reactivated * r.after) / 12)::bigint,
        round(sum(s.expansion * r.after) / 12)::bigint,
        round(sum(s.contraction * r.after) / 12)::bigint,
        round(sum(s.churned * r.after) / 12)::bigint,
        round(sum(s.currency_changed * r.after) / 12)::bigint,
        round(sum((s.mrr - s.twelfths) * (r.after - r.before)) / 12)::bigint,
        round(sum(s.mrr * r.after) / 12)::bigint,
        round(sum(s.from_catalogue * r.after) / 12)::bigint, sum(s.mrr * r.after)
    FROM stock AS s
    LEFT JOIN LATERAL (
        SELECT exchange_rate_on(report_mrr.reporting_currency, s.currency, s.from_day - 1,
                known_at) AS before,
            exchange_rate_on(report_mrr.reporting_currency, s.currency, s.to_day, known_at) AS after
    ) AS x ON report_mrr.reporting_currency IS NOT NULL
    CROSS JOIN LATERAL (
        SELECT s.currency, 1 AS before, 1 AS after WHERE x.before * x.after IS NULL
        UNION ALL
        SELECT report_mrr.reporting_currency, x.before, x.after WHERE x.before * x.after IS NOT NULL
    ) AS r
    -- Rows without revenue and without movements are left out.
    WHERE s.mrr <> 0 OR s.twelfths <> 0 OR s.new <> 0 OR s.reactivated <> 0 OR s.expansion <> 0
        OR s.contraction <> 0 OR s.churned <> 0 OR s.currency_changed <> 0
    GROUP BY s.from_day, s.to_day, s.segment, r.currency
    ORDER BY s.from_day, s.segment, r.currency;
END;
COMMENT ON FUNCTION report_mrr IS
    'Monthly recurring revenue at the end of each day, week or month, and how it came from that at '
    'its start (opening). mrr: the normalised prices of active paid subscriptions. Normalised to a '
    'month: the price of a day x30, of a week x4, of 2 weeks x2, of a month x1, of 2 months x1/2, '
    'of 3 months x1/3, of 6 months x1/6, of a year x1/12. Active as in report_active. The price is '
    'that of the charge, frozen; if Apple gave none the catalogue''s of that date, which is the '
    'part from_catalogue; without either 0. mrr = opening + new + reactivated + expansion + '
    'contraction + churned + currency_changed + exchange. new: paid for the first time; '
    'reactivated: paid again after a lapse; expansion and contraction (negative): a higher or lower '
    'price or another product; churned (negative): ended; currency_changed: changed to or from '
    'another currency. by splits the rows by the product of the time, or by the storefront, '
    'offer_type or period_type of the charge with which the paid time began (segment; null: not '
    'reported). With product or by => ''product'' a change of product is a contraction of one '
    'product and an expansion of the other. Never summed across currencies, unless '
    'reporting_currency is given: currencies with an exchange rate, for the last day of the '
    'row and for the day before its first, are then converted and summed up: the opening at the '
    'rate of the day before, all else at that of the last day, and the difference is exchange; '
    'others keep rows of their own. Rates are those known at known_at; before the first was known, '
    'that first one. Amounts are milliunits, each rounded half away from zero; mrr_twelfths is '
    'exact, in twelfths of a milliunit.';

CREATE OR REPLACE FUNCTION report_mrr_item(from_date date DEFAULT NULL, to_date date DEFAULT NULL,
    bucket text DEFAULT 'month', time_zone text DEFAULT 'UTC', product text DEFAULT NULL,
    environment text DEFAULT 'production', include_family_shared boolean DEFAULT false,
    by text DEFAULT NULL, known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (measure text, from_day date, product_id text, storefront text, offer_type text,
    period_type text, original_transaction_id text, transaction_id text, at timestamptz,
    origin_at timestamptz, kind text, currency text, price_source text, mrr_twelfths bigint,
    account_id text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT c.*
    FROM (
        SELECT mrr_measure(i.kind, i.cause,
                by IS NOT DISTINCT FROM 'product' OR product IS NOT NULL) AS measure,
            i.from_day, i.product_id, i.storefront, i.offer_type, i.period_type,
            i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.kind, i.currency,
            i.price_source, i.mrr_twelfths, i.account_id
        FROM movement_row(mrr_kinds(), false, from_date, to_date, bucket, time_zone, product,
            environment, include_family_shared, known_at, as_of) AS i
        UNION ALL
        SELECT i.measure, i.from_day, i.product_id, i.storefront, i.offer_type, i.period_type,
            i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.kind, i.currency,
            i.price_source, i.mrr_twelfths, a.account_id
        FROM mrr_change_item(from_date, to_date, bucket, time_zone, environment,
            include_family_shared, known_at, as_of) AS i
        LEFT JOIN account_by_key AS a ON a.account_key = i.account_key
        WHERE by IS DISTINCT FROM 'product' AND product IS NULL
        UNION ALL
        SELECT 'mrr', s.from_day, s.product_id, s.storefront, s.offer_type, s.period_type,
            s.original_transaction_id, s.transaction_id, s.since, s.origin_at, NULL, s.currency,
            s.price_source, s.mrr_twelfths, s.account_id
        FROM movement_stock(mrr_kinds(), false, true, from_date, to_date, bucket, time_zone,
            product, environment, include_family_shared, known_at, as_of) AS s
    ) AS c
    WHERE c.measure <> 'changed' AND c.mrr_twelfths <> 0;
END;
COMMENT ON FUNCTION report_mrr_item IS
    'What report_mrr adds up, in each charge''s own currency: mrr_twelfths are twelfths of a '
    'milliunit a month. Under mrr each subscription at the end of the last row, under the other '
    'columns each movement; of a change of product both halves.';
