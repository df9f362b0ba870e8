-- From version 7 of the schema to version 8, serving programs since 7.
--
-- schema.sql describes version 8 as a whole; a test compares what both come to.
--
-- part: index
CREATE INDEX CONCURRENTLY IF NOT EXISTS administrator_action_by_subject
    ON tenure.administrator_action (subject, action_id);

-- part: transaction
SET LOCAL search_path TO tenure;

-- A rate is corrected by another row for the same day, so that what was known before stays. What is
-- there was known at the latest now; as the first of its day it also counts before.
ALTER TABLE exchange_rate
    ADD COLUMN recorded_at timestamptz NOT NULL DEFAULT now(),
    DROP CONSTRAINT exchange_rate_pkey,
    ADD PRIMARY KEY (reporting_currency, currency, valid_from, recorded_at);

-- Three functions have a parameter or columns more. Whoever built views of his own on them drops these
-- first.
DROP FUNCTION report_ownership;
DROP FUNCTION report_ownership_item;
DROP FUNCTION report_audit;
DROP FUNCTION report_audit_item;

-- What a unit of a currency was worth on a day; 1 for the reporting currency itself, null: no rate.
CREATE OR REPLACE FUNCTION exchange_rate_on(
    reporting_currency text, currency text, day date, known_at timestamptz DEFAULT NULL)
RETURNS numeric
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN exchange_rate_on.currency = exchange_rate_on.reporting_currency THEN 1
        ELSE coalesce(
            (SELECT r.rate FROM exchange_rate AS r
            WHERE r.reporting_currency = exchange_rate_on.reporting_currency
                AND r.currency = exchange_rate_on.currency AND r.valid_from <= day
                AND (known_at IS NULL OR r.recorded_at <= known_at)
            ORDER BY r.valid_from DESC, r.recorded_at DESC LIMIT 1),
            -- None was known yet: the first that was.
            (SELECT r.rate FROM exchange_rate AS r
            WHERE r.reporting_currency = exchange_rate_on.reporting_currency
                AND r.currency = exchange_rate_on.currency AND r.valid_from <= day
            ORDER BY r.recorded_at, r.valid_from DESC LIMIT 1))
        END;
END;
COMMENT ON FUNCTION exchange_rate_on(text, text, date, timestamptz) IS
    'The operator''s rate of a currency on a day: the latest valid_from that is not after it, and of '
    'that day the one recorded last, of those recorded by known_at. Where none was recorded by then, it '
    'is the first that was recorded: so what was once converted stays as it was, whatever rates are '
    'added or corrected later. Null: there is none.';

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
            SELECT exchange_rate_on(report_mrr.reporting_currency, s.currency, s.from_day - 1,
                    known_at) AS before,
                exchange_rate_on(report_mrr.reporting_currency, s.currency, s.to_day, known_at) AS after
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
    'known at known_at, or the first, where none was yet. Amounts are milliunits, each rounded on its own '
    'half away from zero; mrr_twelfths is exact, in twelfths of a milliunit.';

-- Subscriptions that were set to renew at a moment, with the end of their period.
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
            m.ownership_type, m.charge_original_transaction_id, m.transaction_id, m.at
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
            -- Who asks of this moment has a clock of his own.
            CASE WHEN known_at IS NULL AND as_of >= now() - interval '1 minute' THEN (
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
                    -- What was said before the charge is about that one: Apple renews up to a day early.
                    AND (r.as_of >= latest.at OR r.as_of >= latest.at - interval '24 hours' AND EXISTS (
                        SELECT FROM store_transaction AS t
                        LEFT JOIN store_transaction AS p ON p.environment = t.environment
                            AND p.original_transaction_id = t.original_transaction_id
                            AND p.charged_at < t.charged_at
                            AND p.expires_at BETWEEN t.charged_at - interval '60 seconds'
                                AND t.charged_at + interval '60 seconds'
                        WHERE t.environment = report_renewals_due_item.environment
                            AND t.original_transaction_id = latest.charge_original_transaction_id
                            AND t.transaction_id = latest.transaction_id
                            AND t.product_id = latest.product_id
                            AND (t.kind = 'renewal' OR t.kind = 'unknown' AND p.kind IS NOT NULL)))
                    AND e.recorded_at <= coalesce(known_at, report_renewals_due_item.as_of)
                ORDER BY r.as_of DESC, r.number DESC LIMIT 1)
            END, d.product_id) AS product_id
    ) AS next ON true
    LEFT JOIN LATERAL (
        SELECT latest.amount_milliunits, latest.currency, latest.price_source
        WHERE next.product_id = latest.product_id AND latest.period_type = 'normal'
            AND latest.currency IS NOT NULL
        UNION ALL
        (SELECT CASE latest.ownership_type WHEN 'family_shared' THEN 0 ELSE p.price_milliunits END,
            p.currency, 'catalogue'
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
COMMENT ON FUNCTION report_renewals_due_item IS
    'Each subscription that report_renewals_due counts, with the charge whose period ends, what it '
    'renews as, and the money expected.';

COMMENT ON FUNCTION report_renewals_due IS
    'Subscriptions that at the moment as_of are paid and set to renew, and whose period ends within so '
    'many days of 24 hours after it, per day and product, with the money expected. renews_as: the '
    'product of the next period, by Apple''s latest word since the latest charge. The money is the '
    'price of the latest charge where the same product renews at its normal price, else (after an '
    'introductory or other offer, a trial or a change of product, and where the charge has no price) '
    'the catalogue''s as described then, which is the part from_catalogue; currency and money are null '
    'where neither knows. With include_trials also trials set to renew. It is as known at as_of, or at '
    'known_at if that is given: what is known by now of renewals since would leave only those that '
    'failed.';

CREATE OR REPLACE FUNCTION report_revenue(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, by_product boolean DEFAULT false,
    reporting_currency text DEFAULT NULL, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, to_day date, product_id text, currency text, charges bigint, offers bigint,
    trials bigint, family_shared bigint, charged_milliunits bigint,
    from_catalogue_milliunits bigint, refunds bigint, refunded_milliunits bigint,
    refunds_of_charges bigint, refunded_of_charges_milliunits bigint,
    net_by_charge_milliunits bigint, net_by_refund_milliunits bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT * FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at))
    ),
    shown AS (
        SELECT min(span.from_day) AS first_day, max(span.to_day) AS last_day FROM span
    ),
    counted AS (
        -- By the day, for the rates of currencies.
        SELECT c.day, c.product_id, c.currency,
            sum(c.number) FILTER (WHERE c.measure = 'charged' AND c.period_type <> 'trial'
                AND c.ownership_type = 'purchased') AS charges,
            sum(c.number) FILTER (WHERE c.measure = 'charged' AND c.period_type IN ('intro', 'offer')
                AND c.ownership_type = 'purchased') AS offers,
            sum(c.number) FILTER (WHERE c.measure = 'charged' AND c.period_type = 'trial'
                AND c.ownership_type = 'purchased') AS trials,
            sum(c.number) FILTER (WHERE c.measure = 'charged'
                AND c.ownership_type = 'family_shared') AS family_shared,
            sum(c.amount_milliunits) FILTER (WHERE c.measure = 'charged') AS charged,
            sum(c.amount_milliunits) FILTER (WHERE c.measure = 'charged'
                AND c.price_source = 'catalogue') AS from_catalogue,
            -sum(c.number) FILTER (WHERE c.measure = 'refunded' AND c.period_type <> 'trial') AS refunds,
            sum(c.amount_milliunits) FILTER (WHERE c.measure = 'refunded') AS refunded,
            -sum(c.number) FILTER (WHERE c.measure = 'of_charges' AND c.period_type <> 'trial')
                AS refunds_of_charges,
            sum(c.amount_milliunits) FILTER (WHERE c.measure = 'of_charges') AS refunded_of_charges
        FROM (
            SELECT CASE WHEN report_revenue.reporting_currency IS NULL
                    THEN calendar_bucket_start(s.day, shown.first_day, bucket)
                    ELSE s.day END AS day,
                CASE WHEN by_product THEN s.product_id END AS product_id, s.currency, s.kind AS measure,
                s.period_type, s.ownership_type, s.price_source, s.number, s.amount_milliunits
            FROM shown
            CROSS JOIN LATERAL movement_sum(ARRAY['charged', 'refunded'], 'at',
                shown.first_day, shown.last_day,
                time_zone, product, environment, include_family_shared, known_at,
                least(as_of, known_at)) AS s
            UNION ALL
            SELECT CASE WHEN report_revenue.reporting_currency IS NULL
                    THEN calendar_bucket_start(s.cohort, shown.first_day, bucket)
                    ELSE s.cohort END,
                CASE WHEN by_product THEN s.product_id END, s.currency, 'of_charges', s.period_type,
                s.ownership_type, s.price_source, s.number, s.amount_milliunits
            FROM shown
            CROSS JOIN LATERAL movement_sum(ARRAY['refunded'], 'origin', NULL, NULL, time_zone, product,
                environment, include_family_shared, known_at, least(as_of, known_at)) AS s
            WHERE s.cohort BETWEEN shown.first_day AND shown.last_day
        ) AS c
        CROSS JOIN shown
        GROUP BY c.day, c.product_id, c.currency
    ),
    rated AS (
        SELECT CASE WHEN rate.rate IS NULL THEN c.currency ELSE report_revenue.reporting_currency END
                AS currency,
            coalesce(rate.rate, 1) AS rate, c.day, c.product_id, c.charges, c.offers, c.trials,
            c.family_shared, c.charged, c.from_catalogue, c.refunds, c.refunded,
            c.refunds_of_charges, c.refunded_of_charges
        FROM counted AS c
        LEFT JOIN LATERAL (
            SELECT exchange_rate_on(report_revenue.reporting_currency, c.currency, c.day, known_at)
                AS rate
        ) AS rate ON report_revenue.reporting_currency IS NOT NULL
    )
    SELECT r.from_day, span.to_day, r.product_id, r.currency, r.charges::bigint,
        r.offers::bigint, r.trials::bigint, r.family_shared::bigint, round(r.charged)::bigint,
        round(r.from_catalogue)::bigint, r.refunds::bigint, round(r.refunded)::bigint,
        r.refunds_of_charges::bigint, round(r.refunded_of_charges)::bigint,
        round(r.charged + r.refunded_of_charges)::bigint, round(r.charged + r.refunded)::bigint
    FROM (
        SELECT calendar_bucket_start(c.day, shown.first_day, bucket) AS from_day,
            c.product_id, c.currency, coalesce(sum(c.charges), 0) AS charges,
            coalesce(sum(c.offers), 0) AS offers, coalesce(sum(c.trials), 0) AS trials,
            coalesce(sum(c.family_shared), 0) AS family_shared,
            coalesce(sum(c.charged * c.rate), 0) AS charged,
            coalesce(sum(c.from_catalogue * c.rate), 0) AS from_catalogue,
            coalesce(sum(c.refunds), 0) AS refunds, coalesce(sum(c.refunded * c.rate), 0) AS refunded,
            coalesce(sum(c.refunds_of_charges), 0) AS refunds_of_charges,
            coalesce(sum(c.refunded_of_charges * c.rate), 0) AS refunded_of_charges
        FROM rated AS c
        CROSS JOIN shown
        GROUP BY 1, 2, 3
    ) AS r
    JOIN span ON span.from_day = r.from_day
    ORDER BY r.from_day, r.product_id, r.currency;
END;
COMMENT ON FUNCTION report_revenue IS
    'Charges by the date of the transaction (Apple never tells the one of its settlement), of products '
    'of every type, per currency. charges: paid ones of the purchaser, whatever the price; of these '
    'offers: introductory or other offers that are no trial. trials and what somebody else of the family '
    'paid for (family_shared, if it is included) have no price and stand apart. charged: what was paid, '
    'before Apple''s commission and taxes; where Apple gave no price the catalogue''s of that date, which '
    'is the part from_catalogue; where there is none, 0, in the row without a currency. Refunds both '
    'ways: refunds and refunded by the date of the refund, refunds_of_charges and refunded_of_charges '
    'those of the charges in this row, whenever they were refunded by as_of; amounts are negative, and a '
    'trial that was taken back is no refund. '
    'net_by_refund = charged + refunded, net_by_charge = charged + refunded_of_charges. Upgrades are '
    'not refunds. Never summed across currencies, unless reporting_currency is given: then each '
    'currency with a rate in exchange_rate is converted at that of the day on which it counts, and '
    'summed up exactly; others stay in rows of their own. Rates are those known at '
    'known_at, or the first, where none was yet. Amounts are milliunits, rounded last, half away from '
    'zero. by_product: a row for each product.';

-- Nothing asks it any more.
DROP FUNCTION exchange_rate_on(text, text, date);

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

CREATE OR REPLACE FUNCTION report_ownership_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'day',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, rule text, product_id text, original_transaction_id text,
    transaction_id text, at timestamptz, number bigint, account_id text, from_account_id text,
    decided_at timestamptz, administrator text, reason text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT c.measure, calendar_bucket_start((c.at AT TIME ZONE time_zone)::date, span.first_day, bucket),
        c.rule, c.product_id, c.original_transaction_id, c.transaction_id, c.at, 1::bigint,
        a.account_id, f.account_id, c.decided_at, act.administrator, act.reason
    FROM (
        SELECT day_start(min(b.from_day), time_zone) AS first_moment,
            day_start(max(b.to_day) + 1, time_zone) AS last_moment,
            min(b.from_day) AS first_day, max(b.to_day) AS last_day
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    ) AS span
    CROSS JOIN LATERAL (
        SELECT t.measure, t.rule, t.product_id, t.original_transaction_id, t.transaction_id, t.at,
            t.account_key, NULL::uuid AS from_account_key, t.at AS decided_at
        FROM charge_item(span.first_day, span.last_day, time_zone, product, environment,
            include_family_shared, known_at, least(as_of, known_at)) AS t
        WHERE t.measure IN ('decided', 'corrected')
        UNION ALL
        SELECT 'moved', b.rule, b.product_id, b.original_transaction_id, b.transaction_id,
            b.bound_at, b.account_key, p.account_key, t.decided_at
        FROM account_binding AS b
        JOIN account_binding AS p ON p.environment = b.environment
            AND p.original_transaction_id = b.original_transaction_id AND p.number = b.number - 1
        JOIN store_transaction AS t ON t.environment = b.environment
            AND t.original_transaction_id = b.original_transaction_id
            AND t.transaction_id = b.transaction_id AND t.product_id = b.product_id
        WHERE (known_at IS NULL OR EXISTS (
                -- What the journal knew without noting whose it was: it is taken as it is now.
                SELECT FROM movement AS m
                WHERE m.environment = b.environment AND m.kind = 'charged' AND m.at = b.bound_at
                    AND m.transaction_id = b.transaction_id AND m.product_id = b.product_id
                    AND m.charge_original_transaction_id = b.charge_original_transaction_id
                    AND m.known_from <= known_at AND known_at < m.known_until AND m.rule IS NULL))
            AND b.environment = report_ownership_item.environment AND b.number > 1
            AND b.charge_original_transaction_id = b.original_transaction_id
            AND b.account_key IS DISTINCT FROM p.account_key
            AND (include_family_shared OR t.ownership_type = 'purchased')
            AND b.bound_at >= span.first_moment AND b.bound_at < span.last_moment
            AND b.bound_at <= least(as_of, known_at)
            AND (product IS NULL OR b.product_id = product)
        UNION ALL
        -- Where a second account comes in.
        SELECT 'shared', b.rule, b.product_id, b.original_transaction_id, b.transaction_id,
            b.bound_at, b.account_key, p.account_key, t.decided_at
        FROM account_binding AS b
        JOIN store_transaction AS t ON t.environment = b.environment
            AND t.original_transaction_id = b.original_transaction_id
            AND t.transaction_id = b.transaction_id AND t.product_id = b.product_id
        CROSS JOIN LATERAL (
            SELECT o.account_key FROM account_binding AS o
            WHERE o.environment = b.environment
                AND o.original_transaction_id = b.original_transaction_id
                AND o.number < b.number AND o.account_key IS NOT NULL
            ORDER BY o.number LIMIT 1
        ) AS p
        WHERE (known_at IS NULL OR EXISTS (
                -- What the journal knew without noting whose it was: it is taken as it is now.
                SELECT FROM movement AS m
                WHERE m.environment = b.environment AND m.kind = 'charged' AND m.at = b.bound_at
                    AND m.transaction_id = b.transaction_id AND m.product_id = b.product_id
                    AND m.charge_original_transaction_id = b.charge_original_transaction_id
                    AND m.known_from <= known_at AND known_at < m.known_until AND m.rule IS NULL))
            AND b.environment = report_ownership_item.environment AND b.number > 1
            AND b.charge_original_transaction_id = b.original_transaction_id
            AND b.account_key <> p.account_key
            AND NOT EXISTS (
                SELECT FROM account_binding AS o
                WHERE o.environment = b.environment
                    AND o.original_transaction_id = b.original_transaction_id
                    AND o.number < b.number AND o.account_key NOT IN (p.account_key))
            AND (include_family_shared OR t.ownership_type = 'purchased')
            AND b.bound_at >= span.first_moment AND b.bound_at < span.last_moment
            AND b.bound_at <= least(as_of, known_at)
            AND (product IS NULL OR b.product_id = product)
        UNION ALL
        -- The same as it was known then.
        SELECT n.measure, m.rule, m.product_id, m.charge_original_transaction_id, m.transaction_id,
            m.at, m.account_key,
            CASE n.measure WHEN 'moved' THEN m.moved_from_key ELSE m.shared_with_key END,
            m.decided_at
        FROM movement AS m
        CROSS JOIN LATERAL unnest(CASE WHEN m.shared_with_key IS NULL THEN ARRAY['moved']
            ELSE ARRAY['moved', 'shared'] END) AS n (measure)
        WHERE known_at IS NOT NULL AND m.environment = report_ownership_item.environment
            AND m.kind = 'charged' AND m.has_moved
            AND m.at >= span.first_moment AND m.at < span.last_moment
            AND m.at <= least(as_of, known_at)
            AND m.known_from <= known_at AND known_at < m.known_until
            AND (include_family_shared OR m.ownership_type = 'purchased')
            AND (product IS NULL OR m.product_id = product)
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key
    LEFT JOIN account_by_key AS f ON f.account_key = c.from_account_key
    LEFT JOIN LATERAL (
        SELECT t.administrator,
            administrator_reason(t.reason, t.account_key, n.account_id, t.previous_account_key,
                p.account_id) AS reason
        FROM administrator_action AS t
        LEFT JOIN account_by_key AS n ON n.account_key = t.account_key
        LEFT JOIN account_by_key AS p ON p.account_key = t.previous_account_key
        WHERE c.rule = 'administrator' AND t.action IN ('transfer', 'release')
            AND t.subject = left(concat_ws('/', report_ownership_item.environment,
                c.original_transaction_id, c.transaction_id), 255)
            AND (known_at IS NULL OR t.acted_at <= known_at)
        ORDER BY t.action_id DESC LIMIT 1
    ) AS act ON true;
END;
COMMENT ON FUNCTION report_ownership_item IS
    'What report_ownership counts: each charge that was decided or corrected, with its owner; each '
    'binding that moved, with the account that it moved from, the one that it moved to and the charge '
    'with which it did; for shared the charge with which a second account came in, with the first one. '
    'decided_at is when it was decided who owns the charge (of a correction: corrected), which is mostly '
    'later than the charge. administrator and reason are of the act that placed the charge by hand; an '
    'import that placed a whole line is no such act.';

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
    'How charges found their owners, per day, by the rule that decided. decided: charges by the date '
    'of the decision that holds (unclaimed: that nobody owns it); corrected: those whose owner '
    'Apple''s late evidence corrected, by the date of the correction; moved: original transactions '
    'whose binding went from one account (or nobody) to another, by the date of the charge with which '
    'it did; shared: original transactions on which that was a second account. As known at known_at: '
    'by which rule, whose and since when it was known then (of charges that were recorded before '
    'version 6 of the schema, as it is now).';

CREATE OR REPLACE FUNCTION report_audit_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'day',
    time_zone text DEFAULT 'UTC', known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, administrator text, action text, at timestamptz, subject text, account_id text,
    previous_account_id text, reason text, data text, number bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT calendar_bucket_start((t.acted_at AT TIME ZONE time_zone)::date, span.first_day, bucket),
        t.administrator, t.action, t.acted_at, t.subject, a.account_id, p.account_id,
        administrator_reason(t.reason, t.account_key, a.account_id, t.previous_account_key,
            p.account_id),
        t.data, 1::bigint
    FROM (
        SELECT min(b.from_day) AS first_day, max(b.to_day) AS last_day
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    ) AS span
    JOIN administrator_action AS t
        ON (t.acted_at AT TIME ZONE time_zone)::date BETWEEN span.first_day AND span.last_day
    LEFT JOIN account_by_key AS a ON a.account_key = t.account_key
    LEFT JOIN account_by_key AS p ON p.account_key = t.previous_account_key
    WHERE t.acted_at <= least(as_of, known_at)
    ORDER BY t.acted_at DESC, t.action_id DESC;
END;
COMMENT ON FUNCTION report_audit_item IS
    'What administrators did, to whom, and why: each act, the latest first, with the account that it '
    'concerns, and of a charge that was transferred the one that had it before. Accounts have the names '
    'that they have now: their own, or a pseudonym. The table is only ever appended to, so that what is '
    'known of a past day never changes.';

CREATE OR REPLACE FUNCTION report_audit(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'day',
    time_zone text DEFAULT 'UTC', known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, administrator text, action text, number bigint, last_at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT i.from_day, i.administrator, i.action, sum(i.number)::bigint, max(i.at)
    FROM report_audit_item(from_date, to_date, bucket, time_zone, known_at, as_of) AS i
    GROUP BY i.from_day, i.administrator, i.action
    ORDER BY i.from_day, i.administrator, i.action;
END;
COMMENT ON FUNCTION report_audit IS
    'How often which administrator (the name of an API key) did what, per day: what there is to see is '
    'in report_audit_item.';

-- Whoever may not create roles makes them by other means and calls this again.
CREATE OR REPLACE FUNCTION grant_privileges()
RETURNS void
LANGUAGE plpgsql
SET search_path = tenure
AS $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['tenure_program', 'tenure_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', name);
            EXCEPTION
                WHEN duplicate_object OR unique_violation THEN
                    NULL;  -- Another database of the cluster made it at the same moment.
                WHEN insufficient_privilege THEN
                    RAISE WARNING 'Role % is missing, and % may not create it.', name, current_user
                        USING HINT = 'Create it and run `tenure migrate` again.';
            END;
        END IF;
    END LOOP;

    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_program') THEN
        GRANT USAGE ON SCHEMA tenure TO tenure_program;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tenure TO tenure_program;
        REVOKE UPDATE, DELETE
            ON ledger_entry, ledger_checkpoint, administrator_action, apple_telling
            FROM tenure_program;
        -- What arrived stays as it arrived; the owner ages it out. The bodies of a person's
        -- submissions go with the person, by the owner's own function.
        REVOKE UPDATE, DELETE
            ON submission_payload, submission_exchange, notification, notification_exchange
            FROM tenure_program;
        GRANT EXECUTE
            ON FUNCTION erase_submissions, age_out_submissions, age_out_notifications
            TO tenure_program;
        GRANT UPDATE (processed_at, problem, attempts, outcome) ON notification TO tenure_program;
        -- What was known stays known: a movement is closed, and neither changed nor deleted.
        REVOKE UPDATE, DELETE ON movement FROM tenure_program;
        GRANT UPDATE (known_until, closed_by) ON movement TO tenure_program;
        REVOKE UPDATE ON movement_change FROM tenure_program;
        REVOKE UPDATE ON charge_change FROM tenure_program;
        REVOKE DELETE ON movement_day, charge_day FROM tenure_program;
        REVOKE INSERT, UPDATE, DELETE ON exchange_rate, grant_movement FROM tenure_program;
        REVOKE INSERT, UPDATE, DELETE ON schema_version, schema_part FROM tenure_program;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA tenure TO tenure_program;
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tenure TO tenure_program;
        REVOKE EXECUTE ON FUNCTION grant_privileges FROM tenure_program;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_reader') THEN
        GRANT USAGE ON SCHEMA tenure TO tenure_reader;
        GRANT SELECT ON ALL TABLES IN SCHEMA tenure TO tenure_reader;
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tenure TO tenure_reader;
        REVOKE EXECUTE
            ON FUNCTION erase_submissions, age_out_submissions, age_out_notifications,
                grant_privileges
            FROM tenure_reader;
        -- Raw receipts, answers and bodies are no business of reports.
        REVOKE SELECT
            ON submission_payload, submission_exchange, notification, notification_exchange,
                imported_source
            FROM tenure_reader;
    END IF;
    EXECUTE format(
        'REVOKE UPDATE, DELETE, TRUNCATE ON ledger_entry, ledger_checkpoint, administrator_action, '
            'apple_telling FROM %I',
        current_user);
    EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON movement FROM %I', current_user);
    EXECUTE format('GRANT UPDATE (known_until, closed_by) ON movement TO %I', current_user);
END
$$;
COMMENT ON FUNCTION grant_privileges IS
    'Creates tenure_program and tenure_reader where they are missing, and gives them and the owner what '
    'they may do, and no more. It can be called again.';
REVOKE EXECUTE ON FUNCTION grant_privileges FROM PUBLIC;

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['tenure_program', 'tenure_reader'] LOOP
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            EXECUTE format(
                'GRANT EXECUTE ON FUNCTION exchange_rate_on(text, text, date, timestamptz), '
                    'administrator_reason, report_ownership, report_ownership_item, report_audit, '
                    'report_audit_item TO %I',
                name);
        END IF;
    END LOOP;
END
$$;
