-- Charges without an owner, as known now or at known_at.
CREATE OR REPLACE FUNCTION unclaimed_charge(product text, environment text,
    include_family_shared boolean, include_trials boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (charge_original_transaction_id text, transaction_id text, product_id text,
    at timestamptz, number smallint, currency text, amount_milliunits bigint, price_source text,
    known_until timestamptz, expires_at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT m.charge_original_transaction_id, m.transaction_id, m.product_id, m.at, m.number,
        m.currency, m.amount_milliunits, m.price_source, m.known_until, m.expires_at
    FROM movement AS m
    WHERE m.environment = unclaimed_charge.environment AND m.kind = 'charged'
        AND m.account_key IS NULL AND m.at <= moment
        AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
            ELSE m.known_from <= known_at AND known_at < m.known_until END
        AND (include_family_shared OR m.ownership_type = 'purchased')
        AND (include_trials OR m.period_type <> 'trial')
        AND (product IS NULL OR m.product_id = product);
END;

-- When a transaction was first recorded, and when its period ends.
CREATE OR REPLACE FUNCTION first_seen(
    environment text, original_transaction_id text, transaction_id text, product_id text)
RETURNS TABLE (recorded_at timestamptz, expires_at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT t.recorded_at, t.expires_at
    FROM store_transaction AS t
    WHERE t.environment = first_seen.environment
        AND t.original_transaction_id = first_seen.original_transaction_id
        AND t.transaction_id = first_seen.transaction_id AND t.product_id = first_seen.product_id;
END;

CREATE OR REPLACE FUNCTION report_unclaimed_item(
    product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (was_over boolean, has_ended boolean, age text, product_id text,
    original_transaction_id text, transaction_id text, charged_at timestamptz,
    first_seen_at timestamptz, expires_at timestamptz, number bigint, currency text,
    amount_milliunits bigint, price_source text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT coalesce(t.expires_at <= t.recorded_at, false),
        coalesce(t.expires_at <= greatest(t.recorded_at, least(as_of, known_at)), false), age.class,
        m.product_id, m.charge_original_transaction_id, m.transaction_id, m.at, t.recorded_at,
        t.expires_at, m.number::bigint, m.currency, m.amount_milliunits, m.price_source
    FROM unclaimed_charge(product, environment, include_family_shared, include_trials,
        known_at, least(as_of, known_at)) AS m
    LEFT JOIN store_transaction AS u ON u.environment = report_unclaimed_item.environment
        AND u.original_transaction_id = m.charge_original_transaction_id
        AND u.transaction_id = m.transaction_id AND u.product_id = m.product_id
        AND u.rule IS NOT NULL AND u.owner_account_key IS NULL
    -- Looked up one by one: charges without an owner at known_at that have one now.
    LEFT JOIN LATERAL first_seen(
        CASE WHEN known_at IS NOT NULL AND u.recorded_at IS NULL
            THEN report_unclaimed_item.environment END,
        m.charge_original_transaction_id, m.transaction_id, m.product_id) AS c ON true
    CROSS JOIN LATERAL (
        SELECT coalesce(u.recorded_at, c.recorded_at) AS recorded_at,
            -- The journal kept what has changed since; everything else is as it was.
            CASE WHEN known_at IS NOT NULL AND m.known_until < 'infinity'
                THEN nullif(m.expires_at, 'infinity')
                ELSE coalesce(u.expires_at, c.expires_at) END AS expires_at
    ) AS t
    -- Rows instead of a CASE, so that the planner knows how few classes there are.
    JOIN (VALUES
        ('1: under an hour', least(as_of, known_at) - interval '1 hour', 'infinity'),
        ('2: under a day', least(as_of, known_at) - interval '24 hours',
            least(as_of, known_at) - interval '1 hour'),
        ('3: under 7 days', least(as_of, known_at) - interval '168 hours',
            least(as_of, known_at) - interval '24 hours'),
        ('4: under 30 days', least(as_of, known_at) - interval '720 hours',
            least(as_of, known_at) - interval '168 hours'),
        ('5: 30 days and more', '-infinity', least(as_of, known_at) - interval '720 hours')
    ) AS age (class, after, until) ON t.recorded_at > age.after AND t.recorded_at <= age.until;
END;
COMMENT ON FUNCTION report_unclaimed_item IS
    'Each charge that report_unclaimed counts, under its own original transaction.';

CREATE OR REPLACE FUNCTION report_unclaimed(
    product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (was_over boolean, has_ended boolean, age text, product_id text, currency text,
    number bigint, amount_milliunits bigint, from_catalogue_milliunits bigint,
    oldest_at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT i.was_over, i.has_ended, i.age, i.product_id, i.currency, sum(i.number)::bigint,
        sum(i.amount_milliunits)::bigint, coalesce(sum(i.amount_milliunits)
            FILTER (WHERE i.price_source = 'catalogue'), 0)::bigint, min(i.first_seen_at)
    FROM report_unclaimed_item(product, environment, include_family_shared, include_trials,
        known_at, as_of) AS i GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5;
END;
COMMENT ON FUNCTION report_unclaimed IS
    'Recorded charges without an owner at as_of, refunded ones, too, by product and currency. age: '
    'since they were first seen. amount: empty, as currency, if no price is known. from_catalogue: '
    'the part of it at the catalogue''s price. was_over: the period had ended when the charge was '
    'first seen: the history that comes with a first receipt and is not going to be claimed. '
    'has_ended: by as_of, so that no access is left to give. Trials and family sharing are left '
    'out, unless included. As known at known_at: the owner and the end known then.';
