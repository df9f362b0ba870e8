-- From version 2 of the schema to version 3, in one transaction with the row that says so.
--
-- schema.sql describes version 3 as a whole; a test compares what both come to. The programs' roles
-- may be missing: see the privileges in schema.sql.

SET LOCAL search_path TO tenure;

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

-- What was recorded so far is in no journal: a worker makes up for it.
INSERT INTO job (kind, subject, lane, run_at, created_at)
VALUES ('survey', 'all', 'upkeep', now(), now())
ON CONFLICT (kind, subject) DO UPDATE SET run_at = excluded.run_at,
    generation = job.generation + 1, attempts = 0, parked_at = NULL, last_error = NULL,
    created_at = excluded.created_at;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_program') THEN
        GRANT SELECT, INSERT ON movement TO tenure_program;
        GRANT UPDATE (known_until) ON movement TO tenure_program;
        GRANT SELECT, INSERT, DELETE ON movement_change TO tenure_program;
        GRANT SELECT, INSERT, UPDATE ON movement_day TO tenure_program;
        GRANT SELECT ON exchange_rate TO tenure_program;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA tenure TO tenure_program;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_reader') THEN
        GRANT SELECT ON movement, movement_change, movement_day, exchange_rate TO tenure_reader;
    END IF;
    EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON movement FROM %I', current_user);
    EXECUTE format('GRANT UPDATE (known_until) ON movement TO %I', current_user);
END
$$;
