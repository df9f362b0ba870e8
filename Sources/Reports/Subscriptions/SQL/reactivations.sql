CREATE OR REPLACE FUNCTION report_reactivations(from_date date DEFAULT NULL,
    to_date date DEFAULT NULL, bucket text DEFAULT 'month', time_zone text DEFAULT 'UTC',
    product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    by text DEFAULT NULL, known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (from_day date, to_day date, segment text, switched_off bigint, switched_on bigint,
    resubscribed bigint)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    WITH flow AS (
        SELECT s.from_day, s.segment,
            sum(s.number) FILTER (WHERE s.kind = 'auto_renew_off') AS switched_off,
            sum(s.number) FILTER (WHERE s.kind = 'auto_renew_on') AS switched_on,
            sum(s.number) FILTER (WHERE s.kind = 'resumed') AS resubscribed
        FROM movement_flow(ARRAY['auto_renew_off', 'auto_renew_on', 'resumed'], 'at', false, false,
            from_date, to_date, bucket, time_zone, product, environment, include_family_shared,
            known_at, as_of, by) AS s
        WHERE (include_trials OR s.period_type <> 'trial')
            AND NOT (s.kind = 'resumed' AND s.cause = 'recovered')
        GROUP BY 1, 2
    )
    SELECT span.from_day, span.to_day, p.segment, coalesce(f.switched_off, 0)::bigint,
        coalesce(f.switched_on, 0)::bigint, coalesce(f.resubscribed, 0)::bigint
    FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
    CROSS JOIN (SELECT flow.segment FROM flow UNION SELECT NULL WHERE by IS NULL) AS p
    LEFT JOIN flow AS f ON f.from_day = span.from_day AND f.segment IS NOT DISTINCT FROM p.segment
    ORDER BY span.from_day, p.segment;
END;
COMMENT ON FUNCTION report_reactivations IS
    'Two different things that are called reactivation. switched_on: the customer switched '
    'auto-renew on again before the subscription ended, by Apple''s date of the switch. '
    'resubscribed: it had lapsed and the customer paid again, by the date of that charge (as in '
    'report_active, but without those that Apple charged after retrying, which '
    'report_billing_issues counts as recovered). switched_off: what switched_on comes back from. '
    'Switches during a trial are left out, unless included. by splits the rows by the product, '
    'storefront, offer_type or period_type of the charge (segment; null: not reported).';

CREATE OR REPLACE FUNCTION report_reactivations_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (measure text, from_day date, product_id text, storefront text, offer_type text,
    period_type text, original_transaction_id text, transaction_id text, at timestamptz,
    origin_at timestamptz, number bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT CASE i.kind WHEN 'auto_renew_off' THEN 'switched_off'
            WHEN 'auto_renew_on' THEN 'switched_on' ELSE 'resubscribed' END,
        i.from_day, i.product_id, i.storefront, i.offer_type, i.period_type,
        i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.number, i.account_id
    FROM movement_row(ARRAY['auto_renew_off', 'auto_renew_on', 'resumed'], false, from_date, to_date,
        bucket, time_zone, product, environment, include_family_shared, known_at, as_of) AS i
    WHERE (include_trials OR i.period_type <> 'trial')
        AND NOT (i.kind = 'resumed' AND i.cause = 'recovered');
END;
COMMENT ON FUNCTION report_reactivations_item IS
    'Each switch and each return that report_reactivations counts.';
