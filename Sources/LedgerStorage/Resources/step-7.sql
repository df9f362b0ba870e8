-- From version 6 of the schema to version 7, serving programs since 6.
--
-- schema.sql describes version 7 as a whole; a test compares what both come to.
--
-- part: transaction
-- The journal notes when what was paid for ends. What is there has no such note, and needs no look.
ALTER TABLE tenure.movement
    ADD COLUMN IF NOT EXISTS expires_at timestamptz,
    DROP CONSTRAINT IF EXISTS movement_expiry,
    ADD CONSTRAINT movement_expiry CHECK (expires_at IS NULL OR kind = 'charged') NOT VALID;

-- part: index
CREATE INDEX CONCURRENTLY IF NOT EXISTS movement_refunded
    ON tenure.movement (environment, charge_original_transaction_id, transaction_id, product_id)
    WHERE kind = 'refunded';

-- part: index
CREATE INDEX CONCURRENTLY IF NOT EXISTS store_transaction_revoked_alias
    ON tenure.store_transaction (environment, charge_original_transaction_id, charge_transaction_id,
        charge_product_id)
    WHERE rule IS NULL AND revoked_at IS NOT NULL;

-- part: transaction
SET LOCAL search_path TO tenure;

-- Charges with what was known of them at a moment. What the journal says of a charge it closes when it
-- changes: so what it had closed by now says how it was, as far as it had begun to note it, and all else
-- is as it was. Revoked was what the journal knew of a refund, at its date, and what it calls none now
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
        (
            SELECT CASE
                WHEN bool_or(r.known_from <= known_at AND known_at < r.known_until)
                    THEN max(r.at) FILTER (WHERE r.known_from <= known_at AND known_at < r.known_until)
                -- What is a refund now was not known then.
                WHEN bool_or(r.known_until = 'infinity') THEN NULL
                WHEN c.revoked_as_of <= known_at THEN timestamptz '-infinity'
            END
            FROM movement AS r
            WHERE r.environment = c.environment AND r.kind = 'refunded'
                AND r.transaction_id = c.transaction_id AND r.product_id = c.product_id
                AND r.charge_original_transaction_id = c.original_transaction_id
        ),
        CASE WHEN c.order_id IS NOT NULL AND EXISTS (
            SELECT FROM purchase_order_account AS l
            JOIN purchase_order AS o ON o.account_key = l.account_key AND o.order_id = l.order_id
            WHERE l.order_id = c.order_id AND o.fulfilled_at <= known_at)
            THEN c.order_id END,
        c.delivered_at
    FROM (
        SELECT t.environment, t.original_transaction_id, t.transaction_id, t.product_id,
            t.charged_at, t.kind, t.product_type, t.ownership_type, t.period_type,
            t.price_milliunits, t.currency, t.owner_account_key, t.rule, t.ground, t.decided_at,
            t.corrected_at, CASE WHEN t.revoked_at IS NOT NULL THEN t.revocation_as_of END
                AS revoked_as_of, t.order_id, t.delivered_at
        FROM store_transaction AS t
        WHERE t.environment = charge_then.environment AND t.recorded_at <= known_at
            AND NOT EXISTS (
                SELECT FROM movement AS m
                WHERE m.environment = t.environment AND m.kind = 'charged'
                    AND m.charge_original_transaction_id = t.original_transaction_id
                    AND m.transaction_id = t.transaction_id AND m.product_id = t.product_id
                    AND m.known_from <= known_at AND known_at < m.known_until
                    AND m.known_until < 'infinity')
        UNION ALL
        SELECT m.environment, m.charge_original_transaction_id, m.transaction_id, m.product_id,
            -- The date of the transaction that names the charge, which may be later than the charge's: as
            -- it is, or was before Apple gave an earlier one.
            greatest(m.at, t.charged_at),
            CASE WHEN m.is_renewal THEN 'renewal' WHEN m.is_renewal IS NULL THEN t.kind
                ELSE 'purchase' END,
            coalesce(m.product_type, 'unknown'), m.ownership_type, m.period_type,
            t.price_milliunits, t.currency, m.account_key, coalesce(m.rule, t.rule), t.ground,
            CASE WHEN m.rule IS NULL THEN t.decided_at ELSE m.decided_at END,
            CASE WHEN m.rule IS NULL THEN t.corrected_at ELSE m.corrected_at END,
            CASE WHEN t.revoked_at IS NOT NULL THEN t.revocation_as_of END, t.order_id, t.delivered_at
        FROM movement AS m
        JOIN store_transaction AS t ON t.environment = m.environment
            AND t.original_transaction_id = m.charge_original_transaction_id
            AND t.transaction_id = m.transaction_id AND t.product_id = m.product_id
        WHERE m.environment = charge_then.environment AND m.kind = 'charged'
            AND m.known_from <= known_at AND known_at < m.known_until AND m.known_until < 'infinity'
    ) AS c;
END;
COMMENT ON FUNCTION charge_then(text, timestamptz) IS
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

DROP FUNCTION IF EXISTS charge_then(timestamptz);

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
    SELECT 'decided', t.decided_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    WHERE known_at IS NULL AND t.environment = charge_item.environment AND t.rule IS NOT NULL
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
    WHERE known_at IS NULL AND t.environment = charge_item.environment AND t.rule IS NOT NULL
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
    WHERE known_at IS NULL AND t.environment = charge_item.environment AND t.owner_account_key IS NOT NULL
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
    CROSS JOIN LATERAL (
        SELECT max(r.at) AS refunded_at FROM movement AS r
        WHERE r.environment = t.environment AND r.kind = 'refunded'
            AND r.transaction_id = t.transaction_id AND r.product_id = t.product_id
            AND r.charge_original_transaction_id = t.original_transaction_id
            AND r.known_until = 'infinity'
    ) AS r
    WHERE known_at IS NULL AND t.environment = charge_item.environment AND t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased'
        -- Refunded by the journal, whichever transaction of the charge Apple told of; else an upgrade.
        AND CASE WHEN r.refunded_at IS NULL THEN t.revoked_at IS NULL ELSE r.refunded_at > moment END
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
    CROSS JOIN LATERAL (
        SELECT max(r.at) AS refunded_at FROM movement AS r
        WHERE r.environment = t.environment AND r.kind = 'refunded'
            AND r.transaction_id = t.transaction_id AND r.product_id = t.product_id
            AND r.charge_original_transaction_id = t.original_transaction_id
            AND r.known_until = 'infinity'
    ) AS r
    WHERE known_at IS NULL AND t.environment = charge_item.environment AND t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased'
        AND CASE WHEN r.refunded_at IS NULL THEN t.revoked_at IS NULL ELSE r.refunded_at > moment END
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
    FROM movement AS r
    JOIN store_transaction AS t ON t.environment = r.environment
        AND t.original_transaction_id = r.charge_original_transaction_id
        AND t.transaction_id = r.transaction_id AND t.product_id = r.product_id
    WHERE known_at IS NULL AND r.environment = charge_item.environment AND r.kind = 'refunded'
        AND r.known_until = 'infinity' AND r.at > moment AND t.revoked_at IS NOT NULL
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
        WHERE known_at IS NULL AND s.environment = charge_item.environment AND s.rule IS NULL
            AND s.revoked_at IS NOT NULL
    ) AS alias
    JOIN store_transaction AS t ON t.environment = alias.environment
        AND t.original_transaction_id = alias.charge_original_transaction_id
        AND t.transaction_id = alias.charge_transaction_id
        AND t.product_id = alias.charge_product_id
    WHERE t.revoked_at IS NULL AND t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased'
        AND EXISTS (
            SELECT FROM movement AS r
            WHERE r.environment = t.environment AND r.kind = 'refunded'
                AND r.transaction_id = t.transaction_id AND r.product_id = t.product_id
                AND r.charge_original_transaction_id = t.original_transaction_id
                AND r.known_until = 'infinity' AND r.at <= moment)
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

-- Orders and payments, each under the columns of report_orders that it is counted in.
CREATE OR REPLACE FUNCTION order_item(
    from_date date, to_date date, bucket text, time_zone text, product text, environment text,
    known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    measure text, from_day date, product_id text, order_id uuid, original_transaction_id text,
    transaction_id text, at timestamptz, charged_at timestamptz, wait_ms bigint, period_type text,
    currency text, amount_milliunits bigint, account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT day_start(min(b.from_day), time_zone) AS first_moment,
            day_start(max(b.to_day) + 1, time_zone) AS last_moment,
            min(b.from_day) AS first_day, max(b.to_day) AS last_day
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, moment) AS b
    )
    SELECT m.measure,
        calendar_bucket_start((o.created_at AT TIME ZONE time_zone)::date, span.first_day, bucket),
        o.product_id, o.order_id, t.original_transaction_id, t.transaction_id, o.created_at,
        t.charged_at, (extract(epoch FROM t.charged_at - o.created_at) * 1000)::bigint,
        t.period_type, t.currency, t.price_milliunits, o.account_key
    FROM span
    JOIN (
        SELECT p.order_id, p.product_id, p.created_at, p.account_key, p.environment,
            p.original_transaction_id, p.transaction_id,
            CASE WHEN known_at IS NULL OR p.fulfilled_at <= known_at THEN p.status ELSE 'open' END
                AS status
        FROM purchase_order AS p
        WHERE coalesce(CASE WHEN known_at IS NULL OR p.fulfilled_at <= known_at THEN p.environment END,
                order_item.environment) = order_item.environment
            AND p.created_at <= moment AND (product IS NULL OR p.product_id = product)
    ) AS o ON o.created_at >= span.first_moment AND o.created_at < span.last_moment
    LEFT JOIN store_transaction AS t ON o.status IN ('fulfilled', 'refunded')
        AND t.environment = o.environment
        AND t.original_transaction_id = o.original_transaction_id
        AND t.transaction_id = o.transaction_id AND t.product_id = o.product_id
        -- It names the order in its turn; and there is an index of those that do.
        AND t.order_id IS NOT NULL
        AND t.charged_at <= moment
    CROSS JOIN LATERAL unnest(CASE
        WHEN o.status = 'expired' THEN ARRAY['opened', 'expired']
        -- It was not paid at the moment, or is not at all.
        WHEN t.charged_at IS NULL THEN ARRAY['opened', 'open']
        WHEN CASE WHEN known_at IS NULL
            -- A refund whose date is not found has always been.
            THEN o.status = 'refunded' AND NOT EXISTS (
                SELECT FROM movement AS r
                WHERE r.environment = t.environment AND r.kind = 'refunded'
                    AND r.transaction_id = t.transaction_id AND r.product_id = t.product_id
                    AND r.charge_original_transaction_id = t.original_transaction_id
                    AND r.at > moment AND r.known_until = 'infinity')
            ELSE EXISTS (
                SELECT FROM movement AS r
                WHERE r.environment = t.environment AND r.kind = 'refunded'
                    AND r.transaction_id = t.transaction_id AND r.product_id = t.product_id
                    AND r.charge_original_transaction_id = t.original_transaction_id
                    AND r.at <= moment AND r.known_from <= known_at AND known_at < r.known_until)
            END
            THEN ARRAY['opened', 'paid', 'refunded']
        ELSE ARRAY['opened', 'paid'] END) AS m (measure)
    UNION ALL
    SELECT t.measure,
        calendar_bucket_start((t.at AT TIME ZONE time_zone)::date, span.first_day, bucket),
        t.product_id, t.order_id, t.original_transaction_id, t.transaction_id, t.at, t.at, NULL,
        t.period_type, t.currency, t.amount_milliunits, t.account_key
    FROM span
    CROSS JOIN LATERAL charge_item(span.first_day, span.last_day, time_zone, product, environment,
        false, known_at, moment) AS t
    WHERE t.measure IN ('paid_without_order', 'not_delivered');
END;
COMMENT ON FUNCTION order_item IS
    'Orders and payments, once for each column of report_orders in which they are counted.';

CREATE OR REPLACE FUNCTION report_unclaimed_item(
    product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    was_over boolean, age text, product_id text, original_transaction_id text, transaction_id text,
    charged_at timestamptz, first_seen_at timestamptz, expires_at timestamptz, number bigint,
    currency text, amount_milliunits bigint, price_source text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(t.expires_at <= t.recorded_at, false), age.class, m.product_id,
        m.charge_original_transaction_id, m.transaction_id, m.at, t.recorded_at, t.expires_at,
        m.number::bigint, m.currency, m.amount_milliunits, m.price_source
    FROM movement AS m
    LEFT JOIN store_transaction AS u ON u.environment = m.environment
        AND u.original_transaction_id = m.charge_original_transaction_id
        AND u.transaction_id = m.transaction_id AND u.product_id = m.product_id
        AND u.rule IS NOT NULL AND u.owner_account_key IS NULL
    -- One by one those that nobody owned at known_at, and somebody does now.
    LEFT JOIN LATERAL (
        SELECT s.recorded_at, s.expires_at FROM store_transaction AS s
        WHERE known_at IS NOT NULL AND u.recorded_at IS NULL AND s.environment = m.environment
            AND s.original_transaction_id = m.charge_original_transaction_id
            AND s.transaction_id = m.transaction_id AND s.product_id = m.product_id
        LIMIT 1
    ) AS c ON true
    CROSS JOIN LATERAL (
        SELECT coalesce(u.recorded_at, c.recorded_at) AS recorded_at,
            -- What was not known any more by now was noted; all else is as it was.
            CASE WHEN known_at IS NOT NULL AND m.known_until < 'infinity' AND m.expires_at IS NOT NULL
                THEN nullif(m.expires_at, 'infinity')
                ELSE coalesce(u.expires_at, c.expires_at) END AS expires_at
    ) AS t
    -- Rows, and no condition: so that a plan knows how few classes there are.
    JOIN (VALUES
        ('1: under an hour', least(as_of, known_at) - interval '1 hour', 'infinity'),
        ('2: under a day', least(as_of, known_at) - interval '24 hours',
            least(as_of, known_at) - interval '1 hour'),
        ('3: under 7 days', least(as_of, known_at) - interval '168 hours',
            least(as_of, known_at) - interval '24 hours'),
        ('4: under 30 days', least(as_of, known_at) - interval '720 hours',
            least(as_of, known_at) - interval '168 hours'),
        ('5: 30 days and more', '-infinity', least(as_of, known_at) - interval '720 hours')
    ) AS age (class, after, until) ON t.recorded_at > age.after AND t.recorded_at <= age.until
    WHERE m.environment = report_unclaimed_item.environment AND m.kind = 'charged'
        AND m.account_key IS NULL AND m.at <= least(as_of, known_at)
        AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
            ELSE m.known_from <= known_at AND known_at < m.known_until END
        AND (include_family_shared OR m.ownership_type = 'purchased')
        AND (include_trials OR m.period_type <> 'trial')
        AND (product IS NULL OR m.product_id = product);
END;
COMMENT ON FUNCTION report_unclaimed_item IS
    'Each charge that report_unclaimed counts, under its own original transaction.';

COMMENT ON FUNCTION report_unclaimed IS
    'Recorded charges that no account owns, at the moment as_of: by age (since they were first seen), '
    'product and currency, with the money (the part from_catalogue at the catalogue''s price; without a '
    'currency: no price is known). Those whose period was over when they were first seen stand apart '
    '(was_over): that is the history that comes with a first receipt, and nobody will claim it. Trials and '
    'what is shared in a family are left out, unless included. As known at known_at: whose they were, '
    'and whether they were over, by what was known then (of charges that were recorded before version 7 '
    'of the schema the end is the one that is known now).';

COMMENT ON FUNCTION report_orders IS
    'Orders against payments: whoever ordered a trial has paid for it, too, and what is shared in a '
    'family nobody orders. By the date on which the order was opened: opened = open + expired (opened '
    'and never paid) + paid (matched with a charge), refunded being a part of paid; longest_wait and '
    'average_wait are the times from the order to its charge (below zero: the order came late, or '
    'clocks differ). By the date of the charge: paid_without_order: charges of an account that are no '
    'renewals and fulfilled no order; not_delivered: consumables and what fulfilled an order, owned, '
    'not revoked, and not acknowledged as delivered. An unpaid order has no environment and is counted '
    'in each. At as_of an order is open whose charge is dated later, and not delivered what was '
    'delivered or given back later; one that expired has always expired, for that date is not kept. As '
    'known at known_at: an order that was not paid then is open, whether it had expired or not, and a '
    'charge has the owner that it had then, and neither an order nor a refund that were not recorded '
    'yet.';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['tenure_program', 'tenure_reader'] LOOP
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION charge_then TO %I', name);
        END IF;
    END LOOP;
END
$$;

-- part: transaction
ALTER TABLE tenure.movement VALIDATE CONSTRAINT movement_expiry;
