-- The class of days from a charge to its refund; the names of the classes sort.
CREATE OR REPLACE FUNCTION refund_delay(days integer)
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN days <= 0 THEN '000' WHEN days = 1 THEN '001' WHEN days <= 3 THEN '002-003'
    WHEN days <= 7 THEN '004-007' WHEN days <= 14 THEN '008-014' WHEN days <= 30 THEN '015-030'
    WHEN days <= 60 THEN '031-060' WHEN days <= 90 THEN '061-090' ELSE '091-'
END;

CREATE OR REPLACE FUNCTION report_refunds(from_date date DEFAULT NULL, to_date date DEFAULT NULL,
    bucket text DEFAULT 'month', time_zone text DEFAULT 'UTC', product text DEFAULT NULL,
    environment text DEFAULT 'production', include_family_shared boolean DEFAULT false,
    include_trials boolean DEFAULT false, by text DEFAULT NULL, date_of text DEFAULT 'refund',
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (from_day date, to_day date, segment text, reason text, days_after text,
    currency text, refunds bigint, refunded_milliunits bigint, from_catalogue_milliunits bigint,
    paid bigint, refund_rate numeric)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    WITH paid AS (
        SELECT s.from_day, s.segment, sum(s.number) AS number
        FROM movement_flow(ARRAY['charged'], 'at', false, false, from_date, to_date, bucket,
            time_zone, product, environment, include_family_shared, known_at, as_of, by) AS s
        WHERE include_trials OR s.period_type <> 'trial'
        GROUP BY 1, 2
    ),
    refund AS (
        SELECT s.from_day, s.segment, s.cause AS reason,
            refund_delay(s.day - s.cohort) AS days_after, s.currency, -sum(s.number) AS number,
            sum(s.amount_milliunits) AS amount,
            sum(s.amount_milliunits) FILTER (WHERE s.price_source = 'catalogue') AS from_catalogue
        FROM movement_flow(ARRAY['refunded'], 'origin', date_of IS NOT DISTINCT FROM 'charge',
            date_of IS NOT DISTINCT FROM 'charge', from_date, to_date, bucket, time_zone, product,
            environment, include_family_shared, known_at, as_of, by) AS s
        WHERE include_trials OR s.period_type <> 'trial'
        GROUP BY 1, 2, 3, 4, 5
        -- Refunds that were taken back are left out.
        HAVING sum(s.number) <> 0
    )
    SELECT span.from_day, span.to_day, coalesce(p.segment, r.segment), r.reason, r.days_after,
        r.currency, coalesce(r.number, 0)::bigint, coalesce(r.amount, 0)::bigint,
        coalesce(r.from_catalogue, 0)::bigint, coalesce(p.number, 0)::bigint,
        round(coalesce(r.number, 0) / nullif(p.number, 0), 6)
    FROM paid AS p
    FULL JOIN refund AS r ON r.from_day = p.from_day AND r.segment IS NOT DISTINCT FROM p.segment
    JOIN calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
        ON span.from_day = coalesce(p.from_day, r.from_day)
    WHERE p.number <> 0 OR r.number <> 0
    ORDER BY 1, 3, 4, 5, 6;
END;
COMMENT ON FUNCTION report_refunds IS
    'Refunded charges by the date of the refund, as in report_revenue, or, with date_of => '
    '''charge'', by the date of the charge, refunded at any time up to as_of. reason: Apple''s; '
    'empty if it gave none. days_after: classes of calendar days from the charge to the refund. '
    'refunded: the money, negative. from_catalogue: the part of it at the catalogue''s price. paid: '
    'all charges of those days and of that segment, in any currency; it is repeated in each row, '
    'and a row without refunds has it alone. refund_rate = refunds / paid, rounded to 6 digits; the '
    'rates of rows with the same paid add up. by splits the rows by the product, storefront, '
    'offer_type or period_type of the charge (segment; null: not reported). Upgrades are not '
    'refunds. Trials and family sharing are left out of both, unless included.';

CREATE OR REPLACE FUNCTION report_refunds_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    date_of text DEFAULT 'refund', known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (measure text, from_day date, product_id text, storefront text, offer_type text,
    period_type text, reason text, days_after text, original_transaction_id text,
    transaction_id text, charged_at timestamptz, refunded_at timestamptz, number bigint,
    currency text, amount_milliunits bigint, price_source text, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT 'refunds', i.from_day, i.product_id, i.storefront, i.offer_type, i.period_type, i.cause,
        refund_delay(i.day - i.cohort), i.original_transaction_id, i.transaction_id, i.origin_at,
        i.at, -i.number, i.currency, i.amount_milliunits, i.price_source, i.account_id
    FROM movement_row(ARRAY['refunded'], date_of IS NOT DISTINCT FROM 'charge', from_date, to_date, bucket, time_zone,
        product, environment, include_family_shared, known_at, as_of) AS i
    WHERE include_trials OR i.period_type <> 'trial'
    UNION ALL
    SELECT 'paid', i.from_day, i.product_id, i.storefront, i.offer_type, i.period_type, NULL, NULL,
        i.original_transaction_id, i.transaction_id, i.at, NULL, i.number, i.currency,
        i.amount_milliunits, i.price_source, i.account_id
    FROM movement_row(ARRAY['charged'], false, from_date, to_date, bucket, time_zone, product,
        environment, include_family_shared, known_at, as_of) AS i
    WHERE include_trials OR i.period_type <> 'trial';
END;
COMMENT ON FUNCTION report_refunds_item IS
    'The refunds that report_refunds counts, and the charges with which it compares them (paid).';
