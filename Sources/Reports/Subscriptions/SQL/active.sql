-- The column of report_active in which a movement is counted. The conversion of a trial that was
-- counted is not new.
CREATE OR REPLACE FUNCTION active_measure(kind text, cause text)
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE kind
    WHEN 'started' THEN 'new'
    WHEN 'trial_started' THEN 'new'
    WHEN 'trial_ended' THEN CASE cause WHEN 'converted' THEN 'new'
        WHEN 'recovered' THEN 'resubscribed' ELSE 'expired' END
    WHEN 'resumed' THEN 'resubscribed'
    WHEN 'ended' THEN CASE cause WHEN 'refunded' THEN 'refunded' ELSE 'expired' END
    WHEN 'changed_to' THEN 'changed_in'
    WHEN 'changed_from' THEN 'changed_out'
END;

CREATE OR REPLACE FUNCTION report_active(from_date date DEFAULT NULL, to_date date DEFAULT NULL,
    bucket text DEFAULT 'month', time_zone text DEFAULT 'UTC', product text DEFAULT NULL,
    environment text DEFAULT 'production', include_family_shared boolean DEFAULT false,
    include_trials boolean DEFAULT false, include_grants boolean DEFAULT false,
    by text DEFAULT NULL, known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (from_day date, to_day date, segment text, opening bigint, new bigint,
    resubscribed bigint, expired bigint, refunded bigint, churned bigint, changed_in bigint,
    changed_out bigint, active bigint)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    WITH flow AS (
        SELECT c.from_day, c.segment, sum(c.number) AS number,
            sum(c.number) FILTER (WHERE c.measure = 'new') AS new,
            sum(c.number) FILTER (WHERE c.measure = 'resubscribed') AS resubscribed,
            -sum(c.number) FILTER (WHERE c.measure = 'expired') AS expired,
            -sum(c.number) FILTER (WHERE c.measure = 'refunded') AS refunded,
            sum(c.number) FILTER (WHERE c.measure = 'changed_in') AS changed_in,
            -sum(c.number) FILTER (WHERE c.measure = 'changed_out') AS changed_out
        FROM (
            SELECT s.from_day, s.segment, active_measure(s.kind, s.cause) AS measure, s.number
            FROM movement_flow(active_kinds(include_trials), 'at', false, true, from_date, to_date,
                bucket, time_zone, product, environment, include_family_shared, known_at, as_of,
                by) AS s
            UNION ALL
            SELECT calendar_bucket_start((g.at AT TIME ZONE time_zone)::date, shown.first_day,
                    bucket),
                NULL, CASE g.number WHEN 1 THEN 'new' ELSE 'expired' END, g.number
            FROM calendar_span(from_date, to_date, bucket, time_zone, least(as_of, known_at))
                AS shown
            CROSS JOIN LATERAL grant_item(include_grants, environment, product,
                least(as_of, known_at)) AS g
            WHERE (g.at AT TIME ZONE time_zone)::date <= shown.last_day
        ) AS c
        GROUP BY 1, 2
    )
    SELECT span.from_day, span.to_day, p.segment,
        (coalesce(o.number, 0) + sum(coalesce(f.number, 0)) OVER days - coalesce(f.number, 0))::bigint,
        coalesce(f.new, 0)::bigint, coalesce(f.resubscribed, 0)::bigint,
        coalesce(f.expired, 0)::bigint, coalesce(f.refunded, 0)::bigint,
        (coalesce(f.expired, 0) + coalesce(f.refunded, 0))::bigint,
        coalesce(f.changed_in, 0)::bigint, coalesce(f.changed_out, 0)::bigint,
        (coalesce(o.number, 0) + sum(coalesce(f.number, 0)) OVER days)::bigint
    FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
    CROSS JOIN (SELECT flow.segment FROM flow UNION SELECT NULL WHERE by IS NULL) AS p
    LEFT JOIN flow AS f ON f.from_day = span.from_day AND f.segment IS NOT DISTINCT FROM p.segment
    LEFT JOIN flow AS o ON o.from_day IS NULL AND o.segment IS NOT DISTINCT FROM p.segment
    WINDOW days AS (PARTITION BY p.segment ORDER BY span.from_day)
    ORDER BY span.from_day, p.segment;
END;
COMMENT ON FUNCTION report_active IS
    'Paid, unexpired subscriptions at the end of each day, week or month, and how that number came '
    'from the one at its start (opening). active = opening + new + resubscribed - churned + '
    'changed_in - changed_out; churned = expired + refunded. A subscription is unexpired until its '
    'effective end: the expiry, the end of a grace period, or the date of a refund; with auto-renew '
    'off it counts until then. new: paid for the first time. resubscribed: paid again after a '
    'lapse, by the customer or because Apple charged after retrying; report_reactivations has the '
    'former. expired: ended without a paid period that follows. refunded: ended by a refund. '
    'changed_in, changed_out: changed to another product while paid; equal over all products. '
    'include_trials counts a trial from its start: new is then its start instead of its conversion, '
    'expired its end without one, and resubscribed that Apple charged for it later. include_grants '
    'adds administrators'' grants, without a product. by splits the rows by the product of the '
    'time, or by the storefront, offer_type or period_type of the charge with which the paid time '
    'began (segment; null: not reported).';

CREATE OR REPLACE FUNCTION report_active_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    include_grants boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (measure text, from_day date, product_id text, storefront text, offer_type text,
    period_type text, original_transaction_id text, transaction_id text, at timestamptz,
    origin_at timestamptz, kind text, cause text, number bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    WITH span AS (
        SELECT * FROM calendar_span(from_date, to_date, bucket, time_zone, least(as_of, known_at))
    )
    SELECT active_measure(i.kind, i.cause), i.from_day, i.product_id, i.storefront, i.offer_type,
        i.period_type, i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.kind,
        i.cause,
        CASE WHEN active_measure(i.kind, i.cause) IN ('expired', 'refunded', 'changed_out')
            THEN -i.number ELSE i.number END,
        i.account_id
    FROM movement_row(active_kinds(include_trials), false, from_date, to_date, bucket, time_zone,
        product, environment, include_family_shared, known_at, as_of) AS i
    UNION ALL
    SELECT 'active', s.from_day, s.product_id, s.storefront, s.offer_type, s.period_type,
        s.original_transaction_id, s.transaction_id, s.since, s.origin_at, NULL, NULL, s.number,
        s.account_id
    FROM movement_stock(active_kinds(include_trials), false, false, from_date, to_date, bucket,
        time_zone, product, environment, include_family_shared, known_at, as_of) AS s
    UNION ALL
    SELECT CASE g.number WHEN 1 THEN 'new' ELSE 'expired' END,
        calendar_bucket_start((g.at AT TIME ZONE time_zone)::date, span.first_day, bucket),
        NULL, NULL, NULL, NULL, NULL, g.grant_id, g.at, NULL, 'grant', g.entitlement,
        abs(g.number), g.account_id
    FROM span
    CROSS JOIN LATERAL grant_item(include_grants, environment, product, least(as_of, known_at)) AS g
    WHERE (g.at AT TIME ZONE time_zone)::date BETWEEN span.first_day AND span.last_day
    UNION ALL
    SELECT 'active', span.last_row, NULL, NULL, NULL, NULL, NULL, g.grant_id, max(g.at), NULL,
        'grant', g.entitlement, sum(g.number)::bigint, g.account_id
    FROM span
    CROSS JOIN LATERAL grant_item(include_grants, environment, product, least(as_of, known_at)) AS g
    WHERE (g.at AT TIME ZONE time_zone)::date <= span.last_day
    GROUP BY span.last_row, g.grant_id, g.entitlement, g.account_id
    HAVING sum(g.number) <> 0;
END;
COMMENT ON FUNCTION report_active_item IS
    'What report_active counts: each movement under new, resubscribed, expired, refunded, '
    'changed_in or changed_out, and under active each subscription at the end of the last row only '
    '(ask for the days of another row to get its), with the charge with which it began and the '
    'account that owned it then. churned is expired and refunded. The transaction_id of a grant is '
    'its ID.';
