-- From version 2 of the schema to version 3, in one transaction with the row that says so.
--
-- schema.sql describes version 3 as a whole; a test compares what both come to. The programs' roles
-- may be missing: see the privileges in schema.sql.

SET LOCAL search_path TO tenure;

ALTER TABLE account ADD COLUMN told_at timestamptz;
ALTER TABLE line_source DROP COLUMN polled_at;
-- What is told of a binding that moved lists all that an account has.
ALTER TABLE event DROP CONSTRAINT event_data_check,
    ADD CONSTRAINT event_data_check CHECK (length(data) BETWEEN 2 AND 16777216);
CREATE INDEX webhook_delivery_parked
    ON webhook_delivery (position) WHERE parked_at IS NOT NULL;

-- Orders that were open before version 2 have nothing that lets them expire. What is not due yet is
-- put off.
INSERT INTO job (kind, subject, lane, run_at, created_at)
SELECT 'expire_order', order_id::text, 'clock', now(), now()
FROM purchase_order WHERE status = 'open'
ON CONFLICT (kind, subject) DO NOTHING;

-- The journal that reports count.
CREATE TABLE movement (
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    kind                    text        NOT NULL CHECK (kind IN (
        'charged', 'refunded',
        'state',
        'started', 'resumed', 'ended', 'changed_from', 'changed_to', 'repriced',
        'trial_started', 'trial_ended',
        'auto_renew_off', 'auto_renew_on',
        'grace_entered', 'retry_entered', 'billing_recovered', 'billing_lost')),
    at                      timestamptz NOT NULL,
    transaction_id          text        NOT NULL CHECK (length(transaction_id) BETWEEN 1 AND 128),
    charge_original_transaction_id text NOT NULL
        CHECK (length(charge_original_transaction_id) BETWEEN 1 AND 128),
    product_id              text        NOT NULL CHECK (length(product_id) BETWEEN 1 AND 255),
    product_type            text        CHECK (product_type IN
        ('auto_renewable', 'non_renewing', 'non_consumable', 'consumable')),
    subscription_group      text        CHECK (length(subscription_group) BETWEEN 1 AND 255),
    cause                   text        NOT NULL DEFAULT '' CHECK (length(cause) <= 64),
    origin_at               timestamptz,
    number                  smallint    NOT NULL CHECK (number BETWEEN -1 AND 1),
    ownership_type          text        NOT NULL
        CHECK (ownership_type IN ('purchased', 'family_shared')),
    period_type             text        NOT NULL
        CHECK (period_type IN ('normal', 'trial', 'intro', 'offer')),
    offer_id                text        CHECK (length(offer_id) BETWEEN 1 AND 255),
    quantity                integer     NOT NULL CHECK (quantity > 0),
    currency                text        CHECK (currency ~ '^[A-Z]{3}$'),
    amount_milliunits       bigint      NOT NULL DEFAULT 0,
    price_source            text        CHECK (price_source IN ('app_store', 'catalogue')),
    mrr_twelfths            bigint      NOT NULL DEFAULT 0,
    account_key             uuid,
    known_from              timestamptz NOT NULL,
    known_until             timestamptz NOT NULL DEFAULT 'infinity',
    opened_by               bigint,
    closed_by               bigint,
    PRIMARY KEY (environment, original_transaction_id, kind, at, product_id, transaction_id, cause,
        known_from),
    CONSTRAINT movement_number CHECK (CASE
        WHEN kind IN ('refunded', 'ended', 'changed_from', 'trial_ended') THEN number = -1
        WHEN kind = 'repriced' THEN number = 0
        WHEN kind = 'state' THEN number <> 0
        ELSE number = 1
    END),
    CONSTRAINT movement_cause CHECK (CASE kind
        WHEN 'state' THEN cause IN ('active_renewing', 'active_cancelled', 'trial_renewing',
            'trial_cancelled', 'in_grace_period', 'in_billing_retry', 'expired', 'revoked')
        WHEN 'ended' THEN cause IN ('voluntary', 'price_not_consented', 'billing',
            'product_withdrawn', 'refunded', 'unknown')
        WHEN 'trial_ended' THEN cause IN ('converted', 'lapsed', 'refunded')
        WHEN 'repriced' THEN cause IN ('', 'from', 'to')
        ELSE true
    END),
    CONSTRAINT movement_origin CHECK (origin_at IS NOT NULL OR kind NOT IN ('refunded', 'started',
        'resumed', 'ended', 'changed_from', 'changed_to', 'repriced', 'trial_started', 'trial_ended',
        'billing_recovered', 'billing_lost')),
    CONSTRAINT movement_amount CHECK (CASE kind
        WHEN 'charged' THEN amount_milliunits >= 0
        WHEN 'refunded' THEN amount_milliunits <= 0
        ELSE amount_milliunits = 0
    END),
    CONSTRAINT movement_mrr CHECK (mrr_twelfths = 0 OR kind IN
        ('started', 'resumed', 'ended', 'changed_from', 'changed_to', 'repriced')),
    CONSTRAINT movement_money_has_currency CHECK (currency IS NOT NULL
        OR amount_milliunits = 0 AND mrr_twelfths = 0 AND price_source IS NULL),
    CONSTRAINT movement_known CHECK (known_from <= known_until)
);
COMMENT ON TABLE movement IS
    'Projection: dated, signed happenings, each as long as it was known. [by original_transaction_id]';
CREATE INDEX movement_by_time ON movement (environment, kind, at);
CREATE INDEX movement_unclaimed ON movement (environment, at)
    WHERE kind = 'charged' AND account_key IS NULL;

CREATE FUNCTION movement_summed_cause(kind text, cause text, mrr_twelfths bigint)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN kind = 'repriced' AND cause = '' AND mrr_twelfths > 0 THEN 'rise'
    WHEN kind = 'repriced' AND cause = '' AND mrr_twelfths < 0 THEN 'fall'
    ELSE cause END;
COMMENT ON FUNCTION movement_summed_cause IS
    'The cause under which a movement is summed up: that of a new price is rise or fall.';

CREATE FUNCTION movement_cohort(basis text, origin_at timestamptz, time_zone text)
RETURNS date
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE basis
    WHEN 'origin' THEN (origin_at AT TIME ZONE time_zone)::date
    WHEN 'cohort' THEN date_trunc('month', origin_at AT TIME ZONE time_zone)::date
    ELSE '-infinity'::date END;
COMMENT ON FUNCTION movement_cohort IS
    'The day (basis origin) or month (cohort) that a movement goes back to; -infinity for basis at.';

CREATE FUNCTION movement_basis(
    kind text, at timestamptz, origin_at timestamptz, cause text, mrr_twelfths bigint,
    time_zone text DEFAULT 'UTC')
RETURNS TABLE (basis text, day date, cohort date, summed_cause text)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT b.basis, (at AT TIME ZONE time_zone)::date, movement_cohort(b.basis, origin_at, time_zone),
        movement_summed_cause(kind, cause, mrr_twelfths)
    FROM (VALUES ('at'), ('origin'), ('cohort')) AS b (basis)
    WHERE b.basis = 'at'
        OR b.basis = 'origin'
            AND kind IN ('refunded', 'trial_ended', 'billing_recovered', 'billing_lost')
        OR b.basis = 'cohort'
            AND kind IN ('started', 'resumed', 'ended', 'changed_from', 'changed_to', 'repriced');
END;
COMMENT ON FUNCTION movement_basis IS
    'Under which days a movement is summed up in movement_day, and as what.';

CREATE TABLE movement_change (
    change_id               bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    environment             text   NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text   NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    PRIMARY KEY (original_transaction_id, change_id)
);
COMMENT ON TABLE movement_change IS
    'Changes of the journal that are not summed up yet. [by original_transaction_id]';

CREATE FUNCTION movement_effect(
    environment text, original_transaction_id text, change_id bigint)
RETURNS TABLE (
    basis text, kind text, day date, cohort date, cause text, product_id text,
    ownership_type text, period_type text, currency text, price_source text, number bigint,
    amount_milliunits bigint, mrr_twelfths bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT b.basis, m.kind, b.day, b.cohort, b.summed_cause, m.product_id, m.ownership_type,
        m.period_type, coalesce(m.currency, ''), coalesce(m.price_source, ''), s.sign * m.number,
        s.sign * m.amount_milliunits, s.sign * m.mrr_twelfths
    FROM movement AS m
    CROSS JOIN LATERAL (
        SELECT CASE WHEN m.opened_by = movement_effect.change_id THEN 1::bigint ELSE -1 END AS sign
    ) AS s
    CROSS JOIN LATERAL movement_basis(m.kind, m.at, m.origin_at, m.cause, m.mrr_twelfths) AS b
    WHERE m.environment = movement_effect.environment
        AND m.original_transaction_id = movement_effect.original_transaction_id
        AND movement_effect.change_id IN (m.opened_by, m.closed_by);
END;
COMMENT ON FUNCTION movement_effect IS
    'What a change of the journal adds to the sums of movement_day. In place of null stands ''''.';

CREATE TABLE movement_day (
    environment       text   NOT NULL CHECK (environment IN ('production', 'sandbox')),
    basis             text   NOT NULL CHECK (basis IN ('at', 'origin', 'cohort')),
    kind              text   NOT NULL,
    day               date   NOT NULL,
    cohort            date   NOT NULL,
    cause             text   NOT NULL,
    product_id        text   NOT NULL,
    ownership_type    text   NOT NULL,
    period_type       text   NOT NULL,
    currency          text   NOT NULL,
    price_source      text   NOT NULL,
    number            bigint NOT NULL,
    amount_milliunits bigint NOT NULL,
    mrr_twelfths      bigint NOT NULL,
    PRIMARY KEY (environment, basis, kind, day, cohort, cause, product_id, ownership_type,
        period_type, currency, price_source),
    CONSTRAINT movement_day_cohort CHECK ((basis = 'at') = (cohort = '-infinity'))
);
COMMENT ON TABLE movement_day IS 'Projection: sums over movements by the day. [local]';

CREATE TABLE exchange_rate (
    reporting_currency text    NOT NULL CHECK (reporting_currency ~ '^[A-Z]{3}$'),
    currency           text    NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    valid_from         date    NOT NULL,
    rate               numeric NOT NULL CHECK (rate > 0 AND rate < 'infinity'),
    PRIMARY KEY (reporting_currency, currency, valid_from),
    CONSTRAINT exchange_rate_of_two CHECK (reporting_currency <> currency)
);
COMMENT ON TABLE exchange_rate IS
    'Exchange rates, as the operator supplies them for reports. [reference]';

ALTER TABLE job
    DROP CONSTRAINT job_kind_check,
    ADD CONSTRAINT job_kind_check CHECK (kind IN (
        'verify_submission', 'process_notification', 'poll_line', 'compare_notifications',
        'tell_account', 'expire_order', 'deliver_events', 'survey', 'trim_events',
        'fold_movements'));

-- What administrators do: grants that are taken back, persons who are erased, and the record of it.
ALTER TABLE submission ADD COLUMN erased_at timestamptz;
CREATE INDEX submission_by_account ON submission (account_key, submission_id);
CREATE FUNCTION erase_submissions(erased_key uuid, moment timestamptz)
RETURNS TABLE (submissions bigint, payloads bigint, exchanges bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tenure, pg_temp
AS $$
DECLARE
    ids uuid[];
BEGIN
    IF EXISTS (
        SELECT FROM account_by_key WHERE account_key = erased_key AND erased_at IS NOT NULL
    ) THEN
        ids := ARRAY(
            SELECT submission_id FROM submission
            WHERE account_key = erased_key AND erased_at IS NULL);
    END IF;
    UPDATE submission SET erased_at = moment, retry_at = NULL,
        status = CASE status WHEN 'pending' THEN 'rejected' ELSE status END,
        decided_at = coalesce(decided_at, moment),
        problem = CASE status WHEN 'pending' THEN 'account_erased' ELSE problem END,
        problem_detail = CASE status WHEN 'pending' THEN 'The account was erased.' END
    WHERE submission_id = ANY (ids);
    GET DIAGNOSTICS submissions = ROW_COUNT;
    DELETE FROM submission_payload WHERE submission_id = ANY (ids);
    GET DIAGNOSTICS payloads = ROW_COUNT;
    DELETE FROM submission_exchange WHERE submission_id = ANY (ids);
    GET DIAGNOSTICS exchanges = ROW_COUNT;
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION erase_submissions IS
    'Erases what an erased account submitted, and says how much of it there was.';

REVOKE EXECUTE ON FUNCTION erase_submissions FROM PUBLIC;

ALTER TABLE account_grant ADD COLUMN recorded_at timestamptz, ADD COLUMN revoked_at timestamptz;
-- Nothing tells when it was recorded; it was given from that moment on.
UPDATE account_grant SET recorded_at = starts_at;
ALTER TABLE account_grant
    ALTER COLUMN recorded_at SET NOT NULL, ALTER COLUMN recorded_at SET DEFAULT now(),
    ADD CONSTRAINT account_grant_revoked CHECK (revoked_at IS NULL
        OR source = 'grant' AND starts_at <= revoked_at AND recorded_at <= revoked_at
            AND (ends_at IS NULL OR revoked_at < ends_at));
CREATE TABLE account_grant_account (
    grant_id    uuid NOT NULL PRIMARY KEY,
    account_key uuid NOT NULL
);
COMMENT ON TABLE account_grant_account IS
    'Look-up: whom an administrator gave a grant. [by grant_id]';
INSERT INTO account_grant_account (grant_id, account_key)
SELECT g.grant_id, a.account_key FROM account_grant AS g JOIN account AS a USING (account_id)
WHERE g.source = 'grant';
CREATE OR REPLACE VIEW current_entitlement AS
WITH version AS (
    SELECT product_id, valid_from, type, period,
        CASE WHEN lag(valid_from) OVER versions IS NULL THEN '-infinity' ELSE valid_from END AS since,
        coalesce(lead(valid_from) OVER versions, 'infinity') AS until
    FROM product
    WINDOW versions AS (PARTITION BY product_id ORDER BY valid_from)
),
part AS NOT MATERIALIZED (
    SELECT held.*,
        coalesce(is_revoked, false) AS revoked,
        least(ends, revoked_at) AS access_ends,
        CASE
            WHEN now() < ends THEN 'active'
            WHEN phase = 'grace_period' AND now() < grace_ends_at THEN 'in_grace_period'
            WHEN phase = 'billing_retry' THEN 'in_billing_retry'
            ELSE 'expired'
        END AS own_state
    FROM (
        SELECT h.account_id, h.environment,
            coalesce(h.family_id, h.original_transaction_id) AS family,
            h.original_transaction_id, h.transaction_id, h.product_id, h.period_type, h.starts_at,
            h.revoked_at, h.auto_renews, h.phase, h.grace_ends_at, latest.valid_from,
            h.revoked_at <= now() AS is_revoked,
            coalesce(least(h.superseded_at, coalesce(h.ends_at,
                CASE coalesce(h.product_type, latest.type)
                    WHEN 'non_consumable' THEN NULL
                    WHEN 'non_renewing' THEN coalesce(
                        (h.starts_at AT TIME ZONE 'UTC' + bought.period::interval)
                            AT TIME ZONE 'UTC', h.starts_at)
                    ELSE h.starts_at
                END)), 'infinity') AS ends
        FROM holding AS h
        JOIN version AS latest ON latest.product_id = h.product_id AND latest.until = 'infinity'
        JOIN version AS bought ON bought.product_id = h.product_id
            AND bought.since <= h.starts_at AND h.starts_at < bought.until
        CROSS JOIN sandbox_access AS sandbox
        WHERE coalesce(h.product_type, latest.type) <> 'consumable'
            AND (h.environment = 'production' OR sandbox.everybody
                OR h.account_id = ANY (sandbox.account_ids))
    ) AS held
),
deciding AS (
    SELECT DISTINCT ON (account_id, environment, family) *,
        CASE class WHEN 0 THEN own_state WHEN 1 THEN 'revoked' ELSE 'expired' END AS state
    FROM (
        SELECT *,
            CASE
                WHEN NOT revoked AND rank = 1 AND own_state <> 'expired' THEN 0
                WHEN revoked AND now() < ends THEN 1
                WHEN NOT revoked THEN 2
                ELSE 3
            END AS class
        FROM (
            SELECT *,
                row_number() OVER (
                    PARTITION BY account_id, environment, family, revoked
                    ORDER BY ends DESC, starts_at DESC,
                        octet_length(transaction_id) DESC, transaction_id COLLATE "C" DESC,
                        octet_length(original_transaction_id) DESC,
                        original_transaction_id COLLATE "C" DESC,
                        octet_length(product_id) DESC, product_id COLLATE "C" DESC) AS rank
            FROM part
            WHERE starts_at <= now()
        ) AS ranked
    ) AS classed
    ORDER BY account_id, environment, family, class, rank
),
chain AS (
    SELECT d.*, granted.entitlement, f.ends AS last_ends, f.phase AS last_phase,
        f.grace_ends_at AS last_grace_ends_at, f.is_first,
        f.starts_at AS last_starts_at, f.position,
        coalesce(f.starts_at <= max(CASE WHEN f.is_first THEN f.access_ends ELSE f.ends END)
            OVER (links ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true) AS joins
    FROM deciding AS d
    JOIN product_entitlement AS granted
        ON granted.product_id = d.product_id AND granted.valid_from = d.valid_from
    CROSS JOIN LATERAL (
        SELECT p.*, is_same AS is_first,
            row_number() OVER (ORDER BY is_same DESC, p.starts_at,
                octet_length(p.transaction_id), p.transaction_id COLLATE "C",
                octet_length(p.original_transaction_id), p.original_transaction_id COLLATE "C",
                octet_length(p.product_id), p.product_id COLLATE "C") AS position
        FROM part AS p
        CROSS JOIN LATERAL (
            SELECT (p.original_transaction_id, p.transaction_id, p.product_id)
                = (d.original_transaction_id, d.transaction_id, d.product_id) AS is_same
        ) AS same
        WHERE p.account_id = d.account_id AND p.environment = d.environment
            AND p.family = d.family
            AND (is_same OR d.class = 0 AND p.revoked_at IS NULL AND EXISTS (
                SELECT FROM product_entitlement AS other
                WHERE other.product_id = p.product_id AND other.valid_from = p.valid_from
                    AND other.entitlement = granted.entitlement))
    ) AS f
    WINDOW links AS (
        PARTITION BY d.account_id, d.environment, d.family, granted.entitlement
        ORDER BY f.position)
),
bought AS (
    SELECT DISTINCT ON (account_id, environment, family, entitlement) *,
        CASE WHEN is_first THEN access_ends ELSE last_ends END AS last_access_ends
    FROM (
        SELECT *,
            bool_and(joins) OVER (
                PARTITION BY account_id, environment, family, entitlement
                ORDER BY position ROWS UNBOUNDED PRECEDING) AS is_unbroken
        FROM chain
    ) AS spans
    WHERE is_unbroken
    ORDER BY account_id, environment, family, entitlement,
        CASE WHEN is_first THEN access_ends ELSE last_ends END DESC, position
),
offered AS (
    SELECT b.account_id, b.entitlement, b.state IN ('active', 'in_grace_period') AS active, b.state,
        b.product_id, b.last_ends AS expires_at,
        least(
            CASE b.last_phase
                WHEN 'grace_period' THEN greatest(b.last_ends, b.last_grace_ends_at)
                ELSE b.last_ends
            END,
            CASE WHEN b.is_first THEN b.revoked_at END) AS access_ends_at,
        b.state NOT IN ('revoked', 'expired') AND EXISTS (
            SELECT FROM part AS p
            JOIN product_entitlement AS other ON other.product_id = p.product_id
                AND other.valid_from = p.valid_from AND other.entitlement = b.entitlement
            WHERE p.account_id = b.account_id AND p.environment = b.environment
                AND p.family = b.family AND p.auto_renews AND p.phase <> 'expired'
                AND p.revoked_at IS NULL AND p.starts_at <= b.last_access_ends
                AND p.own_state <> 'expired') AS will_renew,
        b.period_type, b.environment, b.original_transaction_id, b.transaction_id,
        'app_store'::text AS source
    FROM bought AS b
    UNION ALL
    SELECT account_id, entitlement, now() < ends,
        CASE WHEN revoked_at <= now() THEN 'revoked' WHEN now() < ends THEN 'active'
            ELSE 'expired'
        END,
        NULL, ends, ends, false, 'normal', given.environment, given.original_transaction_id, NULL,
        source
    FROM account_grant AS given
    CROSS JOIN LATERAL (
        SELECT coalesce(least(given.ends_at, given.revoked_at), 'infinity') AS ends
    ) AS access
    CROSS JOIN sandbox_access AS sandbox
    WHERE starts_at <= now()
        AND (given.environment IS DISTINCT FROM 'sandbox' OR sandbox.everybody
            OR given.account_id = ANY (sandbox.account_ids))
)
SELECT DISTINCT ON (account_id, entitlement) account_id, entitlement, active, state, product_id,
    nullif(expires_at, 'infinity') AS expires_at,
    nullif(access_ends_at, 'infinity') AS access_ends_at,
    will_renew, period_type, environment, original_transaction_id, transaction_id, source
FROM offered
ORDER BY account_id, entitlement, active DESC,
    CASE WHEN active THEN 0 WHEN state = 'in_billing_retry' THEN 1 WHEN state = 'revoked' THEN 2
        ELSE 3 END,
    offered.access_ends_at DESC,
    octet_length(coalesce(transaction_id, '')) DESC,
    coalesce(transaction_id, '') COLLATE "C" DESC,
    octet_length(coalesce(original_transaction_id, '')) DESC,
    coalesce(original_transaction_id, '') COLLATE "C" DESC,
    octet_length(coalesce(product_id, '')) DESC, coalesce(product_id, '') COLLATE "C" DESC,
    coalesce(environment, '') COLLATE "C", source COLLATE "C";

CREATE INDEX event_by_account ON event (account_key, event_id);

ALTER TABLE administrator_action
    ADD COLUMN account_key uuid, ADD COLUMN previous_account_key uuid,
    DROP CONSTRAINT administrator_action_reason_check,
    ADD CONSTRAINT administrator_action_reason_check CHECK (length(reason) BETWEEN 1 AND 50000);
CREATE INDEX administrator_action_by_account
    ON administrator_action (account_key, action_id) WHERE account_key IS NOT NULL;
CREATE INDEX administrator_action_by_previous_account
    ON administrator_action (previous_account_key, action_id)
    WHERE previous_account_key IS NOT NULL;

COMMENT ON VIEW report_intake IS
    'How intake does: one row for each measure, environment, app, cause and day (UTC). Open now, and '
    'without a day: submissions_open and notifications_open (not decided or processed yet, with the '
    'cause of their retries), deliveries_waiting and deliveries_parked (events for the webhook), '
    'jobs_overdue (due by the database''s clock, and not taken up) and jobs_parked (given up). By the '
    'day of the verdict: submissions_rejected and notifications_rejected (Apple does not vouch for '
    'them, by its code). By the day: apple_failures (requests about receipts to which no answer of use '
    'came), notifications_refused (what was posted and is no notification of Apple''s), '
    'notifications_listed (in Apple''s history, each reading of it counted; readings overlap), '
    'notifications_missed (of those what had not arrived, late by the time since Apple signed it) and '
    'notifications_unbelievable (of those what has wrong signatures). Environment and app are null where '
    'they are not known (yet).';

-- What was recorded so far is in no journal: a worker makes up for it.
INSERT INTO job (kind, subject, lane, run_at, created_at)
VALUES ('survey', 'all', 'upkeep', now(), now())
ON CONFLICT (kind, subject) DO UPDATE SET run_at = excluded.run_at,
    generation = job.generation + 1, attempts = 0, parked_at = NULL, last_error = NULL,
    created_at = excluded.created_at;

-- Reports.
CREATE FUNCTION calendar_bucket(
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
        date_trunc(bucket, first_day::timestamp), last_day::timestamp, step) AS start;
END;
COMMENT ON FUNCTION calendar_bucket IS
    'The days, ISO weeks (from Monday) or months from from_date to to_date, both inclusive: the first '
    'and the last one may be cut short. Without to_date up to the moment; without from_date 30 days, '
    '12 weeks or 12 months. Nothing after the moment.';

CREATE FUNCTION calendar_bucket_start(day date, first_day date, bucket text)
RETURNS date
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN day >= first_day
    THEN greatest(date_trunc(bucket, day::timestamp)::date, first_day) END;
COMMENT ON FUNCTION calendar_bucket_start IS
    'The first day of the row of a report in which a day is counted; null before the first.';

CREATE FUNCTION exchange_rate_on(reporting_currency text, currency text, day date)
RETURNS numeric
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN exchange_rate_on.currency = exchange_rate_on.reporting_currency THEN 1
        ELSE (
            SELECT r.rate FROM exchange_rate AS r
            WHERE r.reporting_currency = exchange_rate_on.reporting_currency
                AND r.currency = exchange_rate_on.currency AND r.valid_from <= day
            ORDER BY r.valid_from DESC LIMIT 1)
        END;
END;
COMMENT ON FUNCTION exchange_rate_on IS
    'The operator''s rate of a currency on a day: the latest valid_from that is not after it. Null: '
    'there is none.';

CREATE FUNCTION movement_item(
    kinds text[], basis text, from_day date, to_day date, time_zone text, product text,
    environment text, include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    kind text, cause text, at timestamptz, day date, cohort date, origin_at timestamptz,
    original_transaction_id text, transaction_id text, product_id text, ownership_type text,
    period_type text, offer_id text, quantity integer, currency text, price_source text,
    number bigint, amount_milliunits bigint, mrr_twelfths bigint, account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT m.kind, movement_summed_cause(m.kind, m.cause, m.mrr_twelfths), m.at,
        (m.at AT TIME ZONE time_zone)::date, movement_cohort(basis, m.origin_at, time_zone),
        m.origin_at, m.original_transaction_id, m.transaction_id, m.product_id, m.ownership_type,
        m.period_type, m.offer_id, m.quantity, m.currency, m.price_source, m.number::bigint,
        m.amount_milliunits, m.mrr_twelfths, m.account_key
    FROM movement AS m
    WHERE m.environment = movement_item.environment AND m.kind = ANY (kinds)
        AND m.at >= coalesce(from_day::timestamp AT TIME ZONE time_zone, '-infinity')
        AND m.at < coalesce((to_day + 1)::timestamp AT TIME ZONE time_zone, 'infinity')
        AND m.at <= moment
        AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
            ELSE m.known_from <= known_at AND known_at < m.known_until END
        AND (include_family_shared OR m.ownership_type = 'purchased')
        AND (product IS NULL OR m.product_id = product);
END;
COMMENT ON FUNCTION movement_item IS
    'Movements of some kinds and days, as known now or at known_at, up to a moment.';

CREATE FUNCTION movement_sum(
    kinds text[], basis text, from_day date, to_day date, time_zone text, product text,
    environment text, include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    kind text, cause text, day date, cohort date, product_id text, ownership_type text,
    period_type text, currency text, price_source text, number bigint, amount_milliunits bigint,
    mrr_twelfths bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT d.kind, d.cause, d.day, d.cohort, d.product_id, d.ownership_type, d.period_type,
        nullif(d.currency, ''), nullif(d.price_source, ''), d.number, d.amount_milliunits,
        d.mrr_twelfths
    FROM movement_day AS d
    WHERE known_at IS NULL AND time_zone = 'UTC'
        AND d.environment = movement_sum.environment AND d.basis = movement_sum.basis
        AND d.kind = ANY (kinds)
        AND d.day >= coalesce(from_day, '-infinity') AND d.day <= coalesce(to_day, 'infinity')
        AND d.day < (moment AT TIME ZONE 'UTC')::date
        AND (include_family_shared OR d.ownership_type = 'purchased')
        AND (product IS NULL OR d.product_id = product)
    UNION ALL
    SELECT d.kind, d.cause, d.day, d.cohort, d.product_id, d.ownership_type, d.period_type,
        nullif(d.currency, ''), nullif(d.price_source, ''), d.number, d.amount_milliunits,
        d.mrr_twelfths
    FROM movement_change AS c
    CROSS JOIN LATERAL movement_effect(c.environment, c.original_transaction_id, c.change_id) AS d
    WHERE known_at IS NULL AND time_zone = 'UTC'
        AND c.environment = movement_sum.environment AND d.basis = movement_sum.basis
        AND d.kind = ANY (kinds)
        AND d.day >= coalesce(from_day, '-infinity') AND d.day <= coalesce(to_day, 'infinity')
        AND d.day < (moment AT TIME ZONE 'UTC')::date
        AND (include_family_shared OR d.ownership_type = 'purchased')
        AND (product IS NULL OR d.product_id = product)
    UNION ALL
    SELECT i.kind, i.cause, i.day, i.cohort, i.product_id, i.ownership_type, i.period_type,
        i.currency, i.price_source, i.number, i.amount_milliunits, i.mrr_twelfths
    FROM movement_item(
        kinds, basis,
        CASE WHEN known_at IS NULL AND time_zone = 'UTC'
            THEN greatest(from_day, (moment AT TIME ZONE 'UTC')::date) ELSE from_day END,
        to_day, time_zone, product, environment, include_family_shared, known_at, moment) AS i;
END;
COMMENT ON FUNCTION movement_sum IS
    'What movement_item lists, from the sums by the day where these can answer: for days of UTC, as '
    'known now.';

CREATE FUNCTION movement_stock(
    kinds text[], to_day date, by_currency boolean, time_zone text, product text, environment text,
    include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    original_transaction_id text, transaction_id text, product_id text, state text,
    since timestamptz, origin_at timestamptz, number bigint, currency text, price_source text,
    mrr_twelfths bigint, account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT i.original_transaction_id,
        (array_agg(i.transaction_id ORDER BY i.at DESC, i.number DESC))[1],
        i.product_id, CASE i.kind WHEN 'state' THEN i.cause END,
        max(i.at) FILTER (WHERE i.number >= 0), max(i.origin_at), sum(i.number)::bigint,
        CASE WHEN by_currency THEN i.currency END, CASE WHEN by_currency THEN i.price_source END,
        sum(i.mrr_twelfths)::bigint,
        (array_agg(i.account_key ORDER BY i.at DESC, i.number DESC))[1]
    FROM movement_item(kinds, 'at', NULL, to_day, time_zone, product, environment,
        include_family_shared, known_at, moment) AS i
    GROUP BY i.original_transaction_id, i.product_id, CASE i.kind WHEN 'state' THEN i.cause END,
        CASE WHEN by_currency THEN i.currency END, CASE WHEN by_currency THEN i.price_source END
    HAVING sum(i.number) <> 0 AND NOT by_currency OR sum(i.mrr_twelfths) <> 0 AND by_currency;
END;
COMMENT ON FUNCTION movement_stock IS
    'What movements come to for each subscription, product and state at the end of a day; by_currency: '
    'what they come to in revenue.';

CREATE FUNCTION active_measure(kind text, cause text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE kind
    WHEN 'started' THEN 'new'
    WHEN 'trial_started' THEN 'new'
    WHEN 'trial_ended' THEN CASE cause WHEN 'converted' THEN 'new' ELSE 'expired' END
    WHEN 'resumed' THEN 'resubscribed'
    WHEN 'ended' THEN 'expired'
    WHEN 'changed_to' THEN 'changed_in'
    WHEN 'changed_from' THEN 'changed_out'
END;
COMMENT ON FUNCTION active_measure IS 'Which column of report_active a movement is counted in.';

CREATE FUNCTION active_kinds(include_trials boolean)
RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ARRAY['started', 'resumed', 'ended', 'changed_from', 'changed_to']
    || CASE WHEN include_trials THEN ARRAY['trial_started', 'trial_ended'] ELSE '{}'::text[] END;
COMMENT ON FUNCTION active_kinds IS
    'Which kinds of movements change the number of active subscriptions.';

CREATE VIEW grant_movement AS
SELECT g.grant_id, g.account_id, g.entitlement, g.starts_at AS at, 1::bigint AS number
FROM account_grant AS g
WHERE g.source = 'grant'
UNION ALL
SELECT g.grant_id, g.account_id, g.entitlement, greatest(g.starts_at, least(g.ends_at, g.revoked_at)),
    -1
FROM account_grant AS g
WHERE g.source = 'grant' AND coalesce(g.ends_at, g.revoked_at) IS NOT NULL;
COMMENT ON VIEW grant_movement IS 'Grants of administrators: +1 where one begins, -1 where it ends.';

CREATE FUNCTION report_subscriptions(
    product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_grants boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (product_id text, state text, number bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT s.product_id, s.cause, sum(s.number)::bigint
    FROM movement_sum(ARRAY['state'], 'at', NULL, NULL, 'UTC', product, environment,
        include_family_shared, known_at, least(as_of, known_at)) AS s
    GROUP BY s.product_id, s.cause
    HAVING sum(s.number) <> 0
    UNION ALL
    SELECT NULL, 'granted', sum(g.number)::bigint
    FROM grant_movement AS g
    WHERE include_grants AND environment = 'production' AND product IS NULL
        AND g.at <= least(as_of, known_at)
    HAVING sum(g.number) <> 0
    ORDER BY 1, 2;
END;
COMMENT ON FUNCTION report_subscriptions IS
    'Subscriptions to auto-renewable products by product and state at the moment as_of. Lines that '
    'Apple links are one subscription. Its state is that of its latest charge: active_renewing (paid, '
    'and set to renew), active_cancelled (paid, and set to end), trial_renewing and trial_cancelled '
    '(in a trial), in_grace_period (the renewal failed, access goes on), in_billing_retry (access is '
    'over, Apple goes on trying), revoked (refunded), expired. With include_grants also what '
    'administrators granted, as state granted without a product; grants are counted as they are now, '
    'whatever known_at says. Production only and without what is shared in a family, unless told '
    'otherwise.';

CREATE FUNCTION report_subscriptions_item(
    product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_grants boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    product_id text, state text, original_transaction_id text, transaction_id text,
    since timestamptz, number bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT s.product_id, s.state, s.original_transaction_id, s.transaction_id, s.since, s.number,
        a.account_id
    FROM movement_stock(ARRAY['state'], NULL, false, 'UTC', product, environment,
        include_family_shared, known_at, least(as_of, known_at)) AS s
    LEFT JOIN account_by_key AS a ON a.account_key = s.account_key
    UNION ALL
    SELECT NULL, 'granted', NULL, g.grant_id::text, max(g.at), sum(g.number)::bigint, g.account_id
    FROM grant_movement AS g
    WHERE include_grants AND environment = 'production' AND product IS NULL
        AND g.at <= least(as_of, known_at)
    GROUP BY g.grant_id, g.account_id
    HAVING sum(g.number) <> 0;
END;
COMMENT ON FUNCTION report_subscriptions_item IS
    'The subscriptions that report_subscriptions counts, each with the charge with which it came to be '
    'in its state, since when, and the account that owned that charge. Of a grant, transaction_id is '
    'the grant''s.';

CREATE FUNCTION report_active(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    include_grants boolean DEFAULT false, by_product boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, to_day date, product_id text, opening bigint, new bigint, expired bigint,
    resubscribed bigint, churned bigint, changed_in bigint, changed_out bigint, active bigint)
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
            c.product_id,
            sum(c.number) AS number,
            sum(c.number) FILTER (WHERE c.measure = 'new') AS new,
            -sum(c.number) FILTER (WHERE c.measure = 'expired') AS expired,
            sum(c.number) FILTER (WHERE c.measure = 'resubscribed') AS resubscribed,
            sum(c.number) FILTER (WHERE c.measure = 'changed_in') AS changed_in,
            -sum(c.number) FILTER (WHERE c.measure = 'changed_out') AS changed_out
        FROM (
            SELECT s.day, CASE WHEN by_product THEN s.product_id END AS product_id,
                active_measure(s.kind, s.cause) AS measure, s.number
            FROM shown
            CROSS JOIN LATERAL movement_sum(active_kinds(include_trials), 'at', NULL,
                shown.last_day, time_zone, product, environment,
                include_family_shared, known_at, least(as_of, known_at)) AS s
            UNION ALL
            SELECT (g.at AT TIME ZONE time_zone)::date, NULL,
                CASE g.number WHEN 1 THEN 'new' ELSE 'expired' END, g.number
            FROM shown
            JOIN grant_movement AS g ON (g.at AT TIME ZONE time_zone)::date <= shown.last_day
            WHERE include_grants AND environment = 'production' AND product IS NULL
                AND g.at <= least(as_of, known_at)
        ) AS c
        CROSS JOIN shown
        GROUP BY 1, 2
    )
    SELECT b.from_day, b.to_day, b.product_id, (b.active - b.number)::bigint, b.new::bigint,
        b.expired::bigint, b.resubscribed::bigint, (b.expired - b.resubscribed)::bigint,
        b.changed_in::bigint, b.changed_out::bigint, b.active::bigint
    FROM (
        SELECT span.from_day, span.to_day, p.product_id, coalesce(f.number, 0) AS number,
            coalesce(f.new, 0) AS new, coalesce(f.expired, 0) AS expired,
            coalesce(f.resubscribed, 0) AS resubscribed, coalesce(f.changed_in, 0) AS changed_in,
            coalesce(f.changed_out, 0) AS changed_out,
            coalesce(o.number, 0)
                + sum(coalesce(f.number, 0)) OVER (PARTITION BY p.product_id ORDER BY span.from_day)
                AS active
        FROM span
        CROSS JOIN (
            SELECT flow.product_id FROM flow UNION SELECT NULL WHERE NOT by_product
        ) AS p
        LEFT JOIN flow AS f ON f.from_day = span.from_day
            AND f.product_id IS NOT DISTINCT FROM p.product_id
        LEFT JOIN flow AS o ON o.from_day IS NULL AND o.product_id IS NOT DISTINCT FROM p.product_id
    ) AS b
    ORDER BY b.from_day, b.product_id;
END;
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
    'administrators granted, without a product, as grants are now. by_product: a row for each product.';

CREATE FUNCTION report_active_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    include_grants boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, product_id text, original_transaction_id text, transaction_id text,
    at timestamptz, origin_at timestamptz, kind text, cause text, number bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT min(b.from_day) AS first_day, max(b.to_day) AS last_day, max(b.from_day) AS last_row
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    )
    SELECT c.measure, c.from_day, c.product_id, c.original_transaction_id, c.transaction_id, c.at,
        c.origin_at, c.kind, c.cause, c.number, coalesce(c.account_id, a.account_id)
    FROM (
        SELECT active_measure(i.kind, i.cause) AS measure,
            calendar_bucket_start(i.day, span.first_day, bucket) AS from_day, i.product_id,
            i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.kind, i.cause,
            CASE WHEN active_measure(i.kind, i.cause) IN ('expired', 'changed_out') THEN -i.number
                ELSE i.number END AS number,
            i.account_key, NULL AS account_id
        FROM span
        CROSS JOIN LATERAL movement_item(active_kinds(include_trials), 'at', span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        UNION ALL
        SELECT 'active', span.last_row, s.product_id, s.original_transaction_id, s.transaction_id,
            s.since, s.origin_at, NULL, NULL, s.number, s.account_key, NULL
        FROM span
        CROSS JOIN LATERAL movement_stock(active_kinds(include_trials), span.last_day, false,
            time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS s
        UNION ALL
        SELECT CASE g.number WHEN 1 THEN 'new' ELSE 'expired' END,
            calendar_bucket_start((g.at AT TIME ZONE time_zone)::date, span.first_day, bucket), NULL,
            NULL, g.grant_id::text, g.at, NULL, 'grant', g.entitlement, abs(g.number), NULL,
            g.account_id
        FROM span
        JOIN grant_movement AS g
            ON (g.at AT TIME ZONE time_zone)::date BETWEEN span.first_day AND span.last_day
        WHERE include_grants AND environment = 'production' AND product IS NULL
            AND g.at <= least(as_of, known_at)
        UNION ALL
        SELECT 'active', span.last_row, NULL, NULL, g.grant_id::text, max(g.at), NULL, 'grant',
            g.entitlement, sum(g.number)::bigint, NULL, g.account_id
        FROM span
        JOIN grant_movement AS g ON (g.at AT TIME ZONE time_zone)::date <= span.last_day
        WHERE include_grants AND environment = 'production' AND product IS NULL
            AND g.at <= least(as_of, known_at)
        GROUP BY span.last_row, g.grant_id, g.entitlement, g.account_id
        HAVING sum(g.number) <> 0
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key;
END;
COMMENT ON FUNCTION report_active_item IS
    'What report_active counts: for new, expired, resubscribed, changed_in and changed_out each '
    'movement, for active each subscription, at the end of the last row alone (give its days to get '
    'another one''s). churned is expired less resubscribed. Of a grant, transaction_id is the grant''s.';

CREATE FUNCTION report_trials(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, by_product boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, to_day date, product_id text, opening bigint, started bigint, converted bigint,
    expired bigint, trials bigint, cohort_started bigint, cohort_converted bigint,
    cohort_expired bigint, conversion_rate numeric)
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
            c.product_id,
            sum(c.number) FILTER (WHERE NOT c.is_cohort) AS number,
            sum(c.number) FILTER (WHERE c.kind = 'trial_started') AS started,
            -sum(c.number) FILTER (WHERE c.kind = 'trial_ended' AND NOT c.is_cohort
                AND c.cause = 'converted') AS converted,
            -sum(c.number) FILTER (WHERE c.kind = 'trial_ended' AND NOT c.is_cohort
                AND c.cause <> 'converted') AS expired,
            -sum(c.number) FILTER (WHERE c.is_cohort AND c.cause = 'converted')
                AS cohort_converted,
            -sum(c.number) FILTER (WHERE c.is_cohort AND c.cause <> 'converted')
                AS cohort_expired
        FROM (
            SELECT s.day, CASE WHEN by_product THEN s.product_id END AS product_id, s.kind, s.cause,
                s.number, false AS is_cohort
            FROM shown
            CROSS JOIN LATERAL movement_sum(ARRAY['trial_started', 'trial_ended'], 'at', NULL,
                shown.last_day, time_zone, product, environment,
                include_family_shared, known_at, least(as_of, known_at)) AS s
            UNION ALL
            SELECT s.cohort, CASE WHEN by_product THEN s.product_id END, s.kind, s.cause, s.number,
                true
            FROM shown
            CROSS JOIN LATERAL movement_sum(ARRAY['trial_ended'], 'origin', shown.first_day,
                NULL, time_zone, product, environment, include_family_shared, known_at,
                least(as_of, known_at)) AS s
            WHERE s.cohort BETWEEN shown.first_day AND shown.last_day
        ) AS c
        CROSS JOIN shown
        GROUP BY 1, 2
    )
    SELECT b.from_day, b.to_day, b.product_id, (b.trials - b.number)::bigint, b.started::bigint,
        b.converted::bigint, b.expired::bigint, b.trials::bigint, b.started::bigint,
        b.cohort_converted::bigint, b.cohort_expired::bigint,
        round(b.cohort_converted / nullif(b.started, 0), 6)
    FROM (
        SELECT span.from_day, span.to_day, p.product_id, coalesce(f.number, 0) AS number,
            coalesce(f.started, 0) AS started, coalesce(f.converted, 0) AS converted,
            coalesce(f.expired, 0) AS expired, coalesce(f.cohort_converted, 0) AS cohort_converted,
            coalesce(f.cohort_expired, 0) AS cohort_expired,
            coalesce(o.number, 0)
                + sum(coalesce(f.number, 0)) OVER (PARTITION BY p.product_id ORDER BY span.from_day)
                AS trials
        FROM span
        CROSS JOIN (
            SELECT flow.product_id FROM flow UNION SELECT NULL WHERE NOT by_product
        ) AS p
        LEFT JOIN flow AS f ON f.from_day = span.from_day
            AND f.product_id IS NOT DISTINCT FROM p.product_id
        LEFT JOIN flow AS o ON o.from_day IS NULL AND o.product_id IS NOT DISTINCT FROM p.product_id
    ) AS b
    ORDER BY b.from_day, b.product_id;
END;
COMMENT ON FUNCTION report_trials IS
    'Free trials that are unexpired at the end of each day, week or month (trials), and how it came: '
    'trials = opening + started - converted - expired, each counted when it happened. converted: a '
    'paid period followed. expired: the trial ended without one, or was revoked. The columns cohort_* '
    'are by the day on which the trial began, whenever it ended: of the trials started in this row '
    '(cohort_started) those that have converted and those that have expired by as_of; the others are '
    'still open. conversion_rate = cohort_converted / cohort_started, rounded to 6 digits; it is final '
    'only when none is open. by_product: a row for each product.';

CREATE FUNCTION report_trials_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, product_id text, original_transaction_id text, transaction_id text,
    at timestamptz, origin_at timestamptz, cause text, number bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT min(b.from_day) AS first_day, max(b.to_day) AS last_day, max(b.from_day) AS last_row
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    )
    SELECT c.measure, c.from_day, c.product_id, c.original_transaction_id, c.transaction_id, c.at,
        c.origin_at, c.cause, c.number, a.account_id
    FROM (
        SELECT m.measure, calendar_bucket_start(i.day, span.first_day, bucket) AS from_day,
            i.product_id, i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.cause,
            abs(i.number) AS number, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['trial_started', 'trial_ended'], 'at', span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        CROSS JOIN LATERAL unnest(CASE
            WHEN i.kind = 'trial_started' THEN ARRAY['started', 'cohort_started']
            WHEN i.cause = 'converted' THEN ARRAY['converted']
            ELSE ARRAY['expired'] END) AS m (measure)
        UNION ALL
        SELECT CASE i.cause WHEN 'converted' THEN 'cohort_converted' ELSE 'cohort_expired' END,
            calendar_bucket_start(i.cohort, span.first_day, bucket), i.product_id,
            i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.cause, abs(i.number),
            i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['trial_ended'], 'origin', span.first_day, NULL,
            time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        WHERE i.cohort BETWEEN span.first_day AND span.last_day
        UNION ALL
        SELECT 'trials', span.last_row, s.product_id, s.original_transaction_id, s.transaction_id,
            s.since, s.origin_at, NULL, s.number, s.account_key
        FROM span
        CROSS JOIN LATERAL movement_stock(ARRAY['trial_started', 'trial_ended'], span.last_day,
            false, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS s
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key;
END;
COMMENT ON FUNCTION report_trials_item IS
    'What report_trials counts: each start and each end of a trial, by its own date and (cohort_*) by '
    'that of its start; for trials each that is unexpired at the end of the last row.';

CREATE FUNCTION mrr_measure(kind text, cause text, is_of_products boolean)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE kind
    WHEN 'started' THEN 'new'
    WHEN 'resumed' THEN 'reactivated'
    WHEN 'ended' THEN 'churned'
    WHEN 'repriced' THEN CASE cause WHEN 'rise' THEN 'expansion' WHEN 'fall' THEN 'contraction'
        ELSE 'currency_changed' END
    WHEN 'changed_to' THEN CASE WHEN is_of_products THEN 'expansion' ELSE 'changed' END
    WHEN 'changed_from' THEN CASE WHEN is_of_products THEN 'contraction' ELSE 'changed' END
END;
COMMENT ON FUNCTION mrr_measure IS 'Which column of report_mrr a movement is counted in.';

CREATE FUNCTION mrr_change_item(
    from_day date, to_day date, time_zone text, environment text, include_family_shared boolean,
    known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    measure text, kind text, cause text, at timestamptz, day date, origin_at timestamptz,
    original_transaction_id text, transaction_id text, product_id text, currency text,
    price_source text, mrr_twelfths bigint, account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN min(i.currency) OVER change <> max(i.currency) OVER change
            THEN 'currency_changed'
            WHEN sum(i.mrr_twelfths) OVER change > 0 THEN 'expansion'
            ELSE 'contraction' END,
        i.kind, i.cause, i.at, i.day, i.origin_at, i.original_transaction_id, i.transaction_id,
        i.product_id, i.currency, i.price_source, i.mrr_twelfths, i.account_key
    FROM movement_item(ARRAY['changed_from', 'changed_to'], 'at', from_day, to_day, time_zone, NULL,
        environment, include_family_shared, known_at, moment) AS i
    WINDOW change AS (PARTITION BY i.original_transaction_id, i.at);
END;
COMMENT ON FUNCTION mrr_change_item IS
    'Changes of product, as report_mrr counts them: an expansion, a contraction, or between currencies.';

CREATE FUNCTION report_mrr(
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
        WHERE s.mrr <> 0 OR s.twelfths <> 0 OR s.new <> 0 OR s.churned <> 0
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
    'the last day, and the difference is exchange; others stay in rows of their own. Amounts are '
    'milliunits, each rounded on its own half away from zero; mrr_twelfths is exact, in twelfths of a '
    'milliunit.';

CREATE FUNCTION report_mrr_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, by_product boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, product_id text, original_transaction_id text, transaction_id text,
    at timestamptz, origin_at timestamptz, kind text, currency text, price_source text,
    mrr_twelfths bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT min(b.from_day) AS first_day, max(b.to_day) AS last_day, max(b.from_day) AS last_row
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    )
    SELECT c.measure, c.from_day, c.product_id, c.original_transaction_id, c.transaction_id, c.at,
        c.origin_at, c.kind, c.currency, c.price_source, c.mrr_twelfths, a.account_id
    FROM (
        SELECT mrr_measure(i.kind, i.cause, by_product OR product IS NOT NULL) AS measure,
            calendar_bucket_start(i.day, span.first_day, bucket) AS from_day, i.product_id,
            i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.kind, i.currency,
            i.price_source, i.mrr_twelfths, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(
            ARRAY['started', 'resumed', 'ended', 'changed_from', 'changed_to', 'repriced'], 'at',
            span.first_day, span.last_day, time_zone, product, environment, include_family_shared,
            known_at, least(as_of, known_at)) AS i
        WHERE mrr_measure(i.kind, i.cause, by_product OR product IS NOT NULL) <> 'changed'
        UNION ALL
        SELECT i.measure, calendar_bucket_start(i.day, span.first_day, bucket), i.product_id,
            i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.kind, i.currency,
            i.price_source, i.mrr_twelfths, i.account_key
        FROM span
        CROSS JOIN LATERAL mrr_change_item(span.first_day, span.last_day, time_zone, environment,
            include_family_shared, known_at, least(as_of, known_at)) AS i
        WHERE NOT by_product AND product IS NULL
        UNION ALL
        SELECT 'mrr', span.last_row, s.product_id, s.original_transaction_id, s.transaction_id,
            s.since, s.origin_at, NULL, s.currency, s.price_source, s.mrr_twelfths, s.account_key
        FROM span
        CROSS JOIN LATERAL movement_stock(
            ARRAY['started', 'resumed', 'ended', 'changed_from', 'changed_to', 'repriced'],
            span.last_day, true, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS s
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key
    WHERE c.mrr_twelfths <> 0;
END;
COMMENT ON FUNCTION report_mrr_item IS
    'What report_mrr adds up, in each charge''s own currency: mrr_twelfths are twelfths of a milliunit '
    'a month. For mrr each subscription at the end of the last row, for the other columns each '
    'movement; of a change of product both halves.';

CREATE FUNCTION report_churn(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, by_product boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, to_day date, product_id text, active_at_start bigint, voluntary bigint,
    price_not_consented bigint, involuntary bigint, product_withdrawn bigint, unknown bigint,
    expired bigint, resubscribed bigint, churned bigint, refunded bigint, churn_rate numeric,
    expiry_rate numeric)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT * FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at))
    ),
    shown AS (
        SELECT min(span.from_day) AS first_day, max(span.to_day) AS last_day FROM span
    ),
    flow AS (
        SELECT calendar_bucket_start(s.day, shown.first_day, bucket) AS from_day,
            CASE WHEN by_product THEN s.product_id END AS product_id, sum(s.number) AS number,
            -sum(s.number) FILTER (WHERE s.kind = 'ended'
                AND s.cause IN ('voluntary', 'price_not_consented')) AS voluntary,
            -sum(s.number) FILTER (WHERE s.kind = 'ended' AND s.cause = 'price_not_consented')
                AS price_not_consented,
            -sum(s.number) FILTER (WHERE s.kind = 'ended' AND s.cause = 'billing') AS involuntary,
            -sum(s.number) FILTER (WHERE s.kind = 'ended' AND s.cause = 'product_withdrawn')
                AS product_withdrawn,
            -sum(s.number) FILTER (WHERE s.kind = 'ended' AND s.cause = 'unknown') AS unknown,
            -sum(s.number) FILTER (WHERE s.kind = 'ended' AND s.cause = 'refunded') AS refunded,
            sum(s.number) FILTER (WHERE s.kind = 'resumed') AS resubscribed
        FROM shown
        CROSS JOIN LATERAL movement_sum(active_kinds(false), 'at', NULL, shown.last_day,
            time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS s
        GROUP BY 1, 2
    )
    SELECT b.from_day, b.to_day, b.product_id, b.opening::bigint, b.voluntary::bigint,
        b.price_not_consented::bigint, b.involuntary::bigint, b.product_withdrawn::bigint,
        b.unknown::bigint, b.expired::bigint, b.resubscribed::bigint,
        (b.expired - b.resubscribed)::bigint, b.refunded::bigint,
        round((b.expired - b.resubscribed) / nullif(b.opening, 0), 6),
        round(b.expired / nullif(b.opening, 0), 6)
    FROM (
        SELECT span.from_day, span.to_day, p.product_id,
            coalesce(o.number, 0)
                + sum(coalesce(f.number, 0)) OVER (PARTITION BY p.product_id ORDER BY span.from_day)
                - coalesce(f.number, 0) AS opening,
            coalesce(f.voluntary, 0) AS voluntary,
            coalesce(f.price_not_consented, 0) AS price_not_consented,
            coalesce(f.involuntary, 0) AS involuntary,
            coalesce(f.product_withdrawn, 0) AS product_withdrawn,
            coalesce(f.unknown, 0) AS unknown,
            coalesce(f.voluntary, 0) + coalesce(f.involuntary, 0) + coalesce(f.product_withdrawn, 0)
                + coalesce(f.unknown, 0) AS expired,
            coalesce(f.resubscribed, 0) AS resubscribed, coalesce(f.refunded, 0) AS refunded
        FROM span
        CROSS JOIN (
            SELECT flow.product_id FROM flow UNION SELECT NULL WHERE NOT by_product
        ) AS p
        LEFT JOIN flow AS f ON f.from_day = span.from_day
            AND f.product_id IS NOT DISTINCT FROM p.product_id
        LEFT JOIN flow AS o ON o.from_day IS NULL AND o.product_id IS NOT DISTINCT FROM p.product_id
    ) AS b
    ORDER BY b.from_day, b.product_id;
END;
COMMENT ON FUNCTION report_churn IS
    'Paid subscriptions that churned in each day, week or month, compared with those active at its '
    'start (active_at_start, as in report_active). Expired are those whose effective end came without a '
    'paid period that follows, by cause: voluntary (the customer cancelled, or, as price_not_consented '
    'says, did not consent to a price), involuntary (billing), product_withdrawn, unknown (Apple never '
    'said). churned = expired - resubscribed (paid again after a lapse). Ends by a refund stand apart '
    '(refunded) and are in neither. churn_rate = churned / active_at_start, expiry_rate = expired / '
    'active_at_start, rounded to 6 digits; null without anybody at the start. by_product: a row for '
    'each product; a change to another product is no churn.';

CREATE FUNCTION report_churn_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, product_id text, original_transaction_id text, transaction_id text,
    at timestamptz, origin_at timestamptz, cause text, number bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT min(b.from_day) AS first_day, max(b.to_day) AS last_day, min(b.from_day) AS first_row
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    )
    SELECT c.measure, c.from_day, c.product_id, c.original_transaction_id, c.transaction_id, c.at,
        c.origin_at, c.cause, c.number, a.account_id
    FROM (
        SELECT m.measure, calendar_bucket_start(i.day, span.first_day, bucket) AS from_day,
            i.product_id, i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.cause,
            abs(i.number) AS number, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['ended', 'resumed'], 'at', span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        CROSS JOIN LATERAL unnest(CASE
            WHEN i.kind = 'resumed' THEN ARRAY['resubscribed']
            WHEN i.cause = 'refunded' THEN ARRAY['refunded']
            WHEN i.cause = 'voluntary' THEN ARRAY['voluntary', 'expired']
            WHEN i.cause = 'price_not_consented'
                THEN ARRAY['voluntary', 'price_not_consented', 'expired']
            WHEN i.cause = 'billing' THEN ARRAY['involuntary', 'expired']
            ELSE ARRAY[i.cause, 'expired'] END) AS m (measure)
        UNION ALL
        SELECT 'active_at_start', span.first_row, s.product_id, s.original_transaction_id,
            s.transaction_id, s.since, s.origin_at, NULL, s.number, s.account_key
        FROM span
        CROSS JOIN LATERAL movement_stock(active_kinds(false), span.first_day - 1, false, time_zone,
            product, environment, include_family_shared, known_at, least(as_of, known_at)) AS s
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key;
END;
COMMENT ON FUNCTION report_churn_item IS
    'What report_churn counts: each end, once for each column that it is in, and each return; for '
    'active_at_start each subscription, at the start of the first row alone.';

CREATE FUNCTION report_renewals_due_item(
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
        least(as_of, known_at) + make_interval(days => report_renewals_due_item.days)) AS d
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
        WHERE p.product_id = next.product_id AND p.valid_from <= d.at
            AND (next.product_id = latest.product_id AND latest.period_type = 'normal'
                AND latest.currency IS NOT NULL) IS NOT TRUE
        ORDER BY p.valid_from DESC LIMIT 1)
    ) AS price ON true
    LEFT JOIN account_by_key AS a ON a.account_key = d.account_key
    WHERE d.number = -1 AND d.at > least(as_of, known_at)
        AND (d.cause = 'active_renewing' OR include_trials AND d.cause = 'trial_renewing')
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

CREATE FUNCTION report_renewals_due(
    days integer DEFAULT 30, time_zone text DEFAULT 'UTC', product text DEFAULT NULL,
    environment text DEFAULT 'production', include_family_shared boolean DEFAULT false,
    include_trials boolean DEFAULT false, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (
    day date, product_id text, renews_as text, currency text, number bigint,
    amount_milliunits bigint, from_catalogue_milliunits bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT i.day, i.product_id, i.renews_as, i.currency, sum(i.number)::bigint,
        sum(i.amount_milliunits)::bigint,
        coalesce(sum(i.amount_milliunits) FILTER (WHERE i.price_source = 'catalogue'), 0)::bigint
    FROM report_renewals_due_item(days, time_zone, product, environment, include_family_shared,
        include_trials, known_at, as_of) AS i
    GROUP BY i.day, i.product_id, i.renews_as, i.currency
    ORDER BY i.day, i.product_id, i.renews_as, i.currency;
END;
COMMENT ON FUNCTION report_renewals_due IS
    'Subscriptions that at the moment as_of are paid and set to renew, and whose period ends within so '
    'many days of 24 hours after it, per day and product, with the money expected. renews_as: the '
    'product of the next period, by Apple''s latest word. The money is the price of the latest charge '
    'where the same product renews at its normal price, else (after an introductory or other offer, a '
    'trial or a change of product, and where the charge has no price) the catalogue''s on the day that '
    'is due, which is the part from_catalogue; currency and money are null where neither knows. With '
    'include_trials also trials set to renew. It is as known at as_of, or at known_at if that is '
    'given: what is known by now of renewals since would leave only those that failed. Without '
    'known_at the product of the next period is Apple''s latest word now.';

CREATE FUNCTION report_billing_issues_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, product_id text, original_transaction_id text, transaction_id text,
    since timestamptz, until timestamptz, number bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT min(b.from_day) AS first_day, max(b.to_day) AS last_day, max(b.from_day) AS last_row
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    )
    SELECT c.measure, c.from_day, c.product_id, c.original_transaction_id, c.transaction_id,
        c.since, c.until, c.number, a.account_id
    FROM (
        SELECT 'entered' AS measure,
            calendar_bucket_start(i.cohort, span.first_day, bucket) AS from_day, i.product_id,
            i.original_transaction_id, i.transaction_id, i.origin_at AS since, i.at AS until,
            i.number, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['billing_recovered', 'billing_lost'], 'origin',
            span.first_day, NULL, time_zone, product, environment, include_family_shared, known_at,
            'infinity') AS i
        WHERE i.cohort BETWEEN span.first_day AND span.last_day
            AND i.origin_at <= least(as_of, known_at)
        UNION ALL
        SELECT CASE i.kind WHEN 'billing_recovered' THEN 'recovered' ELSE 'lost' END,
            calendar_bucket_start(i.day, span.first_day, bucket), i.product_id,
            i.original_transaction_id, i.transaction_id, i.origin_at, i.at, i.number, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['billing_recovered', 'billing_lost'], 'at',
            span.first_day, span.last_day, time_zone, product, environment, include_family_shared,
            known_at, least(as_of, known_at)) AS i
        UNION ALL
        SELECT CASE i.kind WHEN 'billing_recovered' THEN 'cohort_recovered' ELSE 'cohort_lost' END,
            calendar_bucket_start(i.cohort, span.first_day, bucket), i.product_id,
            i.original_transaction_id, i.transaction_id, i.origin_at, i.at, i.number, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['billing_recovered', 'billing_lost'], 'origin',
            span.first_day, NULL, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        WHERE i.cohort BETWEEN span.first_day AND span.last_day
        UNION ALL
        SELECT s.state, span.last_row, s.product_id, s.original_transaction_id, s.transaction_id,
            s.since, (
                SELECT min(m.at) FROM movement AS m
                WHERE m.environment = report_billing_issues_item.environment
                    AND m.original_transaction_id = s.original_transaction_id AND m.kind = 'state'
                    AND m.at > s.since AND m.cause = s.state AND m.number = -1
                    AND m.product_id = s.product_id
                    AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
                        ELSE m.known_from <= known_at AND known_at < m.known_until END),
            s.number, s.account_key
        FROM span
        CROSS JOIN LATERAL movement_stock(ARRAY['state'], span.last_day, false, time_zone, product,
            environment, include_family_shared, known_at, least(as_of, known_at)) AS s
        WHERE s.state IN ('in_grace_period', 'in_billing_retry')
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key;
END;
COMMENT ON FUNCTION report_billing_issues_item IS
    'What report_billing_issues counts. For in_grace_period and in_billing_retry each subscription at '
    'the end of the last row, since when it is in that state and until when it is expected to be; for '
    'the others each event, with the beginning of the trouble and its end.';

CREATE FUNCTION report_billing_issues(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, by_product boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, to_day date, product_id text, in_grace_period bigint, in_billing_retry bigint,
    entered bigint, recovered bigint, lost bigint, cohort_recovered bigint, cohort_lost bigint,
    recovery_rate numeric)
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
            CASE WHEN by_product THEN c.product_id END AS product_id,
            sum(c.number) FILTER (WHERE c.measure = 'in_grace_period') AS in_grace_period,
            sum(c.number) FILTER (WHERE c.measure = 'in_billing_retry') AS in_billing_retry,
            sum(c.number) FILTER (WHERE c.measure = 'entered') AS entered,
            sum(c.number) FILTER (WHERE c.measure = 'recovered') AS recovered,
            sum(c.number) FILTER (WHERE c.measure = 'lost') AS lost,
            sum(c.number) FILTER (WHERE c.measure = 'cohort_recovered') AS cohort_recovered,
            sum(c.number) FILTER (WHERE c.measure = 'cohort_lost') AS cohort_lost
        FROM (
            SELECT s.day, s.product_id, s.cause AS measure, s.number
            FROM shown
            CROSS JOIN LATERAL movement_sum(ARRAY['state'], 'at', NULL, shown.last_day,
                time_zone, product, environment, include_family_shared, known_at,
                least(as_of, known_at)) AS s
            WHERE s.cause IN ('in_grace_period', 'in_billing_retry')
            UNION ALL
            SELECT s.day, s.product_id,
                CASE s.kind WHEN 'billing_recovered' THEN 'recovered' ELSE 'lost' END, s.number
            FROM shown
            CROSS JOIN LATERAL movement_sum(ARRAY['billing_recovered', 'billing_lost'], 'at',
                shown.first_day, shown.last_day,
                time_zone, product, environment, include_family_shared, known_at,
                least(as_of, known_at)) AS s
            UNION ALL
            SELECT s.cohort, s.product_id,
                CASE s.kind WHEN 'billing_recovered' THEN 'cohort_recovered' ELSE 'cohort_lost' END,
                s.number
            FROM shown
            CROSS JOIN LATERAL movement_sum(ARRAY['billing_recovered', 'billing_lost'], 'origin',
                shown.first_day, NULL, time_zone, product, environment,
                include_family_shared, known_at, least(as_of, known_at)) AS s
            WHERE s.cohort BETWEEN shown.first_day AND shown.last_day
            UNION ALL
            SELECT s.cohort, s.product_id, 'entered', s.number
            FROM shown
            CROSS JOIN LATERAL movement_sum(ARRAY['billing_recovered', 'billing_lost'], 'origin',
                shown.first_day, NULL, time_zone, product, environment, include_family_shared,
                known_at, 'infinity') AS s
            WHERE s.cohort BETWEEN shown.first_day AND shown.last_day
                AND s.cohort < (least(as_of, known_at) AT TIME ZONE time_zone)::date
            UNION ALL
            SELECT i.cohort, i.product_id, 'entered', i.number
            FROM movement_item(ARRAY['billing_recovered', 'billing_lost'], 'origin',
                (least(as_of, known_at) AT TIME ZONE time_zone)::date, NULL, time_zone, product,
                environment, include_family_shared, known_at, 'infinity') AS i
            CROSS JOIN shown
            WHERE i.cohort = (least(as_of, known_at) AT TIME ZONE time_zone)::date
                AND i.cohort <= shown.last_day AND i.origin_at <= least(as_of, known_at)
        ) AS c
        CROSS JOIN shown
        GROUP BY 1, 2
    )
    SELECT span.from_day, span.to_day, p.product_id,
        (coalesce(o.in_grace_period, 0) + sum(coalesce(f.in_grace_period, 0)) OVER days)::bigint,
        (coalesce(o.in_billing_retry, 0) + sum(coalesce(f.in_billing_retry, 0)) OVER days)::bigint,
        coalesce(f.entered, 0)::bigint, coalesce(f.recovered, 0)::bigint,
        coalesce(f.lost, 0)::bigint, coalesce(f.cohort_recovered, 0)::bigint,
        coalesce(f.cohort_lost, 0)::bigint,
        round(coalesce(f.cohort_recovered, 0) / nullif(f.entered, 0), 6)
    FROM span
    CROSS JOIN (SELECT flow.product_id FROM flow UNION SELECT NULL WHERE NOT by_product) AS p
    LEFT JOIN flow AS f ON f.from_day = span.from_day
        AND f.product_id IS NOT DISTINCT FROM p.product_id
    LEFT JOIN flow AS o ON o.from_day IS NULL AND o.product_id IS NOT DISTINCT FROM p.product_id
    WINDOW days AS (PARTITION BY p.product_id ORDER BY span.from_day)
    ORDER BY span.from_day, p.product_id;
END;
COMMENT ON FUNCTION report_billing_issues IS
    'Subscriptions whose renewal Apple could not charge. in_grace_period (access goes on) and '
    'in_billing_retry (it does not) at the end of each day, week or month. entered: in how many such '
    'trouble began; a retry that follows a grace period is the same trouble. recovered: Apple was able to '
    'charge after all; lost: it gave up, or the customer did; both by their own date. cohort_recovered '
    'and cohort_lost are the same by the day on which the trouble began; the others of those entered '
    'are still open. recovery_rate = cohort_recovered / entered, rounded to 6 digits; it is final only '
    'when none is open. Since when and until when: report_billing_issues_item.';

CREATE FUNCTION report_retention(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, time_zone text DEFAULT 'UTC',
    product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (
    cohort date, period integer, to_day date, cohort_size bigint, retained bigint,
    retention_rate numeric)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT date_trunc('month', b.from_day::timestamp)::date AS month
        FROM calendar_bucket(from_date, to_date, 'month', time_zone, least(as_of, known_at)) AS b
    ),
    shown AS (
        SELECT min(span.month) AS first_day, max(span.month) AS last_day FROM span
    ),
    flow AS (
        SELECT s.cohort, date_trunc('month', s.day::timestamp)::date AS month,
            sum(s.number) AS number, sum(s.number) FILTER (WHERE s.kind = 'started') AS started
        FROM shown
        CROSS JOIN LATERAL movement_sum(active_kinds(false), 'cohort', shown.first_day, NULL,
            time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS s
        WHERE s.cohort BETWEEN shown.first_day AND shown.last_day
        GROUP BY 1, 2
    )
    SELECT r.cohort, (row_number() OVER (PARTITION BY r.cohort ORDER BY r.month))::integer - 1,
        least((r.month + interval '1 month')::date - 1,
            (least(as_of, known_at) AT TIME ZONE time_zone)::date),
        r.size::bigint, r.retained::bigint, round(r.retained / nullif(r.size, 0), 6)
    FROM (
        SELECT c.month AS cohort, m.month::date AS month,
            sum(coalesce(f.started, 0)) OVER (PARTITION BY c.month) AS size,
            sum(coalesce(f.number, 0)) OVER (PARTITION BY c.month ORDER BY m.month) AS retained
        FROM span AS c
        CROSS JOIN LATERAL generate_series(c.month::timestamp,
            least(as_of, known_at) AT TIME ZONE time_zone, interval '1 month') AS m (month)
        LEFT JOIN flow AS f ON f.cohort = c.month AND f.month = m.month::date
    ) AS r
    ORDER BY 1, 2;
END;
COMMENT ON FUNCTION report_retention IS
    'Of the subscriptions that were first paid in a month (cohort, cohort_size) those that are paid and '
    'unexpired at the end of that month (period 0) and of each following one (period 1, 2, ..; to_day): '
    'retained. The last period ends with the moment as_of. Whoever lapsed and paid again is retained '
    'again, in the cohort of the first time. retention_rate = retained / cohort_size, rounded to 6 '
    'digits. from_date and to_date choose the cohorts, by whole months. With product only starts with '
    'that product and whoever is on it then are counted: changes to it are retained, changes from it '
    'are not.';

CREATE FUNCTION report_retention_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, time_zone text DEFAULT 'UTC',
    product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, period integer DEFAULT NULL,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, cohort date, product_id text, original_transaction_id text, transaction_id text,
    at timestamptz, number bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT date_trunc('month', min(b.from_day)::timestamp)::date AS first_day,
            date_trunc('month', max(b.from_day)::timestamp)::date AS last_day
        FROM calendar_bucket(from_date, to_date, 'month', time_zone, least(as_of, known_at)) AS b
    )
    SELECT c.measure, c.cohort, c.product_id, c.original_transaction_id, c.transaction_id, c.at,
        c.number, a.account_id
    FROM (
        SELECT 'cohort_size' AS measure, i.cohort, i.product_id, i.original_transaction_id,
            i.transaction_id, i.at, i.number, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['started'], 'cohort', span.first_day, NULL, time_zone,
            product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        WHERE i.cohort BETWEEN span.first_day AND span.last_day
        UNION ALL
        SELECT 'retained', s.cohort, s.product_id, s.original_transaction_id,
            (array_agg(s.transaction_id ORDER BY s.at DESC, s.number DESC))[1], max(s.at),
            sum(s.number)::bigint,
            (array_agg(s.account_key ORDER BY s.at DESC, s.number DESC))[1]
        FROM span
        CROSS JOIN LATERAL movement_item(active_kinds(false), 'cohort', span.first_day, NULL, time_zone,
            product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS s
        WHERE s.cohort BETWEEN span.first_day AND span.last_day
            AND (report_retention_item.period IS NULL OR s.day < s.cohort
                + make_interval(months => report_retention_item.period + 1))
        GROUP BY s.cohort, s.product_id, s.original_transaction_id
        HAVING sum(s.number) <> 0
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key;
END;
COMMENT ON FUNCTION report_retention_item IS
    'What report_retention counts: for cohort_size each start, for retained each subscription that is '
    'paid at the end of the period that is given; without one at the moment as_of.';

CREATE FUNCTION report_revenue(
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
            -sum(c.number) FILTER (WHERE c.measure = 'refunded') AS refunds,
            sum(c.amount_milliunits) FILTER (WHERE c.measure = 'refunded') AS refunded,
            -sum(c.number) FILTER (WHERE c.measure = 'of_charges') AS refunds_of_charges,
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
            SELECT exchange_rate_on(report_revenue.reporting_currency, c.currency, c.day) AS rate
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
    'those of the charges in this row, whenever they were refunded by as_of; amounts are negative. '
    'net_by_refund = charged + refunded, net_by_charge = charged + refunded_of_charges. Upgrades are '
    'not refunds. Never summed across currencies, unless reporting_currency is given: then each '
    'currency with a rate in exchange_rate is converted at that of the day on which it counts, and '
    'summed up exactly; others stay in rows of their own. Amounts are milliunits, rounded last, half '
    'away from zero. by_product: a row for each product.';

CREATE FUNCTION report_revenue_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, product_id text, original_transaction_id text, transaction_id text,
    at timestamptz, origin_at timestamptz, cause text, period_type text, offer_id text,
    ownership_type text, number bigint, currency text, amount_milliunits bigint, price_source text,
    account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT min(b.from_day) AS first_day, max(b.to_day) AS last_day
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    )
    SELECT c.measure, c.from_day, c.product_id, c.original_transaction_id, c.transaction_id, c.at,
        c.origin_at, c.cause, c.period_type, c.offer_id, c.ownership_type, c.number, c.currency,
        c.amount_milliunits, c.price_source, a.account_id
    FROM (
        SELECT m.measure, calendar_bucket_start(i.day, span.first_day, bucket) AS from_day,
            i.product_id, i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.cause,
            i.period_type, i.offer_id, i.ownership_type, abs(i.number) AS number, i.currency,
            i.amount_milliunits, i.price_source, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['charged', 'refunded'], 'at', span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        CROSS JOIN LATERAL unnest(CASE
            WHEN i.kind = 'refunded' THEN ARRAY['refunds']
            WHEN i.ownership_type = 'family_shared' THEN ARRAY['family_shared']
            WHEN i.period_type = 'trial' THEN ARRAY['trials']
            WHEN i.period_type IN ('intro', 'offer') THEN ARRAY['charges', 'offers']
            ELSE ARRAY['charges'] END) AS m (measure)
        UNION ALL
        SELECT 'refunds_of_charges', calendar_bucket_start(i.cohort, span.first_day, bucket),
            i.product_id, i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.cause,
            i.period_type, i.offer_id, i.ownership_type, abs(i.number), i.currency,
            i.amount_milliunits, i.price_source, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['refunded'], 'origin', NULL, NULL, time_zone, product,
            environment, include_family_shared, known_at, least(as_of, known_at)) AS i
        WHERE i.cohort BETWEEN span.first_day AND span.last_day
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key;
END;
COMMENT ON FUNCTION report_revenue_item IS
    'What report_revenue counts, in each charge''s own currency: charges (offers once more under '
    'offers), trials, family_shared, and each refund under refunds by its own date and under '
    'refunds_of_charges by that of its charge. charged is the sum of the amounts of charges, trials and '
    'family_shared, refunded that of refunds, refunded_of_charges that of refunds_of_charges.';

CREATE FUNCTION refund_delay(days integer)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN days <= 0 THEN '000' WHEN days = 1 THEN '001' WHEN days <= 3 THEN '002-003'
    WHEN days <= 7 THEN '004-007' WHEN days <= 14 THEN '008-014' WHEN days <= 30 THEN '015-030'
    WHEN days <= 60 THEN '031-060' WHEN days <= 90 THEN '061-090' ELSE '091-'
END;
COMMENT ON FUNCTION refund_delay IS 'The class of days from a charge to its refund in report_refunds.';

CREATE FUNCTION report_refunds(
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
COMMENT ON FUNCTION report_refunds IS
    'Revoked charges by the date of the charge, whenever they were revoked by as_of: by product, by '
    'Apple''s reason (empty: Apple gave none), by days from the charge to the refund (days_after: classes '
    'of calendar days) and currency, with the money (negative; the part from_catalogue at the '
    'catalogue''s price). paid: all charges of those days and of that product, in whatever currency; it '
    'is repeated in each row, and a row without refunds has it alone. refund_rate = refunded / paid, '
    'rounded to 6 digits; the rates of rows with the same paid add up. Upgrades are not refunds. Trials '
    'and what is shared in a family are left out of both, unless included.';

CREATE FUNCTION report_refunds_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, product_id text, reason text, days_after text,
    original_transaction_id text, transaction_id text, charged_at timestamptz,
    refunded_at timestamptz, number bigint, currency text, amount_milliunits bigint,
    price_source text, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT min(b.from_day) AS first_day, max(b.to_day) AS last_day
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    )
    SELECT c.measure, c.from_day, c.product_id, c.reason, c.days_after, c.original_transaction_id,
        c.transaction_id, c.charged_at, c.refunded_at, c.number, c.currency, c.amount_milliunits,
        c.price_source, a.account_id
    FROM (
        SELECT 'refunded' AS measure, calendar_bucket_start(i.cohort, span.first_day, bucket)
                AS from_day,
            i.product_id, i.cause AS reason, refund_delay(i.day - i.cohort) AS days_after,
            i.original_transaction_id, i.transaction_id, i.origin_at AS charged_at,
            i.at AS refunded_at, -i.number AS number, i.currency, i.amount_milliunits,
            i.price_source, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['refunded'], 'origin', NULL, NULL, time_zone, product,
            environment, include_family_shared, known_at, least(as_of, known_at)) AS i
        WHERE i.cohort BETWEEN span.first_day AND span.last_day
            AND (include_trials OR i.period_type <> 'trial')
        UNION ALL
        SELECT 'paid', calendar_bucket_start(i.day, span.first_day, bucket), i.product_id, NULL, NULL,
            i.original_transaction_id, i.transaction_id, i.at, NULL, i.number, i.currency,
            i.amount_milliunits, i.price_source, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['charged'], 'at', span.first_day, span.last_day,
            time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        WHERE include_trials OR i.period_type <> 'trial'
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key;
END;
COMMENT ON FUNCTION report_refunds_item IS
    'The refunds that report_refunds counts, and the charges with which it compares them (paid).';

CREATE FUNCTION reactivation_measure(kind text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE kind WHEN 'auto_renew_off' THEN 'switched_off' WHEN 'auto_renew_on' THEN 'switched_on'
    WHEN 'resumed' THEN 'resubscribed' END;
COMMENT ON FUNCTION reactivation_measure IS
    'Which column of report_reactivations a movement is counted in.';

CREATE FUNCTION report_reactivations(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    by_product boolean DEFAULT false, known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, to_day date, product_id text, switched_off bigint, switched_on bigint,
    resubscribed bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH span AS (
        SELECT * FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at))
    ),
    shown AS (
        SELECT min(span.from_day) AS first_day, max(span.to_day) AS last_day FROM span
    ),
    flow AS (
        SELECT calendar_bucket_start(s.day, shown.first_day, bucket) AS from_day,
            CASE WHEN by_product THEN s.product_id END AS product_id,
            reactivation_measure(s.kind) AS measure, sum(s.number) AS number
        FROM shown
        CROSS JOIN LATERAL movement_sum(ARRAY['auto_renew_off', 'auto_renew_on', 'resumed'], 'at',
            shown.first_day, shown.last_day, time_zone,
            product, environment, include_family_shared, known_at, least(as_of, known_at)) AS s
        WHERE include_trials OR s.period_type <> 'trial'
        GROUP BY 1, 2, 3
    )
    SELECT span.from_day, span.to_day, p.product_id,
        coalesce(sum(f.number) FILTER (WHERE f.measure = 'switched_off'), 0)::bigint,
        coalesce(sum(f.number) FILTER (WHERE f.measure = 'switched_on'), 0)::bigint,
        coalesce(sum(f.number) FILTER (WHERE f.measure = 'resubscribed'), 0)::bigint
    FROM span
    CROSS JOIN (SELECT flow.product_id FROM flow UNION SELECT NULL WHERE NOT by_product) AS p
    LEFT JOIN flow AS f ON f.from_day = span.from_day
        AND f.product_id IS NOT DISTINCT FROM p.product_id
    GROUP BY span.from_day, span.to_day, p.product_id
    ORDER BY span.from_day, p.product_id;
END;
COMMENT ON FUNCTION report_reactivations IS
    'Two things that are called reactivation, and are not the same: switched_on: the customer switched '
    'renewal on again before the subscription ended, by Apple''s date of the switch; resubscribed: it had '
    'lapsed and was paid again, by the date of that charge (the same as in report_active). And '
    'switched_off, from which the first one comes back. Switches while in a trial are left out, unless '
    'included. by_product: a row for each product.';

CREATE FUNCTION report_reactivations_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, product_id text, original_transaction_id text, transaction_id text,
    at timestamptz, origin_at timestamptz, number bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT reactivation_measure(i.kind), calendar_bucket_start(i.day, span.first_day, bucket),
        i.product_id, i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.number,
        a.account_id
    FROM (
        SELECT min(b.from_day) AS first_day, max(b.to_day) AS last_day
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    ) AS span
    CROSS JOIN LATERAL movement_item(ARRAY['auto_renew_off', 'auto_renew_on', 'resumed'], 'at',
        span.first_day, span.last_day, time_zone, product, environment, include_family_shared,
        known_at, least(as_of, known_at)) AS i
    LEFT JOIN account_by_key AS a ON a.account_key = i.account_key
    WHERE include_trials OR i.period_type <> 'trial';
END;
COMMENT ON FUNCTION report_reactivations_item IS
    'Each switch and each return that report_reactivations counts.';

CREATE FUNCTION report_ownership_item(
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
            min(b.from_day) AS first_day
        FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS b
    ) AS span
    CROSS JOIN LATERAL (
        SELECT 'decided' AS measure, t.rule, t.product_id, t.original_transaction_id,
            t.transaction_id, t.decided_at AS at, t.owner_account_key AS account_key,
            NULL::uuid AS from_account_key
        FROM store_transaction AS t
        WHERE t.environment = report_ownership_item.environment AND t.rule IS NOT NULL
            AND t.decided_at >= span.first_moment AND t.decided_at < span.last_moment
            AND t.decided_at <= least(as_of, known_at)
            AND (include_family_shared OR t.ownership_type = 'purchased')
            AND (product IS NULL OR t.product_id = product)
        UNION ALL
        SELECT 'corrected', t.rule, t.product_id, t.original_transaction_id, t.transaction_id,
            t.corrected_at, t.owner_account_key, NULL
        FROM store_transaction AS t
        WHERE t.environment = report_ownership_item.environment AND t.rule IS NOT NULL
            AND t.corrected_at >= span.first_moment AND t.corrected_at < span.last_moment
            AND t.corrected_at <= least(as_of, known_at)
            AND (include_family_shared OR t.ownership_type = 'purchased')
            AND (product IS NULL OR t.product_id = product)
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

CREATE FUNCTION report_ownership(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'day',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, by_product boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, to_day date, product_id text, measure text, rule text, number bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT span.from_day, span.to_day, i.product_id, i.measure, i.rule, i.number
    FROM calendar_bucket(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
    JOIN (
        SELECT c.from_day, CASE WHEN by_product THEN c.product_id END AS product_id, c.measure,
            c.rule, sum(c.number)::bigint AS number
        FROM report_ownership_item(from_date, to_date, bucket, time_zone, product, environment,
            include_family_shared, known_at, as_of) AS c
        GROUP BY 1, 2, 3, 4
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
    'ones, for a decision that was replaced is not in the tables but in the ledger''s entries.';

CREATE FUNCTION report_unclaimed_item(
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
    JOIN store_transaction AS t ON t.environment = m.environment
        AND t.original_transaction_id = m.charge_original_transaction_id
        AND t.transaction_id = m.transaction_id AND t.product_id = m.product_id
    CROSS JOIN LATERAL (SELECT least(as_of, known_at) - t.recorded_at AS age) AS seen
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

CREATE FUNCTION report_unclaimed(
    product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    was_over boolean, age text, product_id text, currency text, number bigint,
    amount_milliunits bigint, from_catalogue_milliunits bigint, oldest_at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT i.was_over, i.age, i.product_id, i.currency, sum(i.number)::bigint,
        sum(i.amount_milliunits)::bigint,
        coalesce(sum(i.amount_milliunits) FILTER (WHERE i.price_source = 'catalogue'), 0)::bigint,
        min(i.first_seen_at)
    FROM report_unclaimed_item(product, environment, include_family_shared, include_trials, known_at,
        as_of) AS i
    GROUP BY i.was_over, i.age, i.product_id, i.currency
    ORDER BY i.was_over, i.age, i.product_id, i.currency;
END;
COMMENT ON FUNCTION report_unclaimed IS
    'Recorded charges that no account owns, at the moment as_of: by age (since they were first seen), '
    'product and currency, with the money (the part from_catalogue at the catalogue''s price; without a '
    'currency: no price is known). Those whose period was over when they were first seen stand apart '
    '(was_over): that is the history that comes with a first receipt, and nobody will claim it. Trials '
    'and what is shared in a family are left out, unless included.';

CREATE FUNCTION order_item(
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
            min(b.from_day) AS first_day
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
    SELECT 'paid_without_order',
        calendar_bucket_start((t.charged_at AT TIME ZONE time_zone)::date, span.first_day, bucket),
        t.product_id, t.order_id, t.original_transaction_id, t.transaction_id, t.charged_at,
        t.charged_at, NULL, t.period_type, t.currency, t.price_milliunits, t.owner_account_key
    FROM span
    JOIN store_transaction AS t
        ON t.charged_at >= span.first_moment AND t.charged_at < span.last_moment
    WHERE t.environment = order_item.environment AND t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased' AND t.order_id IS NULL AND t.kind <> 'renewal'
        AND t.charged_at <= moment AND (known_at IS NULL OR t.recorded_at <= known_at)
        AND (product IS NULL OR t.product_id = product)
    UNION ALL
    SELECT 'not_delivered',
        calendar_bucket_start((t.charged_at AT TIME ZONE time_zone)::date, span.first_day, bucket),
        t.product_id, t.order_id, t.original_transaction_id, t.transaction_id, t.charged_at,
        t.charged_at, NULL, t.period_type, t.currency, t.price_milliunits, t.owner_account_key
    FROM span
    JOIN store_transaction AS t
        ON t.charged_at >= span.first_moment AND t.charged_at < span.last_moment
    WHERE t.environment = order_item.environment AND t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased' AND t.revoked_at IS NULL
        AND (t.order_id IS NOT NULL OR coalesce(t.product_type, (
            SELECT p.type FROM product AS p WHERE p.product_id = t.product_id
            ORDER BY p.valid_from DESC LIMIT 1)) = 'consumable')
        AND (t.delivered_at IS NULL OR t.delivered_at > known_at)
        AND t.charged_at <= moment AND (known_at IS NULL OR t.recorded_at <= known_at)
        AND (product IS NULL OR t.product_id = product);
END;
COMMENT ON FUNCTION order_item IS
    'Orders and payments, once for each column of report_orders in which they are counted.';

CREATE FUNCTION report_orders_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, product_id text, order_id uuid, original_transaction_id text,
    transaction_id text, at timestamptz, charged_at timestamptz, wait_ms bigint, number bigint,
    currency text, amount_milliunits bigint, price_source text, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT i.measure, i.from_day, i.product_id, i.order_id, i.original_transaction_id,
        i.transaction_id, i.at, i.charged_at, i.wait_ms, 1::bigint,
        CASE WHEN i.amount_milliunits IS NULL THEN price.currency ELSE i.currency END,
        coalesce(i.amount_milliunits, price.amount_milliunits),
        CASE WHEN i.amount_milliunits IS NOT NULL THEN 'app_store'
            WHEN price.amount_milliunits IS NOT NULL THEN 'catalogue' END,
        a.account_id
    FROM order_item(from_date, to_date, bucket, time_zone, product, environment, known_at,
        least(as_of, known_at)) AS i
    LEFT JOIN LATERAL (
        SELECT CASE WHEN i.period_type = 'trial' THEN 0 ELSE p.price_milliunits END
                AS amount_milliunits,
            p.currency
        FROM product AS p
        WHERE i.charged_at IS NOT NULL AND i.amount_milliunits IS NULL
            AND p.product_id = i.product_id AND p.valid_from <= i.charged_at
        ORDER BY p.valid_from DESC LIMIT 1
    ) AS price ON true
    LEFT JOIN account_by_key AS a ON a.account_key = i.account_key;
END;
COMMENT ON FUNCTION report_orders_item IS
    'What report_orders counts, once for each column that it is in: orders, with the charge that paid '
    'them and the time between, and charges. at is the date that counts: of an order when it was '
    'opened, of a charge its own.';

CREATE FUNCTION report_orders(
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
    WITH flow AS (
        SELECT i.from_day, CASE WHEN by_product THEN i.product_id END AS product_id,
            count(*) FILTER (WHERE i.measure = 'opened') AS opened,
            count(*) FILTER (WHERE i.measure = 'open') AS open,
            count(*) FILTER (WHERE i.measure = 'expired') AS expired,
            count(*) FILTER (WHERE i.measure = 'paid') AS paid,
            count(*) FILTER (WHERE i.measure = 'refunded') AS refunded,
            max(i.wait_ms) FILTER (WHERE i.measure = 'paid') AS longest_wait_ms,
            round(avg(i.wait_ms) FILTER (WHERE i.measure = 'paid')) AS average_wait_ms,
            count(*) FILTER (WHERE i.measure = 'paid_without_order') AS paid_without_order,
            count(*) FILTER (WHERE i.measure = 'not_delivered') AS not_delivered
        FROM order_item(from_date, to_date, bucket, time_zone, product, environment, known_at,
            least(as_of, known_at)) AS i
        GROUP BY 1, 2
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
    'owner is the present one.';

CREATE FUNCTION report_audit_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'day',
    time_zone text DEFAULT 'UTC', as_of timestamptz DEFAULT now())
RETURNS TABLE (
    from_day date, administrator text, action text, at timestamptz, subject text, reason text,
    data text, number bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT span.from_day, t.administrator, t.action, t.acted_at, t.subject, t.reason, t.data, 1::bigint
    FROM calendar_bucket(from_date, to_date, bucket, time_zone, as_of) AS span
    JOIN administrator_action AS t
        ON (t.acted_at AT TIME ZONE time_zone)::date BETWEEN span.from_day AND span.to_day
    WHERE t.acted_at <= as_of
    ORDER BY t.acted_at DESC, t.action_id DESC;
END;
COMMENT ON FUNCTION report_audit_item IS
    'What administrators did, to whom, and why: each act, the latest first. The table is only ever '
    'appended to, so that what is known of a past day never changes.';

CREATE FUNCTION report_audit(
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
        GRANT SELECT, INSERT ON movement TO tenure_program;
        GRANT UPDATE (known_until, closed_by) ON movement TO tenure_program;
        GRANT SELECT, INSERT, DELETE ON movement_change TO tenure_program;
        GRANT SELECT, INSERT, UPDATE ON movement_day TO tenure_program;
        GRANT SELECT ON exchange_rate TO tenure_program;
        GRANT SELECT, INSERT, UPDATE, DELETE ON account_grant_account TO tenure_program;
        GRANT SELECT, INSERT, UPDATE, DELETE ON grant_movement TO tenure_program;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA tenure TO tenure_program;
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tenure TO tenure_program;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_reader') THEN
        GRANT SELECT ON movement, movement_change, movement_day, exchange_rate,
            account_grant_account, grant_movement TO tenure_reader;
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tenure TO tenure_reader;
        REVOKE EXECUTE ON FUNCTION erase_submissions FROM tenure_reader;
    END IF;
    EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON movement FROM %I', current_user);
    EXECUTE format('GRANT UPDATE (known_until, closed_by) ON movement TO %I', current_user);
END
$$;
