-- Tenure's whole schema, to be read from top to bottom.
--
-- Apply it with `tenure migrate`, or with psql by the role that is to own it. Applying it twice is
-- harmless. A database that holds an older version is brought up to date by `tenure migrate`, step
-- by step; this file is what all steps together come to, and refuses every version but its own.
--
-- Conventions
--   * Everything lives in the schema `tenure`. Text has a length check, times are timestamptz, money
--     is bigint milliunits (1/1000 of the currency's unit) beside an ISO 4217 currency.
--   * `environment` is 'production' or 'sandbox' and part of every key of Apple's: the two never mix.
--   * Apple's identifiers are text, whatever digits they consist of today.
--   * The ledger (ledger_entry) is the truth and is only ever appended to. Everything marked
--     "projection" follows from it: `tenure rebuild` writes it again, `tenure audit` compares.
--   * The same schema distributes on Citus. Hence: every key contains the distribution column, given
--     in the table's comment as [by column]; foreign keys stay within one such column or point to a
--     [reference] table; no triggers on distributed tables, so that append-only is a matter of
--     privileges; queues and feeds are [local].

BEGIN;

SET LOCAL client_min_messages TO warning;

DO $$
DECLARE
    version_found integer;
BEGIN
    -- Whoever else applies this file, or a step, waits until we are done: "tenure" in ASCII.
    PERFORM pg_advisory_xact_lock(x'74656E757265'::bigint);
    -- Tables that are there would stay as they are, while the version claimed otherwise.
    IF to_regclass('tenure.schema_version') IS NOT NULL THEN
        SELECT max(version) INTO version_found FROM tenure.schema_version;
        IF version_found <> 2 THEN
            RAISE EXCEPTION 'The database holds version % of this schema, the file is version 2.',
                version_found
                USING HINT = 'Run `tenure migrate`.';
        END IF;
    END IF;
END
$$;

CREATE SCHEMA IF NOT EXISTS tenure;
SET LOCAL search_path TO tenure;

-- The version of the schema, one row for each step that was applied.
CREATE TABLE IF NOT EXISTS schema_version (
    version    integer     NOT NULL PRIMARY KEY CHECK (version > 0),
    applied_at timestamptz NOT NULL
);
COMMENT ON TABLE schema_version IS 'Which steps of the schema were applied, and when. [reference]';

-- ------------------------------------------------------------------------------------------------
-- Catalogue: what can be sold, and what it entitles to.
-- ------------------------------------------------------------------------------------------------

-- A product's description. A change is a new version: a price or period that changes does not change
-- the past.
CREATE TABLE IF NOT EXISTS product (
    product_id         text        NOT NULL CHECK (length(product_id) BETWEEN 1 AND 255),
    -- From when on this version describes the product.
    valid_from         timestamptz NOT NULL,
    type               text        NOT NULL
        CHECK (type IN ('auto_renewable', 'non_renewing', 'non_consumable', 'consumable')),
    subscription_group text        CHECK (length(subscription_group) BETWEEN 1 AND 255),
    -- The rank in the group, 1 the highest.
    level              integer     CHECK (level > 0),
    -- ISO 8601. What ends a non-renewing subscription: Apple does not report it.
    period             text        CHECK (period ~ '^P([0-9]{1,5}[YMWD])+$'),
    price_milliunits   bigint      CHECK (price_milliunits >= 0),
    currency           text        CHECK (currency ~ '^[A-Z]{3}$'),
    display_name       text        CHECK (length(display_name) BETWEEN 1 AND 255),
    PRIMARY KEY (product_id, valid_from),
    CONSTRAINT product_price_has_currency CHECK ((price_milliunits IS NULL) = (currency IS NULL)),
    CONSTRAINT product_non_renewing_has_period CHECK (type <> 'non_renewing' OR period IS NOT NULL)
);
COMMENT ON TABLE product IS 'The catalogue, versioned. [reference]';

CREATE TABLE IF NOT EXISTS product_entitlement (
    product_id  text        NOT NULL,
    valid_from  timestamptz NOT NULL,
    entitlement text        NOT NULL CHECK (length(entitlement) BETWEEN 1 AND 255),
    PRIMARY KEY (product_id, valid_from, entitlement),
    FOREIGN KEY (product_id, valid_from) REFERENCES product
);
COMMENT ON TABLE product_entitlement IS 'What a version of a product lets its owner use. [reference]';

-- ------------------------------------------------------------------------------------------------
-- Accounts and orders: what the app knows.
-- ------------------------------------------------------------------------------------------------

-- An account of the app.
CREATE TABLE IF NOT EXISTS account (
    account_id        text        NOT NULL PRIMARY KEY CHECK (length(account_id) BETWEEN 1 AND 255),
    -- The only name that entries, events and hashes use for the account: erasing a person rewrites
    -- this map, the projections and raw bodies, and no chain.
    account_key       uuid        NOT NULL,
    -- The token to pass to StoreKit; one for ever.
    app_account_token uuid        NOT NULL,
    created_at        timestamptz NOT NULL
);
COMMENT ON TABLE account IS 'Accounts of the app as it names them. [by account_id]';

-- The way back from a key to an account.
CREATE TABLE IF NOT EXISTS account_by_key (
    account_key uuid        NOT NULL PRIMARY KEY,
    account_id  text        NOT NULL CHECK (length(account_id) BETWEEN 1 AND 255),
    -- As in account.
    app_account_token uuid NOT NULL,
    -- When the person was erased; the account id is a pseudonym since.
    erased_at   timestamptz
);
COMMENT ON TABLE account_by_key IS 'Look-up: the account behind a key. [by account_key]';

-- Whom this ledger issued a token to.
CREATE TABLE IF NOT EXISTS account_by_token (
    app_account_token uuid NOT NULL PRIMARY KEY,
    account_key       uuid NOT NULL
);
COMMENT ON TABLE account_by_token IS
    'Look-up: the account to which a token was issued. [by app_account_token]';

-- What an account set out to buy, before it paid.
CREATE TABLE IF NOT EXISTS purchase_order (
    account_key             uuid        NOT NULL,
    order_id                uuid        NOT NULL,
    product_id              text        NOT NULL CHECK (length(product_id) BETWEEN 1 AND 255),
    -- An open order that waits too long expires, and a charge can still fulfil it: the money has
    -- been paid.
    status                  text        NOT NULL
        CHECK (status IN ('open', 'expired', 'fulfilled', 'refunded')),
    created_at              timestamptz NOT NULL,
    -- The charge that fulfilled it, and when that was recorded.
    fulfilled_at            timestamptz,
    environment             text        CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    transaction_id          text        CHECK (length(transaction_id) BETWEEN 1 AND 128),
    PRIMARY KEY (account_key, order_id),
    CONSTRAINT purchase_order_fulfilled_by_a_charge CHECK (
        (status IN ('open', 'expired')) = (fulfilled_at IS NULL)
        AND (fulfilled_at IS NULL) = (environment IS NULL)
        AND (fulfilled_at IS NULL) = (original_transaction_id IS NULL)
        AND (fulfilled_at IS NULL) = (transaction_id IS NULL))
);
COMMENT ON TABLE purchase_order IS
    'Orders: fulfilled at most once, by a charge decided to the same account. [by account_key]';
-- Recording looks for the open orders of a charge's owner for its product.
CREATE INDEX IF NOT EXISTS purchase_order_by_product
    ON purchase_order (account_key, product_id, created_at);

CREATE TABLE IF NOT EXISTS purchase_order_account (
    order_id    uuid NOT NULL PRIMARY KEY,
    account_key uuid NOT NULL
);
COMMENT ON TABLE purchase_order_account IS 'Look-up: whose order it is. [by order_id]';

-- ------------------------------------------------------------------------------------------------
-- Intake: the audit trail of what arrived, durable before Apple is asked.
-- ------------------------------------------------------------------------------------------------

-- One submission of a receipt or of signed transactions. The id is a UUID of version 7, so that its
-- order is that of time and the table can be partitioned by ranges of it.
CREATE TABLE IF NOT EXISTS submission (
    submission_id  uuid        NOT NULL PRIMARY KEY,
    account_key    uuid        NOT NULL,
    received_at    timestamptz NOT NULL,
    -- What the app server asked for beside what it sent.
    transaction_id text        CHECK (length(transaction_id) BETWEEN 1 AND 128),
    order_id       uuid,
    restore        boolean     NOT NULL,
    bundle_id      text        CHECK (length(bundle_id) BETWEEN 1 AND 255),
    status         text        NOT NULL CHECK (status IN ('pending', 'verified', 'rejected')),
    environment    text        CHECK (environment IN ('production', 'sandbox')),
    decided_at     timestamptz,
    -- When it will be taken up again. Null while pending: it was given up (see job).
    retry_at       timestamptz,
    -- How often it was verified, or tried to be.
    attempts       integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    -- Why it was rejected, or why it is still pending: a stable code and Apple's status.
    problem        text        CHECK (length(problem) BETWEEN 1 AND 64),
    problem_detail text        CHECK (length(problem_detail) BETWEEN 1 AND 1000),
    apple_status   integer,
    -- What the answer to the app server said: the selected transactions and the warnings.
    outcome        text        CHECK (length(outcome) <= 16777216),
    CONSTRAINT submission_decided_has_date CHECK ((status = 'pending') = (decided_at IS NULL)),
    CONSTRAINT submission_rejected_has_problem CHECK (status <> 'rejected' OR problem IS NOT NULL),
    CONSTRAINT submission_verified_has_outcome
        CHECK (status <> 'verified' OR (outcome IS NOT NULL AND environment IS NOT NULL))
);
COMMENT ON TABLE submission IS
    'What was submitted, by whom, when, and what came of it. [by submission_id]';
CREATE INDEX IF NOT EXISTS submission_rejected
    ON submission (((decided_at AT TIME ZONE 'UTC')::date)) WHERE status = 'rejected';

-- What was submitted, as it was sent: a receipt or signed data, never both. Never logged.
CREATE TABLE IF NOT EXISTS submission_payload (
    submission_id       uuid NOT NULL PRIMARY KEY REFERENCES submission,
    -- The receipt (base64).
    receipt_data        text CHECK (length(receipt_data) BETWEEN 1 AND 16777216),
    -- The transactions that StoreKit 2 signed, each a JWS.
    signed_transactions text[] CHECK (
        cardinality(signed_transactions) BETWEEN 1 AND 1000
        AND array_position(signed_transactions, NULL) IS NULL
        AND length(array_to_string(signed_transactions, '')) BETWEEN 1 AND 16777216),
    -- The renewal infos that were sent beside them; empty if there were none.
    signed_renewal_info text[] CHECK (
        cardinality(signed_renewal_info) BETWEEN 0 AND 1000
        AND array_position(signed_renewal_info, NULL) IS NULL
        AND length(array_to_string(signed_renewal_info, '')) <= 16777216),
    CONSTRAINT submission_payload_is_of_one_kind CHECK (
        (receipt_data IS NULL) <> (signed_transactions IS NULL)
        AND (signed_transactions IS NULL) = (signed_renewal_info IS NULL))
);
COMMENT ON TABLE submission_payload IS
    'What was submitted, apart from the submission so that it can be aged out. [by submission_id]';

-- What Apple answered, byte by byte (TOAST compresses it).
CREATE TABLE IF NOT EXISTS submission_exchange (
    submission_id uuid        NOT NULL REFERENCES submission,
    number        integer     NOT NULL CHECK (number > 0),
    endpoint      text        NOT NULL CHECK (length(endpoint) BETWEEN 1 AND 255),
    asked_at      timestamptz NOT NULL,
    duration_ms   bigint      NOT NULL CHECK (duration_ms >= 0),
    -- Null: no answer came.
    http_status   integer,
    answer        bytea,
    -- Why there is no answer, or why it could not be used.
    fault         text        CHECK (length(fault) BETWEEN 1 AND 1000),
    PRIMARY KEY (submission_id, number)
);
COMMENT ON TABLE submission_exchange IS
    'The exchanges with Apple about a submission, in order. [by submission_id]';
CREATE INDEX IF NOT EXISTS submission_exchange_failed
    ON submission_exchange (((asked_at AT TIME ZONE 'UTC')::date))
    WHERE fault IS NOT NULL OR http_status <> 200;

-- The inbox of Apple's notifications: durable before 200 is said, processed exactly once.
CREATE TABLE IF NOT EXISTS notification (
    -- Apple's notificationUUID; of version 1, which has none, `v1:` and the SHA-256 of the body.
    notification_id text        NOT NULL PRIMARY KEY CHECK (length(notification_id) BETWEEN 1 AND 128),
    version         smallint    NOT NULL CHECK (version IN (1, 2)),
    received_at     timestamptz NOT NULL,
    -- What Apple signed; of version 1 the JSON without its password.
    body            text        NOT NULL CHECK (length(body) BETWEEN 1 AND 16777216),
    processed_at    timestamptz,
    -- Why it is not processed yet, or what was wrong with it.
    problem         text        CHECK (length(problem) BETWEEN 1 AND 1000),
    -- What the body says, for those who look for it: null where it says nothing. Of version 1
    -- nobody has vouched for any of it.
    notification_type text      CHECK (length(notification_type) BETWEEN 1 AND 255),
    subtype         text        CHECK (length(subtype) BETWEEN 1 AND 255),
    environment     text        CHECK (environment IN ('production', 'sandbox')),
    bundle_id       text        CHECK (length(bundle_id) BETWEEN 1 AND 255),
    original_transaction_id text CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    transaction_id  text        CHECK (length(transaction_id) BETWEEN 1 AND 128),
    signed_at       timestamptz,
    -- How often it was tried to process it.
    attempts        integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    -- How it came: Apple delivered it, or it was missing and was found in Apple's history.
    arrival         text        NOT NULL DEFAULT 'delivered'
        CHECK (arrival IN ('delivered', 'history')),
    -- What processing came to: entries were appended, everything in it was known, it tells of no
    -- purchase, or Apple does not vouch for the receipt in it.
    outcome         text        CHECK (outcome IN
        ('recorded', 'known', 'nothing_to_record', 'rejected')),
    CONSTRAINT notification_processed_has_outcome
        CHECK ((processed_at IS NULL) = (outcome IS NULL)),
    CONSTRAINT notification_rejected_has_problem CHECK (outcome <> 'rejected' OR problem IS NOT NULL)
);
COMMENT ON TABLE notification IS 'Notifications as Apple sent them. [by notification_id]';
CREATE INDEX IF NOT EXISTS notification_by_time ON notification (received_at);
CREATE INDEX IF NOT EXISTS notification_from_history
    ON notification (((received_at AT TIME ZONE 'UTC')::date)) WHERE arrival = 'history';
CREATE INDEX IF NOT EXISTS notification_rejected
    ON notification (((processed_at AT TIME ZONE 'UTC')::date)) WHERE outcome = 'rejected';

-- What Apple answered about the receipt in a notification of version 1.
CREATE TABLE IF NOT EXISTS notification_exchange (
    notification_id text        NOT NULL REFERENCES notification,
    number          integer     NOT NULL CHECK (number > 0),
    endpoint        text        NOT NULL CHECK (length(endpoint) BETWEEN 1 AND 255),
    asked_at        timestamptz NOT NULL,
    duration_ms     bigint      NOT NULL CHECK (duration_ms >= 0),
    -- Null: no answer came.
    http_status     integer,
    answer          bytea,
    -- Why there is no answer, or why it could not be used.
    fault           text        CHECK (length(fault) BETWEEN 1 AND 1000),
    PRIMARY KEY (notification_id, number)
);
COMMENT ON TABLE notification_exchange IS
    'The exchanges with Apple about a notification, in order. [by notification_id]';

-- What arrived as a notification and was refused. Anybody may post anything: so nothing of what was
-- posted is kept, and the table grows by a few rows an hour, whatever is posted.
CREATE TABLE IF NOT EXISTS notification_refusal (
    -- The beginning of the hour.
    hour             timestamptz NOT NULL,
    -- 0: its shape does not tell.
    version          smallint    NOT NULL CHECK (version IN (0, 1, 2)),
    reason           text        NOT NULL CHECK (length(reason) BETWEEN 1 AND 64),
    refusals         bigint      NOT NULL CHECK (refusals > 0),
    -- The last one in the hour.
    last_at          timestamptz NOT NULL,
    last_detail      text        NOT NULL CHECK (length(last_detail) BETWEEN 1 AND 1000),
    last_body_bytes  bigint      NOT NULL CHECK (last_body_bytes >= 0),
    -- Null: it was longer than what is read.
    last_body_sha256 bytea       CHECK (length(last_body_sha256) = 32),
    PRIMARY KEY (hour, version, reason)
);
COMMENT ON TABLE notification_refusal IS
    'Refused notifications, counted by hour and reason; never their content. [local]';

-- A reading of Apple's notification history, compared with the inbox: how many were missing. They
-- stand in `notification` with arrival 'history'.
CREATE TABLE IF NOT EXISTS notification_comparison (
    comparison_id   bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    bundle_id       text        NOT NULL CHECK (length(bundle_id) BETWEEN 1 AND 255),
    environment     text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    -- What Apple sent from here (inclusive) to there (exclusive).
    window_start    timestamptz NOT NULL,
    window_end      timestamptz NOT NULL,
    compared_at     timestamptz NOT NULL,
    -- How many Apple lists, and how many of those had not arrived.
    listed          bigint      NOT NULL CHECK (listed >= 0),
    missing         bigint      NOT NULL CHECK (missing BETWEEN 0 AND listed),
    -- How many of them could not be believed: bad signatures.
    refused         bigint      NOT NULL DEFAULT 0 CHECK (refused >= 0),
    -- The date of the first one missing, and the time from the date to the arrival of the one that
    -- was missing longest.
    first_missing_at timestamptz,
    longest_delay_ms bigint     CHECK (longest_delay_ms >= 0),
    CONSTRAINT notification_comparison_window CHECK (window_start < window_end),
    CONSTRAINT notification_comparison_missing CHECK (
        (missing = 0) = (first_missing_at IS NULL)
        AND (missing = 0) = (longest_delay_ms IS NULL))
);
COMMENT ON TABLE notification_comparison IS
    'What Apple''s notification history had that had not arrived. [local]';

-- When a kind of program was last alive: after a downtime Apple's history is read at once.
CREATE TABLE IF NOT EXISTS program_heartbeat (
    program  text        NOT NULL PRIMARY KEY CHECK (program IN ('serve', 'work')),
    alive_at timestamptz NOT NULL
);
COMMENT ON TABLE program_heartbeat IS 'When programs were last alive. [local]';

-- What Apple can be asked about a line with: the app it belongs to, and a receipt that lists it.
CREATE TABLE IF NOT EXISTS line_source (
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    bundle_id               text        CHECK (length(bundle_id) BETWEEN 1 AND 255),
    -- Where the last receipt that listed it is kept; whatever may have been aged out since.
    receipt_submission_id   uuid,
    receipt_notification_id text        CHECK (length(receipt_notification_id) BETWEEN 1 AND 128),
    polled_at               timestamptz,
    PRIMARY KEY (environment, original_transaction_id)
);
COMMENT ON TABLE line_source IS
    'What Apple can be asked about a line with. [by original_transaction_id]';

-- What may still be asked of one of Apple's endpoints, for all programs together: a bucket of
-- tokens that fills at Apple's rate.
CREATE TABLE IF NOT EXISTS apple_budget (
    -- The app, the environment and the endpoint.
    name         text             NOT NULL PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 400),
    tokens       double precision NOT NULL,
    refreshed_at timestamptz      NOT NULL
);
COMMENT ON TABLE apple_budget IS 'What may still be asked of Apple, for all programs. [local]';

-- How far Apple's histories were read: from here on only what has changed is asked for. To lose a row
-- costs a longer answer and nothing else.
CREATE TABLE IF NOT EXISTS history_revision (
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    -- The one that was asked with; the history is that of its customer in the app.
    original_transaction_id text        NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    -- That of all transactions, or that of refunds alone.
    history                 text        NOT NULL CHECK (history IN ('transactions', 'refunds')),
    -- Apple's, not to be read.
    revision                text        NOT NULL CHECK (length(revision) BETWEEN 1 AND 1024),
    polled_at               timestamptz NOT NULL,
    PRIMARY KEY (environment, original_transaction_id, history)
);
COMMENT ON TABLE history_revision IS
    'How far Apple''s histories were read. [by original_transaction_id]';

-- ------------------------------------------------------------------------------------------------
-- The ledger: what was learned and what was decided.
-- ------------------------------------------------------------------------------------------------

-- A line: everything that shares one (environment, original_transaction_id). Its row is locked by
-- whoever records anything on the line, and is the line's current state. The columns up to
-- head_hash say where its chain ends; the others are a projection.
CREATE TABLE IF NOT EXISTS original_transaction (
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    -- The number and hash of the line's last entry; 0 and null before the first.
    head_number             integer     NOT NULL DEFAULT 0 CHECK (head_number >= 0),
    head_hash               bytea       CHECK (length(head_hash) = 32),
    -- When the last entry was recorded; what is recorded later has a later date.
    head_recorded_at        timestamptz,
    -- Apple's answer of this date listed every transaction up to this entry, each as recorded: their
    -- rows need not repeat the date.
    confirmed_as_of         timestamptz,
    confirmed_number        integer     NOT NULL DEFAULT 0,
    -- The latest charge that was recorded, and its owner.
    latest_charged_at       timestamptz,
    latest_product_id       text,
    latest_owner_key        uuid,
    -- The latest end of a paid period on the line.
    paid_through            timestamptz,
    -- Apple's last word on the future of the line.
    auto_renews             boolean,
    auto_renew_product_id   text,
    renewal_phase           text        CHECK (renewal_phase IN
        ('undisturbed', 'grace_period', 'billing_retry', 'expired')),
    grace_ends_at           timestamptz,
    status_as_of            timestamptz,
    PRIMARY KEY (environment, original_transaction_id),
    CONSTRAINT original_transaction_head CHECK (
        (head_number = 0) = (head_hash IS NULL)
        AND (head_number = 0) = (head_recorded_at IS NULL))
);
COMMENT ON TABLE original_transaction IS
    'Lines: the head of the chain and the current state. [by original_transaction_id]';
-- The append-only truth. `body` is JSON in a fixed form (its format version beside it); `hash` is
-- SHA-256 over the previous hash and every column above it, so that nothing in the chain can be
-- changed without changing everything after it.
CREATE TABLE IF NOT EXISTS ledger_entry (
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        NOT NULL,
    number                  integer     NOT NULL CHECK (number > 0),
    recorded_at             timestamptz NOT NULL,
    kind                    text        NOT NULL CHECK (kind IN (
        'transaction', 'renewal_status', 'link', 'confirmation', 'claim', 'placement',
        'decided', 'claimed', 'corrected', 'placed')),
    -- The date at which the evidence was true; null for acts and decisions.
    evidence_date           timestamptz,
    -- Where it comes from, and which one.
    source                  text        NOT NULL CHECK (source IN (
        'receipt', 'signed_transaction', 'notification', 'poll', 'administrator', 'import')),
    source_id               text        CHECK (length(source_id) BETWEEN 1 AND 128),
    format                  smallint    NOT NULL CHECK (format > 0),
    body                    text        NOT NULL CHECK (length(body) BETWEEN 2 AND 100000),
    hash                    bytea       NOT NULL CHECK (length(hash) = 32),
    -- By the database's clock, and no part of the hash: it tells which checkpoints the entry is
    -- under, and the clock of a program may be slow.
    stored_at               timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (environment, original_transaction_id, number),
    FOREIGN KEY (environment, original_transaction_id) REFERENCES original_transaction
);
COMMENT ON TABLE ledger_entry IS
    'Entries: only ever appended, chained by hash. [by original_transaction_id]';

-- A mark over all chains, made when an audit found them whole: it makes a tail that was cut off
-- visible, with which the head in original_transaction may have been changed too.
CREATE TABLE IF NOT EXISTS ledger_checkpoint (
    checkpoint_id bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Entries stored before this moment, by the database's clock, are under the mark.
    stored_before timestamptz NOT NULL,
    entries       bigint      NOT NULL CHECK (entries >= 0),
    -- The exclusive or of the hashes of those entries.
    digest        bytea       NOT NULL CHECK (length(digest) = 32)
);
COMMENT ON TABLE ledger_checkpoint IS 'Marks over all chains. Only ever appended. [local]';

-- ------------------------------------------------------------------------------------------------
-- Projections of the ledger by line: what recording the next thing needs to know.
-- ------------------------------------------------------------------------------------------------

-- A transaction as all of Apple's answers together describe it, and the decision on its charge.
CREATE TABLE IF NOT EXISTS store_transaction (
    environment             text        NOT NULL,
    original_transaction_id text        NOT NULL,
    transaction_id          text        NOT NULL CHECK (length(transaction_id) BETWEEN 1 AND 128),
    product_id              text        NOT NULL CHECK (length(product_id) BETWEEN 1 AND 255),
    -- The entry that recorded it first. The first transaction of a charge names it.
    number                  integer     NOT NULL,
    recorded_at             timestamptz NOT NULL,
    kind                    text        NOT NULL CHECK (kind IN ('renewal', 'purchase', 'unknown')),
    purchased_at            timestamptz NOT NULL,
    original_purchased_at   timestamptz,
    -- The charge's date: the purchase's, or of old restores the original purchase's.
    charged_at              timestamptz NOT NULL,
    -- What Apple may change stands beside the date of the answer that it is from.
    expires_at              timestamptz,
    expires_as_of           timestamptz,
    revoked_at              timestamptz,
    revocation_reason       text        CHECK (length(revocation_reason) BETWEEN 1 AND 64),
    -- Null: no answer that could know has spoken.
    revocation_as_of        timestamptz,
    upgraded_as_of          timestamptz,
    app_account_token       uuid,
    app_account_token_as_of timestamptz,
    -- The account that the token was issued to.
    token_account_key       uuid,
    web_order_line_item_id  text        CHECK (length(web_order_line_item_id) BETWEEN 1 AND 128),
    -- Where Apple names it.
    product_type            text        CHECK (product_type IN
        ('auto_renewable', 'non_renewing', 'non_consumable', 'consumable')),
    subscription_group      text        CHECK (length(subscription_group) BETWEEN 1 AND 255),
    quantity                integer     NOT NULL CHECK (quantity > 0),
    ownership_type          text        NOT NULL CHECK (ownership_type IN ('purchased', 'family_shared')),
    period_type             text        NOT NULL CHECK (period_type IN ('normal', 'trial', 'intro', 'offer')),
    offer_id                text        CHECK (length(offer_id) BETWEEN 1 AND 255),
    price_milliunits        bigint,
    currency                text        CHECK (currency ~ '^[A-Z]{3}$'),
    is_commitment           boolean     NOT NULL,

    -- The transaction that names the charge: this one, unless it is an alias.
    charge_original_transaction_id text NOT NULL,
    charge_transaction_id   text        NOT NULL,
    charge_product_id       text        NOT NULL,

    -- The decision on the charge; null on aliases.
    owner_account_key       uuid,
    rule                    text        CHECK (rule IN ('administrator', 'actively_auto_renewing',
        'submitter', 'app_account_token', 'unclaimed')),
    -- What the rule's first row found, and by which earlier charge and word of Apple's.
    ground                  text        CHECK (length(ground) BETWEEN 1 AND 64),
    renewing_account_key    uuid,
    previous_original_transaction_id text,
    previous_transaction_id text,
    previous_product_id     text,
    ground_status_as_of     timestamptz,
    switched_off_at         timestamptz,
    -- A first claim may still change the owner.
    is_provisional          boolean,
    decided_at              timestamptz,
    corrected_at            timestamptz,

    -- The order that it fulfilled, and when the owner's app acknowledged delivery. No projection:
    -- orders and deliveries are facts of their own, and stay when the transaction turns out to be
    -- an alias or its charge loses its owner.
    order_id                uuid,
    delivered_at            timestamptz,

    PRIMARY KEY (environment, original_transaction_id, transaction_id, product_id),
    FOREIGN KEY (environment, original_transaction_id) REFERENCES original_transaction,
    CONSTRAINT store_transaction_owner_has_rule CHECK (owner_account_key IS NULL OR rule IS NOT NULL),
    CONSTRAINT store_transaction_unclaimed_has_no_owner
        CHECK (rule <> 'unclaimed' OR owner_account_key IS NULL),
    CONSTRAINT store_transaction_alias_has_no_owner CHECK (
        (charge_original_transaction_id, charge_transaction_id, charge_product_id)
            = (original_transaction_id, transaction_id, product_id)
        OR (rule IS NULL AND owner_account_key IS NULL)),
    CONSTRAINT store_transaction_decision_whole CHECK (
        (rule IS NULL) = (ground IS NULL) AND (rule IS NULL) = (is_provisional IS NULL)
        AND (rule IS NULL) = (decided_at IS NULL)),
    CONSTRAINT store_transaction_dated CHECK (
        (expires_at IS NULL) = (expires_as_of IS NULL)
        AND (app_account_token IS NULL) = (app_account_token_as_of IS NULL)
        AND (revoked_at IS NULL OR revocation_as_of IS NOT NULL))
);
COMMENT ON TABLE store_transaction IS
    'Projection: transactions and the decisions on their charges. [by original_transaction_id]';

-- Everything that Apple said of the line's future, by date.
CREATE TABLE IF NOT EXISTS renewal_status (
    environment             text        NOT NULL,
    original_transaction_id text        NOT NULL,
    -- The entry that recorded it.
    number                  integer     NOT NULL,
    as_of                   timestamptz NOT NULL,
    auto_renews             boolean,
    phase                   text        CHECK (phase IN
        ('undisturbed', 'grace_period', 'billing_retry', 'expired')),
    grace_ends_at           timestamptz,
    auto_renew_product_id   text        CHECK (length(auto_renew_product_id) BETWEEN 1 AND 255),
    expiration_intent       smallint,
    app_account_token       uuid,
    token_account_key       uuid,
    is_commitment           boolean     NOT NULL,
    PRIMARY KEY (environment, original_transaction_id, number),
    FOREIGN KEY (environment, original_transaction_id) REFERENCES original_transaction,
    CONSTRAINT renewal_status_grace CHECK
        ((phase IS NOT DISTINCT FROM 'grace_period') = (grace_ends_at IS NOT NULL))
);
COMMENT ON TABLE renewal_status IS
    'Projection: what Apple said of renewal, by date. [by original_transaction_id]';

-- Who claimed what, in order.
CREATE TABLE IF NOT EXISTS claim (
    environment             text        NOT NULL,
    original_transaction_id text        NOT NULL,
    number                  integer     NOT NULL,
    recorded_at             timestamptz NOT NULL,
    transaction_id          text        NOT NULL,
    product_id              text        NOT NULL,
    account_key             uuid        NOT NULL,
    received_at             timestamptz NOT NULL,
    submission_id           uuid,
    PRIMARY KEY (environment, original_transaction_id, number),
    FOREIGN KEY (environment, original_transaction_id) REFERENCES original_transaction
);
COMMENT ON TABLE claim IS
    'Projection: which submission claimed which transaction. [by original_transaction_id]';

-- What administrators decided, in order.
CREATE TABLE IF NOT EXISTS placement (
    environment             text        NOT NULL,
    original_transaction_id text        NOT NULL,
    number                  integer     NOT NULL,
    recorded_at             timestamptz NOT NULL,
    transaction_id          text        NOT NULL,
    product_id              text        NOT NULL,
    account_key             uuid,
    effective_from          timestamptz NOT NULL,
    PRIMARY KEY (environment, original_transaction_id, number),
    FOREIGN KEY (environment, original_transaction_id) REFERENCES original_transaction
);
COMMENT ON TABLE placement IS
    'Projection: charges placed by administrators. [by original_transaction_id]';

-- Which lines are one, as Apple says; each pair stands here both ways, under either line.
CREATE TABLE IF NOT EXISTS line_link (
    environment             text    NOT NULL,
    original_transaction_id text    NOT NULL,
    linked_original_transaction_id text NOT NULL,
    PRIMARY KEY (environment, original_transaction_id, linked_original_transaction_id),
    FOREIGN KEY (environment, original_transaction_id) REFERENCES original_transaction
);
COMMENT ON TABLE line_link IS 'Projection: lines that Apple links. [by original_transaction_id]';

-- To whom the line was bound, and from which charge on; derived from the charges.
CREATE TABLE IF NOT EXISTS account_binding (
    environment             text        NOT NULL,
    original_transaction_id text        NOT NULL,
    number                  integer     NOT NULL CHECK (number > 0),
    -- Null: the line's latest charge was unclaimed.
    account_key             uuid,
    bound_at                timestamptz NOT NULL,
    -- The charge; of linked lines, under its own line's id.
    charge_original_transaction_id text NOT NULL,
    transaction_id          text        NOT NULL,
    product_id              text        NOT NULL,
    rule                    text        NOT NULL,
    PRIMARY KEY (environment, original_transaction_id, number),
    FOREIGN KEY (environment, original_transaction_id) REFERENCES original_transaction
);
COMMENT ON TABLE account_binding IS
    'Projection: the history of bindings of a line. [by original_transaction_id]';

-- ------------------------------------------------------------------------------------------------
-- Look-ups: so that no question fans out over all lines.
-- ------------------------------------------------------------------------------------------------

-- A transaction id or line item belongs to the line on which it was recorded first; a line on which
-- it occurs later is linked with that one. The key is the name alone, so that of two lines that
-- record one name at the same moment the second waits for the first, and finds it.
CREATE TABLE IF NOT EXISTS transaction_line (
    transaction_id          text NOT NULL,
    environment             text NOT NULL,
    original_transaction_id text NOT NULL,
    PRIMARY KEY (transaction_id, environment)
);
COMMENT ON TABLE transaction_line IS
    'Look-up, projection: the first line on which a transaction id occurs. [by transaction_id]';

CREATE TABLE IF NOT EXISTS web_order_line_item (
    web_order_line_item_id  text NOT NULL,
    environment             text NOT NULL,
    original_transaction_id text NOT NULL,
    PRIMARY KEY (web_order_line_item_id, environment)
);
COMMENT ON TABLE web_order_line_item IS
    'Look-up, projection: the first line on which a line item occurs. [by web_order_line_item_id]';

CREATE TABLE IF NOT EXISTS account_line (
    account_key             uuid NOT NULL,
    environment             text NOT NULL,
    original_transaction_id text NOT NULL,
    PRIMARY KEY (account_key, environment, original_transaction_id)
);
COMMENT ON TABLE account_line IS
    'Look-up, projection: the lines on which an account ever owned or claimed. [by account_key]';

-- ------------------------------------------------------------------------------------------------
-- What accounts hold: the read model.
-- ------------------------------------------------------------------------------------------------

-- A charge that an account owns and that can still matter, with all that is needed to compute its
-- state at any later moment. No state is stored: an entitlement ends on time by itself.
CREATE TABLE IF NOT EXISTS holding (
    account_id              text        NOT NULL,
    environment             text        NOT NULL,
    original_transaction_id text        NOT NULL,
    transaction_id          text        NOT NULL,
    product_id              text        NOT NULL,
    -- The smallest original transaction id of the lines that Apple links, which are held as one; null
    -- where this row's own is the smallest or the only one.
    family_id               text,
    product_type            text,
    period_type             text        NOT NULL,
    starts_at               timestamptz NOT NULL,
    -- Null: never, or as the catalogue says.
    ends_at                 timestamptz,
    revoked_at              timestamptz,
    superseded_at           timestamptz,
    -- Set on the line's latest charge alone.
    auto_renews             boolean,
    phase                   text,
    grace_ends_at           timestamptz,
    PRIMARY KEY (account_id, environment, original_transaction_id, transaction_id, product_id),
    CONSTRAINT holding_renewal CHECK ((auto_renews IS NULL) = (phase IS NULL))
);
COMMENT ON TABLE holding IS 'Projection: what accounts hold. [by account_id]';

-- An entitlement that was given and not bought, by an administrator or provisionally while Apple
-- could not be asked. A provisional one goes with the decision on its submission.
CREATE TABLE IF NOT EXISTS account_grant (
    account_id  text        NOT NULL CHECK (length(account_id) BETWEEN 1 AND 255),
    grant_id    uuid        NOT NULL,
    entitlement text        NOT NULL CHECK (length(entitlement) BETWEEN 1 AND 255),
    source      text        NOT NULL CHECK (source IN ('grant', 'provisional')),
    starts_at   timestamptz NOT NULL,
    ends_at     timestamptz,
    reason      text        NOT NULL CHECK (length(reason) BETWEEN 1 AND 1000),
    -- Of a provisional one: the submission that waits for Apple, and the line of the purchase.
    submission_id           uuid,
    environment             text CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    PRIMARY KEY (account_id, grant_id),
    CONSTRAINT account_grant_provisional_ends
        CHECK (source <> 'provisional' OR ends_at IS NOT NULL),
    CONSTRAINT account_grant_provisional_has_submission CHECK (
        (source = 'provisional') = (submission_id IS NOT NULL)
        AND (submission_id IS NULL) = (environment IS NULL)
        AND (submission_id IS NULL) = (original_transaction_id IS NULL))
);
COMMENT ON TABLE account_grant IS 'Entitlements given without a charge. [by account_id]';
CREATE UNIQUE INDEX IF NOT EXISTS account_grant_of_submission
    ON account_grant (account_id, submission_id, entitlement);
-- While Apple is down, one purchase gives provisional access to one account: this look-up goes over
-- all accounts, of which few have such grants.
CREATE INDEX IF NOT EXISTS account_grant_of_line
    ON account_grant (original_transaction_id) WHERE source = 'provisional';

-- What an account was told that it has, by the events of the feed: the next event says what differs.
-- Whoever writes it has locked the account's row.
CREATE TABLE IF NOT EXISTS told_entitlement (
    account_id              text        NOT NULL CHECK (length(account_id) BETWEEN 1 AND 255),
    entitlement             text        NOT NULL CHECK (length(entitlement) BETWEEN 1 AND 255),
    -- The end of access that was told; null: never.
    access_ends_at          timestamptz,
    PRIMARY KEY (account_id, entitlement)
);
COMMENT ON TABLE told_entitlement IS
    'What the feed has told of the entitlements of accounts. [by account_id]';

-- Whose sandbox purchases grant anything: the programs write here what they were started with
-- (TENURE_SANDBOX_ACCESS), for the view below.
CREATE TABLE IF NOT EXISTS sandbox_access (
    is_only_row boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (is_only_row),
    everybody   boolean NOT NULL,
    account_ids text[]  NOT NULL
);
COMMENT ON TABLE sandbox_access IS 'Whose sandbox purchases grant anything. [reference]';
INSERT INTO sandbox_access (everybody, account_ids) VALUES (true, '{}') ON CONFLICT DO NOTHING;

-- What every account may use now, for those who query by SQL: the same as
-- GET /v1/accounts/{account_id}/entitlements says, row for row (a test compares them). The programs
-- compute it in code, from the same table; ask it for some accounts, not for all.
CREATE OR REPLACE VIEW current_entitlement AS
WITH version AS (
    -- The versions of each product, each with the time that it describes; the first one also
    -- describes all time before it.
    SELECT product_id, valid_from, type, period,
        CASE WHEN lag(valid_from) OVER versions IS NULL THEN '-infinity' ELSE valid_from END AS since,
        coalesce(lead(valid_from) OVER versions, 'infinity') AS until
    FROM product
    WINDOW versions AS (PARTITION BY product_id ORDER BY valid_from)
),
part AS NOT MATERIALIZED (
    -- Holdings of described products that entitle to something, with their end ('infinity': never).
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
    -- Of each account's holdings on a line the one that is shown: the unrevoked one that lasts
    -- longest, if it is not over; else a revoked one that would cover now; else whichever was last.
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
    -- Each entitlement of it, with whatever else on the line grants the same and may prolong it:
    -- what begins no later than everything before it ends.
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
    -- The last of the unbroken ones tells the end.
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
    SELECT account_id, entitlement, now() < coalesce(ends_at, 'infinity'),
        CASE WHEN now() < coalesce(ends_at, 'infinity') THEN 'active' ELSE 'expired' END,
        NULL, coalesce(ends_at, 'infinity'), coalesce(ends_at, 'infinity'), false, 'normal',
        given.environment, given.original_transaction_id, NULL, source
    FROM account_grant AS given
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
COMMENT ON VIEW current_entitlement IS 'What accounts may use now.';

-- ------------------------------------------------------------------------------------------------
-- Work and news.
-- ------------------------------------------------------------------------------------------------

-- The queue. Claimed with FOR UPDATE SKIP LOCKED; a claimed job is leased until locked_until, and is
-- free again when its worker dies.
CREATE TABLE IF NOT EXISTS job (
    job_id       bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind         text        NOT NULL CHECK (kind IN (
        'verify_submission', 'process_notification', 'poll_line', 'compare_notifications',
        'tell_account', 'expire_order', 'deliver_events', 'survey', 'trim_events')),
    -- What the job is about; one job of a kind for each.
    subject      text        NOT NULL CHECK (length(subject) BETWEEN 1 AND 512),
    -- Jobs of one lane wait for each other only: none of them takes the place of another lane's.
    lane         text        NOT NULL CHECK (lane IN (
        'submissions', 'notifications', 'clock', 'polls', 'sandbox_polls', 'webhooks',
        'upkeep')),
    -- The most urgent is 0, and is claimed first, however long the others are due.
    priority     smallint    NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 2),
    run_at       timestamptz NOT NULL,
    -- Grows with each change of what is to be done: whoever has done what was asked before has not
    -- done this.
    generation   integer     NOT NULL DEFAULT 0,
    -- How far it has come, where it goes through everything.
    place        text        CHECK (length(place) BETWEEN 1 AND 512),
    attempts     integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    locked_until timestamptz,
    locked_by    text        CHECK (length(locked_by) BETWEEN 1 AND 255),
    -- Set when it was given up: it waits for somebody to start it again.
    parked_at    timestamptz,
    last_error   text        CHECK (length(last_error) BETWEEN 1 AND 1000),
    -- Patience counts from here: when it was put into the queue or was due first, whichever is later;
    -- whoever starts a job again sets it to now.
    created_at   timestamptz NOT NULL,
    UNIQUE (kind, subject),
    CONSTRAINT job_lease CHECK ((locked_until IS NULL) = (locked_by IS NULL)),
    CONSTRAINT job_parked_has_reason CHECK (parked_at IS NULL OR last_error IS NOT NULL)
);
COMMENT ON TABLE job IS 'What is still to be done. [local]';
CREATE INDEX IF NOT EXISTS job_due ON job (lane, priority, run_at) WHERE parked_at IS NULL;
CREATE INDEX IF NOT EXISTS job_parked ON job (parked_at) WHERE parked_at IS NOT NULL;

-- Every change, for the feed and for webhooks: written in the transaction that makes the change, and
-- given its place in the feed after that, by one at a time. So whoever reads on from a place misses
-- nothing, however many write at once; and what one account's changes were is in their order.
CREATE TABLE IF NOT EXISTS event (
    event_id       bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Its place in the feed; null: it has none yet.
    position       bigint      UNIQUE CHECK (position > 0),
    type           text        NOT NULL CHECK (length(type) BETWEEN 1 AND 64),
    occurred_at    timestamptz NOT NULL,
    -- Null: it concerns a charge that nobody owns.
    account_key    uuid,
    -- JSON; it names no account.
    data           text        NOT NULL CHECK (length(data) BETWEEN 2 AND 100000),
    -- By the database's clock; retention counts from here.
    stored_at      timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE event IS 'The feed of changes. [local]';
CREATE INDEX IF NOT EXISTS event_unplaced ON event (event_id) WHERE position IS NULL;

-- How far the feed goes. Its row is locked by whoever gives events their places.
CREATE TABLE IF NOT EXISTS feed (
    is_only_row boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (is_only_row),
    -- The last place that was given.
    position    bigint  NOT NULL DEFAULT 0 CHECK (position >= 0),
    -- Events up to this place were deleted: they were older than the retention.
    trimmed_to  bigint  NOT NULL DEFAULT 0 CHECK (trimmed_to BETWEEN 0 AND position),
    -- Events up to this place have their webhook_delivery; null: webhooks were never on.
    pushed_to   bigint  CHECK (pushed_to BETWEEN 0 AND position)
);
COMMENT ON TABLE feed IS 'How far the feed of changes goes. [local]';
INSERT INTO feed DEFAULT VALUES ON CONFLICT DO NOTHING;

-- What is still to be pushed to the webhook, or was given up; what was delivered is deleted.
CREATE TABLE IF NOT EXISTS webhook_delivery (
    event_id     bigint      NOT NULL PRIMARY KEY REFERENCES event,
    -- Deliveries of one account are made one after the other, in the order of the feed. Of those
    -- that concern nobody's charge, each line is an account of its own: the stream's name.
    stream       text        NOT NULL CHECK (length(stream) BETWEEN 1 AND 255),
    position     bigint      NOT NULL CHECK (position > 0),
    attempts     integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    -- Patience counts from here.
    due_since    timestamptz NOT NULL,
    parked_at    timestamptz,
    last_error   text        CHECK (length(last_error) BETWEEN 1 AND 1000),
    CONSTRAINT webhook_delivery_parked_has_reason
        CHECK (parked_at IS NULL OR last_error IS NOT NULL)
);
COMMENT ON TABLE webhook_delivery IS 'Where the pushing of events stands. [local]';
CREATE INDEX IF NOT EXISTS webhook_delivery_next
    ON webhook_delivery (stream, position) WHERE parked_at IS NULL;

-- What administrators did, to whom, and why. Only ever appended.
CREATE TABLE IF NOT EXISTS administrator_action (
    action_id     bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    acted_at      timestamptz NOT NULL,
    -- The name of the API key.
    administrator text        NOT NULL CHECK (length(administrator) BETWEEN 1 AND 255),
    action        text        NOT NULL CHECK (length(action) BETWEEN 1 AND 64),
    subject       text        NOT NULL CHECK (length(subject) BETWEEN 1 AND 255),
    reason        text        CHECK (length(reason) BETWEEN 1 AND 1000),
    data          text        NOT NULL CHECK (length(data) <= 100000)
);
COMMENT ON TABLE administrator_action IS 'The record of administrators'' acts. [local]';

-- ------------------------------------------------------------------------------------------------
-- Reports: each number has one definition, and it is here. Of the two views of a report, the one
-- called _item has what the other counts. Privileges: whoever may read a report sees what it shows,
-- whatever tables it is made of.
-- ------------------------------------------------------------------------------------------------

-- One row for each thing that report_intake counts: what its numbers are made of.
CREATE OR REPLACE VIEW report_intake_item AS
-- Submissions that are not decided yet. Each has its job.
SELECT 'submissions_open' AS measure, s.environment, s.bundle_id, s.problem AS cause,
    NULL::date AS day, s.submission_id::text AS subject, s.received_at AS at, 1::bigint AS number,
    s.attempts::bigint AS attempts, NULL::bigint AS delay_ms, s.problem_detail AS detail
FROM job AS j
JOIN submission AS s
    ON s.submission_id = CASE WHEN j.kind = 'verify_submission' THEN j.subject::uuid END
WHERE j.kind = 'verify_submission' AND s.status = 'pending'
UNION ALL
-- What Apple does not vouch for, on the day of that verdict.
SELECT 'submissions_rejected', environment, bundle_id, concat_ws(' ', problem, apple_status),
    (decided_at AT TIME ZONE 'UTC')::date, submission_id::text, decided_at, 1, attempts, NULL,
    problem_detail
FROM submission
WHERE status = 'rejected'
UNION ALL
-- Requests to Apple about receipts to which no answer of use came: what retries are due to, but for
-- what Apple's own status asked for.
SELECT 'apple_failures', NULL, NULL, coalesce(fault, 'HTTP ' || http_status),
    (asked_at AT TIME ZONE 'UTC')::date, submission_id::text, asked_at, 1, 1, NULL, endpoint
FROM submission_exchange
WHERE fault IS NOT NULL OR http_status <> 200
UNION ALL
SELECT 'apple_failures', NULL, NULL, coalesce(fault, 'HTTP ' || http_status),
    (asked_at AT TIME ZONE 'UTC')::date, notification_id, asked_at, 1, 1, NULL, endpoint
FROM notification_exchange
WHERE fault IS NOT NULL OR http_status <> 200
UNION ALL
-- Notifications that are not processed yet. Each has its job.
SELECT 'notifications_open', n.environment, n.bundle_id, n.problem, NULL, n.notification_id,
    n.received_at, 1, n.attempts, NULL, n.notification_type
FROM job AS j
JOIN notification AS n ON n.notification_id = j.subject
WHERE j.kind = 'process_notification' AND n.processed_at IS NULL
UNION ALL
-- Those with a receipt that Apple does not vouch for, on the day of that verdict.
SELECT 'notifications_rejected', environment, bundle_id, problem,
    (processed_at AT TIME ZONE 'UTC')::date, notification_id, processed_at, 1, attempts, NULL,
    notification_type
FROM notification
WHERE outcome = 'rejected'
UNION ALL
-- What was posted as a notification and was refused, by the hour.
SELECT 'notifications_refused', NULL, NULL, reason, (hour AT TIME ZONE 'UTC')::date,
    'version ' || version, last_at, refusals, NULL, NULL, last_detail
FROM notification_refusal
UNION ALL
-- What Apple's notification history lists, each reading of it counted on its day. Readings overlap.
SELECT 'notifications_listed', environment, bundle_id, NULL,
    (compared_at AT TIME ZONE 'UTC')::date, comparison_id::text, compared_at, listed, NULL, NULL,
    NULL
FROM notification_comparison
UNION ALL
-- Of those what had not arrived, on the day when it was found; late by the time since Apple signed
-- it.
SELECT 'notifications_missed', environment, bundle_id, notification_type,
    (received_at AT TIME ZONE 'UTC')::date, notification_id, received_at, 1, NULL,
    (extract(epoch FROM received_at - signed_at) * 1000)::bigint, subtype
FROM notification
WHERE arrival = 'history'
UNION ALL
-- Of those what can't be believed: it is in Apple's history, and its signatures are wrong.
SELECT 'notifications_unbelievable', environment, bundle_id, NULL,
    (compared_at AT TIME ZONE 'UTC')::date, comparison_id::text, compared_at, refused, NULL, NULL,
    NULL
FROM notification_comparison
WHERE refused > 0
UNION ALL
-- Events that are still to be pushed, and those whose pushing was given up.
SELECT CASE WHEN parked_at IS NULL THEN 'deliveries_waiting' ELSE 'deliveries_parked' END, NULL,
    NULL, last_error, NULL, event_id::text, coalesce(parked_at, due_since), 1, attempts, NULL,
    stream
FROM webhook_delivery
UNION ALL
-- Jobs that are due, by the database's clock, and those that were given up.
SELECT CASE WHEN parked_at IS NULL THEN 'jobs_overdue' ELSE 'jobs_parked' END, NULL, NULL, kind,
    NULL, subject, coalesce(parked_at, run_at), 1, attempts, NULL, last_error
FROM job
WHERE parked_at IS NOT NULL OR run_at <= now() AND locked_until IS NULL;
COMMENT ON VIEW report_intake_item IS
    'Report: each thing that report_intake counts. Columns as there; subject names the thing.';

-- How intake does. What is open, waiting, overdue or parked is so now, and has no day; of everything
-- else a row counts one day (UTC). Environment and app are null where they are not known (yet).
CREATE OR REPLACE VIEW report_intake AS
SELECT measure, environment, bundle_id, cause, day, sum(number)::bigint AS number,
    sum(attempts)::bigint AS attempts, min(at) AS first_at, max(at) AS last_at,
    max(delay_ms) AS longest_delay_ms,
    (array_agg(detail ORDER BY at DESC, subject))[1] AS last_detail
FROM report_intake_item
GROUP BY measure, environment, bundle_id, cause, day;
COMMENT ON VIEW report_intake IS
    'Report: backlog, retries, rejections, missed notifications, and what was given up.';

-- ------------------------------------------------------------------------------------------------
-- Privileges. `serve` and `work` run as members of tenure_program, which can append to the ledger and
-- can neither change nor delete an entry; the owner takes the same right from himself, so that one
-- role for everything is no hole either (a superuser is bound by nothing). BI tools use
-- tenure_reader.
-- ------------------------------------------------------------------------------------------------

DO $$
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
                    RAISE WARNING 'Role % is missing and % may not create it: create it and apply this again.',
                        name, current_user;
            END;
        END IF;
    END LOOP;

    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_program') THEN
        GRANT USAGE ON SCHEMA tenure TO tenure_program;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tenure TO tenure_program;
        REVOKE UPDATE, DELETE ON ledger_entry, ledger_checkpoint, administrator_action
            FROM tenure_program;
        -- What arrived stays as it arrived; the owner ages it out.
        REVOKE UPDATE, DELETE
            ON submission_payload, submission_exchange, notification, notification_exchange
            FROM tenure_program;
        GRANT UPDATE (processed_at, problem, attempts, outcome) ON notification TO tenure_program;
        REVOKE INSERT, UPDATE, DELETE ON schema_version FROM tenure_program;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA tenure TO tenure_program;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_reader') THEN
        GRANT USAGE ON SCHEMA tenure TO tenure_reader;
        GRANT SELECT ON ALL TABLES IN SCHEMA tenure TO tenure_reader;
        -- Raw receipts, answers and bodies are no business of reports.
        REVOKE SELECT
            ON submission_payload, submission_exchange, notification, notification_exchange
            FROM tenure_reader;
    END IF;
    EXECUTE format(
        'REVOKE UPDATE, DELETE, TRUNCATE ON ledger_entry, ledger_checkpoint, administrator_action FROM %I',
        current_user);

    -- So that the names of this file work without a prefix in psql and BI tools. Last, so that an
    -- app's own tables in a shared database keep their names.
    IF EXISTS (
        SELECT FROM pg_database
        WHERE datname = current_database() AND pg_has_role(datdba, 'USAGE')
    ) THEN
        EXECUTE format('ALTER DATABASE %I SET search_path TO "$user", public, tenure',
            current_database());
    END IF;
END
$$;

INSERT INTO schema_version (version, applied_at)
SELECT 2, now() WHERE NOT EXISTS (SELECT FROM schema_version);

COMMIT;
