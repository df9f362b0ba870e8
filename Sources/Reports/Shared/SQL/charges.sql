-- ownership --------------------------------------------------------------------------------------

-- Refunds as the journal has them, one at the most of each transaction that names a charge: the lines of
-- a charge and of its movements may differ, so that a Citus can't join the two by shards.
CREATE OR REPLACE FUNCTION refund_movement(environment text, known_at timestamptz)
RETURNS TABLE (
    original_transaction_id text, transaction_id text, product_id text, at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT m.charge_original_transaction_id, m.transaction_id, m.product_id, m.at
    FROM movement AS m
    WHERE m.environment = refund_movement.environment AND m.kind = 'refunded'
        AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
            ELSE m.known_from <= known_at AND known_at < m.known_until END;
END;
COMMENT ON FUNCTION refund_movement IS
    'Refunds, by the transaction that names the charge, as known now or at known_at.';

-- What the journal knew of charges at a moment and does not say any more: few ever change.
CREATE OR REPLACE FUNCTION charged_before(environment text, known_at timestamptz)
RETURNS TABLE (
    charge_original_transaction_id text, transaction_id text, product_id text,
    at timestamptz, is_renewal boolean, product_type text, ownership_type text, period_type text,
    account_key uuid, rule text, decided_at timestamptz, corrected_at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT m.charge_original_transaction_id, m.transaction_id, m.product_id, m.at, m.is_renewal,
        m.product_type, m.ownership_type, m.period_type, m.account_key, m.rule, m.decided_at,
        m.corrected_at
    FROM movement AS m
    WHERE m.environment = charged_before.environment AND m.kind = 'charged'
        AND m.known_from <= known_at AND known_at < m.known_until AND m.known_until < 'infinity';
END;
COMMENT ON FUNCTION charged_before IS
    'What was known of charges at a moment and is known no more.';

CREATE OR REPLACE FUNCTION order_account()
RETURNS TABLE (order_id uuid, account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT l.order_id, l.account_key FROM purchase_order_account AS l;
END;
COMMENT ON FUNCTION order_account IS 'Orders with their accounts.';

CREATE OR REPLACE FUNCTION order_fulfilled(known_at timestamptz)
RETURNS TABLE (order_id uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT o.order_id
    FROM order_account() AS l
    JOIN purchase_order AS o ON o.account_key = l.account_key AND o.order_id = l.order_id
    WHERE o.fulfilled_at <= known_at;
END;
COMMENT ON FUNCTION order_fulfilled IS 'Orders that were fulfilled at a moment.';

-- Charges with what was known of them at a moment. The journal closes its row of a charge when the charge
-- changes: rows closed since say how it was, and all else is as it was. Revoked was what the journal knew
-- of a refund, at its date, and what it calls none now
-- (an upgrade) since Apple's word and whatever the date; ordered was what had fulfilled its order.
CREATE OR REPLACE FUNCTION charge_then(environment text, known_at timestamptz)
RETURNS TABLE (
    original_transaction_id text, transaction_id text, product_id text, charged_at timestamptz,
    kind text, product_type text, ownership_type text, period_type text, price_milliunits bigint,
    currency text, owner_account_key uuid, rule text, ground text, decided_at timestamptz,
    corrected_at timestamptz, revoked_at timestamptz, order_id uuid, delivered_at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT c.original_transaction_id, c.transaction_id, c.product_id, c.charged_at,
        c.kind, c.product_type, c.ownership_type, c.period_type, c.price_milliunits, c.currency,
        c.owner_account_key, c.rule, c.ground, c.decided_at, c.corrected_at,
        CASE
            WHEN r.at IS NOT NULL THEN r.at
            -- What is a refund now was not known then.
            WHEN n.at IS NOT NULL THEN NULL
            WHEN c.revoked_as_of <= known_at THEN timestamptz '-infinity'
        END,
        o.order_id, c.delivered_at
    FROM (
        SELECT t.environment, t.original_transaction_id, t.transaction_id, t.product_id,
            t.charged_at, t.kind, t.product_type, t.ownership_type, t.period_type,
            t.price_milliunits, t.currency, t.owner_account_key, t.rule, t.ground, t.decided_at,
            t.corrected_at, CASE WHEN t.revoked_at IS NOT NULL THEN t.revocation_known_at END
                AS revoked_as_of, t.order_id, t.delivered_at
        FROM store_transaction AS t
        LEFT JOIN charged_before(charge_then.environment, known_at) AS m
            ON m.charge_original_transaction_id = t.original_transaction_id
            AND m.transaction_id = t.transaction_id AND m.product_id = t.product_id
        WHERE t.environment = charge_then.environment AND t.recorded_at <= known_at
            AND m.transaction_id IS NULL
        UNION ALL
        SELECT t.environment, m.charge_original_transaction_id, m.transaction_id, m.product_id,
            -- The date of the transaction that names the charge, which may be later than the charge's: as
            -- it is, or was before Apple gave an earlier one.
            greatest(m.at, t.charged_at),
            CASE WHEN m.is_renewal THEN 'renewal' ELSE 'purchase' END,
            coalesce(m.product_type, 'unknown'), m.ownership_type, m.period_type,
            t.price_milliunits, t.currency, m.account_key, m.rule, t.ground, m.decided_at, m.corrected_at,
            CASE WHEN t.revoked_at IS NOT NULL THEN t.revocation_known_at END, t.order_id, t.delivered_at
        FROM charged_before(charge_then.environment, known_at) AS m
        JOIN store_transaction AS t ON t.environment = charge_then.environment
            AND t.original_transaction_id = m.charge_original_transaction_id
            AND t.transaction_id = m.transaction_id AND t.product_id = m.product_id
    ) AS c
    LEFT JOIN refund_movement(charge_then.environment, known_at) AS r
        ON r.original_transaction_id = c.original_transaction_id
        AND r.transaction_id = c.transaction_id AND r.product_id = c.product_id
    LEFT JOIN refund_movement(charge_then.environment, NULL) AS n
        ON n.original_transaction_id = c.original_transaction_id
        AND n.transaction_id = c.transaction_id AND n.product_id = c.product_id
    LEFT JOIN order_fulfilled(known_at) AS o ON o.order_id = c.order_id;
END;
COMMENT ON FUNCTION charge_then IS
    'Charges with their owners, orders and deliveries, as was known at a moment.';

-- What charge_item lists, as it was known at a moment.
CREATE OR REPLACE FUNCTION charge_item_then(
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
    FROM charge_then(charge_item_then.environment, known_at) AS t
    WHERE t.rule IS NOT NULL
        AND t.decided_at >= day_start(from_day, time_zone)
        AND t.decided_at < day_start(to_day + 1, time_zone)
        AND t.decided_at <= moment
        AND (include_family_shared OR t.ownership_type = 'purchased')
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'corrected', t.corrected_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM charge_then(charge_item_then.environment, known_at) AS t
    WHERE t.rule IS NOT NULL
        AND t.corrected_at >= day_start(from_day, time_zone)
        AND t.corrected_at < day_start(to_day + 1, time_zone)
        AND t.corrected_at <= moment
        AND (include_family_shared OR t.ownership_type = 'purchased')
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'paid_without_order', t.charged_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM charge_then(charge_item_then.environment, known_at) AS t
    WHERE t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased' AND t.order_id IS NULL AND t.kind <> 'renewal'
        -- What Apple names no kind of, and was renewed without anybody's buying, as charge_change has it.
        AND NOT (t.kind = 'unknown'
            AND t.ground IN ('renewed_at_period_end', 'recovered_from_billing_problem'))
        AND t.charged_at >= day_start(from_day, time_zone)
        AND t.charged_at < day_start(to_day + 1, time_zone)
        AND t.charged_at <= moment
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'not_delivered', t.charged_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM charge_then(charge_item_then.environment, known_at) AS t
    WHERE t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased' AND (t.revoked_at IS NULL OR t.revoked_at > moment)
        -- The first condition is the index's, and follows from the second.
        AND (t.kind <> 'renewal' OR t.order_id IS NOT NULL
            OR coalesce(t.product_type, 'consumable') = 'consumable')
        AND (t.order_id IS NOT NULL OR coalesce(t.product_type, (
            SELECT p.type FROM product AS p WHERE p.product_id = t.product_id
            ORDER BY p.valid_from DESC LIMIT 1)) = 'consumable')
        AND (t.delivered_at IS NULL OR t.delivered_at > moment)
        AND t.charged_at >= day_start(from_day, time_zone)
        AND t.charged_at < day_start(to_day + 1, time_zone)
        AND t.charged_at <= moment
        AND (product IS NULL OR t.product_id = product);
END;
COMMENT ON FUNCTION charge_item_then IS 'What charge_item lists, as it was known at a moment.';

-- Charges that were decided or corrected, that nobody had ordered, or that were not delivered: what
-- charge_basis counts, one by one, from a day to a moment.
CREATE OR REPLACE FUNCTION charge_item(
    from_day date, to_day date, time_zone text, product text, environment text,
    include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    measure text, at timestamptz, rule text, product_id text, original_transaction_id text,
    transaction_id text, order_id uuid, period_type text, currency text, amount_milliunits bigint,
    account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    -- Citus refuses a condition without a column beside an outer join, so `known_at` is a part of others.
    SELECT 'decided', t.decided_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    WHERE t.environment = CASE WHEN known_at IS NULL THEN charge_item.environment ELSE '' END
        AND t.rule IS NOT NULL
        AND t.decided_at >= day_start(from_day, time_zone)
        AND t.decided_at < day_start(to_day + 1, time_zone)
        AND t.decided_at <= moment
        AND (include_family_shared OR t.ownership_type = 'purchased')
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'corrected', t.corrected_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    WHERE t.environment = CASE WHEN known_at IS NULL THEN charge_item.environment ELSE '' END
        AND t.rule IS NOT NULL
        AND t.corrected_at >= day_start(from_day, time_zone)
        AND t.corrected_at < day_start(to_day + 1, time_zone)
        AND t.corrected_at <= moment
        AND (include_family_shared OR t.ownership_type = 'purchased')
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'paid_without_order', t.charged_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    WHERE t.environment = CASE WHEN known_at IS NULL THEN charge_item.environment ELSE '' END
        AND t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased' AND t.order_id IS NULL AND t.kind <> 'renewal'
        -- What Apple names no kind of, and was renewed without anybody's buying, as charge_change has it.
        AND NOT (t.kind = 'unknown'
            AND t.ground IN ('renewed_at_period_end', 'recovered_from_billing_problem'))
        AND t.charged_at >= day_start(from_day, time_zone)
        AND t.charged_at < day_start(to_day + 1, time_zone)
        AND t.charged_at <= moment
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'not_delivered', t.charged_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    LEFT JOIN refund_movement(charge_item.environment, NULL) AS r
        ON r.original_transaction_id = t.original_transaction_id
        AND r.transaction_id = t.transaction_id AND r.product_id = t.product_id
    WHERE t.environment = CASE WHEN known_at IS NULL THEN charge_item.environment ELSE '' END
        AND t.owner_account_key IS NOT NULL AND t.ownership_type = 'purchased'
        -- Refunded by the journal, whichever transaction of the charge Apple told of; else an upgrade.
        AND CASE WHEN r.at IS NULL THEN t.revoked_at IS NULL ELSE r.at > moment END
        -- The first condition is the index's, and follows from the second.
        AND (t.kind <> 'renewal' OR t.order_id IS NOT NULL
            OR coalesce(t.product_type, 'consumable') = 'consumable')
        AND (t.order_id IS NOT NULL OR coalesce(t.product_type, (
            SELECT p.type FROM product AS p WHERE p.product_id = t.product_id
            ORDER BY p.valid_from DESC LIMIT 1)) = 'consumable')
        AND (t.delivered_at IS NULL OR t.delivered_at > moment)
        AND t.charged_at >= day_start(from_day, time_zone)
        AND t.charged_at < day_start(to_day + 1, time_zone)
        AND t.charged_at <= moment
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    -- Of those once more what was delivered after the moment: the sums by the day lack it.
    SELECT 'delivered_since', t.charged_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    LEFT JOIN refund_movement(charge_item.environment, NULL) AS r
        ON r.original_transaction_id = t.original_transaction_id
        AND r.transaction_id = t.transaction_id AND r.product_id = t.product_id
    WHERE t.environment = CASE WHEN known_at IS NULL THEN charge_item.environment ELSE '' END
        AND t.owner_account_key IS NOT NULL AND t.ownership_type = 'purchased'
        AND CASE WHEN r.at IS NULL THEN t.revoked_at IS NULL ELSE r.at > moment END
        AND (t.order_id IS NOT NULL OR coalesce(t.product_type, (
            SELECT p.type FROM product AS p WHERE p.product_id = t.product_id
            ORDER BY p.valid_from DESC LIMIT 1)) = 'consumable')
        AND t.delivered_at > moment
        AND t.charged_at >= day_start(from_day, time_zone)
        AND t.charged_at < day_start(to_day + 1, time_zone)
        AND t.charged_at <= moment
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    -- What the sums by the day have otherwise, since they go by what Apple says now of the transaction that
    -- names the charge: what was refunded later.
    SELECT 'refunded_since', t.charged_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM refund_movement(charge_item.environment, NULL) AS r
    JOIN store_transaction AS t
        ON t.environment = CASE WHEN known_at IS NULL THEN charge_item.environment ELSE '' END
        AND t.original_transaction_id = r.original_transaction_id
        AND t.transaction_id = r.transaction_id AND t.product_id = r.product_id
    WHERE r.at > moment AND t.revoked_at IS NOT NULL
        AND t.owner_account_key IS NOT NULL AND t.ownership_type = 'purchased'
        AND (t.order_id IS NOT NULL OR coalesce(t.product_type, (
            SELECT p.type FROM product AS p WHERE p.product_id = t.product_id
            ORDER BY p.valid_from DESC LIMIT 1)) = 'consumable')
        AND t.delivered_at IS NULL
        AND t.charged_at >= day_start(from_day, time_zone)
        AND t.charged_at < day_start(to_day + 1, time_zone)
        AND t.charged_at <= moment
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    -- And what was refunded under another transaction of the charge.
    SELECT 'refunded_elsewhere', t.charged_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM (
        SELECT DISTINCT s.environment, s.charge_original_transaction_id, s.charge_transaction_id,
            s.charge_product_id
        FROM store_transaction AS s
        WHERE s.environment = CASE WHEN known_at IS NULL THEN charge_item.environment ELSE '' END
            AND s.rule IS NULL AND s.revoked_at IS NOT NULL
    ) AS alias
    JOIN store_transaction AS t ON t.environment = alias.environment
        AND t.original_transaction_id = alias.charge_original_transaction_id
        AND t.transaction_id = alias.charge_transaction_id
        AND t.product_id = alias.charge_product_id
    JOIN refund_movement(charge_item.environment, NULL) AS r
        ON r.original_transaction_id = t.original_transaction_id
        AND r.transaction_id = t.transaction_id AND r.product_id = t.product_id
        AND r.at <= moment
    WHERE t.revoked_at IS NULL AND t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased'
        AND (t.order_id IS NOT NULL OR coalesce(t.product_type, (
            SELECT p.type FROM product AS p WHERE p.product_id = t.product_id
            ORDER BY p.valid_from DESC LIMIT 1)) = 'consumable')
        AND t.delivered_at IS NULL
        AND t.charged_at >= day_start(from_day, time_zone)
        AND t.charged_at < day_start(to_day + 1, time_zone)
        AND t.charged_at <= moment
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT i.measure, i.at, i.rule, i.product_id, i.original_transaction_id, i.transaction_id, i.order_id,
        i.period_type, i.currency, i.amount_milliunits, i.account_key
    FROM charge_item_then(from_day, to_day, time_zone, product, environment, include_family_shared,
        known_at, moment) AS i
    WHERE known_at IS NOT NULL;
END;
COMMENT ON FUNCTION charge_item IS
    'Charges, once for each measure of charge_day under which they are counted, of some days and up to '
    'a moment; and what the sums of not_delivered lack (delivered_since and refunded_since: after the '
    'moment) or have too much (refunded_elsewhere: under another transaction of the charge).';

-- The same, summed up as far as possible, as movement_sum does it.
CREATE OR REPLACE FUNCTION charge_sum(
    measures text[], from_day date, to_day date, time_zone text, product text, environment text,
    include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (measure text, day date, rule text, product_id text, number bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT d.measure, d.day, d.cause, d.product_id, d.number
    FROM (
        SELECT s.environment, s.measure, s.day, s.cause, s.product_id, s.ownership_type, s.number
        FROM charge_day AS s
        UNION ALL
        SELECT c.environment, b.measure, b.day, b.cause, c.product_id, c.ownership_type,
            c.number::bigint
        FROM charge_change AS c
        CROSS JOIN LATERAL charge_basis(c.rule, c.decided_at, c.corrected_at, c.charged_at, c.kind,
            c.product_type, c.ownership_type, c.is_owned, c.is_revoked, c.is_ordered,
            c.is_delivered) AS b
    ) AS d
    WHERE known_at IS NULL AND time_zone = 'UTC'
        AND d.environment = charge_sum.environment AND d.measure = ANY (measures)
        AND d.day BETWEEN from_day AND to_day AND d.day < (moment AT TIME ZONE 'UTC')::date
        AND (include_family_shared OR d.ownership_type = 'purchased')
        AND (product IS NULL OR d.product_id = product)
        -- What is of no known type is the catalogue's to name.
        AND (d.measure <> 'not_delivered' OR d.cause <> 'unknown' OR (
            SELECT p.type FROM product AS p WHERE p.product_id = d.product_id
            ORDER BY p.valid_from DESC LIMIT 1) = 'consumable')
    UNION ALL
    SELECT i.measure, (i.at AT TIME ZONE time_zone)::date, i.rule, i.product_id, 1
    FROM charge_item(
        CASE WHEN known_at IS NULL AND time_zone = 'UTC'
            THEN greatest(from_day, (moment AT TIME ZONE 'UTC')::date) ELSE from_day END,
        to_day, time_zone, product, environment, include_family_shared, known_at, moment) AS i
    WHERE i.measure = ANY (measures)
    UNION ALL
    -- The sums are those of now.
    SELECT 'not_delivered', (i.at AT TIME ZONE 'UTC')::date, i.rule, i.product_id,
        CASE i.measure WHEN 'refunded_elsewhere' THEN -1 ELSE 1 END
    FROM charge_item(from_day, least(to_day, (moment AT TIME ZONE 'UTC')::date - 1), 'UTC', product,
        environment, include_family_shared, NULL, moment) AS i
    WHERE known_at IS NULL AND time_zone = 'UTC' AND 'not_delivered' = ANY (measures)
        AND i.measure IN ('delivered_since', 'refunded_since', 'refunded_elsewhere');
END;
COMMENT ON FUNCTION charge_sum IS
    'What charge_item lists, from the sums by the day where these can answer: for days of UTC, as known '
    'now.';

-- What an administrator said of an act: accounts stand in it by their keys.
CREATE OR REPLACE FUNCTION administrator_reason(
    reason text, account_key uuid, account_id text, previous_account_key uuid,
    previous_account_id text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN replace(replace(reason,
    coalesce('{account:' || account_key || '}', ''), coalesce(account_id, 'erased')),
    coalesce('{account:' || previous_account_key || '}', ''),
    coalesce(previous_account_id, 'erased'));
COMMENT ON FUNCTION administrator_reason IS
    'The reason of an act, with the names that its accounts have now.';
