-- From version 3 of the schema to version 4, in one transaction with the row that says so.
--
-- schema.sql describes version 4 as a whole; a test compares what both come to. The programs' roles
-- may be missing: see the privileges in schema.sql.

SET LOCAL search_path TO tenure;

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

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_program') THEN
        -- It is a view of grants, which are written in their table.
        REVOKE INSERT, UPDATE, DELETE ON grant_movement FROM tenure_program;
        GRANT EXECUTE ON FUNCTION report_audit_item, report_audit TO tenure_program;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_reader') THEN
        GRANT EXECUTE ON FUNCTION report_audit_item, report_audit TO tenure_reader;
    END IF;
END
$$;
