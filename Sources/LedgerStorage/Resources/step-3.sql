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

CREATE FUNCTION movement_basis(
    kind text, at timestamptz, origin_at timestamptz, cause text, mrr_twelfths bigint,
    time_zone text DEFAULT 'UTC')
RETURNS TABLE (basis text, day date, cohort date, summed_cause text)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT 'at', (at AT TIME ZONE time_zone)::date, '-infinity'::date,
        CASE WHEN kind = 'repriced' AND cause = '' AND mrr_twelfths > 0 THEN 'rise'
            WHEN kind = 'repriced' AND cause = '' AND mrr_twelfths < 0 THEN 'fall'
            ELSE cause
        END
    UNION ALL
    SELECT 'origin', (at AT TIME ZONE time_zone)::date, (origin_at AT TIME ZONE time_zone)::date,
        cause
    WHERE kind IN ('refunded', 'trial_ended', 'billing_recovered', 'billing_lost')
    UNION ALL
    SELECT 'cohort', (at AT TIME ZONE time_zone)::date,
        date_trunc('month', origin_at AT TIME ZONE time_zone)::date, cause
    WHERE kind IN ('started', 'resumed', 'ended', 'changed_from', 'changed_to', 'repriced');
END;
COMMENT ON FUNCTION movement_basis IS
    'Under which days a movement is summed up in movement_day and movement_change, and as what.';

CREATE TABLE movement_change (
    change_id         bigint NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
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
    CONSTRAINT movement_change_cohort CHECK ((basis = 'at') = (cohort = '-infinity'))
);
COMMENT ON TABLE movement_change IS
    'Projection: changes of sums that are not folded into movement_day yet. [local]';

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

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_program') THEN
        GRANT SELECT, INSERT ON movement TO tenure_program;
        GRANT UPDATE (known_until) ON movement TO tenure_program;
        GRANT SELECT, INSERT, DELETE ON movement_change TO tenure_program;
        GRANT SELECT, INSERT, UPDATE ON movement_day TO tenure_program;
        GRANT SELECT ON exchange_rate TO tenure_program;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA tenure TO tenure_program;
        GRANT SELECT, INSERT, UPDATE, DELETE ON account_grant_account TO tenure_program;
        GRANT EXECUTE ON FUNCTION erase_submissions TO tenure_program;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_reader') THEN
        GRANT SELECT ON movement, movement_change, movement_day, exchange_rate,
            account_grant_account TO tenure_reader;
    END IF;
    EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON movement FROM %I', current_user);
    EXECUTE format('GRANT UPDATE (known_until) ON movement TO %I', current_user);
END
$$;
