-- Subscriptions that were set to renew at a moment, with the charge whose period ends. Reads one
-- table, joined by its original transaction, so that Citus can ask each shard.
CREATE OR REPLACE FUNCTION renewal_due(
    time_zone text, product text, environment text, include_family_shared boolean,
    include_trials boolean, known_at timestamptz, moment timestamptz, last_moment timestamptz)
RETURNS TABLE (day date, at timestamptz, product_id text, original_transaction_id text,
    transaction_id text, number bigint, account_key uuid, charged_at timestamptz,
    charge_original_transaction_id text, charge_transaction_id text, ownership_type text,
    period_type text, currency text, amount_milliunits bigint, price_source text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT (d.at AT TIME ZONE time_zone)::date, d.at, d.product_id, d.original_transaction_id,
        d.transaction_id, -d.number::bigint, d.account_key, latest.at,
        latest.charge_original_transaction_id, latest.transaction_id, latest.ownership_type,
        latest.period_type, latest.currency, latest.amount_milliunits, latest.price_source
    FROM movement AS d
    LEFT JOIN LATERAL (
        SELECT m.amount_milliunits, m.currency, m.price_source, m.period_type, m.ownership_type,
            m.charge_original_transaction_id, m.transaction_id, m.at
        FROM movement AS m
        WHERE m.environment = renewal_due.environment
            AND m.original_transaction_id = d.original_transaction_id AND m.kind = 'charged'
            AND m.known_from <= known_at AND known_at < m.known_until
            AND m.product_id = d.product_id AND m.at < d.at
        ORDER BY m.at DESC LIMIT 1
    ) AS latest ON true
    WHERE d.environment = renewal_due.environment AND d.kind = 'state' AND d.number = -1
        AND d.at > moment AND d.at <= last_moment
        AND d.known_from <= known_at AND known_at < d.known_until
        AND (include_family_shared OR d.ownership_type = 'purchased')
        AND (product IS NULL OR d.product_id = product)
        AND (d.cause = 'active_renewing' OR include_trials AND d.cause = 'trial_renewing')
        -- Apple charges up to a day early: a subscription that continues was renewed already.
        AND NOT EXISTS (
            SELECT FROM movement AS m
            WHERE m.environment = renewal_due.environment
                AND m.original_transaction_id = d.original_transaction_id AND m.kind = 'state'
                AND m.at = d.at AND m.number = 1
                AND m.cause IN ('active_renewing', 'active_cancelled')
                AND m.known_from <= known_at AND known_at < m.known_until);
END;

-- The product that a charge will renew as, according to Apple; null: not reported. Joined by the
-- charge's own original transaction.
CREATE OR REPLACE FUNCTION renews_as(
    environment text, original_transaction_id text, transaction_id text, product_id text,
    charged_at timestamptz, is_now boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (renews_as text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT coalesce((
        -- Most renew as the same product, whichever charge Apple said it about.
        SELECT o.auto_renew_product_id FROM original_transaction AS o
        WHERE is_now AND o.environment = renews_as.environment
            AND o.original_transaction_id = renews_as.original_transaction_id
            AND o.auto_renew_product_id = renews_as.product_id
    ), (
        SELECT r.auto_renew_product_id
        FROM renewal_status AS r
        WHERE r.environment = renews_as.environment
            AND r.original_transaction_id = renews_as.original_transaction_id
            AND r.auto_renew_product_id IS NOT NULL AND r.as_of <= moment
            -- Earlier statuses are about that charge: Apple renews up to a day early.
            AND (r.as_of >= charged_at OR r.as_of >= charged_at - interval '24 hours' AND EXISTS (
                SELECT FROM store_transaction AS t
                LEFT JOIN store_transaction AS p ON p.environment = t.environment
                    AND p.original_transaction_id = t.original_transaction_id
                    AND p.charged_at < t.charged_at
                    AND p.expires_at BETWEEN t.charged_at - interval '60 seconds'
                        AND t.charged_at + interval '60 seconds'
                WHERE t.environment = r.environment
                    AND t.original_transaction_id = r.original_transaction_id
                    AND t.transaction_id = renews_as.transaction_id
                    AND t.product_id = renews_as.product_id
                    AND (t.kind = 'renewal' OR t.kind = 'unknown' AND p.kind IS NOT NULL)))
            AND r.recorded_at <= known_at
        ORDER BY r.as_of DESC, r.number DESC LIMIT 1));
END;

CREATE OR REPLACE FUNCTION report_renewals_due_item(days integer DEFAULT 30,
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (day date, product_id text, renews_as text, original_transaction_id text,
    transaction_id text, due_at timestamptz, number bigint, currency text, amount_milliunits bigint,
    price_source text, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT d.day, d.product_id, next.product_id, d.original_transaction_id, d.transaction_id, d.at,
        d.number, price.currency, price.amount_milliunits, price.price_source, a.account_id
    FROM renewal_due(time_zone, product, environment, include_family_shared, include_trials,
        coalesce(known_at, as_of), least(as_of, known_at),
        least(as_of, known_at) + make_interval(hours => 24 * report_renewals_due_item.days)) AS d
    -- The caller's clock may differ from the database's.
    LEFT JOIN LATERAL renews_as(environment, d.charge_original_transaction_id,
        d.charge_transaction_id, d.product_id, d.charged_at,
        known_at IS NULL AND as_of >= now() - interval '1 minute', coalesce(known_at, as_of),
        least(as_of, known_at)) AS r ON true
    CROSS JOIN LATERAL (
        SELECT coalesce(r.renews_as, d.product_id) AS product_id,
            coalesce(r.renews_as = d.product_id, true) AND d.charged_at IS NOT NULL
                AND d.period_type = 'normal' AND d.currency IS NOT NULL AS is_at_same_price
    ) AS next
    LEFT JOIN LATERAL (
        SELECT d.amount_milliunits, d.currency, d.price_source WHERE next.is_at_same_price
        UNION ALL
        (SELECT CASE d.ownership_type WHEN 'family_shared' THEN 0 ELSE p.price_milliunits END,
            p.currency, 'catalogue'
        FROM product AS p
        WHERE p.product_id = next.product_id AND next.is_at_same_price IS NOT TRUE
            AND p.valid_from <= least(d.at, coalesce(known_at, as_of))
        ORDER BY p.valid_from DESC LIMIT 1)
    ) AS price ON true
    LEFT JOIN account_by_key AS a ON a.account_key = d.account_key;
END;
COMMENT ON FUNCTION report_renewals_due_item IS
    'Each subscription that report_renewals_due counts, with the charge whose period ends, the '
    'product it renews as, and the money expected.';

CREATE OR REPLACE FUNCTION report_renewals_due(days integer DEFAULT 30,
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (day date, product_id text, renews_as text, currency text, number bigint,
    amount_milliunits bigint, from_catalogue_milliunits bigint)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT i.day, i.product_id, i.renews_as, i.currency, sum(i.number)::bigint,
        sum(i.amount_milliunits)::bigint,
        coalesce(sum(i.amount_milliunits) FILTER (WHERE i.price_source = 'catalogue'), 0)::bigint
    FROM report_renewals_due_item(days, time_zone, product, environment, include_family_shared,
        include_trials, known_at, as_of) AS i
    GROUP BY i.day, i.product_id, i.renews_as, i.currency
    ORDER BY i.day, i.product_id, i.renews_as, i.currency;
END;
COMMENT ON FUNCTION report_renewals_due IS
    'Subscriptions that are paid and set to renew at as_of and whose paid period ends in the next '
    'days (each 24 hours), per day and product, with the money expected. renews_as: the '
    'product of the next period, by Apple''s latest report since the latest charge. The money is '
    'the price of the latest charge if the same product renews at its normal price; otherwise '
    '(after an offer, a trial or a change of product, or without a price) the catalogue''s as '
    'described then, which is the part from_catalogue; currency and money are empty if neither is '
    'known. include_trials adds trials set to renew. As known at as_of, or at known_at if given: '
    'what is known by now of renewals since would leave only those that failed.';
