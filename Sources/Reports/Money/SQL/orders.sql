-- Orders opened between two moments, as known now or at known_at.
CREATE OR REPLACE FUNCTION order_opened(product text, environment text, known_at timestamptz,
    first_moment timestamptz, last_moment timestamptz, moment timestamptz)
RETURNS TABLE (order_id uuid, product_id text, created_at timestamptz, account_key uuid,
    original_transaction_id text, transaction_id text, status text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT p.order_id, p.product_id, p.created_at, p.account_key,
        p.original_transaction_id, p.transaction_id,
        CASE WHEN known_at IS NULL OR p.fulfilled_at <= known_at THEN p.status ELSE 'open' END
    FROM purchase_order AS p
    WHERE coalesce(CASE WHEN known_at IS NULL OR p.fulfilled_at <= known_at THEN p.environment END,
            order_opened.environment) = order_opened.environment
        AND p.created_at >= first_moment AND p.created_at < last_moment
        AND p.created_at <= moment AND (product IS NULL OR p.product_id = product);
END;

-- Orders and charges, once for each column of report_orders in which they are counted.
CREATE OR REPLACE FUNCTION order_item(from_date date, to_date date, bucket text, time_zone text,
    product text, environment text, known_at timestamptz, moment timestamptz)
RETURNS TABLE (measure text, from_day date, product_id text, order_id uuid,
    original_transaction_id text, transaction_id text, at timestamptz, charged_at timestamptz,
    wait_ms bigint, period_type text, currency text, amount_milliunits bigint, account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    WITH span AS (
        SELECT * FROM calendar_span(from_date, to_date, bucket, time_zone, moment)
    )
    SELECT m.measure,
        calendar_bucket_start((o.created_at AT TIME ZONE time_zone)::date, span.first_day, bucket),
        o.product_id, o.order_id, t.original_transaction_id, t.transaction_id, o.created_at,
        t.charged_at, (extract(epoch FROM t.charged_at - o.created_at) * 1000)::bigint,
        t.period_type, t.currency, t.price_milliunits, o.account_key
    FROM span
    CROSS JOIN LATERAL order_opened(product, environment, known_at, span.first_moment,
        span.last_moment, moment) AS o
    LEFT JOIN store_transaction AS t ON o.status IN ('fulfilled', 'refunded')
        AND t.environment = order_item.environment
        AND t.original_transaction_id = o.original_transaction_id
        AND t.transaction_id = o.transaction_id AND t.product_id = o.product_id
        -- The charge names the order, too; an index has those that name one.
        AND t.order_id IS NOT NULL
        AND t.charged_at <= moment
    LEFT JOIN refund_movement(order_item.environment, known_at) AS r
        ON r.original_transaction_id = t.original_transaction_id
        AND r.transaction_id = t.transaction_id AND r.product_id = t.product_id
    CROSS JOIN LATERAL unnest(CASE
        WHEN o.status = 'expired' THEN ARRAY['opened', 'expired']
        -- Unpaid, or not paid at the moment.
        WHEN t.charged_at IS NULL THEN ARRAY['opened', 'open']
        WHEN CASE WHEN known_at IS NULL
            -- A refund without a known date counts at any moment.
            THEN o.status = 'refunded' AND (r.at > moment) IS NOT TRUE
            ELSE r.at <= moment END
            THEN ARRAY['opened', 'paid', 'refunded']
        ELSE ARRAY['opened', 'paid'] END) AS m (measure)
    UNION ALL
    SELECT t.measure,
        calendar_bucket_start((t.at AT TIME ZONE time_zone)::date, span.first_day, bucket),
        t.product_id, t.order_id, t.original_transaction_id, t.transaction_id, t.at, t.at, NULL,
        t.period_type, t.currency, t.amount_milliunits, t.account_key
    FROM span
    CROSS JOIN LATERAL charge_item(span.first_day, span.last_day, time_zone, product, environment,
        known_at, moment) AS t;
END;

CREATE OR REPLACE FUNCTION report_orders_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, product_id text, order_id uuid, original_transaction_id text,
    transaction_id text, at timestamptz, charged_at timestamptz, wait_ms bigint, number bigint,
    currency text, amount_milliunits bigint, price_source text, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    WITH item AS (
        SELECT * FROM order_item(from_date, to_date, bucket, time_zone, product, environment, known_at,
            least(as_of, known_at))
    )
    SELECT i.measure, i.from_day, i.product_id, i.order_id, i.original_transaction_id,
        i.transaction_id, i.at, i.charged_at, i.wait_ms, 1::bigint,
        coalesce(m.currency, i.currency), coalesce(m.amount_milliunits, i.amount_milliunits),
        coalesce(m.price_source, CASE WHEN i.currency IS NOT NULL THEN 'app_store' END), a.account_id
    FROM item AS i
    -- The price as report_revenue counts it; there is no movement of another transaction of a charge.
    CROSS JOIN (SELECT min(item.charged_at) AS first, max(item.charged_at) AS last FROM item) AS span
    LEFT JOIN LATERAL movement_item(ARRAY['charged'], 'at', (span.first AT TIME ZONE 'UTC')::date,
        (span.last AT TIME ZONE 'UTC')::date, 'UTC', NULL, environment, true, known_at, span.last) AS m
        ON m.at = i.charged_at AND m.transaction_id = i.transaction_id
        AND m.product_id = i.product_id
        AND m.charge_original_transaction_id = i.original_transaction_id
    LEFT JOIN account_by_key AS a ON a.account_key = i.account_key;
END;
COMMENT ON FUNCTION report_orders_item IS
    'What report_orders counts, once for each of its columns: orders, with the charge that paid '
    'them, its price (as in report_revenue) and the time between, and charges. at is the date by '
    'which it counts: when the order was opened, or the date of the charge.';

CREATE OR REPLACE FUNCTION report_orders(from_date date DEFAULT NULL, to_date date DEFAULT NULL,
    bucket text DEFAULT 'month', time_zone text DEFAULT 'UTC', product text DEFAULT NULL,
    environment text DEFAULT 'production', by text DEFAULT NULL, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (from_day date, to_day date, segment text, opened bigint, open bigint, expired bigint,
    paid bigint, refunded bigint, longest_wait_ms bigint, average_wait_ms bigint,
    paid_without_order bigint, not_delivered bigint)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    WITH flow AS (
        SELECT c.from_day, CASE by WHEN 'product' THEN c.product_id END AS segment,
            count(*) FILTER (WHERE c.measure = 'opened') AS opened,
            count(*) FILTER (WHERE c.measure = 'open') AS open,
            count(*) FILTER (WHERE c.measure = 'expired') AS expired,
            count(*) FILTER (WHERE c.measure = 'paid') AS paid,
            count(*) FILTER (WHERE c.measure = 'refunded') AS refunded,
            max(c.wait_ms) FILTER (WHERE c.measure = 'paid') AS longest_wait_ms,
            round(avg(c.wait_ms) FILTER (WHERE c.measure = 'paid')) AS average_wait_ms,
            count(*) FILTER (WHERE c.measure = 'paid_without_order') AS paid_without_order,
            count(*) FILTER (WHERE c.measure = 'not_delivered') AS not_delivered
        FROM order_item(from_date, to_date, bucket, time_zone, product, environment, known_at,
            least(as_of, known_at)) AS c
        GROUP BY 1, 2
    )
    SELECT span.from_day, span.to_day, p.segment, coalesce(f.opened, 0), coalesce(f.open, 0),
        coalesce(f.expired, 0), coalesce(f.paid, 0), coalesce(f.refunded, 0), f.longest_wait_ms,
        f.average_wait_ms::bigint, coalesce(f.paid_without_order, 0), coalesce(f.not_delivered, 0)
    FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
    CROSS JOIN (SELECT flow.segment FROM flow UNION SELECT NULL WHERE by IS NULL) AS p
    LEFT JOIN flow AS f ON f.from_day = span.from_day AND f.segment IS NOT DISTINCT FROM p.segment
    ORDER BY span.from_day, p.segment;
END;
COMMENT ON FUNCTION report_orders IS
    'Orders compared with payments; a trial pays its order, too, and family sharing is never '
    'ordered. By the date on which the order was opened: opened = open + expired + paid. expired: '
    'never paid; paid: matched with a charge; refunded: a part of those. longest_wait and '
    'average_wait: the times from the order to its charge; negative if the order came late, or '
    'clocks differ. The others count by the date of the charge. '
    'paid_without_order: charges of an account that are not renewals and fulfilled no order; '
    'not_delivered: consumables and ordered charges that are owned, not revoked, and not '
    'acknowledged as delivered. An unpaid order has no environment and counts in each. In a past '
    'report an order that was paid later is open, one that expired later has expired, and what was '
    'reopened since counts as it does now.';
