-- From version 3 of the schema to version 4, in one transaction with the row that says so.
--
-- schema.sql describes version 4 as a whole; a test compares what both come to. The programs' roles
-- may be missing: see the privileges in schema.sql.

SET LOCAL search_path TO tenure;

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
    SELECT coalesce(t.expires_at <= t.recorded_at, false),
        CASE WHEN seen.age < interval '1 hour' THEN '1: under an hour'
            WHEN seen.age < interval '1 day' THEN '2: under a day'
            WHEN seen.age < interval '7 days' THEN '3: under 7 days'
            WHEN seen.age < interval '30 days' THEN '4: under 30 days'
            ELSE '5: 30 days and more' END,
        m.product_id, m.charge_original_transaction_id, m.transaction_id, m.at, t.recorded_at,
        t.expires_at, m.number::bigint, m.currency, m.amount_milliunits, m.price_source
    FROM movement AS m
    -- One by one: of all transactions few are unclaimed.
    CROSS JOIN LATERAL (
        SELECT s.recorded_at, s.expires_at FROM store_transaction AS s
        WHERE s.environment = m.environment
            AND s.original_transaction_id = m.charge_original_transaction_id
            AND s.transaction_id = m.transaction_id AND s.product_id = m.product_id
        LIMIT 1
    ) AS t
    CROSS JOIN LATERAL (SELECT least(as_of, known_at) - t.recorded_at AS age) AS seen
    WHERE m.environment = report_unclaimed_item.environment AND m.kind = 'charged'
        AND m.account_key IS NULL AND m.at <= least(as_of, known_at)
        AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
            ELSE m.known_from <= known_at AND known_at < m.known_until END
        AND (include_family_shared OR m.ownership_type = 'purchased')
        AND (include_trials OR m.period_type <> 'trial')
        AND (product IS NULL OR m.product_id = product);
END;

-- Reports: no row without a day, catalogues as described then, and acts with whom they concern.

CREATE OR REPLACE FUNCTION calendar_bucket(
    from_date date, to_date date, bucket text, time_zone text, moment timestamptz)
RETURNS TABLE (from_day date, to_day date)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 36
BEGIN ATOMIC
    SELECT greatest(start::date, first_day), least((start + step)::date - 1, last_day)
    FROM (
        SELECT least(to_date, (moment AT TIME ZONE time_zone)::date) AS last_day,
            CASE bucket WHEN 'day' THEN '1 day' WHEN 'week' THEN '1 week' WHEN 'month' THEN '1 month'
                ELSE 'not day, week or month: ' || bucket END::interval AS step
    ) AS ending
    CROSS JOIN LATERAL (
        SELECT coalesce(from_date, date_trunc(bucket, last_day::timestamp)::date
            - CASE bucket WHEN 'day' THEN interval '29 days' WHEN 'week' THEN interval '11 weeks'
                ELSE interval '11 months' END)::date AS first_day
    ) AS beginning
    CROSS JOIN LATERAL generate_series(
        date_trunc(bucket, first_day::timestamp), last_day::timestamp, step) AS start
    WHERE first_day <= last_day;
END;

COMMENT ON FUNCTION report_subscriptions IS
    'Subscriptions to auto-renewable products by product and state at the moment as_of. Lines that '
    'Apple links are one subscription. Its state is that of its latest charge: active_renewing (paid, '
    'and set to renew), active_cancelled (paid, and set to end), trial_renewing and trial_cancelled '
    '(in a trial), in_grace_period (the renewal failed, access goes on), in_billing_retry (access is '
    'over, Apple goes on trying), revoked (refunded), expired. With include_grants also what '
    'administrators granted, as state granted without a product. Production only and without what is '
    'shared in a family, unless told otherwise.';

COMMENT ON FUNCTION report_active IS
    'Paid, unexpired subscriptions at the end of each day, week or month (active), and how it came '
    'from those at its beginning (opening): active = opening + new - churned + changed_in - '
    'changed_out, and churned = expired - resubscribed. Unexpired: the effective end is not reached, '
    'which is the expiry, or the end of a grace period while in it, or the date of a refund; whoever '
    'has switched renewal off counts until the end. new: paid for the first time. expired: ended '
    'without a paid period that follows, for whatever reason, refunds included. resubscribed: paid '
    'again after a lapse. changed_in, changed_out: changed to another product while paid; all products '
    'together they are equal. With include_trials a trial counts from its start: new then are its '
    'start and not its conversion, and expired its end without one. With include_grants also what '
    'administrators granted, without a product. by_product: a row for each product.';

CREATE OR REPLACE FUNCTION report_mrr(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, by_product boolean DEFAULT false,
    reporting_currency text DEFAULT NULL, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, to_day date, product_id text, currency text, opening_milliunits bigint,
    new_milliunits bigint, reactivated_milliunits bigint, expansion_milliunits bigint,
    contraction_milliunits bigint, churned_milliunits bigint, currency_changed_milliunits bigint,
    exchange_milliunits bigint, mrr_milliunits bigint, from_catalogue_milliunits bigint,
    mrr_twelfths numeric)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT * FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at))
    ),
    shown AS (
        SELECT min(span.from_day) AS first_day, max(span.to_day) AS last_day FROM span
    ),
    flow AS (
        SELECT calendar_bucket_start(c.day, shown.first_day, bucket) AS from_day,
            c.product_id, c.currency,
            sum(c.twelfths) AS twelfths,
            sum(c.twelfths) FILTER (WHERE c.price_source = 'catalogue') AS from_catalogue,
            sum(c.twelfths) FILTER (WHERE c.measure = 'new') AS new,
            sum(c.twelfths) FILTER (WHERE c.measure = 'reactivated') AS reactivated,
            sum(c.twelfths) FILTER (WHERE c.measure = 'expansion') AS expansion,
            sum(c.twelfths) FILTER (WHERE c.measure = 'contraction') AS contraction,
            sum(c.twelfths) FILTER (WHERE c.measure = 'churned') AS churned,
            sum(c.twelfths) FILTER (WHERE c.measure = 'currency_changed') AS currency_changed
        FROM (
            SELECT s.day, CASE WHEN by_product THEN s.product_id END AS product_id, s.currency,
                s.price_source, s.measure, s.mrr_twelfths AS twelfths
            FROM (
                SELECT *, mrr_measure(m.kind, m.cause, by_product OR product IS NOT NULL) AS measure
                FROM shown
                CROSS JOIN LATERAL movement_sum(
                    ARRAY['started', 'resumed', 'ended', 'changed_from', 'changed_to', 'repriced'],
                    'at', NULL, shown.last_day, time_zone, product, environment,
                    include_family_shared, known_at, least(as_of, known_at)) AS m
            ) AS s
            WHERE NOT (s.measure = 'changed' AND s.day >= s.first_day)
            UNION ALL
            SELECT i.day, NULL, i.currency, i.price_source, i.measure, i.mrr_twelfths
            FROM shown
            CROSS JOIN LATERAL mrr_change_item(shown.first_day,
                shown.last_day, time_zone, environment, include_family_shared,
                known_at, least(as_of, known_at)) AS i
            WHERE NOT by_product AND product IS NULL
        ) AS c
        CROSS JOIN shown
        WHERE c.currency IS NOT NULL
        GROUP BY 1, 2, 3
    ),
    stock AS (
        SELECT span.from_day, span.to_day, p.product_id, p.currency,
            coalesce(f.twelfths, 0) AS twelfths, coalesce(f.new, 0) AS new,
            coalesce(f.reactivated, 0) AS reactivated, coalesce(f.expansion, 0) AS expansion,
            coalesce(f.contraction, 0) AS contraction, coalesce(f.churned, 0) AS churned,
            coalesce(f.currency_changed, 0) AS currency_changed,
            coalesce(o.twelfths, 0) + sum(coalesce(f.twelfths, 0)) OVER days AS mrr,
            coalesce(o.from_catalogue, 0) + sum(coalesce(f.from_catalogue, 0)) OVER days
                AS from_catalogue
        FROM span
        CROSS JOIN (SELECT DISTINCT flow.product_id, flow.currency FROM flow) AS p
        LEFT JOIN flow AS f ON f.from_day = span.from_day AND f.currency = p.currency
            AND f.product_id IS NOT DISTINCT FROM p.product_id
        LEFT JOIN flow AS o ON o.from_day IS NULL AND o.currency = p.currency
            AND o.product_id IS NOT DISTINCT FROM p.product_id
        WINDOW days AS (PARTITION BY p.product_id, p.currency ORDER BY span.from_day)
    )
    SELECT c.from_day, c.to_day, c.product_id, c.currency,
        round(sum(c.opening * c.before) / 12)::bigint,
        round(sum(c.new * c.after) / 12)::bigint, round(sum(c.reactivated * c.after) / 12)::bigint,
        round(sum(c.expansion * c.after) / 12)::bigint,
        round(sum(c.contraction * c.after) / 12)::bigint,
        round(sum(c.churned * c.after) / 12)::bigint,
        round(sum(c.currency_changed * c.after) / 12)::bigint,
        round(sum(c.opening * (c.after - c.before)) / 12)::bigint,
        round(sum(c.mrr * c.after) / 12)::bigint,
        round(sum(c.from_catalogue * c.after) / 12)::bigint, sum(c.mrr * c.after)
    FROM (
        SELECT s.from_day, s.to_day, s.product_id, s.mrr - s.twelfths AS opening, s.new,
            s.reactivated, s.expansion, s.contraction, s.churned, s.currency_changed, s.mrr,
            s.from_catalogue,
            CASE WHEN r.before * r.after IS NULL THEN s.currency
                ELSE report_mrr.reporting_currency END AS currency,
            CASE WHEN r.before * r.after IS NULL THEN 1 ELSE r.before END AS before,
            CASE WHEN r.before * r.after IS NULL THEN 1 ELSE r.after END AS after
        FROM stock AS s
        LEFT JOIN LATERAL (
            SELECT exchange_rate_on(report_mrr.reporting_currency, s.currency, s.from_day - 1)
                    AS before,
                exchange_rate_on(report_mrr.reporting_currency, s.currency, s.to_day) AS after
        ) AS r ON report_mrr.reporting_currency IS NOT NULL
        -- Nothing was there, and nothing happened.
        WHERE s.mrr <> 0 OR s.twelfths <> 0 OR s.new <> 0 OR s.reactivated <> 0 OR s.expansion <> 0
            OR s.contraction <> 0 OR s.churned <> 0 OR s.currency_changed <> 0
    ) AS c
    GROUP BY c.from_day, c.to_day, c.product_id, c.currency
    ORDER BY c.from_day, c.product_id, c.currency;
END;
COMMENT ON FUNCTION report_mrr IS
    'Monthly recurring revenue: the sum of the normalised prices of active paid subscriptions at the '
    'end of each day, week or month (mrr), and how it came from that at its beginning (opening). '
    'Normalised to a month: the price of a day x30, of a week x4, of 2 weeks x2, of a month x1, of 2 '
    'months x1/2, of 3 months x1/3, of 6 months x1/6, of a year x1/12. Active as in report_active. The '
    'price is that of the charge, frozen; where Apple gave none the catalogue''s of that date, which is '
    'the part from_catalogue; where there is none, 0. mrr = opening + new + reactivated + expansion + '
    'contraction + churned + currency_changed + exchange. new: paid for the first time; reactivated: '
    'paid again after a lapse; expansion and contraction (negative): another price or product, higher '
    'or lower; churned (negative): ended; currency_changed: left this currency for another one, or came '
    'from it. With product or by_product a change of product is a contraction of the one and an '
    'expansion of the other. Never summed across currencies, unless reporting_currency is given: then '
    'currencies with a rate in exchange_rate, for the last day of the row and for the one before its '
    'first, are converted and summed up: the opening at the rate of the day before, all else at that of '
    'the last day, and the difference is exchange; others stay in rows of their own. Rates are those '
    'that stand in the table now, whatever known_at says. Amounts are milliunits, each rounded on its own '
    'half away from zero; mrr_twelfths is exact, in twelfths of a milliunit.';

CREATE OR REPLACE FUNCTION report_renewals_due_item(
    days integer DEFAULT 30, time_zone text DEFAULT 'UTC', product text DEFAULT NULL,
    environment text DEFAULT 'production', include_family_shared boolean DEFAULT false,
    include_trials boolean DEFAULT false, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (
    day date, product_id text, renews_as text, original_transaction_id text, transaction_id text,
    due_at timestamptz, number bigint, currency text, amount_milliunits bigint, price_source text,
    account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT d.day, d.product_id, next.product_id, d.original_transaction_id, d.transaction_id, d.at,
        -d.number, price.currency, price.amount_milliunits, price.price_source, a.account_id
    FROM movement_item(ARRAY['state'], 'at',
        (least(as_of, known_at) AT TIME ZONE time_zone)::date, NULL, time_zone, product, environment,
        include_family_shared, coalesce(known_at, as_of),
        least(as_of, known_at) + make_interval(hours => 24 * report_renewals_due_item.days)) AS d
    -- The charge whose period ends then.
    LEFT JOIN LATERAL (
        SELECT m.amount_milliunits, m.currency, m.price_source, m.period_type, m.product_id,
            m.charge_original_transaction_id
        FROM movement AS m
        WHERE m.environment = report_renewals_due_item.environment
            AND m.original_transaction_id = d.original_transaction_id AND m.kind = 'charged'
            AND m.known_from <= coalesce(known_at, as_of)
            AND coalesce(known_at, as_of) < m.known_until
            AND m.product_id = d.product_id AND m.at < d.at
        ORDER BY m.at DESC LIMIT 1
    ) AS latest ON true
    -- What it is to be renewed as, by Apple's word.
    LEFT JOIN LATERAL (
        SELECT coalesce(
            CASE WHEN known_at IS NULL THEN (
                SELECT o.auto_renew_product_id FROM original_transaction AS o
                WHERE o.environment = report_renewals_due_item.environment
                    AND o.original_transaction_id = latest.charge_original_transaction_id)
            ELSE (
                SELECT r.auto_renew_product_id
                FROM renewal_status AS r
                JOIN ledger_entry AS e ON e.environment = r.environment
                    AND e.original_transaction_id = r.original_transaction_id
                    AND e.number = r.number
                WHERE r.environment = report_renewals_due_item.environment
                    AND r.original_transaction_id = latest.charge_original_transaction_id
                    AND r.auto_renew_product_id IS NOT NULL
                    AND r.as_of <= least(report_renewals_due_item.as_of, known_at)
                    AND e.recorded_at <= known_at
                ORDER BY r.as_of DESC, r.number DESC LIMIT 1)
            END, d.product_id) AS product_id
    ) AS next ON true
    LEFT JOIN LATERAL (
        SELECT latest.amount_milliunits, latest.currency, latest.price_source
        WHERE next.product_id = latest.product_id AND latest.period_type = 'normal'
            AND latest.currency IS NOT NULL
        UNION ALL
        (SELECT p.price_milliunits, p.currency, 'catalogue'
        FROM product AS p
        WHERE p.product_id = next.product_id AND p.valid_from <= least(d.at, coalesce(known_at, as_of))
            AND (next.product_id = latest.product_id AND latest.period_type = 'normal'
                AND latest.currency IS NOT NULL) IS NOT TRUE
        ORDER BY p.valid_from DESC LIMIT 1)
    ) AS price ON true
    LEFT JOIN account_by_key AS a ON a.account_key = d.account_key
    WHERE d.number = -1 AND d.at > least(as_of, known_at)
        AND (d.cause = 'active_renewing' OR include_trials AND d.cause = 'trial_renewing')
        -- Apple charges up to a day early: what goes on was renewed already.
        AND NOT EXISTS (
            SELECT FROM movement AS m
            WHERE m.environment = report_renewals_due_item.environment
                AND m.original_transaction_id = d.original_transaction_id AND m.kind = 'state'
                AND m.at = d.at AND m.number = 1
                AND m.cause IN ('active_renewing', 'active_cancelled')
                AND m.known_from <= coalesce(known_at, as_of)
                AND coalesce(known_at, as_of) < m.known_until);
END;
COMMENT ON FUNCTION report_renewals_due IS
    'Subscriptions that at the moment as_of are paid and set to renew, and whose period ends within so '
    'many days of 24 hours after it, per day and product, with the money expected. renews_as: the '
    'product of the next period, by Apple''s latest word. The money is the price of the latest charge '
    'where the same product renews at its normal price, else (after an introductory or other offer, a '
    'trial or a change of product, and where the charge has no price) the catalogue''s as described then, '
    'which is the part from_catalogue; currency and money are null where neither knows. With '
    'include_trials also trials set to renew. It is as known at as_of, or at known_at if that is '
    'given: what is known by now of renewals since would leave only those that failed. Without '
    'known_at the product of the next period is Apple''s latest word now.';

COMMENT ON FUNCTION report_revenue IS
    'Charges by the date of the transaction (Apple never tells the one of its settlement), of products '
    'of every type, per currency. charges: paid ones of the purchaser, whatever the price; of these '
    'offers: introductory or other offers that are no trial. trials and what somebody else of the family '
    'paid for (family_shared, if it is included) have no price and stand apart. charged: what was paid, '
    'before Apple''s commission and taxes; where Apple gave no price the catalogue''s of that date, which '
    'is the part from_catalogue; where there is none, 0, in the row without a currency. Refunds both '
    'ways: refunds and refunded by the date of the refund, refunds_of_charges and refunded_of_charges '
    'those of the charges in this row, whenever they were refunded by as_of; amounts are negative. '
    'net_by_refund = charged + refunded, net_by_charge = charged + refunded_of_charges. Upgrades are '
    'not refunds. Never summed across currencies, unless reporting_currency is given: then each '
    'currency with a rate in exchange_rate is converted at that of the day on which it counts, and '
    'summed up exactly; others stay in rows of their own. Rates are those that stand in the table now, '
    'whatever known_at says. Amounts are milliunits, rounded last, half away from zero. by_product: a row '
    'for each product.';

COMMENT ON FUNCTION report_unclaimed IS
    'Recorded charges that no account owns, at the moment as_of: by age (since they were first seen), '
    'product and currency, with the money (the part from_catalogue at the catalogue''s price; without a '
    'currency: no price is known). Those whose period was over when they were first seen stand apart '
    '(was_over): that is the history that comes with a first receipt, and nobody will claim it; the end of '
    'the period is the one that is known now. Trials and what is shared in a family are left out, unless '
    'included.';

DROP FUNCTION report_audit;
DROP FUNCTION report_audit_item;

CREATE OR REPLACE FUNCTION report_audit_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'day',
    time_zone text DEFAULT 'UTC', as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, administrator text, action text, at timestamptz, subject text, account_id text,
    previous_account_id text, reason text, data text, number bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT span.from_day, t.administrator, t.action, t.acted_at, t.subject, a.account_id,
        p.account_id,
        -- Accounts stand in it by their keys.
        replace(replace(t.reason,
            coalesce('{account:' || t.account_key || '}', ''), coalesce(a.account_id, 'erased')),
            coalesce('{account:' || t.previous_account_key || '}', ''),
            coalesce(p.account_id, 'erased')),
        t.data, 1::bigint
    FROM calendar_bucket(from_date, to_date, bucket, time_zone, as_of) AS span
    JOIN administrator_action AS t
        ON (t.acted_at AT TIME ZONE time_zone)::date BETWEEN span.from_day AND span.to_day
    LEFT JOIN account_by_key AS a ON a.account_key = t.account_key
    LEFT JOIN account_by_key AS p ON p.account_key = t.previous_account_key
    WHERE t.acted_at <= as_of
    ORDER BY t.acted_at DESC, t.action_id DESC;
END;
COMMENT ON FUNCTION report_audit_item IS
    'What administrators did, to whom, and why: each act, the latest first, with the account that it '
    'concerns, and of a charge that was transferred the one that had it before. Accounts have the names '
    'that they have now: their own, or a pseudonym. The table is only ever appended to, so that what is '
    'known of a past day never changes.';

CREATE OR REPLACE FUNCTION report_audit(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'day',
    time_zone text DEFAULT 'UTC', as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, administrator text, action text, number bigint, last_at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT i.from_day, i.administrator, i.action, sum(i.number)::bigint, max(i.at)
    FROM report_audit_item(from_date, to_date, bucket, time_zone, as_of) AS i
    GROUP BY i.from_day, i.administrator, i.action
    ORDER BY i.from_day, i.administrator, i.action;
END;
COMMENT ON FUNCTION report_audit IS
    'How often which administrator (the name of an API key) did what, per day: what there is to see is '
    'in report_audit_item.';

-- Sums over charges by the day, and indexes by time, for the reports of ownership and orders.

CREATE INDEX store_transaction_by_decision
    ON store_transaction (environment, decided_at) WHERE rule IS NOT NULL;
CREATE INDEX store_transaction_corrected
    ON store_transaction (environment, corrected_at) WHERE corrected_at IS NOT NULL;
CREATE INDEX store_transaction_for_orders
    ON store_transaction (environment, charged_at)
    WHERE owner_account_key IS NOT NULL AND ownership_type = 'purchased'
        AND (kind <> 'renewal' OR order_id IS NOT NULL
            OR coalesce(product_type, 'consumable') = 'consumable');
CREATE INDEX account_binding_moved
    ON account_binding (environment, bound_at) WHERE number > 1;
CREATE INDEX purchase_order_by_time ON purchase_order (created_at);

-- What reports count of a charge beside its movements, each under a day of UTC: that it was decided, and
-- corrected, by which rule; that an account paid it without an order; and that it was not delivered yet,
-- of what was ordered, of consumables, and of what Apple names no type of ('unknown').
CREATE OR REPLACE FUNCTION charge_basis(
    rule text, decided_at timestamptz, corrected_at timestamptz, charged_at timestamptz, kind text,
    product_type text, ownership_type text, is_owned boolean, is_revoked boolean,
    is_ordered boolean, is_delivered boolean)
RETURNS TABLE (measure text, day date, cause text)
LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 2
BEGIN ATOMIC
    SELECT b.measure, (b.at AT TIME ZONE 'UTC')::date, b.cause
    FROM (VALUES
        ('decided', decided_at, rule, rule IS NOT NULL),
        ('corrected', corrected_at, rule, rule IS NOT NULL AND corrected_at IS NOT NULL),
        ('paid_without_order', charged_at, '',
            is_owned AND ownership_type = 'purchased' AND NOT is_ordered AND kind <> 'renewal'),
        ('not_delivered', charged_at,
            CASE WHEN is_ordered THEN 'ordered' ELSE coalesce(product_type, 'unknown') END,
            is_owned AND ownership_type = 'purchased' AND NOT is_revoked AND NOT is_delivered
                AND (is_ordered OR coalesce(product_type, 'consumable') = 'consumable'))
    ) AS b (measure, at, cause, is_counted)
    WHERE b.is_counted;
END;
COMMENT ON FUNCTION charge_basis IS
    'Under which days a charge is summed up in charge_day, and as what.';

-- What reports count of a charge, where it has changed and is not summed up in charge_day yet: written
-- with the row of store_transaction, so that at any moment the sums there and these rows are together
-- the sums over store_transaction. Nothing is written of a change that reports do not count.
CREATE TABLE charge_change (
    change_id               bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    -- 1: the charge is so from now on; -1: it was so.
    number                  smallint    NOT NULL CHECK (number IN (-1, 1)),
    -- As in store_transaction.
    product_id              text        NOT NULL,
    rule                    text        NOT NULL,
    decided_at              timestamptz NOT NULL,
    corrected_at            timestamptz,
    charged_at              timestamptz NOT NULL,
    kind                    text        NOT NULL,
    product_type            text,
    ownership_type          text        NOT NULL,
    is_owned                boolean     NOT NULL,
    is_revoked              boolean     NOT NULL,
    is_ordered              boolean     NOT NULL,
    is_delivered            boolean     NOT NULL,
    PRIMARY KEY (original_transaction_id, change_id)
);
COMMENT ON TABLE charge_change IS
    'Changes of charges that are not summed up yet. [by original_transaction_id]';

-- Sums over the charges of store_transaction. A job folds the changes into it.
CREATE TABLE charge_day (
    environment    text   NOT NULL CHECK (environment IN ('production', 'sandbox')),
    measure        text   NOT NULL CHECK (measure IN
        ('decided', 'corrected', 'paid_without_order', 'not_delivered')),
    day            date   NOT NULL,
    cause          text   NOT NULL,
    product_id     text   NOT NULL,
    ownership_type text   NOT NULL,
    number         bigint NOT NULL,
    PRIMARY KEY (environment, measure, day, cause, product_id, ownership_type)
);
COMMENT ON TABLE charge_day IS 'Projection: sums over charges by the day. [local]';

-- What the charges there are come to.
INSERT INTO charge_day (environment, measure, day, cause, product_id, ownership_type, number)
SELECT t.environment, b.measure, b.day, b.cause, t.product_id, t.ownership_type, count(*)
FROM store_transaction AS t
CROSS JOIN LATERAL charge_basis(t.rule, t.decided_at, t.corrected_at, t.charged_at, t.kind,
    t.product_type, t.ownership_type, t.owner_account_key IS NOT NULL, t.revoked_at IS NOT NULL,
    t.order_id IS NOT NULL, t.delivered_at IS NOT NULL) AS b
GROUP BY 1, 2, 3, 4, 5, 6;

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
    WHERE t.environment = charge_item.environment AND t.rule IS NOT NULL
        AND t.decided_at >= from_day::timestamp AT TIME ZONE time_zone
        AND t.decided_at < (to_day + 1)::timestamp AT TIME ZONE time_zone
        AND t.decided_at <= moment
        AND (include_family_shared OR t.ownership_type = 'purchased')
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'corrected', t.corrected_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    WHERE t.environment = charge_item.environment AND t.rule IS NOT NULL
        AND t.corrected_at >= from_day::timestamp AT TIME ZONE time_zone
        AND t.corrected_at < (to_day + 1)::timestamp AT TIME ZONE time_zone
        AND t.corrected_at <= moment
        AND (include_family_shared OR t.ownership_type = 'purchased')
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'paid_without_order', t.charged_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    WHERE t.environment = charge_item.environment AND t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased' AND t.order_id IS NULL AND t.kind <> 'renewal'
        AND t.charged_at >= from_day::timestamp AT TIME ZONE time_zone
        AND t.charged_at < (to_day + 1)::timestamp AT TIME ZONE time_zone
        AND t.charged_at <= moment AND (known_at IS NULL OR t.recorded_at <= known_at)
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'not_delivered', t.charged_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    WHERE t.environment = charge_item.environment AND t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased' AND t.revoked_at IS NULL
        -- The first condition is the index's, and follows from the second.
        AND (t.kind <> 'renewal' OR t.order_id IS NOT NULL
            OR coalesce(t.product_type, 'consumable') = 'consumable')
        AND (t.order_id IS NOT NULL OR coalesce(t.product_type, (
            SELECT p.type FROM product AS p WHERE p.product_id = t.product_id
            ORDER BY p.valid_from DESC LIMIT 1)) = 'consumable')
        AND (t.delivered_at IS NULL OR t.delivered_at > known_at)
        AND t.charged_at >= from_day::timestamp AT TIME ZONE time_zone
        AND t.charged_at < (to_day + 1)::timestamp AT TIME ZONE time_zone
        AND t.charged_at <= moment AND (known_at IS NULL OR t.recorded_at <= known_at)
        AND (product IS NULL OR t.product_id = product);
END;
COMMENT ON FUNCTION charge_item IS
    'Charges, once for each measure of charge_day under which they are counted, of some days and up to '
    'a moment.';

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
    WHERE i.measure = ANY (measures);
END;
COMMENT ON FUNCTION charge_sum IS
    'What charge_item lists, from the sums by the day where these can answer: for days of UTC, as known '
    'now.';

CREATE OR REPLACE FUNCTION report_ownership_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'day',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, rule text, product_id text, original_transaction_id text,
    transaction_id text, at timestamptz, number bigint, account_id text, from_account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT c.measure, calendar_bucket_start((c.at AT TIME ZONE time_zone)::date, span.first_day, bucket),
        c.rule, c.product_id, c.original_transaction_id, c.transaction_id, c.at, 1::bigint,
        a.account_id, f.account_id
    FROM (
        SELECT min(b.from_day)::timestamp AT TIME ZONE time_zone AS first_moment,
            (max(b.to_day) + 1)::timestamp AT TIME ZONE time_zone AS last_moment,
            min(b.from_day) AS first_day, max(b.to_day) AS last_day
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    ) AS span
    CROSS JOIN LATERAL (
        SELECT t.measure, t.rule, t.product_id, t.original_transaction_id, t.transaction_id, t.at,
            t.account_key, NULL::uuid AS from_account_key
        FROM charge_item(span.first_day, span.last_day, time_zone, product, environment,
            include_family_shared, known_at, least(as_of, known_at)) AS t
        WHERE t.measure IN ('decided', 'corrected')
        UNION ALL
        SELECT 'moved', b.rule, b.product_id, b.original_transaction_id, b.transaction_id,
            b.bound_at, b.account_key, p.account_key
        FROM account_binding AS b
        JOIN account_binding AS p ON p.environment = b.environment
            AND p.original_transaction_id = b.original_transaction_id AND p.number = b.number - 1
        WHERE b.environment = report_ownership_item.environment AND b.number > 1
            AND b.charge_original_transaction_id = b.original_transaction_id
            AND b.account_key IS DISTINCT FROM p.account_key
            AND b.bound_at >= span.first_moment AND b.bound_at < span.last_moment
            AND b.bound_at <= least(as_of, known_at)
            AND (product IS NULL OR b.product_id = product)
        UNION ALL
        -- Where a second account comes in.
        SELECT 'shared', b.rule, b.product_id, b.original_transaction_id, b.transaction_id,
            b.bound_at, b.account_key, p.account_key
        FROM account_binding AS b
        CROSS JOIN LATERAL (
            SELECT o.account_key FROM account_binding AS o
            WHERE o.environment = b.environment
                AND o.original_transaction_id = b.original_transaction_id
                AND o.number < b.number AND o.account_key IS NOT NULL
            ORDER BY o.number LIMIT 1
        ) AS p
        WHERE b.environment = report_ownership_item.environment AND b.number > 1
            AND b.charge_original_transaction_id = b.original_transaction_id
            AND b.account_key <> p.account_key
            AND NOT EXISTS (
                SELECT FROM account_binding AS o
                WHERE o.environment = b.environment
                    AND o.original_transaction_id = b.original_transaction_id
                    AND o.number < b.number AND o.account_key NOT IN (p.account_key))
            AND b.bound_at >= span.first_moment AND b.bound_at < span.last_moment
            AND b.bound_at <= least(as_of, known_at)
            AND (product IS NULL OR b.product_id = product)
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key
    LEFT JOIN account_by_key AS f ON f.account_key = c.from_account_key;
END;
COMMENT ON FUNCTION report_ownership_item IS
    'What report_ownership counts: each charge that was decided or corrected, with its owner; each '
    'binding that moved, with the account that it moved from, the one that it moved to and the charge '
    'with which it did; for shared the charge with which a second account came in, with the first one.';

CREATE OR REPLACE FUNCTION report_ownership(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'day',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, by_product boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, to_day date, product_id text, measure text, rule text, number bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT * FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at))
    ),
    shown AS (
        SELECT min(span.from_day) AS first_day, max(span.to_day) AS last_day FROM span
    )
    SELECT span.from_day, span.to_day, i.product_id, i.measure, i.rule, i.number
    FROM span
    JOIN (
        SELECT c.from_day, CASE WHEN by_product THEN c.product_id END AS product_id, c.measure,
            c.rule, sum(c.number)::bigint AS number
        FROM (
            SELECT s.measure, calendar_bucket_start(s.day, shown.first_day, bucket) AS from_day,
                s.rule, s.product_id, s.number
            FROM shown
            CROSS JOIN LATERAL charge_sum(ARRAY['decided', 'corrected'], shown.first_day,
                shown.last_day, time_zone, product, environment, include_family_shared, known_at,
                least(as_of, known_at)) AS s
            UNION ALL
            SELECT i.measure, i.from_day, i.rule, i.product_id, i.number
            FROM report_ownership_item(from_date, to_date, bucket, time_zone, product, environment,
                include_family_shared, known_at, as_of) AS i
            WHERE i.measure IN ('moved', 'shared')
        ) AS c
        GROUP BY 1, 2, 3, 4
        HAVING sum(c.number) <> 0
    ) AS i ON i.from_day = span.from_day
    ORDER BY span.from_day, i.product_id, i.measure, i.rule;
END;
COMMENT ON FUNCTION report_ownership IS
    'How charges found their owners, per day, by the rule that decided. decided: charges by the date of '
    'the decision that holds (unclaimed: that nobody owns it); corrected: those whose owner Apple''s late '
    'evidence corrected, by the date of the correction; moved: original transactions whose binding went '
    'from one account (or nobody) to another, by the date of the charge with which it did; shared: '
    'original transactions on which that was a second account. What was known at known_at is offered as '
    'far as decisions and charges are not dated later; the rule and the owner are always the present '
    'ones, for a decision that was replaced is not in the tables but in the ledger''s entries: so a past '
    'day can change even then.';

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
        SELECT min(b.from_day)::timestamp AT TIME ZONE time_zone AS first_moment,
            (max(b.to_day) + 1)::timestamp AT TIME ZONE time_zone AS last_moment,
            min(b.from_day) AS first_day, max(b.to_day) AS last_day
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, moment) AS b
    )
    SELECT m.measure,
        calendar_bucket_start((o.created_at AT TIME ZONE time_zone)::date, span.first_day, bucket),
        o.product_id, o.order_id, o.original_transaction_id, o.transaction_id, o.created_at,
        t.charged_at, (extract(epoch FROM t.charged_at - o.created_at) * 1000)::bigint,
        t.period_type, t.currency, t.price_milliunits, o.account_key
    FROM span
    JOIN (
        SELECT p.order_id, p.product_id, p.created_at, p.account_key, p.environment,
            p.original_transaction_id, p.transaction_id,
            CASE WHEN known_at IS NULL THEN p.status
                WHEN p.fulfilled_at <= known_at THEN 'fulfilled' ELSE 'open' END AS status
        FROM purchase_order AS p
        WHERE coalesce(p.environment, order_item.environment) = order_item.environment
            AND p.created_at <= moment AND (product IS NULL OR p.product_id = product)
    ) AS o ON o.created_at >= span.first_moment AND o.created_at < span.last_moment
    LEFT JOIN store_transaction AS t ON o.status IN ('fulfilled', 'refunded')
        AND t.environment = o.environment
        AND t.original_transaction_id = o.original_transaction_id
        AND t.transaction_id = o.transaction_id AND t.product_id = o.product_id
    CROSS JOIN LATERAL unnest(CASE o.status
        WHEN 'open' THEN ARRAY['opened', 'open']
        WHEN 'expired' THEN ARRAY['opened', 'expired']
        WHEN 'refunded' THEN ARRAY['opened', 'paid', 'refunded']
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

CREATE OR REPLACE FUNCTION report_orders(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    by_product boolean DEFAULT false, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, to_day date, product_id text, opened bigint, open bigint, expired bigint,
    paid bigint, refunded bigint, longest_wait_ms bigint, average_wait_ms bigint,
    paid_without_order bigint, not_delivered bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH shown AS (
        SELECT min(b.from_day) AS first_day, max(b.to_day) AS last_day
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    ),
    flow AS (
        SELECT c.from_day, CASE WHEN by_product THEN c.product_id END AS product_id,
            sum(c.number) FILTER (WHERE c.measure = 'opened')::bigint AS opened,
            sum(c.number) FILTER (WHERE c.measure = 'open')::bigint AS open,
            sum(c.number) FILTER (WHERE c.measure = 'expired')::bigint AS expired,
            sum(c.number) FILTER (WHERE c.measure = 'paid')::bigint AS paid,
            sum(c.number) FILTER (WHERE c.measure = 'refunded')::bigint AS refunded,
            max(c.wait_ms) FILTER (WHERE c.measure = 'paid') AS longest_wait_ms,
            round(avg(c.wait_ms) FILTER (WHERE c.measure = 'paid')) AS average_wait_ms,
            sum(c.number) FILTER (WHERE c.measure = 'paid_without_order')::bigint
                AS paid_without_order,
            sum(c.number) FILTER (WHERE c.measure = 'not_delivered')::bigint AS not_delivered
        FROM (
            SELECT i.measure, i.from_day, i.product_id, i.wait_ms, 1::bigint AS number
            FROM order_item(from_date, to_date, bucket, time_zone, product, environment, known_at,
                least(as_of, known_at)) AS i
            WHERE i.measure NOT IN ('paid_without_order', 'not_delivered')
            UNION ALL
            SELECT s.measure, calendar_bucket_start(s.day, shown.first_day, bucket), s.product_id,
                NULL, s.number
            FROM shown
            CROSS JOIN LATERAL charge_sum(ARRAY['paid_without_order', 'not_delivered'],
                shown.first_day, shown.last_day, time_zone, product, environment, false, known_at,
                least(as_of, known_at)) AS s
        ) AS c
        GROUP BY 1, 2
        -- Changes that are not folded yet may cancel out.
        HAVING sum(c.number) FILTER (WHERE c.measure = 'opened') <> 0
            OR sum(c.number) FILTER (WHERE c.measure = 'paid_without_order') <> 0
            OR sum(c.number) FILTER (WHERE c.measure = 'not_delivered') <> 0
    )
    SELECT span.from_day, span.to_day, p.product_id, coalesce(f.opened, 0), coalesce(f.open, 0),
        coalesce(f.expired, 0), coalesce(f.paid, 0), coalesce(f.refunded, 0), f.longest_wait_ms,
        f.average_wait_ms::bigint, coalesce(f.paid_without_order, 0), coalesce(f.not_delivered, 0)
    FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
    CROSS JOIN (SELECT flow.product_id FROM flow UNION SELECT NULL WHERE NOT by_product) AS p
    LEFT JOIN flow AS f ON f.from_day = span.from_day
        AND f.product_id IS NOT DISTINCT FROM p.product_id
    ORDER BY span.from_day, p.product_id;
END;
COMMENT ON FUNCTION report_orders IS
    'Orders against payments. By the date on which the order was opened: opened = open + expired '
    '(opened and never paid) + paid (matched with a charge), refunded being a part of paid; '
    'longest_wait and average_wait are the times from the order to its charge (below zero: the order '
    'came late, or clocks differ). By the date of the charge: paid_without_order: charges of an account '
    'that are no renewals and fulfilled no order; not_delivered: consumables and what fulfilled an '
    'order, owned, not revoked, and not acknowledged as delivered. An unpaid order has no environment '
    'and is counted in each. As known at known_at: an order that was not paid then is open, whether it '
    'had expired or not, and one that was refunded counts as paid, for neither date is kept; a charge''s '
    'owner is the present one: so a past day can change even then.';

-- Refunds that were taken back have no row.

CREATE OR REPLACE FUNCTION report_refunds(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    by_product boolean DEFAULT true, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, to_day date, product_id text, reason text, days_after text, currency text,
    refunded bigint, refunded_milliunits bigint, from_catalogue_milliunits bigint, paid bigint,
    refund_rate numeric)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT * FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at))
    ),
    shown AS (
        SELECT min(span.from_day) AS first_day, max(span.to_day) AS last_day FROM span
    ),
    paid AS (
        SELECT calendar_bucket_start(s.day, shown.first_day, bucket) AS from_day,
            CASE WHEN by_product THEN s.product_id END AS product_id, sum(s.number) AS number
        FROM shown
        CROSS JOIN LATERAL movement_sum(ARRAY['charged'], 'at', shown.first_day,
            shown.last_day, time_zone, product, environment,
            include_family_shared, known_at, least(as_of, known_at)) AS s
        WHERE include_trials OR s.period_type <> 'trial'
        GROUP BY 1, 2
    ),
    refund AS (
        SELECT calendar_bucket_start(s.cohort, shown.first_day, bucket)
                AS from_day,
            CASE WHEN by_product THEN s.product_id END AS product_id, s.cause AS reason,
            refund_delay(s.day - s.cohort) AS days_after, s.currency, -sum(s.number) AS number,
            sum(s.amount_milliunits) AS amount,
            sum(s.amount_milliunits) FILTER (WHERE s.price_source = 'catalogue') AS from_catalogue
        FROM shown
        CROSS JOIN LATERAL movement_sum(ARRAY['refunded'], 'origin', NULL, NULL, time_zone, product,
            environment, include_family_shared, known_at, least(as_of, known_at)) AS s
        WHERE s.cohort BETWEEN shown.first_day AND shown.last_day
            AND (include_trials OR s.period_type <> 'trial')
        GROUP BY 1, 2, 3, 4, 5
        -- What was taken back is no refund.
        HAVING sum(s.number) <> 0
    )
    SELECT span.from_day, span.to_day, p.product_id, r.reason, r.days_after, r.currency,
        coalesce(r.number, 0)::bigint, coalesce(r.amount, 0)::bigint,
        coalesce(r.from_catalogue, 0)::bigint, p.number::bigint,
        round(coalesce(r.number, 0) / nullif(p.number, 0), 6)
    FROM span
    JOIN paid AS p ON p.from_day = span.from_day
    LEFT JOIN refund AS r ON r.from_day = p.from_day AND r.product_id IS NOT DISTINCT FROM p.product_id
    WHERE p.number <> 0 OR r.number <> 0
    ORDER BY span.from_day, p.product_id, r.reason, r.days_after, r.currency;
END;

-- Accounts that administrators merge into others.
ALTER TABLE account ADD COLUMN merged_into_key uuid;
ALTER TABLE account_by_key
    ADD COLUMN merged_into_key uuid,
    ADD COLUMN merged_at timestamptz,
    ADD CONSTRAINT account_by_key_merged
        CHECK (merged_at IS NULL OR merged_into_key IS NOT NULL);
CREATE INDEX account_by_key_merged_into
    ON account_by_key (merged_into_key) WHERE merged_into_key IS NOT NULL;
ALTER TABLE purchase_order ADD COLUMN opened_by_key uuid;
ALTER TABLE job
    DROP CONSTRAINT job_kind_check,
    ADD CONSTRAINT job_kind_check CHECK (kind IN (
        'verify_submission', 'process_notification', 'poll_line', 'compare_notifications',
        'tell_account', 'expire_order', 'deliver_events', 'survey', 'trim_events',
        'fold_movements', 'merge_account'));

-- By the catalogue several of a product cost as many times its price: a worker brings the journal up to
-- date.
INSERT INTO job (kind, subject, lane, run_at, created_at)
VALUES ('survey', 'all', 'upkeep', now(), now())
ON CONFLICT (kind, subject) DO UPDATE SET run_at = excluded.run_at,
    generation = job.generation + 1, attempts = 0, parked_at = NULL, last_error = NULL,
    created_at = excluded.created_at;

-- Imports: lines that are placed as a whole, and what Apple can be asked about them with.
ALTER TABLE placement
    ALTER COLUMN transaction_id DROP NOT NULL,
    ALTER COLUMN product_id DROP NOT NULL,
    ADD CONSTRAINT placement_of_a_charge_or_a_line CHECK (
        (transaction_id IS NULL) = (product_id IS NULL)
        AND (transaction_id IS NOT NULL OR account_key IS NOT NULL));
CREATE TABLE imported_source (
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    account_key             uuid        NOT NULL,
    transaction_id          text        CHECK (length(transaction_id) BETWEEN 1 AND 128),
    receipt_data            text        CHECK (length(receipt_data) BETWEEN 1 AND 16777216),
    PRIMARY KEY (environment, original_transaction_id),
    CONSTRAINT imported_source_is_something
        CHECK (transaction_id IS NOT NULL OR receipt_data IS NOT NULL)
);
COMMENT ON TABLE imported_source IS
    'What imports named for asking Apple about lines. [by original_transaction_id]';
CREATE INDEX imported_source_by_account ON imported_source (account_key);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_program') THEN
        -- It is a view of grants, which are written in their table.
        REVOKE INSERT, UPDATE, DELETE ON grant_movement FROM tenure_program;
        GRANT SELECT, INSERT, UPDATE, DELETE ON imported_source TO tenure_program;
        GRANT SELECT, INSERT, DELETE ON charge_change TO tenure_program;
        GRANT SELECT, INSERT, UPDATE ON charge_day TO tenure_program;
        GRANT EXECUTE ON FUNCTION charge_basis, charge_item, charge_sum TO tenure_program;
        GRANT EXECUTE ON FUNCTION report_audit_item, report_audit TO tenure_program;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA tenure TO tenure_program;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_reader') THEN
        GRANT SELECT ON charge_change, charge_day TO tenure_reader;
        GRANT EXECUTE ON FUNCTION charge_basis, charge_item, charge_sum TO tenure_reader;
        GRANT EXECUTE ON FUNCTION report_audit_item, report_audit TO tenure_reader;
    END IF;
END
$$;
