-- Movements one by one and summed up, grants as movements, and exchange rates.

-- The segment by which a report splits its rows; null: it splits none, or Apple did not report it.
CREATE OR REPLACE FUNCTION segment_of(
    by text, product_id text, storefront text, offer_type text, period_type text)
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE by WHEN 'product' THEN product_id WHEN 'storefront' THEN storefront
    WHEN 'offer_type' THEN offer_type WHEN 'period_type' THEN period_type END;

-- The date by which a basis counts a movement.
CREATE OR REPLACE FUNCTION movement_date(
    basis text, at timestamptz, decided_at timestamptz, corrected_at timestamptz)
RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE basis WHEN 'decided' THEN decided_at WHEN 'corrected' THEN corrected_at ELSE at END;

-- Movements of some kinds and days up to a moment, as known now or at known_at. Under the bases
-- decided and corrected, a charge's date is that of the decision, and its cause the rule.
CREATE OR REPLACE FUNCTION movement_item(
    kinds text[], basis text, from_day date, to_day date, time_zone text, product text,
    environment text, include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (kind text, cause text, at timestamptz, day date, cohort date, origin_at timestamptz,
    original_transaction_id text, transaction_id text, product_id text, ownership_type text,
    period_type text, offer_type text, offer_id text, storefront text, quantity integer,
    currency text, price_source text, number bigint, amount_milliunits bigint, mrr_twelfths bigint,
    account_key uuid, charge_original_transaction_id text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT m.kind,
        CASE WHEN basis IN ('decided', 'corrected') THEN m.rule
            ELSE movement_summed_cause(m.kind, m.cause, m.mrr_twelfths) END,
        movement_date(basis, m.at, m.decided_at, m.corrected_at),
        (movement_date(basis, m.at, m.decided_at, m.corrected_at) AT TIME ZONE time_zone)::date,
        movement_cohort(basis, m.origin_at, time_zone),
        m.origin_at, m.original_transaction_id, m.transaction_id, m.product_id, m.ownership_type,
        m.period_type, m.offer_type, m.offer_id, m.storefront, m.quantity, m.currency,
        m.price_source, m.number::bigint, m.amount_milliunits, m.mrr_twelfths, m.account_key,
        m.charge_original_transaction_id
    FROM movement AS m
    WHERE m.environment = movement_item.environment AND m.kind = ANY (kinds)
        AND movement_date(basis, m.at, m.decided_at, m.corrected_at)
            >= coalesce(day_start(from_day, time_zone), '-infinity')
        AND movement_date(basis, m.at, m.decided_at, m.corrected_at)
            < coalesce(day_start(to_day + 1, time_zone), 'infinity')
        AND movement_date(basis, m.at, m.decided_at, m.corrected_at) <= moment
        AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
            ELSE m.known_from <= known_at AND known_at < m.known_until END
        AND (include_family_shared OR m.ownership_type = 'purchased')
        AND (product IS NULL OR m.product_id = product);
END;

-- The same summed up as far as possible: the only place that chooses between the daily sums and the
-- movements. The sums are by days of UTC, as known now, and have neither storefront nor offer; the day
-- of the moment, part of which lies ahead, is read from the movements.
CREATE OR REPLACE FUNCTION movement_sum(kinds text[], basis text, from_day date, to_day date,
    time_zone text, product text, environment text, include_family_shared boolean,
    known_at timestamptz, moment timestamptz, by text DEFAULT NULL)
RETURNS TABLE (kind text, cause text, day date, cohort date, product_id text, ownership_type text,
    period_type text, segment text, currency text, price_source text, number bigint,
    amount_milliunits bigint, mrr_twelfths bigint)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT d.kind, d.cause, d.day, d.cohort, d.product_id, d.ownership_type, d.period_type,
        segment_of(by, d.product_id, NULL, NULL, d.period_type), nullif(d.currency, ''),
        nullif(d.price_source, ''), d.number, d.amount_milliunits, d.mrr_twelfths
    FROM (
        SELECT s.environment, s.basis, s.kind, s.cause, s.day, s.cohort, s.product_id,
            s.ownership_type, s.period_type, s.currency, s.price_source, s.number,
            s.amount_milliunits, s.mrr_twelfths
        FROM movement_day AS s
        UNION ALL
        -- A change adds the movements that it opened, and takes off those that it closed.
        SELECT c.environment, b.basis, m.kind, b.summed_cause, b.day, b.cohort, m.product_id,
            m.ownership_type, m.period_type, m.currency, m.price_source, s.sign * m.number,
            s.sign * m.amount_milliunits, s.sign * m.mrr_twelfths
        FROM movement_change AS c
        JOIN movement AS m ON m.environment = c.environment
            AND m.original_transaction_id = c.original_transaction_id
            AND c.change_id IN (m.opened_by, m.closed_by)
        CROSS JOIN LATERAL (
            SELECT CASE WHEN m.opened_by = c.change_id THEN 1::bigint ELSE -1 END AS sign
        ) AS s
        CROSS JOIN LATERAL movement_basis(m.kind, m.at, m.origin_at, m.cause, m.mrr_twelfths,
            m.rule, m.decided_at, m.corrected_at) AS b
    ) AS d
    WHERE known_at IS NULL AND time_zone = 'UTC'
        AND coalesce(by, 'product') IN ('product', 'period_type')
        AND d.environment = movement_sum.environment AND d.basis = movement_sum.basis
        AND d.kind = ANY (kinds)
        AND d.day >= coalesce(from_day, '-infinity') AND d.day <= coalesce(to_day, 'infinity')
        AND d.day < (moment AT TIME ZONE 'UTC')::date
        AND (include_family_shared OR d.ownership_type = 'purchased')
        AND (product IS NULL OR d.product_id = product)
    UNION ALL
    SELECT i.kind, i.cause, i.day, i.cohort, i.product_id, i.ownership_type, i.period_type,
        segment_of(by, i.product_id, i.storefront, i.offer_type, i.period_type), i.currency,
        i.price_source, i.number, i.amount_milliunits, i.mrr_twelfths
    FROM movement_item(
        kinds, basis,
        CASE WHEN known_at IS NULL AND time_zone = 'UTC'
                AND coalesce(by, 'product') IN ('product', 'period_type')
            THEN greatest(from_day, (moment AT TIME ZONE 'UTC')::date) ELSE from_day END,
        to_day, time_zone, product, environment, include_family_shared, known_at, moment) AS i;
END;

-- Movements that a report's rows count, with the row of each: by its own date or, by_origin, by that
-- of its origin. moment: later ones are left out; NULL: as_of and known_at.
CREATE OR REPLACE FUNCTION movement_row(kinds text[], by_origin boolean, from_date date,
    to_date date, bucket text, time_zone text, product text, environment text,
    include_family_shared boolean, known_at timestamptz, as_of timestamptz,
    moment timestamptz DEFAULT NULL)
RETURNS TABLE (from_day date, kind text, cause text, at timestamptz, day date, cohort date,
    origin_at timestamptz, original_transaction_id text, transaction_id text, product_id text,
    ownership_type text, period_type text, offer_type text, offer_id text, storefront text,
    currency text, price_source text, number bigint, amount_milliunits bigint, mrr_twelfths bigint,
    account_id text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT calendar_bucket_start(CASE WHEN by_origin THEN i.cohort ELSE i.day END, span.first_day,
            bucket),
        i.kind, i.cause, i.at, i.day, i.cohort, i.origin_at, i.original_transaction_id,
        i.transaction_id, i.product_id, i.ownership_type, i.period_type, i.offer_type, i.offer_id,
        i.storefront, i.currency, i.price_source, i.number, i.amount_milliunits, i.mrr_twelfths,
        a.account_id
    FROM calendar_span(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
    CROSS JOIN LATERAL movement_item(kinds, 'origin',
        CASE WHEN NOT by_origin THEN span.first_day END,
        CASE WHEN NOT by_origin THEN span.last_day END, time_zone, product, environment,
        include_family_shared, known_at, coalesce(moment, least(as_of, known_at))) AS i
    LEFT JOIN account_by_key AS a ON a.account_key = i.account_key
    WHERE NOT by_origin
        OR is_within(i.origin_at, span.first_day, span.last_day, time_zone, 'infinity');
END;

-- The same summed up; with_earlier: also those before the first row, which have no from_day.
CREATE OR REPLACE FUNCTION movement_flow(kinds text[], basis text, by_origin boolean,
    with_earlier boolean, from_date date, to_date date, bucket text, time_zone text, product text,
    environment text, include_family_shared boolean, known_at timestamptz, as_of timestamptz,
    by text, moment timestamptz DEFAULT NULL)
RETURNS TABLE (from_day date, kind text, cause text, day date, cohort date, period_type text,
    segment text, currency text, price_source text, number bigint, amount_milliunits bigint,
    mrr_twelfths bigint)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT calendar_bucket_start(CASE WHEN by_origin THEN s.cohort ELSE s.day END, span.first_day,
            bucket),
        s.kind, s.cause, s.day, s.cohort, s.period_type, s.segment, s.currency, s.price_source,
        s.number, s.amount_milliunits, s.mrr_twelfths
    FROM calendar_span(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
    CROSS JOIN LATERAL movement_sum(kinds, basis,
        CASE WHEN NOT with_earlier THEN span.first_day END,
        CASE WHEN NOT by_origin THEN span.last_day END, time_zone, product, environment,
        include_family_shared, known_at, coalesce(moment, least(as_of, known_at)), by) AS s
    WHERE NOT by_origin OR s.cohort BETWEEN span.first_day AND span.last_day;
END;

-- The account that owned a subscription at a moment, as known now or at known_at: its latest charge's.
CREATE OR REPLACE FUNCTION subscription_owner(environment text, original_transaction_id text,
    known_at timestamptz, moment timestamptz)
RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT m.account_key
    FROM movement AS m
    WHERE m.environment = subscription_owner.environment
        AND m.original_transaction_id = subscription_owner.original_transaction_id
        AND m.kind = 'charged' AND m.at <= moment
        AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
            ELSE m.known_from <= known_at AND known_at < m.known_until END
    ORDER BY m.at DESC, m.product_id DESC, m.transaction_id DESC LIMIT 1;
END;

-- What movements come to for each subscription, product, segment and state at the end of a report's
-- last row or, is_opening, at the start of the first; by_currency: in monthly revenue.
CREATE OR REPLACE FUNCTION movement_stock(kinds text[], is_opening boolean, by_currency boolean,
    from_date date, to_date date, bucket text, time_zone text, product text, environment text,
    include_family_shared boolean, known_at timestamptz, as_of timestamptz)
RETURNS TABLE (from_day date, original_transaction_id text, transaction_id text, product_id text,
    storefront text, offer_type text, period_type text, state text, since timestamptz,
    origin_at timestamptz, number bigint, currency text, price_source text, mrr_twelfths bigint,
    account_id text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT CASE WHEN is_opening THEN span.first_day ELSE span.last_row END,
        s.original_transaction_id, s.transaction_id, s.product_id, s.storefront, s.offer_type,
        s.period_type, s.state, s.since, s.origin_at, s.number, s.currency, s.price_source,
        s.mrr_twelfths, a.account_id
    FROM calendar_span(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
    CROSS JOIN LATERAL (
        SELECT i.original_transaction_id, (array_agg(
                i.transaction_id ORDER BY i.at DESC, i.kind = 'trial_ended', i.number DESC))[1]
                AS transaction_id,
            i.product_id, i.storefront, i.offer_type, i.period_type,
            CASE i.kind WHEN 'state' THEN i.cause END AS state,
            max(i.at) FILTER (WHERE i.number >= 0) AS since, max(i.origin_at) AS origin_at,
            sum(i.number)::bigint AS number, CASE WHEN by_currency THEN i.currency END AS currency,
            CASE WHEN by_currency THEN i.price_source END AS price_source,
            sum(i.mrr_twelfths)::bigint AS mrr_twelfths,
            subscription_owner(movement_stock.environment, i.original_transaction_id, known_at,
                least(as_of, known_at, CASE WHEN is_opening THEN span.first_moment
                    ELSE span.last_moment END - interval '1 microsecond')) AS account_key
        FROM movement_item(kinds, 'at', NULL,
            CASE WHEN is_opening THEN span.first_day - 1 ELSE span.last_day END, time_zone, product,
            environment, include_family_shared, known_at, least(as_of, known_at)) AS i
        -- No lateral query for the repeated expressions: Citus refuses one within another.
        GROUP BY i.original_transaction_id, i.product_id, i.storefront, i.offer_type,
            i.period_type, CASE i.kind WHEN 'state' THEN i.cause END,
            CASE WHEN by_currency THEN i.currency END,
            CASE WHEN by_currency THEN i.price_source END
        HAVING sum(i.number) <> 0 AND NOT by_currency OR sum(i.mrr_twelfths) <> 0 AND by_currency
    ) AS s
    LEFT JOIN account_by_key AS a ON a.account_key = s.account_key;
END;

-- The kinds of movements that change the number of active subscriptions.
CREATE OR REPLACE FUNCTION active_kinds(include_trials boolean)
RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ARRAY['started', 'resumed', 'ended', 'changed_from', 'changed_to']
    || CASE WHEN include_trials THEN ARRAY['trial_started', 'trial_ended'] ELSE '{}'::text[] END;

-- Grants of administrators until a moment, if a report includes them: +1 where one begins, -1 where
-- it ends. Both are recorded when they happen, so the state known at a moment consists of the rows
-- dated until then.
CREATE OR REPLACE FUNCTION grant_item(
    include_grants boolean, environment text, product text, moment timestamptz)
RETURNS TABLE (grant_id text, account_id text, entitlement text, at timestamptz, number bigint)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT m.grant_id::text, m.account_id, m.entitlement, m.at, m.number
    FROM (
        SELECT g.grant_id, g.account_id, g.entitlement, g.starts_at AS at, 1::bigint AS number
        FROM account_grant AS g
        WHERE g.source = 'grant'
        UNION ALL
        SELECT g.grant_id, g.account_id, g.entitlement,
            greatest(g.starts_at, least(g.ends_at, g.revoked_at)), -1
        FROM account_grant AS g
        WHERE g.source = 'grant' AND coalesce(g.ends_at, g.revoked_at) IS NOT NULL
    ) AS m
    WHERE include_grants AND grant_item.environment = 'production' AND product IS NULL
        AND m.at <= moment;
END;

-- The operator's rate of a currency on a day: the latest valid_from that is not after it, and of
-- that day the rate recorded last by known_at, unless it was removed; if none was recorded by then
-- the first that was, so that what was once converted never changes. Null: there is none. The inner
-- query's order is the outer one's: sorted again, all rates would be read instead of the index's last.
CREATE OR REPLACE FUNCTION exchange_rate_on(
    reporting_currency text, currency text, day date, known_at timestamptz DEFAULT NULL)
RETURNS numeric LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT CASE WHEN exchange_rate_on.currency = exchange_rate_on.reporting_currency THEN 1
        ELSE coalesce(
            (SELECT l.rate FROM (
                SELECT DISTINCT ON (r.valid_from) r.rate FROM exchange_rate AS r
                WHERE r.reporting_currency = exchange_rate_on.reporting_currency
                    AND r.currency = exchange_rate_on.currency AND r.valid_from <= day
                    AND (known_at IS NULL OR r.recorded_at <= known_at)
                ORDER BY r.valid_from DESC, r.recorded_at DESC
            ) AS l WHERE l.rate IS NOT NULL LIMIT 1),
            (SELECT r.rate FROM exchange_rate AS r
            WHERE r.reporting_currency = exchange_rate_on.reporting_currency
                AND r.currency = exchange_rate_on.currency AND r.valid_from <= day
                AND r.recorded_at > known_at
            ORDER BY r.recorded_at, r.valid_from DESC LIMIT 1))
        END;
END;

-- Apple's commission on a charge of a day, in percent: the product's own, or that of all products, by
-- the latest valid_from that is not after it, and of that day as recorded last by known_at, unless it
-- was removed. Without any, Apple's usual 30 %.
CREATE OR REPLACE FUNCTION commission_on(
    product_id text, day date, known_at timestamptz DEFAULT NULL)
RETURNS numeric LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT coalesce((
        SELECT l.percent FROM (
            SELECT DISTINCT ON (c.product_id, c.valid_from) c.percent FROM commission AS c
            WHERE c.product_id IN (commission_on.product_id, '') AND c.valid_from <= day
                AND (known_at IS NULL OR c.recorded_at <= known_at)
            ORDER BY c.product_id DESC, c.valid_from DESC, c.recorded_at DESC
        ) AS l WHERE l.percent IS NOT NULL LIMIT 1), 30);
END;
