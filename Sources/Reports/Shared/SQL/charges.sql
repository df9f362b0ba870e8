-- Charges one by one: payments without an order, and what was not delivered.

-- Refunds in the journal, at most one of each transaction that names a charge, as known now or at
-- known_at. A charge and its movements may belong to different original transactions, so that Citus
-- can't join the two by shards.
CREATE OR REPLACE FUNCTION refund_movement(environment text, known_at timestamptz)
RETURNS TABLE (original_transaction_id text, transaction_id text, product_id text, at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT m.charge_original_transaction_id, m.transaction_id, m.product_id, m.at
    FROM movement AS m
    WHERE m.environment = refund_movement.environment AND m.kind = 'refunded'
        AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
            ELSE m.known_from <= known_at AND known_at < m.known_until END;
END;

-- Charges as they were known at a moment and are known no longer: few ever change.
CREATE OR REPLACE FUNCTION charged_before(environment text, known_at timestamptz)
RETURNS TABLE (charge_original_transaction_id text, transaction_id text, product_id text,
    at timestamptz, is_renewal boolean, product_type text, ownership_type text, period_type text,
    account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT m.charge_original_transaction_id, m.transaction_id, m.product_id, m.at, m.is_renewal,
        m.product_type, m.ownership_type, m.period_type, m.account_key
    FROM movement AS m
    WHERE m.environment = charged_before.environment AND m.kind = 'charged'
        AND m.known_from <= known_at AND known_at < m.known_until AND m.known_until < 'infinity';
END;

-- Whether a charge is an automatic renewal, by Apple or, where Apple names no kind, by the decision.
CREATE OR REPLACE FUNCTION is_automatic_renewal(kind text, reason text)
RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN kind = 'renewal' OR kind = 'unknown'
    AND reason IN ('renewed_at_period_end', 'recovered_from_billing_problem');

-- Charges with what was known of them at a moment. The journal closes its row of a charge when the
-- charge changes: rows closed since say how it was, everything else is as it was. Revoked: a refund
-- that the journal knew, at its date; what the journal does not call a refund now (an upgrade),
-- since Apple reported it and whatever its date. Ordered: an order that was fulfilled.
CREATE OR REPLACE FUNCTION charge_then(environment text, known_at timestamptz)
RETURNS TABLE (
    original_transaction_id text, transaction_id text, product_id text, charged_at timestamptz,
    kind text, product_type text, ownership_type text, period_type text, price_milliunits bigint,
    currency text, owner_account_key uuid, reason text, revoked_at timestamptz, order_id uuid,
    delivered_at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT t.original_transaction_id, t.transaction_id, t.product_id,
        -- The transaction's own date may be later than the charge's: as it is, or was before Apple
        -- reported an earlier one.
        greatest(m.at, t.charged_at),
        CASE WHEN m.at IS NULL THEN t.kind WHEN m.is_renewal THEN 'renewal' ELSE 'purchase' END,
        CASE WHEN m.at IS NULL THEN t.product_type ELSE coalesce(m.product_type, 'unknown') END,
        coalesce(m.ownership_type, t.ownership_type), coalesce(m.period_type, t.period_type),
        t.price_milliunits, t.currency,
        CASE WHEN m.at IS NULL THEN t.owner_account_key ELSE m.account_key END, t.reason,
        CASE
            WHEN r.at IS NOT NULL THEN r.at
            -- It is a refund now, and was not known as one then.
            WHEN n.at IS NOT NULL THEN NULL
            WHEN t.revoked_at IS NOT NULL AND t.revocation_known_at <= known_at
                THEN timestamptz '-infinity'
        END,
        o.order_id, t.delivered_at
    FROM store_transaction AS t
    LEFT JOIN charged_before(charge_then.environment, known_at) AS m
        ON m.charge_original_transaction_id = t.original_transaction_id
        AND m.transaction_id = t.transaction_id AND m.product_id = t.product_id
    LEFT JOIN refund_movement(charge_then.environment, known_at) AS r
        ON r.original_transaction_id = t.original_transaction_id
        AND r.transaction_id = t.transaction_id AND r.product_id = t.product_id
    LEFT JOIN refund_movement(charge_then.environment, NULL) AS n
        ON n.original_transaction_id = t.original_transaction_id
        AND n.transaction_id = t.transaction_id AND n.product_id = t.product_id
    LEFT JOIN (SELECT p.order_id FROM purchase_order AS p WHERE p.fulfilled_at <= known_at) AS o
        ON o.order_id = t.order_id
    WHERE t.environment = charge_then.environment
        AND (t.recorded_at <= known_at OR m.at IS NOT NULL);
END;

-- Charges that are not renewals and paid no order, and those that were not delivered: ordered ones
-- and consumables; of some days and up to a moment.
CREATE OR REPLACE FUNCTION charge_item(from_day date, to_day date, time_zone text, product text,
    environment text, known_at timestamptz, moment timestamptz)
RETURNS TABLE (measure text, at timestamptz, product_id text, original_transaction_id text,
    transaction_id text, order_id uuid, period_type text, currency text, amount_milliunits bigint,
    account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    -- Citus refuses a condition without a column next to an outer join: `known_at` is part of
    -- others.
    SELECT 'paid_without_order', t.charged_at, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    WHERE t.environment = CASE WHEN known_at IS NULL THEN charge_item.environment ELSE '' END
        AND t.owner_account_key IS NOT NULL
        -- The condition on the kind is that of the index.
        AND t.ownership_type = 'purchased' AND t.order_id IS NULL AND t.kind <> 'renewal'
        AND NOT is_automatic_renewal(t.kind, t.reason)
        AND is_within(t.charged_at, from_day, to_day, time_zone, moment)
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'not_delivered', t.charged_at, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    LEFT JOIN refund_movement(charge_item.environment, NULL) AS r
        ON r.original_transaction_id = t.original_transaction_id
        AND r.transaction_id = t.transaction_id AND r.product_id = t.product_id
    WHERE t.environment = CASE WHEN known_at IS NULL THEN charge_item.environment ELSE '' END
        AND t.owner_account_key IS NOT NULL AND t.ownership_type = 'purchased'
        -- A refund in the journal, under whichever transaction of the charge; otherwise an upgrade.
        AND CASE WHEN r.at IS NULL THEN t.revoked_at IS NULL ELSE r.at > moment END
        -- The first condition is that of the index, and follows from the second.
        AND (t.kind <> 'renewal' OR t.order_id IS NOT NULL
            OR coalesce(t.product_type, 'consumable') = 'consumable')
        AND (t.order_id IS NOT NULL OR coalesce(t.product_type, (
            SELECT p.type FROM product AS p WHERE p.product_id = t.product_id
            ORDER BY p.valid_from DESC LIMIT 1)) = 'consumable')
        AND (t.delivered_at IS NULL OR t.delivered_at > moment)
        AND is_within(t.charged_at, from_day, to_day, time_zone, moment)
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT m.measure, t.charged_at, t.product_id, t.original_transaction_id, t.transaction_id,
        t.order_id, t.period_type, t.currency, t.price_milliunits, t.owner_account_key
    FROM charge_then(charge_item.environment, known_at) AS t
    CROSS JOIN LATERAL (
        SELECT 'paid_without_order' AS measure
        WHERE t.order_id IS NULL AND NOT is_automatic_renewal(t.kind, t.reason)
        UNION ALL
        SELECT 'not_delivered'
        WHERE (t.revoked_at <= moment) IS NOT TRUE AND (t.delivered_at <= moment) IS NOT TRUE
            AND (t.order_id IS NOT NULL OR coalesce(t.product_type, (
                SELECT p.type FROM product AS p WHERE p.product_id = t.product_id
                ORDER BY p.valid_from DESC LIMIT 1)) = 'consumable')
    ) AS m
    WHERE known_at IS NOT NULL AND t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased'
        AND is_within(t.charged_at, from_day, to_day, time_zone, moment)
        AND (product IS NULL OR t.product_id = product);
END;

-- An administrator's reason, with the current names of the accounts that it names by their keys.
CREATE OR REPLACE FUNCTION administrator_reason(reason text, account_key uuid, account_id text,
    previous_account_key uuid, previous_account_id text)
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN replace(replace(reason,
    coalesce('{account:' || account_key || '}', ''), coalesce(account_id, 'erased')),
    coalesce('{account:' || previous_account_key || '}', ''),
    coalesce(previous_account_id, 'erased'));
