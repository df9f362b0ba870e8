-- Bindings that moved between two moments, and those by which a second account shares a
-- subscription.
CREATE OR REPLACE FUNCTION binding_item(
    product text, environment text, include_family_shared boolean, known_at timestamptz,
    first_moment timestamptz, last_moment timestamptz, moment timestamptz)
RETURNS TABLE (
    measure text, rule text, product_id text, original_transaction_id text, transaction_id text,
    at timestamptz, currency text, amount_milliunits bigint, account_key uuid,
    from_account_key uuid, decided_at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT n.measure, m.rule, m.product_id, m.charge_original_transaction_id, m.transaction_id,
        m.at, m.currency, m.amount_milliunits, m.account_key,
        CASE n.measure WHEN 'moved' THEN m.moved_from_key ELSE m.shared_with_key END,
        m.decided_at
    FROM movement AS m
    CROSS JOIN LATERAL unnest(CASE WHEN m.shared_with_key IS NULL THEN ARRAY['moved']
        ELSE ARRAY['moved', 'shared'] END) AS n (measure)
    WHERE m.environment = binding_item.environment
        AND m.kind = 'charged' AND m.has_moved
        AND m.at >= first_moment AND m.at < last_moment
        AND m.at <= moment
        AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
            ELSE m.known_from <= known_at AND known_at < m.known_until END
        AND (include_family_shared OR m.ownership_type = 'purchased')
        AND (product IS NULL OR m.product_id = product);
END;

-- The administrator's action that assigned a charge, as known at known_at.
CREATE OR REPLACE FUNCTION override_action(
    environment text, original_transaction_id text, transaction_id text, known_at timestamptz)
RETURNS TABLE (administrator text, reason text, account_key uuid, previous_account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT t.administrator, t.reason, t.account_key, t.previous_account_key
    FROM administrator_action AS t
    WHERE t.action IN ('transfer', 'release')
        AND t.subject = left(environment || '/' || original_transaction_id || '/' || transaction_id, 255)
        AND (known_at IS NULL OR t.acted_at <= known_at)
    ORDER BY t.action_id DESC LIMIT 1;
END;

CREATE OR REPLACE FUNCTION report_ownership_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'day',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (measure text, from_day date, rule text, product_id text,
    original_transaction_id text, transaction_id text, at timestamptz, currency text,
    number bigint, amount_milliunits bigint, account_id text, from_account_id text,
    decided_at timestamptz, administrator text, reason text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT c.measure, calendar_bucket_start((c.at AT TIME ZONE time_zone)::date, span.first_day, bucket),
        c.rule, c.product_id, c.original_transaction_id, c.transaction_id, c.at, c.currency,
        1::bigint, c.amount_milliunits, a.account_id, f.account_id, c.decided_at, o.administrator,
        administrator_reason(o.reason, o.account_key, n.account_id, o.previous_account_key,
            p.account_id)
    FROM calendar_span(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
    CROSS JOIN LATERAL (
        SELECT 'decided' AS measure, t.cause AS rule, t.product_id,
            t.charge_original_transaction_id AS original_transaction_id, t.transaction_id, t.at,
            t.currency, t.amount_milliunits, t.account_key, NULL::uuid AS from_account_key,
            t.at AS decided_at
        FROM movement_item(ARRAY['charged'], 'decided', span.first_day, span.last_day, time_zone,
            product, environment, include_family_shared, known_at, least(as_of, known_at)) AS t
        UNION ALL
        SELECT 'corrected', t.cause, t.product_id, t.charge_original_transaction_id,
            t.transaction_id, t.at, t.currency, t.amount_milliunits, t.account_key, NULL::uuid, t.at
        FROM movement_item(ARRAY['charged'], 'corrected', span.first_day, span.last_day, time_zone,
            product, environment, include_family_shared, known_at, least(as_of, known_at)) AS t
        UNION ALL
        SELECT i.measure, i.rule, i.product_id, i.original_transaction_id, i.transaction_id, i.at,
            i.currency, i.amount_milliunits, i.account_key, i.from_account_key, i.decided_at
        FROM binding_item(product, environment, include_family_shared, known_at,
            span.first_moment, span.last_moment, least(as_of, known_at)) AS i
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key
    LEFT JOIN account_by_key AS f ON f.account_key = c.from_account_key
    LEFT JOIN LATERAL override_action(CASE WHEN c.rule = 'administrator' THEN environment END,
        c.original_transaction_id, c.transaction_id, known_at) AS o ON true
    LEFT JOIN account_by_key AS n ON n.account_key = o.account_key
    LEFT JOIN account_by_key AS p ON p.account_key = o.previous_account_key;
END;
COMMENT ON FUNCTION report_ownership_item IS
    'What report_ownership counts: each charge that was decided or corrected, with its owner; '
    'under moved each original transaction that moved, with both accounts and the charge; '
    'under shared the charge with which a second account came in, with the first account. '
    'decided_at is when the owner of the charge was decided (under corrected: corrected), mostly '
    'later than the charge. administrator and reason are those of the action that assigned the '
    'charge; an import that assigned a whole original transaction is not such an action.';

CREATE OR REPLACE FUNCTION report_ownership(from_date date DEFAULT NULL, to_date date DEFAULT NULL,
    bucket text DEFAULT 'day', time_zone text DEFAULT 'UTC', product text DEFAULT NULL,
    environment text DEFAULT 'production', include_family_shared boolean DEFAULT false,
    by text DEFAULT NULL, known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (from_day date, to_day date, segment text, measure text, rule text, number bigint)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT span.from_day, span.to_day, i.segment, i.measure, i.rule, i.number
    FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
    JOIN (
        SELECT c.from_day, c.segment, c.measure, c.rule, sum(c.number)::bigint AS number
        FROM (
            SELECT 'decided' AS measure, f.from_day, f.cause AS rule, f.segment, f.number
            FROM movement_flow(ARRAY['charged'], 'decided', false, false, from_date, to_date,
                bucket, time_zone, product, environment, include_family_shared, known_at, as_of,
                by) AS f
            UNION ALL
            SELECT 'corrected', f.from_day, f.cause, f.segment, f.number
            FROM movement_flow(ARRAY['charged'], 'corrected', false, false, from_date, to_date,
                bucket, time_zone, product, environment, include_family_shared, known_at, as_of,
                by) AS f
            UNION ALL
            SELECT i.measure, i.from_day, i.rule, CASE by WHEN 'product' THEN i.product_id END,
                i.number
            FROM report_ownership_item(from_date, to_date, bucket, time_zone, product, environment,
                include_family_shared, known_at, as_of) AS i
            WHERE i.measure IN ('moved', 'shared')
        ) AS c
        GROUP BY 1, 2, 3, 4
        HAVING sum(c.number) <> 0
    ) AS i ON i.from_day = span.from_day
    ORDER BY span.from_day, i.segment, i.measure, i.rule;
END;
COMMENT ON FUNCTION report_ownership IS
    'How charges found their owners, by the rule that decided. “Had auto-renew on”: the account '
    'that was still auto-renewing. “Submitted first”: the first account to submit it. “App account '
    'token”: the account whose token the charge carries. decided: charges by the date of the '
    'decision in force (unclaimed: without an owner); corrected: those whose owner late evidence '
    'from Apple corrected, by the date of the correction; moved: original transactions whose '
    'renewals moved from one account (or none) to another, by the date of the charge with which '
    'they did; shared: original transactions to which that brought a second account. As known at '
    'known_at: the rule, the owner and the date of the decision known then.';
