-- Tenure's data model, and the functions that recording calls, to be read from top to bottom. Each
-- report's SQL is NAME.sql in Sources/Reports, and is applied after this file.
--
-- Apply it with `tenure migrate`, or with psql as its owner; only to a database without the schema.
--
-- Conventions
--   * Everything lives in the schema `tenure`. Times are timestamptz, money is bigint milliunits
--     (1/1000 of the currency's unit) with an ISO 4217 currency.
--   * Programs check words and lengths where they come in. PostgreSQL prepares each CHECK of a table
--     again in each statement that writes it, which was half the time of an insert: so the tables that
--     every recording writes check only what joins several columns. `tenure audit` computes the values
--     of projections and chains.
--   * `environment` is 'production' or 'sandbox' and part of every key of Apple's: the two never mix.
--   * Apple's identifiers are text, whatever digits they consist of today.
--   * The ledger (ledger_entry) is the truth and is only ever appended to. Everything marked
--     "projection" follows from it: `tenure rebuild` writes it again, `tenure audit` compares.
--   * The same schema distributes on Citus. Hence: every key contains the distribution column, given
--     in the table's comment as [by column]; foreign keys stay within one such column or point to a
--     [reference] table; append-only is a matter of privileges, because distributed tables have no
--     triggers (those of account_change are dropped there); queues and feeds are [local].

BEGIN;

SET LOCAL client_min_messages TO warning;

DO $$
BEGIN
    -- Other sessions that apply this file or a step wait: "tenure" in ASCII.
    PERFORM pg_advisory_xact_lock(x'74656E757265'::bigint);
    -- Not to_regclass, whose cache may be older than the lock.
    IF EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = 'tenure' AND c.relname = 'schema_version')
    THEN
        RAISE EXCEPTION 'The database already has the schema, at version %.',
            (SELECT max(version) FROM tenure.schema_version)
            USING ERRCODE = 'duplicate_schema', HINT = 'Run `tenure migrate`.';
    END IF;
END
$$;

-- The owner may lack the privilege to create it, so an administrator may have done so.
CREATE SCHEMA IF NOT EXISTS tenure;
SET LOCAL search_path TO tenure;

CREATE TABLE schema_version (
    version          integer     NOT NULL PRIMARY KEY CHECK (version > 0),
    applied_at       timestamptz NOT NULL,
    -- The oldest version whose programs work with this one.
    compatible_since integer     NOT NULL
        CONSTRAINT schema_version_compatible_since CHECK (compatible_since BETWEEN 1 AND version),
    -- The SHA-256 of the reports' SQL that was applied to this version; null: none yet.
    reports_sha256   text        CHECK (reports_sha256 ~ '^[0-9a-f]{64}$')
);
COMMENT ON TABLE schema_version IS 'Applied steps of the schema, with their dates. [reference]';

-- The progress of a step that is applied in several parts, one row for each part but the last.
CREATE TABLE schema_part (
    version    integer     NOT NULL CHECK (version > 0),
    part       integer     NOT NULL CHECK (part > 0),
    applied_at timestamptz NOT NULL,
    PRIMARY KEY (version, part)
);
COMMENT ON TABLE schema_part IS 'Applied parts of steps of the schema, with their dates. [reference]';

-- ------------------------------------------------------------------------------------------------
-- Catalogue: products and the entitlements they grant.
-- ------------------------------------------------------------------------------------------------

-- A product's description. A change is a new version: a new price or period does not change the past.
CREATE TABLE product (
    product_id         text        NOT NULL CHECK (length(product_id) BETWEEN 1 AND 255),
    valid_from         timestamptz NOT NULL,
    type               text        NOT NULL
        CHECK (type IN ('auto_renewable', 'non_renewing', 'non_consumable', 'consumable')),
    subscription_group text        CHECK (length(subscription_group) BETWEEN 1 AND 255),
    -- The rank in the group; 1 is the highest.
    level              integer     CHECK (level > 0),
    -- ISO 8601. Needed for non-renewing subscriptions, whose end Apple does not report.
    period             text        CHECK (period ~ '^P([0-9]{1,5}[YMWD])+$'),
    price_milliunits   bigint      CHECK (price_milliunits BETWEEN 0 AND 1000000000000),
    currency           text        CHECK (currency ~ '^[A-Z]{3}$'),
    display_name       text        CHECK (length(display_name) BETWEEN 1 AND 255),
    PRIMARY KEY (product_id, valid_from),
    CONSTRAINT product_price_has_currency CHECK ((price_milliunits IS NULL) = (currency IS NULL)),
    CONSTRAINT product_non_renewing_has_period CHECK (type <> 'non_renewing' OR period IS NOT NULL)
);
COMMENT ON TABLE product IS 'The catalogue, versioned. [reference]';

CREATE TABLE product_entitlement (
    product_id  text        NOT NULL,
    valid_from  timestamptz NOT NULL,
    entitlement text        NOT NULL CHECK (length(entitlement) BETWEEN 1 AND 255),
    PRIMARY KEY (product_id, valid_from, entitlement),
    FOREIGN KEY (product_id, valid_from) REFERENCES product
);
COMMENT ON TABLE product_entitlement IS 'Entitlements granted by a version of a product. [reference]';

-- ------------------------------------------------------------------------------------------------
-- Accounts and orders: the app's data.
-- ------------------------------------------------------------------------------------------------

CREATE TABLE account (
    account_id        text        NOT NULL PRIMARY KEY,
    -- The only name of the account in entries, events and hashes: erasing a person rewrites this
    -- map, the projections and raw bodies, and no hash.
    account_key       uuid        NOT NULL,
    -- The token to pass to StoreKit. Permanent.
    app_account_token uuid        NOT NULL,
    created_at        timestamptz NOT NULL,
    -- The moment as of which entitlements were published last; never moves back.
    published_at      timestamptz,
    -- The account that it was merged into, which gets later submissions and orders.
    merged_into_key   uuid,
    -- What the app calls the customer, for the administrators' search. Deleted when the account is
    -- erased; not in entries, events or other tables.
    label             text,
    email             text
);
COMMENT ON TABLE account IS 'Accounts, by the IDs that the app gives them. [by account_id]';
-- For the list of customers, and the search by the beginning of a name.
CREATE INDEX account_by_time ON account (created_at, account_id);
CREATE INDEX account_by_name ON account (lower(account_id) text_pattern_ops);
CREATE INDEX account_by_label ON account (lower(label) text_pattern_ops) WHERE label IS NOT NULL;
CREATE INDEX account_by_email ON account (lower(email) text_pattern_ops) WHERE email IS NOT NULL;

CREATE TABLE account_by_key (
    account_key uuid        NOT NULL PRIMARY KEY,
    account_id  text        NOT NULL,
    app_account_token uuid NOT NULL,
    -- The account id is a pseudonym afterwards.
    erased_at   timestamptz,
    -- As in account, and since when the rule treats both as one: null while charges are still being
    -- moved.
    merged_into_key uuid,
    merged_at   timestamptz,
    -- Hashed with the account id in the account's entries, and deleted when the account is erased:
    -- from then on it can't be tested whether an id was this account's.
    id_salt     uuid        DEFAULT gen_random_uuid(),
    CONSTRAINT account_by_key_merged
        CHECK (merged_at IS NULL OR merged_into_key IS NOT NULL)
);
COMMENT ON TABLE account_by_key IS 'Look-up: the account behind a key. [by account_key]';
-- An erasure includes the accounts that were merged into the person's.
CREATE INDEX account_by_key_merged_into
    ON account_by_key (merged_into_key) WHERE merged_into_key IS NOT NULL;

CREATE TABLE account_by_token (
    app_account_token uuid NOT NULL PRIMARY KEY,
    account_key       uuid NOT NULL
);
COMMENT ON TABLE account_by_token IS
    'Look-up: the account to which a token was issued. [by app_account_token]';

-- An account's intent to buy a product, recorded before it pays.
CREATE TABLE purchase_order (
    account_key             uuid        NOT NULL,
    order_id                uuid        NOT NULL,
    product_id              text        NOT NULL CHECK (length(product_id) BETWEEN 1 AND 255),
    -- A charge can still fulfil an expired order: the money has been paid.
    status                  text        NOT NULL
        CHECK (status IN ('open', 'expired', 'fulfilled', 'refunded')),
    created_at              timestamptz NOT NULL,
    -- The charge that fulfilled it, and when that was recorded.
    fulfilled_at            timestamptz,
    -- Whether a submission named it; an order that was only matched yields to one that is named.
    is_named                boolean     NOT NULL DEFAULT false,
    environment             text        CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    transaction_id          text        CHECK (length(transaction_id) BETWEEN 1 AND 128),
    -- The account that opened it, if that was merged into this one.
    opened_by_key           uuid,
    PRIMARY KEY (account_key, order_id),
    CONSTRAINT purchase_order_fulfilled_by_a_charge CHECK (
        (status IN ('open', 'expired')) = (fulfilled_at IS NULL) AND num_nulls(fulfilled_at,
            environment, original_transaction_id, transaction_id) IN (0, 4)),
    CONSTRAINT purchase_order_is_named_for_a_charge
        CHECK (NOT is_named OR fulfilled_at IS NOT NULL)
);
COMMENT ON TABLE purchase_order IS
    'Orders, each fulfilled at most once, by a charge of the same account. [by account_key]';
-- For recording a charge: the owner's open orders for its product.
CREATE INDEX purchase_order_by_product
    ON purchase_order (account_key, product_id, created_at);
-- For reports.
CREATE INDEX purchase_order_by_time ON purchase_order (created_at);

CREATE TABLE purchase_order_account (
    order_id    uuid NOT NULL PRIMARY KEY,
    account_key uuid NOT NULL
);
COMMENT ON TABLE purchase_order_account IS 'Look-up: the account of an order. [by order_id]';

-- The customer's consent to report consumption to Apple, as the app server sent it last. Deleted
-- when the account is erased.
CREATE TABLE consumption_consent (
    account_key  uuid        NOT NULL PRIMARY KEY,
    is_given     boolean     NOT NULL,
    decided_at   timestamptz NOT NULL
);
COMMENT ON TABLE consumption_consent IS
    'Customers'' consent to report consumption to Apple. [by account_key]';

-- ------------------------------------------------------------------------------------------------
-- Intake: the audit trail of all input, durable before Apple is asked.
-- ------------------------------------------------------------------------------------------------

-- What was sent or answered, once for each SHA-256, however often it came. Submissions, notifications
-- and exchanges refer to it. A reference is written under a shared advisory lock on the digest, and a
-- body is deleted or pruned under the exclusive one, after a look for references: see store_body and
-- lock_bodies. Never logged.
CREATE TABLE body (
    sha256    bytea       NOT NULL PRIMARY KEY,
    -- Its length in bytes, as it came.
    bytes     bigint      NOT NULL,
    -- Its bytes in the encoding of BodyEncoding, compressed. Null: pruned.
    content   bytea,
    -- When it was stored, by the clock of the program; a pruned one is stored again when it comes
    -- again.
    stored_at timestamptz NOT NULL,
    pruned_at timestamptz,
    CONSTRAINT body_pruned CHECK ((pruned_at IS NULL) = (content IS NOT NULL))
);
ALTER TABLE body ALTER COLUMN content SET STORAGE EXTERNAL;
COMMENT ON TABLE body IS 'Receipts, signed data, notifications and Apple''s answers. [by sha256]';
CREATE INDEX body_by_age ON body (stored_at) WHERE pruned_at IS NULL;

-- Headers of verified signatures, with the certificates, which bodies are stored without. Apple has a
-- few, so none is ever deleted.
CREATE TABLE certificate_chain (
    sha256 bytea NOT NULL PRIMARY KEY CHECK (length(sha256) = 32),
    header text  NOT NULL CHECK (length(header) BETWEEN 1 AND 16384)
);
COMMENT ON TABLE certificate_chain IS 'The headers of signed data, with their certificates. [by sha256]';

-- A submission of a receipt or of signed transactions. The id is a UUID of version 7, so that it
-- sorts by time and the table can be partitioned by ranges of it.
CREATE TABLE submission (
    submission_id  uuid        NOT NULL PRIMARY KEY,
    account_key    uuid        NOT NULL,
    received_at    timestamptz NOT NULL,
    -- The app server's parameters.
    transaction_id text,
    order_id       uuid,
    restore        boolean     NOT NULL,
    bundle_id      text,
    -- The body: the receipt (base64), or the transactions and the renewal infos that StoreKit 2
    -- signed, each a JWS, joined by line feeds. Null: erased.
    body_sha256    bytea,
    -- The number of signed transactions, the first of the JWS. Null: a receipt.
    signed_transactions integer,
    -- pending, verified or rejected.
    status         text        NOT NULL,
    environment    text,
    decided_at     timestamptz,
    -- The next attempt; null while pending: given up (see job).
    retry_at       timestamptz,
    -- The number of attempts to verify it.
    attempts       integer     NOT NULL DEFAULT 0,
    -- Why it was rejected, or is still pending: a stable code and Apple's status.
    problem        text,
    problem_detail text,
    apple_status   integer,
    -- The answer to the app server: the selected transactions and the warnings.
    outcome        text,
    -- When its account was erased, with what was submitted and Apple's answers.
    erased_at      timestamptz,
    CONSTRAINT submission_decided_has_date CHECK ((status = 'pending') = (decided_at IS NULL)),
    CONSTRAINT submission_rejected_has_problem CHECK (status <> 'rejected' OR problem IS NOT NULL),
    CONSTRAINT submission_verified_has_outcome
        CHECK (status <> 'verified' OR (outcome IS NOT NULL AND environment IS NOT NULL))
);
COMMENT ON TABLE submission IS
    'Submissions and their results. [by submission_id]';
-- For administrators, so that it may fan out.
CREATE INDEX submission_by_account ON submission (account_key, submission_id);
-- For pruning and erasing: the references to a body.
CREATE INDEX submission_by_body ON submission USING hash (body_sha256);
CREATE INDEX submission_rejected
    ON submission (((decided_at AT TIME ZONE 'UTC')::date)) WHERE status = 'rejected';

CREATE TABLE submission_exchange (
    submission_id uuid        NOT NULL REFERENCES submission,
    number        integer     NOT NULL,
    endpoint      text        NOT NULL,
    asked_at      timestamptz NOT NULL,
    duration_ms   bigint      NOT NULL,
    -- Null: no answer.
    http_status   integer,
    body_sha256   bytea,
    -- The date of the request in Apple's answer, which the body doesn't contain, and the SHA-256 of
    -- the answer with it. Null: the body is the answer.
    dated_at      timestamptz,
    answer_sha256 bytea,
    -- Why there is no usable answer.
    fault         text,
    PRIMARY KEY (submission_id, number),
    CONSTRAINT submission_exchange_dated CHECK (
        (dated_at IS NULL) = (answer_sha256 IS NULL)
        AND (dated_at IS NULL OR body_sha256 IS NOT NULL))
);
COMMENT ON TABLE submission_exchange IS
    'The exchanges with Apple about a submission, in order. [by submission_id]';
CREATE INDEX submission_exchange_by_body ON submission_exchange (body_sha256);
CREATE INDEX submission_exchange_failed
    ON submission_exchange (((asked_at AT TIME ZONE 'UTC')::date))
    WHERE fault IS NOT NULL OR http_status <> 200;

-- The inbox of Apple's notifications: durable before the response of 200, processed exactly once.
CREATE TABLE notification (
    -- Apple's notificationUUID; for version 1, which has none, `v1:` and the SHA-256 of the body.
    notification_id text        NOT NULL PRIMARY KEY,
    version         smallint    NOT NULL,
    received_at     timestamptz NOT NULL,
    -- The body as signed by Apple; for version 1 the JSON without its password.
    body_sha256     bytea       NOT NULL,
    processed_at    timestamptz,
    -- Why it is not processed yet, or what was wrong with it.
    problem         text,
    -- Fields of the body, for searches; null if missing. Those of version 1 are unverified.
    notification_type text,
    subtype         text,
    environment     text,
    bundle_id       text,
    original_transaction_id text,
    transaction_id  text,
    signed_at       timestamptz,
    -- The number of attempts to process it.
    attempts        integer     NOT NULL DEFAULT 0,
    -- 'delivered' by Apple, or missing and found in Apple's 'history'.
    arrival         text        NOT NULL DEFAULT 'delivered',
    -- The result: 'recorded' (an entry was appended), 'known', 'nothing_to_record' (it contains no
    -- purchase), or 'rejected' (Apple rejected the receipt in it).
    outcome         text,
    CONSTRAINT notification_processed_has_outcome
        CHECK ((processed_at IS NULL) = (outcome IS NULL)),
    CONSTRAINT notification_rejected_has_problem CHECK (outcome <> 'rejected' OR problem IS NOT NULL)
);
COMMENT ON TABLE notification IS 'Notifications as Apple sent them. [by notification_id]';
CREATE INDEX notification_by_time ON notification (received_at);
CREATE INDEX notification_by_body ON notification USING hash (body_sha256);
CREATE INDEX notification_from_history
    ON notification (((received_at AT TIME ZONE 'UTC')::date)) WHERE arrival = 'history';
CREATE INDEX notification_rejected
    ON notification (((processed_at AT TIME ZONE 'UTC')::date)) WHERE outcome = 'rejected';

-- Apple's answers about the receipts in notifications of version 1.
CREATE TABLE notification_exchange (
    notification_id text        NOT NULL REFERENCES notification,
    number          integer     NOT NULL,
    endpoint        text        NOT NULL,
    asked_at        timestamptz NOT NULL,
    duration_ms     bigint      NOT NULL,
    -- As in submission_exchange.
    http_status     integer,
    body_sha256     bytea,
    dated_at        timestamptz,
    answer_sha256   bytea,
    -- Why there is no usable answer.
    fault           text,
    PRIMARY KEY (notification_id, number),
    CONSTRAINT notification_exchange_dated CHECK (
        (dated_at IS NULL) = (answer_sha256 IS NULL)
        AND (dated_at IS NULL OR body_sha256 IS NOT NULL))
);
COMMENT ON TABLE notification_exchange IS
    'The exchanges with Apple about a notification, in order. [by notification_id]';
CREATE INDEX notification_exchange_by_body ON notification_exchange (body_sha256);

-- The key of the advisory lock on a body: a part of its digest.
CREATE OR REPLACE FUNCTION body_lock(digest bytea)
RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ('x' || encode(substr(digest, 1, 8), 'hex'))::bit(64)::bigint;

-- Stores a body, unless it is there, for a reference that the caller writes in the same transaction:
-- until that ends, the shared lock keeps the body. Each statement of a function sees what was committed
-- before it began, so a body that was deleted while the lock was waited for is stored again. The
-- programs may not change a body, so this runs with the owner's rights, and replaces a pruned one
-- alone.
CREATE OR REPLACE FUNCTION store_body(
    digest bytea, length_in_bytes bigint, encoded bytea, chain_digests bytea[], chain_headers text[],
    moment timestamptz)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tenure, pg_temp
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(body_lock(digest));
    PERFORM FROM body WHERE sha256 = digest AND pruned_at IS NULL;
    IF FOUND THEN
        RETURN;
    END IF;
    IF chain_digests <> '{}' THEN
        INSERT INTO certificate_chain (sha256, header)
        SELECT * FROM unnest(chain_digests, chain_headers) ON CONFLICT (sha256) DO NOTHING;
    END IF;
    INSERT INTO body (sha256, bytes, content, stored_at)
    VALUES (digest, length_in_bytes, encoded, moment)
    ON CONFLICT (sha256) DO UPDATE
    SET content = excluded.content, stored_at = excluded.stored_at, pruned_at = NULL
    WHERE body.pruned_at IS NOT NULL;
END
$$;

-- Keeps others from referring to these bodies, and waits for those who do. In the order of the digests,
-- in which references lock them too, so that none wait in a circle.
CREATE OR REPLACE FUNCTION lock_bodies(digests bytea[])
RETURNS void
LANGUAGE plpgsql
SET search_path = tenure, pg_temp
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(body_lock(d.digest))
    FROM (SELECT digest FROM unnest(digests) AS digest ORDER BY digest) AS d;
END
$$;

-- Deletes those of the bodies that nothing refers to.
CREATE OR REPLACE FUNCTION delete_bodies(digests bytea[])
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tenure, pg_temp
AS $$
DECLARE
    digest bytea;
BEGIN
    PERFORM lock_bodies(digests);
    -- One by one: a look for one reference of many is short, and Citus plans it.
    FOREACH digest IN ARRAY digests LOOP
        PERFORM FROM submission WHERE body_sha256 = digest LIMIT 1;
        CONTINUE WHEN FOUND;
        PERFORM FROM submission_exchange WHERE body_sha256 = digest LIMIT 1;
        CONTINUE WHEN FOUND;
        PERFORM FROM notification WHERE body_sha256 = digest LIMIT 1;
        CONTINUE WHEN FOUND;
        PERFORM FROM notification_exchange WHERE body_sha256 = digest LIMIT 1;
        CONTINUE WHEN FOUND;
        DELETE FROM body WHERE sha256 = digest;
    END LOOP;
END
$$;

-- Erases an erased account's submissions and Apple's answers about them. The programs lack the
-- privilege to delete them (see below), so this runs with the owner's rights, and checks that the
-- account is erased. Pending submissions are ended, because their account is gone. The
-- ledger keeps what was recorded, under a key without a name; so do notifications, which Apple
-- wrote about original transactions. A body that another account submitted as well stays.
CREATE OR REPLACE FUNCTION erase_submissions(erased_key uuid, moment timestamptz)
RETURNS TABLE (submissions bigint, payloads bigint, exchanges bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tenure, pg_temp
AS $$
DECLARE
    ids uuid[];
    sent bytea[];
    answered bytea[];
BEGIN
    PERFORM FROM account_by_key WHERE account_key = erased_key AND erased_at IS NOT NULL;
    IF FOUND THEN
        SELECT array_agg(submission_id), array_agg(body_sha256) FILTER (WHERE body_sha256 IS NOT NULL)
        INTO ids, sent FROM submission
        WHERE account_key = erased_key AND erased_at IS NULL;
    END IF;
    payloads := coalesce(cardinality(sent), 0);
    SELECT array_agg(body_sha256) INTO answered FROM submission_exchange
    WHERE submission_id = ANY (ids) AND body_sha256 IS NOT NULL;
    UPDATE submission SET erased_at = moment, retry_at = NULL, body_sha256 = NULL,
        status = CASE status WHEN 'pending' THEN 'rejected' ELSE status END,
        decided_at = coalesce(decided_at, moment),
        problem = CASE status WHEN 'pending' THEN 'account_erased' ELSE problem END,
        problem_detail = CASE status WHEN 'pending' THEN 'The account was erased.' END
    WHERE submission_id = ANY (ids);
    GET DIAGNOSTICS submissions = ROW_COUNT;
    DELETE FROM submission_exchange WHERE submission_id = ANY (ids);
    GET DIAGNOSTICS exchanges = ROW_COUNT;
    PERFORM delete_bodies(ARRAY(SELECT DISTINCT d FROM unnest(sent || answered) AS d));
    RETURN NEXT;
END
$$;

-- The bodies that are still needed. A submission needs its body and Apple's answers while it is
-- pending, has a job, or was received or decided after `submissions_before` (null: always), and the
-- body alone if it is in `kept_submissions`; a notification likewise.
CREATE OR REPLACE FUNCTION needed_bodies(
    digests bytea[], kept_submissions uuid[], kept_notifications text[],
    submissions_before timestamptz, notifications_before timestamptz)
RETURNS bytea[]
LANGUAGE plpgsql
SET search_path = tenure, pg_temp
AS $$
DECLARE
    needed bytea[];
    finished bytea[];
    kinds text[];
    subjects text[];
BEGIN
    SELECT array_agg(u.body_sha256) FILTER (WHERE NOT u.is_over OR u.is_kept),
        array_agg(u.body_sha256) FILTER (WHERE u.is_over),
        array_agg(u.kind) FILTER (WHERE u.is_over),
        array_agg(u.subject) FILTER (WHERE u.is_over)
    INTO needed, finished, kinds, subjects
    FROM (
        SELECT s.body_sha256, 'verify_submission' AS kind, s.submission_id::text AS subject,
            s.submission_id = ANY (kept_submissions) AS is_kept, coalesce(s.status <> 'pending'
                AND greatest(s.received_at, s.decided_at) < submissions_before, false) AS is_over
        FROM submission AS s WHERE s.body_sha256 = ANY (digests)
        UNION ALL
        SELECT e.body_sha256, 'verify_submission', s.submission_id::text, false,
            coalesce(s.status <> 'pending'
                AND greatest(s.received_at, s.decided_at) < submissions_before, false)
        FROM submission_exchange AS e JOIN submission AS s ON s.submission_id = e.submission_id
        WHERE e.body_sha256 = ANY (digests)
        UNION ALL
        SELECT n.body_sha256, 'process_notification', n.notification_id,
            n.notification_id = ANY (kept_notifications), n.processed_at IS NOT NULL
                AND coalesce(greatest(n.processed_at, n.received_at) < notifications_before, false)
        FROM notification AS n WHERE n.body_sha256 = ANY (digests)
        UNION ALL
        SELECT e.body_sha256, 'process_notification', n.notification_id, false,
            n.processed_at IS NOT NULL
                AND coalesce(greatest(n.processed_at, n.received_at) < notifications_before, false)
        FROM notification_exchange AS e
        JOIN notification AS n ON n.notification_id = e.notification_id
        WHERE e.body_sha256 = ANY (digests)
    ) AS u;
    -- Jobs are in a table of the coordinator, so their subjects are looked for by value.
    RETURN coalesce(needed, '{}') || ARRAY(
        SELECT u.body_sha256 FROM unnest(finished, kinds, subjects) AS u (body_sha256, kind, subject)
        WHERE EXISTS (SELECT FROM job WHERE job.kind = u.kind AND job.subject = u.subject));
END
$$;

-- Prunes those of the bodies that nothing needs any more: the content goes, digest and length stay. The
-- programs may not change a body, so this runs with the owner's rights, and looks again under the lock.
CREATE OR REPLACE FUNCTION prune_bodies(
    digests bytea[], kept_submissions uuid[], kept_notifications text[],
    submissions_before timestamptz, notifications_before timestamptz, moment timestamptz)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tenure, pg_temp
AS $$
DECLARE
    needed bytea[];
    pruned bigint;
BEGIN
    PERFORM lock_bodies(digests);
    needed := needed_bodies(digests, kept_submissions, kept_notifications, submissions_before,
        notifications_before);
    UPDATE body SET content = NULL, pruned_at = moment
    WHERE sha256 = ANY (digests) AND pruned_at IS NULL AND NOT (sha256 = ANY (needed));
    GET DIAGNOSTICS pruned = ROW_COUNT;
    RETURN pruned;
END
$$;

-- Refused requests to the notification URL. Anyone can post anything, so nothing of it is kept, and
-- the table grows by a few rows an hour at most.
CREATE TABLE notification_refusal (
    -- The beginning of the hour.
    hour             timestamptz NOT NULL,
    -- 0: unknown.
    version          smallint    NOT NULL CHECK (version IN (0, 1, 2)),
    reason           text        NOT NULL CHECK (length(reason) BETWEEN 1 AND 64),
    refusals         bigint      NOT NULL CHECK (refusals > 0),
    -- The last one of the hour.
    last_at          timestamptz NOT NULL,
    last_detail      text        NOT NULL CHECK (length(last_detail) BETWEEN 1 AND 1000),
    last_body_bytes  bigint      NOT NULL CHECK (last_body_bytes >= 0),
    -- Null: longer than the limit.
    last_body_sha256 bytea       CHECK (length(last_body_sha256) = 32),
    PRIMARY KEY (hour, version, reason)
);
COMMENT ON TABLE notification_refusal IS
    'Refused notifications, counted by hour and reason, without content. [local]';

-- Comparisons of Apple's notification history with the inbox. Missing notifications are stored in
-- `notification` with arrival 'history'.
CREATE TABLE notification_history_check (
    comparison_id   bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    bundle_id       text        NOT NULL CHECK (length(bundle_id) BETWEEN 1 AND 255),
    environment     text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    -- From (inclusive) to (exclusive), by Apple's dates.
    window_start    timestamptz NOT NULL,
    window_end      timestamptz NOT NULL,
    compared_at     timestamptz NOT NULL,
    -- The number that Apple lists, and of those that had not arrived.
    listed          bigint      NOT NULL CHECK (listed >= 0),
    missing         bigint      NOT NULL CHECK (missing BETWEEN 0 AND listed),
    -- The number with bad signatures.
    refused         bigint      NOT NULL DEFAULT 0 CHECK (refused >= 0),
    -- The date of the first missing one, and the longest time from a missing one's date to its
    -- arrival.
    first_missing_at timestamptz,
    longest_delay_ms bigint     CHECK (longest_delay_ms >= 0),
    CONSTRAINT notification_history_check_window CHECK (window_start < window_end),
    CONSTRAINT notification_history_check_missing CHECK (
        (missing = 0) = (first_missing_at IS NULL)
        AND (missing = 0) = (longest_delay_ms IS NULL))
);
COMMENT ON TABLE notification_history_check IS
    'Comparisons with Apple''s notification history, with the number of missed ones. [local]';

-- The last sign of life of each kind of program: after a downtime Apple's history is read at once.
CREATE TABLE program_heartbeat (
    program  text        NOT NULL PRIMARY KEY CHECK (program IN ('serve', 'work')),
    alive_at timestamptz NOT NULL
);
COMMENT ON TABLE program_heartbeat IS 'Heartbeats of running programs. [local]';

-- Open sessions of the administrators' pages. A cookie counts only while its session is listed, so
-- logging out ends every copy of it.
CREATE TABLE admin_session (
    session_id    bytea       NOT NULL PRIMARY KEY CHECK (length(session_id) = 16),
    administrator text        NOT NULL CHECK (length(administrator) BETWEEN 1 AND 255),
    ends_at       timestamptz NOT NULL
);
COMMENT ON TABLE admin_session IS 'Open sessions of the administrators'' pages. [local]';

-- Ways to poll Apple about an original transaction: its app, and a receipt that lists it.
CREATE TABLE poll_target (
    environment             text        NOT NULL,
    original_transaction_id text        NOT NULL,
    bundle_id               text,
    -- The last receipt that listed it, even if pruned.
    receipt_submission_id   uuid,
    receipt_notification_id text,
    PRIMARY KEY (environment, original_transaction_id)
);
COMMENT ON TABLE poll_target IS
    'Identifiers with which to poll an original transaction. [by original_transaction_id]';

-- Further ways to poll Apple, named by an import. Deleted when the account is erased.
CREATE TABLE imported_source (
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    -- The customer.
    account_key             uuid        NOT NULL,
    -- A transaction to ask Apple with.
    transaction_id          text        CHECK (length(transaction_id) BETWEEN 1 AND 128),
    -- A receipt that lists it (base64). Never logged.
    receipt_data            text        CHECK (length(receipt_data) BETWEEN 1 AND 16777216),
    PRIMARY KEY (environment, original_transaction_id),
    CONSTRAINT imported_source_is_something
        CHECK (transaction_id IS NOT NULL OR receipt_data IS NOT NULL)
);
COMMENT ON TABLE imported_source IS
    'Identifiers for polling that imports supplied. [by original_transaction_id]';
-- For erasures.
CREATE INDEX imported_source_by_account ON imported_source (account_key);

-- Apple's rate limits, shared by all programs: token buckets by endpoint.
CREATE TABLE rate_budget (
    -- The app, the environment and the endpoint.
    name         text             NOT NULL PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 400),
    tokens       double precision NOT NULL,
    refreshed_at timestamptz      NOT NULL
);
COMMENT ON TABLE rate_budget IS 'Budgets of requests to Apple, shared by all programs. [local]';

-- The position up to which Apple's histories were read; later reads ask only for changes. A lost
-- row costs only a longer answer.
CREATE TABLE history_revision (
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    -- The one that the request named; the history is that of its customer in the app.
    original_transaction_id text        NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    -- All transactions, or refunds alone.
    history                 text        NOT NULL CHECK (history IN ('transactions', 'refunds')),
    -- Opaque.
    revision                text        NOT NULL CHECK (length(revision) BETWEEN 1 AND 1024),
    PRIMARY KEY (environment, original_transaction_id, history)
);
COMMENT ON TABLE history_revision IS
    'Positions in Apple''s transaction histories. [by original_transaction_id]';

-- Requests that jobs sent to Apple or skipped. Accounts are stored by key, so that an erasure
-- changes nothing here.
CREATE TABLE app_store_write_back (
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    write_back_id           bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    -- An appAccountToken set on an original transaction, or an answer about consumption in a refund
    -- request.
    kind                    text        NOT NULL CHECK (kind IN ('ownership', 'consumption')),
    sent_at                 timestamptz NOT NULL,
    -- Null: unknown.
    bundle_id               text        CHECK (length(bundle_id) BETWEEN 1 AND 255),
    -- For consumption: the transaction and the notification that asked.
    transaction_id          text        CHECK (length(transaction_id) BETWEEN 1 AND 128),
    notification_id         text        CHECK (length(notification_id) BETWEEN 1 AND 128),
    -- The account of the token or the purchase.
    account_key             uuid,
    outcome                 text        NOT NULL
        CHECK (outcome IN ('accepted', 'refused', 'skipped')),
    -- Why nothing was sent.
    reason                  text        CHECK (length(reason) BETWEEN 1 AND 64),
    -- Apple's error; the code is missing where Apple sent none.
    http_status             integer,
    error_code              bigint,
    -- For consumption: the reported delivery status, in Apple's terms.
    delivery_status         text        CHECK (length(delivery_status) BETWEEN 1 AND 64),
    PRIMARY KEY (environment, original_transaction_id, write_back_id),
    CONSTRAINT app_store_write_back_of_a_kind CHECK (
        (kind = 'consumption') = (notification_id IS NOT NULL)
        AND (kind = 'consumption') = (transaction_id IS NOT NULL)),
    CONSTRAINT app_store_write_back_skipped_has_reason
        CHECK ((outcome = 'skipped') = (reason IS NOT NULL)),
    CONSTRAINT app_store_write_back_sent_is_of_an_account
        CHECK (outcome = 'skipped' OR account_key IS NOT NULL),
    CONSTRAINT app_store_write_back_refused_by_apple
        CHECK (outcome = 'refused' OR http_status IS NULL AND error_code IS NULL)
);
COMMENT ON TABLE app_store_write_back IS
    'Write-backs to Apple, sent or skipped. Append-only. [by original_transaction_id]';
-- For administrators, so that it may fan out.
CREATE INDEX app_store_write_back_by_account
    ON app_store_write_back (account_key, write_back_id) WHERE account_key IS NOT NULL;
CREATE INDEX app_store_write_back_by_day
    ON app_store_write_back (((sent_at AT TIME ZONE 'UTC')::date));

-- ------------------------------------------------------------------------------------------------
-- The ledger: facts learned and decisions made.
-- ------------------------------------------------------------------------------------------------

-- Everything that shares one (environment, original_transaction_id). Recordings lock its row. The
-- columns up to head_stored_at are the end of the hash chain; the others are the current state, a
-- projection.
CREATE TABLE original_transaction (
    environment             text        NOT NULL,
    original_transaction_id text        NOT NULL,
    -- The number and hash of the last entry; 0 and null before the first.
    head_number             integer     NOT NULL DEFAULT 0,
    head_hash               bytea,
    -- Later entries have later dates.
    head_recorded_at        timestamptz,
    -- When the last entry was stored, by the database's clock.
    head_stored_at          timestamptz,
    -- Apple's answers since then that only repeat recorded facts (JSON), the date of the latest,
    -- and its source. Not in the chain, and not read by the ownership rule.
    repeated                text,
    repeated_as_of          timestamptz,
    repeated_by             text,
    -- The latest charge that was recorded, and its owner.
    latest_charged_at       timestamptz,
    latest_owner_key        uuid,
    -- The latest end of a paid period.
    paid_through            timestamptz,
    -- The product of the next renewal, by Apple's latest statement since the latest charge.
    auto_renew_product_id   text,
    -- The other original transactions that Apple links with this one; each names the other.
    linked                  text[]      NOT NULL DEFAULT '{}',
    PRIMARY KEY (environment, original_transaction_id)
);
COMMENT ON TABLE original_transaction IS
    'The head of each chain and the current state. [by original_transaction_id]';
-- The append-only ledger. An entry has the items that one recording appends to an original
-- transaction: what Apple said, claims, overrides, decisions. `body` is a JSON array of them, in a
-- format version; `hash` is SHA-256 over the previous hash and every other column, of the body its
-- text, so that no entry can change without all later ones.
CREATE TABLE ledger_entry (
    environment             text        NOT NULL,
    original_transaction_id text        NOT NULL,
    -- The number of its last item; items are numbered from 1, without gaps.
    number                  integer     NOT NULL,
    recorded_at             timestamptz NOT NULL,
    -- The kind of the source (receipt, signed_transaction, notification, poll, administrator or
    -- import) and its id.
    source                  text        NOT NULL,
    source_id               text,
    format                  smallint    NOT NULL,
    -- Compressed: see CompressedText.
    body                    bytea       NOT NULL,
    -- By the database's clock, because a program's may be slow, and no earlier than that of the entry
    -- before. Determines the checkpoints that cover the entry.
    stored_at               timestamptz NOT NULL,
    hash                    bytea       NOT NULL,
    PRIMARY KEY (environment, original_transaction_id, number),
    FOREIGN KEY (environment, original_transaction_id) REFERENCES original_transaction
);
COMMENT ON TABLE ledger_entry IS
    'Entries, append-only and chained by hash. [by original_transaction_id]';

-- A mark over the ends of all chains, of original transactions and of accounts, which names the mark
-- before: see Checkpoint. It reveals a removed tail even if the head was changed, too; kept elsewhere,
-- whatever is changed in this database.
CREATE TABLE ledger_checkpoint (
    number        bigint      NOT NULL PRIMARY KEY CHECK (number > 0),
    -- The mark covers entries stored before this moment, by the database's clock.
    stored_before timestamptz NOT NULL,
    chains        bigint      NOT NULL CHECK (chains >= 0),
    -- The sum of the numbers of their last entries.
    entries       bigint      NOT NULL CHECK (entries >= 0),
    -- The root of a hash tree over the last entry of each chain, in order.
    heads         bytea       NOT NULL CHECK (length(heads) = 32),
    -- The digest of the mark before; zeros for the first.
    previous      bytea       NOT NULL CHECK (length(previous) = 32),
    -- SHA-256 over all of it.
    digest        bytea       NOT NULL CHECK (length(digest) = 32)
);
COMMENT ON TABLE ledger_checkpoint IS 'Checkpoints over all chains. Append-only. [local]';

-- ------------------------------------------------------------------------------------------------
-- Projections of the ledger by original transaction, which recording reads.
-- ------------------------------------------------------------------------------------------------

-- A transaction, merged from all of Apple's answers, and the decision on its charge.
CREATE TABLE store_transaction (
    environment             text        NOT NULL,
    original_transaction_id text        NOT NULL,
    transaction_id          text        NOT NULL,
    product_id              text        NOT NULL,
    -- The item that recorded it first. The first transaction of a charge names it.
    number                  integer     NOT NULL,
    recorded_at             timestamptz NOT NULL,
    kind                    text        NOT NULL,
    purchased_at            timestamptz NOT NULL,
    -- The purchase date, or for old restores the original purchase date.
    charged_at              timestamptz NOT NULL,
    -- Values that Apple may change, with the date of the answer.
    expires_at              timestamptz,
    expires_as_of           timestamptz,
    -- Null: not revoked, or lifted.
    revoked_at              timestamptz,
    -- The revocation in the latest signed answer that contains one, with that answer's date.
    revocation_at           timestamptz,
    revocation_reason       text,
    revocation_type         text,
    -- In thousandths of a percent.
    revocation_percentage   bigint,
    revocation_as_of        timestamptz,
    -- The same from unsigned answers, which can lag.
    unsigned_revocation_at  timestamptz,
    unsigned_revocation_reason text,
    unsigned_revocation_as_of timestamptz,
    -- The latest revocation date in any answer, with the date of the first answer that contains it.
    known_revocation_at     timestamptz,
    revocation_known_at     timestamptz,
    -- The latest signed and unsigned answers without a revocation.
    not_revoked_as_of       timestamptz,
    not_mentioned_as_of     timestamptz,
    upgraded_as_of          timestamptz,
    app_account_token       uuid,
    app_account_token_as_of timestamptz,
    token_account_key       uuid,
    web_order_line_item_id  text,
    -- Null: not reported.
    product_type            text,
    quantity                integer     NOT NULL,
    ownership_type          text        NOT NULL,
    period_type             text        NOT NULL,
    offer_type              text,
    offer_id                text,
    storefront              text,
    price_milliunits        bigint,
    currency                text,
    is_commitment           boolean     NOT NULL,

    -- The transaction that names the charge: this one, unless it is an alias.
    charge_original_transaction_id text NOT NULL,
    charge_transaction_id   text        NOT NULL,
    charge_product_id       text        NOT NULL,

    -- The decision on the charge; null for aliases. The rule is administrator,
    -- actively_auto_renewing, submitter, app_account_token or unclaimed.
    owner_account_key       uuid,
    rule                    text,
    -- The evidence of the rule's first row: reason, earlier charge, date of Apple's status.
    reason                  text,
    renewing_account_key    uuid,
    previous_original_transaction_id text,
    previous_transaction_id text,
    previous_product_id     text,
    status_as_of            timestamptz,
    switched_off_at         timestamptz,
    -- A first claim may still change the owner.
    is_provisional          boolean,
    decided_at              timestamptz,
    corrected_at            timestamptz,
    -- The earlier owners, and when each last lost the charge, in that order; null: none.
    lost_by_keys            uuid[],
    lost_at                 timestamptz[],

    -- The order that it fulfilled, and when the owner's app acknowledged delivery. Facts of their
    -- own, no projection: they stay when the transaction turns out to be an alias or its charge
    -- loses its owner.
    order_id                uuid,
    delivered_at            timestamptz,

    PRIMARY KEY (environment, original_transaction_id, transaction_id, product_id),
    FOREIGN KEY (environment, original_transaction_id) REFERENCES original_transaction,
    CONSTRAINT store_transaction_decision_whole CHECK (
        (rule IS NULL) = (reason IS NULL) AND (rule IS NULL) = (is_provisional IS NULL)
        AND (rule IS NULL) = (decided_at IS NULL)
        AND (rule IS NOT NULL OR num_nonnulls(owner_account_key, renewing_account_key,
            previous_transaction_id, status_as_of, switched_off_at, corrected_at, lost_at) = 0)
        AND num_nonnulls(previous_original_transaction_id, previous_transaction_id,
            previous_product_id) IN (0, 3)
        AND cardinality(lost_by_keys) IS NOT DISTINCT FROM cardinality(lost_at)),
    CONSTRAINT store_transaction_dated CHECK (
        (expires_at IS NULL) = (expires_as_of IS NULL)
        AND (app_account_token IS NULL) = (app_account_token_as_of IS NULL)
        AND (revocation_at IS NULL) = (revocation_as_of IS NULL)
        AND (unsigned_revocation_at IS NULL) = (unsigned_revocation_as_of IS NULL)
        AND (known_revocation_at IS NULL) = (revocation_known_at IS NULL)
        AND (known_revocation_at IS NULL)
            = (revocation_at IS NULL AND unsigned_revocation_at IS NULL)
        AND (revoked_at IS NULL OR known_revocation_at IS NOT NULL)
        AND (revocation_at IS NOT NULL
            OR num_nonnulls(revocation_reason, revocation_type, revocation_percentage) = 0)
        AND (unsigned_revocation_at IS NOT NULL OR unsigned_revocation_reason IS NULL))
);
COMMENT ON TABLE store_transaction IS
    'Projection: transactions and the decisions on their charges. [by original_transaction_id]';
-- When unclaimed charges were first seen, and when they end.
CREATE INDEX store_transaction_unclaimed
    ON store_transaction (environment, original_transaction_id, transaction_id, product_id)
    INCLUDE (recorded_at, expires_at) WHERE rule IS NOT NULL AND owner_account_key IS NULL;
-- The same by the end, separated by whether they had ended when they were first seen.
CREATE INDEX store_transaction_unclaimed_by_end
    ON store_transaction (environment, coalesce(expires_at <= recorded_at, false),
        coalesce(expires_at, 'infinity'), original_transaction_id, transaction_id, product_id)
    INCLUDE (recorded_at, expires_at, decided_at, corrected_at)
    WHERE rule IS NOT NULL AND owner_account_key IS NULL;
-- Charges with orders, for reports.
CREATE INDEX store_transaction_ordered
    ON store_transaction (environment, original_transaction_id, transaction_id, product_id)
    INCLUDE (charged_at, period_type, price_milliunits, currency) WHERE order_id IS NOT NULL;
-- Charges that reports compare with orders and deliveries; no renewals.
CREATE INDEX store_transaction_for_orders
    ON store_transaction (environment, charged_at)
    WHERE owner_account_key IS NOT NULL AND ownership_type = 'purchased'
        AND (kind <> 'renewal' OR order_id IS NOT NULL
            OR coalesce(product_type, 'consumable') = 'consumable');

CREATE TABLE renewal_status (
    environment             text        NOT NULL,
    original_transaction_id text        NOT NULL,
    -- The item that recorded it.
    number                  integer     NOT NULL,
    recorded_at             timestamptz NOT NULL,
    as_of                   timestamptz NOT NULL,
    auto_renews             boolean,
    -- undisturbed, grace_period, billing_retry or expired.
    phase                   text,
    grace_ends_at           timestamptz,
    auto_renew_product_id   text,
    expiration_intent       smallint,
    app_account_token       uuid,
    token_account_key       uuid,
    is_commitment           boolean     NOT NULL,
    PRIMARY KEY (environment, original_transaction_id, number),
    FOREIGN KEY (environment, original_transaction_id) REFERENCES original_transaction,
    CHECK ((phase IS NOT DISTINCT FROM 'grace_period') = (grace_ends_at IS NOT NULL))
);
COMMENT ON TABLE renewal_status IS
    'Projection: renewal statuses from Apple, by date. [by original_transaction_id]';

CREATE TABLE ownership_action (
    environment             text        NOT NULL,
    original_transaction_id text        NOT NULL,
    number                  integer     NOT NULL,
    recorded_at             timestamptz NOT NULL,
    -- A submission's claim; else an override by an administrator or an import.
    is_claim                boolean     NOT NULL,
    -- Null, like the product: an override of the whole original transaction, by `tenure import`.
    transaction_id          text,
    product_id              text,
    -- The claimant or the owner; null: released.
    account_key             uuid,
    -- Of a claim: when it was received.
    -- Of an override of one charge: the time from which it applies.
    -- Of an override of the whole original transaction: it applies to purchases until then.
    effective_from          timestamptz NOT NULL,
    submission_id           uuid,
    PRIMARY KEY (environment, original_transaction_id, number),
    FOREIGN KEY (environment, original_transaction_id) REFERENCES original_transaction,
    CONSTRAINT ownership_action_is_whole CHECK (
        (transaction_id IS NULL) = (product_id IS NULL)
        AND (transaction_id IS NOT NULL OR NOT is_claim AND account_key IS NOT NULL)
        AND (NOT is_claim OR account_key IS NOT NULL)
        AND (is_claim OR submission_id IS NULL))
);
COMMENT ON TABLE ownership_action IS
    'Projection: claims by submissions and owner overrides, in order. [by original_transaction_id]';

-- ------------------------------------------------------------------------------------------------
-- Look-ups, so that no query fans out over all original transactions.
-- ------------------------------------------------------------------------------------------------

-- The original transaction on which a transaction id or line item was recorded first; others with
-- it are linked. The key leaves out the original transaction, so that of two recordings of one name
-- the second waits for the first, and finds it.
CREATE TABLE charge_lookup (
    name                    text    NOT NULL,
    is_line_item            boolean NOT NULL,
    environment             text    NOT NULL,
    original_transaction_id text    NOT NULL,
    PRIMARY KEY (name, is_line_item, environment)
);
COMMENT ON TABLE charge_lookup IS
    'Look-up, projection: the first original transaction with a transaction id or line item. [by name]';

CREATE TABLE account_original_transaction (
    account_key             uuid NOT NULL,
    environment             text NOT NULL,
    original_transaction_id text NOT NULL,
    PRIMARY KEY (account_key, environment, original_transaction_id)
);
COMMENT ON TABLE account_original_transaction IS
    'Look-up, projection: original transactions of an account, past or present. [by account_key]';

-- ------------------------------------------------------------------------------------------------
-- Accounts' holdings: the read model.
-- ------------------------------------------------------------------------------------------------

-- A charge that an account owns and that can still matter, so not a consumable, with everything
-- needed to compute its state at any later moment; and the last that it has lost to another account,
-- which grants nothing and tells how access ended. No state is stored: entitlements end on time
-- without any job.
CREATE TABLE holding (
    account_id              text        NOT NULL,
    environment             text        NOT NULL,
    original_transaction_id text        NOT NULL,
    transaction_id          text        NOT NULL,
    product_id              text        NOT NULL,
    -- The smallest original transaction id of those that Apple links; null if it is this row's own.
    linked_to               text,
    product_type            text,
    period_type             text        NOT NULL,
    starts_at               timestamptz NOT NULL,
    -- Null: never, or by the catalogue.
    ends_at                 timestamptz,
    -- The end of the grace period, or of the paid one without it; null unless billing failed.
    grace_ends_at           timestamptz,
    revoked_at              timestamptz,
    superseded_at           timestamptz,
    -- When the account lost the charge; null: it owns it.
    moved_at                timestamptz,
    -- Set on the latest charge alone.
    auto_renews             boolean,
    phase                   text,
    -- Whether Family Sharing ended at revoked_at; else it is the date of a refund.
    is_sharing_ended        boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (account_id, environment, original_transaction_id, transaction_id, product_id),
    CONSTRAINT holding_renewal CHECK ((auto_renews IS NULL) = (phase IS NULL)
        AND (phase IS DISTINCT FROM 'grace_period' OR grace_ends_at IS NOT NULL))
);
COMMENT ON TABLE holding IS 'Projection: holdings of accounts. [by account_id]';

-- An entitlement given by an administrator, or provisionally while Apple could not be asked.
-- Provisional ones end with the decision on their submission.
CREATE TABLE account_grant (
    account_id  text        NOT NULL CHECK (length(account_id) BETWEEN 1 AND 255),
    grant_id    uuid        NOT NULL,
    entitlement text        NOT NULL CHECK (length(entitlement) BETWEEN 1 AND 255),
    source      text        NOT NULL CHECK (source IN ('grant', 'provisional')),
    starts_at   timestamptz NOT NULL,
    ends_at     timestamptz,
    reason      text        NOT NULL CHECK (length(reason) BETWEEN 1 AND 1000),
    -- For a provisional one: the pending submission, and the original transaction of the purchase.
    submission_id           uuid,
    environment             text CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    recorded_at timestamptz NOT NULL DEFAULT now(),
    -- Ends it at that moment; the row stays, for reports.
    revoked_at  timestamptz,
    PRIMARY KEY (account_id, grant_id),
    CONSTRAINT account_grant_provisional_ends
        CHECK (source <> 'provisional' OR ends_at IS NOT NULL),
    CONSTRAINT account_grant_revoked CHECK (revoked_at IS NULL
        OR source = 'grant' AND starts_at <= revoked_at AND recorded_at <= revoked_at
            AND (ends_at IS NULL OR revoked_at < ends_at)),
    CONSTRAINT account_grant_provisional_has_submission CHECK (
        (source = 'provisional') = (submission_id IS NOT NULL)
        AND (submission_id IS NULL) = (environment IS NULL)
        AND (submission_id IS NULL) = (original_transaction_id IS NULL))
);
COMMENT ON TABLE account_grant IS 'Entitlements given without a charge. [by account_id]';
CREATE UNIQUE INDEX account_grant_of_submission
    ON account_grant (account_id, submission_id, entitlement);
-- While Apple is down, one purchase gives provisional access to one account. This looks through all
-- accounts, of which few have such grants.
CREATE INDEX account_grant_of_original_transaction
    ON account_grant (original_transaction_id) WHERE source = 'provisional';

CREATE TABLE account_grant_account (
    grant_id    uuid NOT NULL PRIMARY KEY,
    account_key uuid NOT NULL
);
COMMENT ON TABLE account_grant_account IS
    'Look-up: the account of a grant. [by grant_id]';

-- The entitlements that events have published: the next event describes the difference. Written
-- under the lock of the account's row.
CREATE TABLE published_entitlement (
    account_id              text        NOT NULL,
    entitlement             text        NOT NULL,
    -- Null: never.
    access_ends_at          timestamptz,
    PRIMARY KEY (account_id, entitlement)
);
COMMENT ON TABLE published_entitlement IS
    'Entitlements as published in events. [by account_id]';

-- The accounts to which sandbox purchases grant anything: the programs copy their setting
-- TENURE_SANDBOX_ACCESS here for the view below.
CREATE TABLE sandbox_access (
    is_only_row boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (is_only_row),
    everybody   boolean NOT NULL,
    account_ids text[]  NOT NULL
);
COMMENT ON TABLE sandbox_access IS 'Accounts whose sandbox purchases grant entitlements. [reference]';
INSERT INTO sandbox_access (everybody, account_ids) VALUES (true, '{}') ON CONFLICT DO NOTHING;

-- The accounts whose entitlements may have changed, for servers that keep answers in memory: with each
-- batch of reads a server asks for the changes that its last snapshot did not see, and drops the
-- answers of those accounts. Triggers write them, in the commit of the change, so that no writer can
-- forget them. Unlogged, as account_change_log is: after a crash, a failover or a restored backup both
-- are empty, and no snapshot from before is compared with transactions after it.
CREATE UNLOGGED TABLE account_change (
    -- The transaction. A snapshot says whether it had seen that, also of one that commits late.
    xid        xid8 NOT NULL DEFAULT pg_current_xact_id(),
    -- Null: all accounts, and the catalogue.
    account_id text
) WITH (
    -- The pages that a busy minute needs are kept, so that plans made with an empty table use the index.
    vacuum_truncate = false, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0,
    autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0);
COMMENT ON TABLE account_change IS
    'Accounts whose entitlements may have changed in the last minutes. [local]';
CREATE INDEX account_change_by_xid ON account_change (xid);

-- The history to which the rows of account_change belong. A server starts it where there is none,
-- unless a trigger is missing.
CREATE UNLOGGED TABLE account_change_log (
    is_only_row boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (is_only_row),
    log_id      uuid    NOT NULL DEFAULT gen_random_uuid(),
    -- The changes of transactions before this one were deleted.
    trimmed_to  xid8    NOT NULL DEFAULT '0',
    -- Those of transactions before this one are deleted next.
    trims_to    xid8    NOT NULL DEFAULT '0'
);
COMMENT ON TABLE account_change_log IS 'The history of account_change. [local]';

CREATE OR REPLACE FUNCTION note_account_change()
RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_LEVEL = 'STATEMENT' THEN
        INSERT INTO tenure.account_change DEFAULT VALUES;
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO tenure.account_change (account_id) VALUES (OLD.account_id);
    END IF;
    IF TG_OP = 'INSERT' OR TG_OP = 'UPDATE' AND NEW.account_id <> OLD.account_id THEN
        INSERT INTO tenure.account_change (account_id) VALUES (NEW.account_id);
    END IF;
    RETURN NULL;
END
$$;

-- On every table from which the entitlements of a read follow (a test compares them).
CREATE TRIGGER account_change AFTER INSERT OR UPDATE OR DELETE ON holding
    FOR EACH ROW EXECUTE FUNCTION note_account_change();
CREATE TRIGGER account_change_of_all AFTER TRUNCATE ON holding
    FOR EACH STATEMENT EXECUTE FUNCTION note_account_change();
CREATE TRIGGER account_change AFTER INSERT OR UPDATE OR DELETE ON account_grant
    FOR EACH ROW EXECUTE FUNCTION note_account_change();
CREATE TRIGGER account_change_of_all AFTER TRUNCATE ON account_grant
    FOR EACH STATEMENT EXECUTE FUNCTION note_account_change();
CREATE TRIGGER account_change_of_all AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON product
    FOR EACH STATEMENT EXECUTE FUNCTION note_account_change();
CREATE TRIGGER account_change_of_all AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON product_entitlement
    FOR EACH STATEMENT EXECUTE FUNCTION note_account_change();
-- Also in sessions that restore or replicate.
ALTER TABLE holding ENABLE ALWAYS TRIGGER account_change;
ALTER TABLE holding ENABLE ALWAYS TRIGGER account_change_of_all;
ALTER TABLE account_grant ENABLE ALWAYS TRIGGER account_change;
ALTER TABLE account_grant ENABLE ALWAYS TRIGGER account_change_of_all;
ALTER TABLE product ENABLE ALWAYS TRIGGER account_change_of_all;
ALTER TABLE product_entitlement ENABLE ALWAYS TRIGGER account_change_of_all;

-- Every account's current entitlements, for SQL: row for row the same as GET
-- /v1/accounts/{account_id}/entitlements (a test compares them). The programs compute them in code
-- from the same tables. Query it for some accounts, not for all.
CREATE OR REPLACE VIEW current_entitlement AS
WITH version AS (
    -- The versions of each product with their times; the first one also applies to all time before.
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
        least(ends, revoked_at, moved_at) AS access_ends,
        greatest(ends, grace_ends_at) AS graced_ends,
        CASE
            WHEN now() < ends THEN 'active'
            WHEN now() < grace_ends_at THEN 'in_grace_period'
            WHEN phase = 'billing_retry' THEN 'in_billing_retry'
            ELSE 'expired'
        END AS own_state
    FROM (
        SELECT h.account_id, h.environment,
            coalesce(h.linked_to, h.original_transaction_id) AS family,
            h.original_transaction_id, h.transaction_id, h.product_id, h.period_type, h.starts_at,
            h.revoked_at, h.moved_at, h.superseded_at, h.auto_renews, h.phase, h.grace_ends_at,
            h.is_sharing_ended,
            latest.valid_from,
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
            AND coalesce(h.moved_at <= now(), true)
            AND (h.environment = 'production' OR sandbox.everybody
                OR h.account_id = ANY (sandbox.account_ids))
    ) AS held
),
deciding AS (
    -- The shown holding of each account and original transaction: the held one with the latest end,
    -- if it has not ended; else the one whose access ended last.
    SELECT DISTINCT ON (account_id, environment, family) *,
        CASE WHEN class = 0 THEN own_state WHEN access_ended < graced_ends THEN 'revoked'
            ELSE 'expired' END AS state
    FROM (
        SELECT *,
            CASE WHEN NOT lost AND rank = 1 AND own_state <> 'expired' THEN 0 ELSE 1 END AS class
        FROM (
            SELECT *, least(graced_ends, revoked_at, moved_at) AS access_ended,
                revoked OR moved_at IS NOT NULL AS lost,
                row_number() OVER (
                    PARTITION BY account_id, environment, family, revoked OR moved_at IS NOT NULL
                    ORDER BY (starts_at <= now() AND now() < ends) DESC, ends DESC,
                        starts_at DESC, octet_length(transaction_id) DESC, transaction_id COLLATE "C" DESC,
                        octet_length(original_transaction_id) DESC,
                        original_transaction_id COLLATE "C" DESC,
                        octet_length(product_id) DESC, product_id COLLATE "C" DESC) AS rank
            FROM part
            -- Duration.clockTolerance
            WHERE starts_at <= now() + interval '5 minutes'
        ) AS ranked
    ) AS classed
    ORDER BY account_id, environment, family, class, access_ended DESC,
        starts_at DESC, octet_length(transaction_id) DESC, transaction_id COLLATE "C" DESC,
        octet_length(original_transaction_id) DESC, original_transaction_id COLLATE "C" DESC,
        octet_length(product_id) DESC, product_id COLLATE "C" DESC
),
chain AS (
    -- Each of its entitlements, with the holdings that grant the same and prolong it: they begin no
    -- later than everything before ends, give or take Duration.gapTolerance.
    SELECT d.*, granted.entitlement, f.ends AS last_ends, f.graced_ends AS last_graced_ends, f.is_first,
        f.starts_at AS last_starts_at, f.position,
        coalesce(f.starts_at <= max(CASE WHEN f.is_first THEN f.access_ends ELSE f.ends END)
            OVER (links ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
            + interval '60 seconds', true) AS joins
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
            AND (is_same OR d.class = 0 AND p.revoked_at IS NULL AND p.moved_at IS NULL AND EXISTS (
                SELECT FROM product_entitlement AS other
                WHERE other.product_id = p.product_id AND other.valid_from = p.valid_from
                    AND other.entitlement = granted.entitlement))
    ) AS f
    WINDOW links AS (
        PARTITION BY d.account_id, d.environment, d.family, granted.entitlement
        ORDER BY f.position)
),
bought AS (
    -- The last of the unbroken ones determines the end.
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
        least(b.last_graced_ends,
            CASE WHEN b.is_first THEN least(b.revoked_at, b.moved_at) END) AS access_ends_at,
        b.state NOT IN ('revoked', 'expired') AND EXISTS (
            SELECT FROM part AS p
            JOIN product_entitlement AS other ON other.product_id = p.product_id
                AND other.valid_from = p.valid_from AND other.entitlement = b.entitlement
            WHERE p.account_id = b.account_id AND p.environment = b.environment
                AND p.family = b.family AND p.auto_renews AND p.phase <> 'expired'
                AND p.revoked_at IS NULL AND p.starts_at <= b.last_access_ends + interval '60 seconds'
                AND p.own_state <> 'expired') AS will_renew,
        b.period_type, b.environment, b.original_transaction_id, b.transaction_id,
        'app_store'::text AS source,
        CASE
            WHEN b.state = 'in_billing_retry' THEN 'billing'
            WHEN b.state = 'revoked' AND b.access_ended = b.revoked_at AND b.is_sharing_ended
                THEN 'family_sharing_ended'
            WHEN b.state = 'revoked' AND b.access_ended = b.revoked_at THEN 'refunded'
            WHEN b.state = 'revoked' THEN 'moved'
            WHEN b.state = 'expired' AND b.superseded_at = b.ends THEN 'replaced'
            WHEN b.state = 'expired' AND b.moved_at IS NOT NULL THEN 'moved'
            WHEN b.state = 'expired' AND b.grace_ends_at IS NOT NULL THEN 'billing'
            WHEN b.state = 'expired' THEN 'expired'
        END AS ended_because
    FROM bought AS b
    UNION ALL
    SELECT account_id, entitlement, now() < ends,
        CASE WHEN revoked_at <= now() THEN 'revoked' WHEN now() < ends THEN 'active'
            ELSE 'expired'
        END,
        NULL, ends, ends, false, 'normal', given.environment, given.original_transaction_id, NULL,
        source, CASE WHEN revoked_at <= now() THEN 'grant_revoked' WHEN ends <= now() THEN 'grant_ended'
        END
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
    will_renew, period_type, environment, original_transaction_id, transaction_id, source,
    CASE WHEN NOT active THEN access_ends_at END AS ended_at, ended_because
FROM offered
ORDER BY account_id, entitlement, active DESC, state = 'in_billing_retry' DESC,
    offered.access_ends_at DESC,
    octet_length(coalesce(transaction_id, '')) DESC,
    coalesce(transaction_id, '') COLLATE "C" DESC,
    octet_length(coalesce(original_transaction_id, '')) DESC,
    coalesce(original_transaction_id, '') COLLATE "C" DESC,
    octet_length(coalesce(product_id, '')) DESC, coalesce(product_id, '') COLLATE "C" DESC,
    coalesce(environment, '') COLLATE "C", source COLLATE "C", coalesce(ended_because, '') COLLATE "C";

-- ------------------------------------------------------------------------------------------------
-- Movements, which reports count: dated changes of subscriptions and money.
-- ------------------------------------------------------------------------------------------------

-- A dated, signed change. All movements are derived from an original transaction, the rule and the
-- catalogue; recording writes the difference. A row that no longer holds is closed and stays, so
-- that a report as known on some day never changes: nothing else of a row changes, and none is
-- deleted. An expected end has a date in the future, and counts from that moment on.
CREATE TABLE movement (
    environment             text        NOT NULL,
    -- The smallest original transaction id of those that Apple links.
    original_transaction_id text        NOT NULL,
    -- Money, of products of any type: charged, refunded. Upgrades are not refunds.
    -- The stock of subscriptions by state: state, -1 for the state (or product) that ended, +1 for
    -- the next.
    -- Paid subscriptions, whose numbers add up to the stock and mrr_twelfths to the MRR: started,
    -- resumed, ended, changed_from, changed_to, repriced.
    -- Trials: trial_started, trial_ended; a positive number reverses the end of one that is paid
    -- after all.
    -- The customer switched auto-renew, at Apple's date: auto_renew_off, auto_renew_on.
    -- Billing: grace_entered, retry_entered, billing_recovered, billing_lost.
    kind                    text        NOT NULL,
    at                      timestamptz NOT NULL,
    -- The transaction that names the charge, and its original transaction.
    transaction_id          text        NOT NULL,
    charge_original_transaction_id text NOT NULL,
    product_id              text        NOT NULL,
    product_type            text,
    -- The state of 'state', the reason of an end, Apple's reason of a refund ('': unknown); 'from'
    -- and 'to' for a price in another currency or from another source.
    cause                   text        NOT NULL DEFAULT '',
    -- The date of the refunded charge, or the start of the trial, the paid subscription or the
    -- billing issue.
    origin_at               timestamptz,
    number                  smallint    NOT NULL,
    ownership_type          text        NOT NULL,
    period_type             text        NOT NULL,
    -- For subscriptions, the period, the offer and the storefront are those of the charge with
    -- which the paid time began: the numbers of each add up to its stock.
    offer_type              text,
    offer_id                text,
    -- ISO 3166-1 alpha-3; null: not in receipts.
    storefront              text,
    quantity                integer     NOT NULL,
    -- Null: unknown price.
    currency                text,
    -- Fixed at the charge, whatever the catalogue says later. A refund's is negative.
    amount_milliunits       bigint      NOT NULL DEFAULT 0,
    -- app_store or catalogue.
    price_source            text,
    -- Signed twelfths of a milliunit per month: a whole number for every period.
    mrr_twelfths            bigint      NOT NULL DEFAULT 0,
    -- The owner of the charge at that time.
    account_key             uuid,
    -- For 'charged': the rule and date of the decision; whether the binding went to the owner with
    -- this charge, its previous owner (null: none), and the first owner, if this is the second;
    -- and whether it was an automatic renewal. Null for other kinds.
    rule                    text,
    decided_at              timestamptz,
    corrected_at            timestamptz,
    has_moved               boolean,
    moved_from_key          uuid,
    shared_with_key         uuid,
    is_renewal              boolean,
    -- For 'charged': the end of the paid period, by the transaction that names the charge;
    -- infinity: never. Null for other kinds.
    expires_at              timestamptz,
    -- Inclusive, exclusive.
    known_from              timestamptz NOT NULL,
    known_until             timestamptz NOT NULL DEFAULT 'infinity',
    -- The changes that added and closed it: see movement_change. Null where its sums were written
    -- with it.
    opened_by               bigint,
    closed_by               bigint,
    PRIMARY KEY (environment, original_transaction_id, kind, at, product_id, transaction_id, cause,
        known_from)
);
COMMENT ON TABLE movement IS
    'Projection: dated, signed changes, and when each was known. [by original_transaction_id]';
-- By time. The environment is not the first column: before the table was analyzed, the planner
-- would read one original transaction by it instead of by the primary key.
CREATE INDEX movement_by_time ON movement (kind, environment, at);
CREATE INDEX movement_by_origin ON movement (kind, environment, origin_at)
    WHERE kind IN ('refunded', 'trial_ended', 'billing_recovered', 'billing_lost');
CREATE INDEX movement_decided ON movement (environment, decided_at) WHERE decided_at IS NOT NULL;
CREATE INDEX movement_corrected ON movement (environment, corrected_at)
    WHERE corrected_at IS NOT NULL;
CREATE INDEX movement_refunded
    ON movement (environment, charge_original_transaction_id, transaction_id, product_id)
    WHERE kind = 'refunded';
-- Unclaimed charges with all columns of report_unclaimed: their rows are scattered, and reading
-- each would be slow.
CREATE INDEX movement_unclaimed ON movement (environment, at)
    INCLUDE (charge_original_transaction_id, transaction_id, product_id, number, ownership_type,
        period_type, currency, amount_milliunits, price_source, known_from, known_until)
    WHERE kind = 'charged' AND account_key IS NULL;
-- Charges that were known differently before: few ever change.
CREATE INDEX movement_charged_before ON movement (environment, known_until)
    WHERE kind = 'charged' AND known_until < 'infinity';
-- Charges with which the binding went to another account: few ever do.
CREATE INDEX movement_moved ON movement (environment, at) WHERE kind = 'charged' AND has_moved;
-- Current billing issues with all columns of report_billing_issues_item.
CREATE INDEX movement_in_trouble ON movement (environment, cause, at)
    INCLUDE (original_transaction_id, product_id, number, ownership_type, transaction_id,
        account_key)
    WHERE kind = 'state' AND cause IN ('in_grace_period', 'in_billing_retry')
        AND known_until = 'infinity';

CREATE OR REPLACE FUNCTION movement_summed_cause(kind text, cause text, mrr_twelfths bigint)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN kind = 'repriced' AND cause = '' AND mrr_twelfths > 0 THEN 'rise'
    WHEN kind = 'repriced' AND cause = '' AND mrr_twelfths < 0 THEN 'fall'
    ELSE cause END;
COMMENT ON FUNCTION movement_summed_cause IS
    'The cause under which a movement is summed up: that of a new price is rise or fall.';

CREATE OR REPLACE FUNCTION movement_cohort(basis text, origin_at timestamptz, time_zone text)
RETURNS date
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE basis
    WHEN 'origin' THEN (origin_at AT TIME ZONE time_zone)::date
    WHEN 'cohort' THEN date_trunc('month', origin_at AT TIME ZONE time_zone)::date
    ELSE '-infinity'::date END;
COMMENT ON FUNCTION movement_cohort IS
    'The day (basis origin) or month (cohort) that a movement goes back to; -infinity for other bases.';

-- The days under which a movement is summed up: its own ('at'); also the day that it goes back to,
-- if a report asks for that ('origin'); for paid subscriptions also the month of the first payment
-- ('cohort'); and for charges also the days on which their owner was decided and corrected, by rule.
-- movement_day uses the days of UTC.
CREATE OR REPLACE FUNCTION movement_basis(
    kind text, at timestamptz, origin_at timestamptz, cause text, mrr_twelfths bigint, rule text,
    decided_at timestamptz, corrected_at timestamptz)
RETURNS TABLE (basis text, day date, cohort date, summed_cause text)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT b.basis, (b.at AT TIME ZONE 'UTC')::date, movement_cohort(b.basis, origin_at, 'UTC'),
        CASE WHEN b.basis IN ('decided', 'corrected') THEN rule
            ELSE movement_summed_cause(kind, cause, mrr_twelfths) END
    FROM (VALUES ('at', at), ('origin', at), ('cohort', at), ('decided', decided_at),
        ('corrected', corrected_at)) AS b (basis, at)
    WHERE CASE b.basis
        WHEN 'origin'
            THEN kind IN ('refunded', 'trial_ended', 'billing_recovered', 'billing_lost')
        WHEN 'cohort'
            THEN kind IN ('started', 'resumed', 'ended', 'changed_from', 'changed_to', 'repriced')
        ELSE b.at IS NOT NULL
    END;
END;

-- A change of movements that is not in movement_day yet, referred to by the movements that it added
-- and closed. Written with them, so that the sums and these changes together are always the sums
-- over the movements known now.
CREATE TABLE movement_change (
    -- Random, so that the writer knows it before.
    change_id               bigint NOT NULL,
    environment             text   NOT NULL,
    original_transaction_id text   NOT NULL,
    PRIMARY KEY (original_transaction_id, change_id)
);
COMMENT ON TABLE movement_change IS
    'Changes of movements that are not rolled up yet. [by original_transaction_id]';

-- Sums over the movements known now. A job rolls up the changes into it.
CREATE TABLE movement_day (
    environment       text   NOT NULL,
    -- at, origin, cohort, decided or corrected; only origin and cohort have a cohort, else -infinity.
    basis             text   NOT NULL,
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
        period_type, currency, price_source)
);
COMMENT ON TABLE movement_day IS 'Projection: daily sums of movements. [local]';

-- Exchange rates to the operator's currency, from a day on: sums across currencies need them. A
-- rate is corrected or removed by another row for the same day; the earlier one stays for reports as
-- of then.
CREATE TABLE exchange_rate (
    reporting_currency text    NOT NULL CHECK (reporting_currency ~ '^[A-Z]{3}$'),
    currency           text    NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    valid_from         date    NOT NULL,
    -- Null: the day's rate was removed.
    rate               numeric CHECK (rate > 0 AND rate < 'infinity'),
    recorded_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (reporting_currency, currency, valid_from, recorded_at),
    CONSTRAINT exchange_rate_of_two CHECK (reporting_currency <> currency)
);
COMMENT ON TABLE exchange_rate IS
    'Exchange rates, as the operator supplies them for reports. [reference]';

CREATE TABLE commission (
    -- Empty: all products without rows of their own.
    product_id  text        NOT NULL CHECK (length(product_id) <= 255),
    valid_from  date        NOT NULL,
    -- Null: the day's commission was removed.
    percent     numeric     CHECK (percent BETWEEN 0 AND 100),
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (product_id, valid_from, recorded_at)
);
COMMENT ON TABLE commission IS
    'Apple''s commission, as the operator supplies it for reports. [reference]';

-- ------------------------------------------------------------------------------------------------
-- Work and news.
-- ------------------------------------------------------------------------------------------------

-- The job queue. Claimed with FOR UPDATE SKIP LOCKED; a claimed job is leased until locked_until,
-- and free again when its worker dies. Kinds and queues are not restricted: those of a newer program
-- are left to its workers.
CREATE TABLE job (
    job_id       bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind         text        NOT NULL,
    -- One job of a kind for each subject.
    subject      text        NOT NULL,
    -- Each queue has its own concurrency, so that one kind of work can't starve another.
    queue        text        NOT NULL,
    -- From 0, the most urgent and claimed first, however long other jobs are due, to 2.
    priority     smallint    NOT NULL DEFAULT 0,
    run_at       timestamptz NOT NULL,
    -- Incremented when the job is scheduled again; a run completes only the generation it claimed.
    generation   integer     NOT NULL DEFAULT 0,
    -- The progress of a job that goes through everything.
    place        text,
    attempts     integer     NOT NULL DEFAULT 0,
    locked_until timestamptz,
    locked_by    text,
    -- Set when the retry window is over: the job waits for a retry by hand.
    discarded_at timestamptz,
    last_error   text,
    -- The start of the retry window: when the job was enqueued or first due, whichever is later, or
    -- retried by hand.
    created_at   timestamptz NOT NULL,
    UNIQUE (kind, subject),
    CONSTRAINT job_lease CHECK ((locked_until IS NULL) = (locked_by IS NULL)),
    CONSTRAINT job_discarded_has_reason CHECK (discarded_at IS NULL OR last_error IS NOT NULL)
);
COMMENT ON TABLE job IS 'The job queue. [local]';
CREATE INDEX job_due ON job (queue, priority, run_at) WHERE discarded_at IS NULL;
CREATE INDEX job_discarded ON job (discarded_at) WHERE discarded_at IS NOT NULL;

-- Every change, for the feed and for webhooks. Written in the transaction of the change, and given
-- its place in the feed afterwards, by one process at a time: readers that continue from a place
-- miss nothing, and the events of an account are in order.
CREATE TABLE event (
    event_id       bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Its place in the feed; null: not given yet.
    position       bigint,
    type           text        NOT NULL,
    occurred_at    timestamptz NOT NULL,
    -- Null: about an unclaimed charge.
    account_key    uuid,
    -- JSON without account ids, compressed if it has an account: see CompressedText.
    data           bytea       NOT NULL,
    -- By the database's clock; retention counts from here.
    stored_at      timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE event IS 'The feed of changes. [local]';
CREATE INDEX event_unplaced ON event (event_id) WHERE position IS NULL;
CREATE UNIQUE INDEX event_by_position ON event (position) WHERE position IS NOT NULL;
-- For administrators, who read an account's history by date.
CREATE INDEX event_by_account ON event (account_key, occurred_at, event_id);

-- Marks in the feed. Numbering events locks its row, and continues after the last position in
-- event, or after trimmed_to.
CREATE TABLE feed (
    is_only_row boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (is_only_row),
    -- Events up to this position were deleted after the retention time.
    trimmed_to  bigint  NOT NULL DEFAULT 0 CHECK (trimmed_to >= 0),
    -- Events up to this position have their webhook_delivery; null: webhooks were never on.
    pushed_to   bigint  CHECK (pushed_to >= 0),
    -- When the event at trimmed_to was stored, to recognize cursors of another history. Null:
    -- nothing was deleted yet.
    trimmed_stored_at timestamptz
);
COMMENT ON TABLE feed IS
    'The positions up to which events are deleted and queued for the webhook. [local]';
INSERT INTO feed DEFAULT VALUES ON CONFLICT DO NOTHING;

-- Pending and failed webhook deliveries; successful ones are deleted.
CREATE TABLE webhook_delivery (
    event_id     bigint      NOT NULL PRIMARY KEY REFERENCES event,
    -- Deliveries of one account are sent in the order of the feed. Events about unclaimed charges
    -- have a stream for each original transaction.
    stream       text        NOT NULL CHECK (length(stream) BETWEEN 1 AND 255),
    position     bigint      NOT NULL CHECK (position > 0),
    attempts     integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    -- The start of the retry window.
    due_since    timestamptz NOT NULL,
    parked_at    timestamptz,
    last_error   text        CHECK (length(last_error) BETWEEN 1 AND 1000),
    CONSTRAINT webhook_delivery_parked_has_reason
        CHECK (parked_at IS NULL OR last_error IS NOT NULL)
);
COMMENT ON TABLE webhook_delivery IS 'Pending and failed webhook deliveries. [local]';
CREATE INDEX webhook_delivery_next
    ON webhook_delivery (stream, position) WHERE parked_at IS NULL;
CREATE INDEX webhook_delivery_parked
    ON webhook_delivery (position) WHERE parked_at IS NOT NULL;

-- The latest attempts to deliver an event.
CREATE TABLE webhook_attempt (
    -- Begins again after the last one, so that only the latest attempts are kept.
    slot         integer     NOT NULL GENERATED ALWAYS AS IDENTITY (MAXVALUE 1000 CYCLE) PRIMARY KEY,
    event_id     bigint      NOT NULL,
    attempted_at timestamptz NOT NULL,
    took_ms      integer     NOT NULL CHECK (took_ms >= 0),
    -- Null: delivered.
    failure      text        CHECK (length(failure) BETWEEN 1 AND 1000)
);
COMMENT ON TABLE webhook_attempt IS 'The latest webhook attempts. [local]';

-- The audit log of administrators' actions. Only ever appended: accounts are stored by key, so that
-- an erasure changes nothing here.
CREATE TABLE administrator_action (
    action_id     bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    acted_at      timestamptz NOT NULL,
    -- The name of the API key; for commands, 'cli:' and the system user.
    administrator text        NOT NULL CHECK (length(administrator) BETWEEN 1 AND 255),
    action        text        NOT NULL CHECK (length(action) BETWEEN 1 AND 64),
    subject       text        NOT NULL CHECK (length(subject) BETWEEN 1 AND 255),
    -- Contains '{account:KEY}' in place of account ids.
    reason        text        CHECK (length(reason) BETWEEN 1 AND 50000),
    -- JSON without account ids.
    data          text        NOT NULL CHECK (length(data) <= 100000),
    -- The account concerned, and the earlier owner of a transferred charge.
    account_key          uuid,
    previous_account_key uuid
);
COMMENT ON TABLE administrator_action IS 'Administrator actions, append-only. [local]';
CREATE INDEX administrator_action_by_account
    ON administrator_action (account_key, action_id) WHERE account_key IS NOT NULL;
CREATE INDEX administrator_action_by_previous_account
    ON administrator_action (previous_account_key, action_id)
    WHERE previous_account_key IS NOT NULL;
CREATE INDEX administrator_action_by_subject
    ON administrator_action (subject, action_id);

-- ------------------------------------------------------------------------------------------------
-- The chains of accounts: entries that vouch for everything that an answer rests on and that the
-- ledger does not contain.
-- ------------------------------------------------------------------------------------------------

-- The end of an account's chain. The nil UUID has what concerns no account: administrators' actions
-- without one, and the catalogue.
CREATE TABLE account_chain (
    account_key    uuid        NOT NULL PRIMARY KEY,
    head_number    integer     NOT NULL,
    head_hash      bytea       NOT NULL,
    head_stored_at timestamptz NOT NULL
);
COMMENT ON TABLE account_chain IS 'The head of each account''s chain. [by account_key]';

-- An entry holds the values of one row at one moment: the latest entry of a row vouches for it.
-- `hash` is SHA-256 over the previous hash and every other column. Written by seal() alone.
CREATE TABLE account_entry (
    account_key uuid        NOT NULL,
    number      integer     NOT NULL,
    -- By the database's clock, and no earlier than that of the entry before.
    stored_at   timestamptz NOT NULL,
    -- account, purchase_order, account_grant, submission, delivery, administrator_action, product or
    -- recording.
    kind        text        NOT NULL,
    -- The row's key; empty for the account itself and for a recording.
    row_id      text        NOT NULL,
    -- JSON: the row's columns, texts that may be personal by their SHA-256; {} if the row is gone.
    -- For a submission and a recording also `heads`: the number and hash of the last entry that it
    -- left in the chains of original transactions.
    body        text        NOT NULL,
    hash        bytea       NOT NULL,
    PRIMARY KEY (account_key, number)
);
COMMENT ON TABLE account_entry IS
    'Entries about accounts, append-only and chained by hash. [by account_key]';
-- For the audit of deliveries, from the charge.
CREATE INDEX account_entry_of_delivery ON account_entry (row_id) WHERE kind = 'delivery';
-- For seal(), which compares an order or a grant with its last entry.
CREATE INDEX account_entry_of_row ON account_entry (account_key, row_id, number)
    WHERE kind IN ('purchase_order', 'account_grant');

-- The rows that accounts' entries vouch for, in the form of their entries: columns of work (attempts,
-- next attempts) are left out, and moments are seconds since 1970, which no session's settings change.
CREATE OR REPLACE FUNCTION text_digest(words text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN encode(sha256(convert_to(words, 'UTF8')), 'hex');

CREATE VIEW sealed_account AS
SELECT account_key, ''::text AS row_id, jsonb_strip_nulls(jsonb_build_object(
    'account_id', text_digest(coalesce(id_salt::text, '') || account_id),
    'app_account_token', app_account_token, 'erased_at', extract(epoch FROM erased_at),
    'merged_into_key', merged_into_key, 'merged_at', extract(epoch FROM merged_at))) AS body
FROM account_by_key;

CREATE VIEW sealed_order AS
SELECT account_key, order_id, order_id::text AS row_id, jsonb_strip_nulls(jsonb_build_object(
    'product_id', product_id, 'status', status, 'created_at', extract(epoch FROM created_at),
    'fulfilled_at', extract(epoch FROM fulfilled_at), 'is_named', is_named,
    'environment', environment, 'original_transaction_id', original_transaction_id,
    'transaction_id', transaction_id, 'opened_by_key', opened_by_key)) AS body
FROM purchase_order;

-- Administrators' grants. Their reasons are those of the actions.
CREATE VIEW sealed_grant AS
SELECT account_id, grant_id, grant_id::text AS row_id, jsonb_strip_nulls(jsonb_build_object(
    'entitlement', entitlement, 'starts_at', extract(epoch FROM starts_at),
    'ends_at', extract(epoch FROM ends_at), 'recorded_at', extract(epoch FROM recorded_at),
    'revoked_at', extract(epoch FROM revoked_at))) AS body
FROM account_grant WHERE source = 'grant';

-- Decided submissions.
CREATE VIEW sealed_submission AS
SELECT account_key, submission_id, submission_id::text AS row_id, jsonb_strip_nulls(jsonb_build_object(
    'received_at', extract(epoch FROM received_at), 'transaction_id', transaction_id,
    'order_id', order_id, 'restore', nullif(restore, false), 'bundle_id', bundle_id,
    'body_sha256', encode(body_sha256, 'hex'), 'signed_transactions', signed_transactions,
    'status', status, 'environment', environment, 'decided_at', extract(epoch FROM decided_at),
    'problem', problem, 'apple_status', apple_status, 'outcome', text_digest(outcome))) AS body
FROM submission WHERE status <> 'pending';

CREATE VIEW sealed_action AS
SELECT coalesce(account_key, '00000000-0000-0000-0000-000000000000') AS chain_key, account_key,
    action_id, action_id::text AS row_id, jsonb_strip_nulls(jsonb_build_object(
    'acted_at', extract(epoch FROM acted_at), 'administrator', administrator, 'action', action,
    'subject', text_digest(subject), 'reason', text_digest(reason), 'data', text_digest(data),
    'previous_account_key', previous_account_key)) AS body
FROM administrator_action;

CREATE VIEW sealed_product AS
SELECT '00000000-0000-0000-0000-000000000000'::uuid AS account_key,
    product_id || ' ' || extract(epoch FROM valid_from) AS row_id,
    jsonb_strip_nulls(jsonb_build_object(
    'type', type, 'subscription_group', subscription_group, 'level', level, 'period', period,
    'price_milliunits', price_milliunits, 'currency', currency, 'display_name', display_name,
    'entitlements', (
        SELECT jsonb_agg(e.entitlement ORDER BY e.entitlement COLLATE "C")
        FROM product_entitlement AS e
        WHERE e.product_id = p.product_id AND e.valid_from = p.valid_from))) AS body
FROM product AS p;

-- In PL/pgSQL, which keeps the plans of its statements: SQL functions are planned in each transaction.
CREATE OR REPLACE FUNCTION chained_hash(previous bytea, VARIADIC fields text[])
RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    field text;
    words text := '';
BEGIN
    FOREACH field IN ARRAY fields LOOP
        words := words || octet_length(field) || ':' || field;
    END LOOP;
    RETURN sha256(previous || convert_to(words, 'UTF8'));
END
$$;

-- Appends an entry with the present values of a row to an account's chain, in the transaction that
-- wrote the row. Nothing is appended about an order or a grant that is as its last entry says. The
-- programs may neither write entries nor heads, so this runs with the owner's rights.
CREATE OR REPLACE FUNCTION seal(
    chain uuid, entry_kind text, entry_row text DEFAULT '', details jsonb DEFAULT '{}')
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tenure, pg_temp
AS $$
DECLARE
    head account_chain;
    moment timestamptz;
    entry_body text;
    row_body jsonb;
BEGIN
    IF entry_kind = 'account' THEN
        SELECT body INTO row_body FROM sealed_account WHERE account_key = chain;
    ELSIF entry_kind = 'purchase_order' THEN
        SELECT body INTO row_body FROM sealed_order
        WHERE account_key = chain AND order_id = entry_row::uuid;
    ELSIF entry_kind = 'account_grant' THEN
        SELECT body INTO row_body FROM sealed_grant
        WHERE account_id = (SELECT account_id FROM account_by_key WHERE account_key = chain)
            AND grant_id = entry_row::uuid;
    ELSIF entry_kind = 'submission' THEN
        SELECT body INTO row_body FROM sealed_submission WHERE submission_id = entry_row::uuid;
    ELSIF entry_kind = 'administrator_action' THEN
        SELECT body INTO row_body FROM sealed_action WHERE action_id = entry_row::bigint;
    ELSIF entry_kind = 'product' THEN
        SELECT body INTO row_body FROM sealed_product WHERE row_id = entry_row;
    END IF;
    entry_body := coalesce(row_body, '{}') || details;
    IF entry_kind IN ('purchase_order', 'account_grant') THEN
        PERFORM FROM account_chain WHERE account_key = chain FOR UPDATE;
        IF entry_body = coalesce((
                SELECT body FROM account_entry
                WHERE account_key = chain AND kind = entry_kind AND row_id = entry_row
                    AND kind IN ('purchase_order', 'account_grant')
                ORDER BY number DESC LIMIT 1), '{}')
        THEN
            RETURN;
        END IF;
    END IF;
    -- One statement for the head: on Citus, each is a round trip.
    moment := date_trunc('milliseconds', now());
    INSERT INTO account_chain AS c (account_key, head_number, head_stored_at, head_hash)
    VALUES (chain, 1, moment, chained_hash(decode(repeat('00', 32), 'hex'), chain::text, '1',
        (extract(epoch FROM moment) * 1000)::bigint::text, entry_kind, entry_row, entry_body))
    ON CONFLICT (account_key) DO UPDATE SET head_number = c.head_number + 1,
        head_stored_at = greatest(c.head_stored_at, moment),
        head_hash = chained_hash(c.head_hash, chain::text, (c.head_number + 1)::text,
            -- Citus asks for immutable functions.
            (extract(epoch FROM greatest(c.head_stored_at, moment) AT TIME ZONE 'UTC') * 1000)
                ::bigint::text,
            entry_kind, entry_row, entry_body)
    RETURNING * INTO head;
    INSERT INTO account_entry (account_key, number, stored_at, kind, row_id, body, hash)
    VALUES (chain, head.head_number, head.head_stored_at, entry_kind, entry_row, entry_body,
        head.head_hash);
END
$$;

-- Records an administrator's action, with its entry.
CREATE OR REPLACE FUNCTION record_action(
    moment timestamptz, name text, what text, about text, why text, details text, account uuid,
    previous_account uuid)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tenure, pg_temp
AS $$
DECLARE
    id bigint;
BEGIN
    INSERT INTO administrator_action (acted_at, administrator, action, subject, reason, data,
        account_key, previous_account_key)
    VALUES (moment, name, what, about, why, details, account, previous_account)
    RETURNING action_id INTO id;
    PERFORM seal(coalesce(account, '00000000-0000-0000-0000-000000000000'),
        'administrator_action', id::text);
END
$$;

-- ------------------------------------------------------------------------------------------------
-- Privileges. `serve` and `work` run as members of tenure_program, which can append to the ledger and
-- can neither change nor delete an entry; the owner revokes the same rights from itself, so that
-- one role for everything is safe, too (except for a superuser, to whom nothing applies). BI tools use
-- tenure_reader.
-- ------------------------------------------------------------------------------------------------

-- By default, everyone may execute functions.
REVOKE EXECUTE ON FUNCTION store_body, delete_bodies, erase_submissions, prune_bodies, seal,
    record_action FROM PUBLIC;

-- An owner that may not create roles has them created otherwise, and calls this again.
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
        REVOKE ALL ON ALL TABLES IN SCHEMA tenure FROM tenure_program;
        GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA tenure TO tenure_program;
        -- Functions with the owner's rights write these.
        REVOKE INSERT
            ON body, certificate_chain, schema_version, schema_part, account_chain,
                account_entry, administrator_action
            FROM tenure_program;
        -- Projections are derived again; rows of accounts are moved by merges and erasures; the others
        -- are work that is done.
        GRANT DELETE
            ON store_transaction, renewal_status, ownership_action, charge_lookup,
                account_original_transaction, holding, published_entitlement,
                account, account_grant, purchase_order, consumption_consent, imported_source,
                account_change, admin_session, event, job, webhook_delivery, movement_change
            TO tenure_program;
        -- What is recorded stays: only what changes in the life of a row may be updated.
        GRANT UPDATE (published_at, merged_into_key, label, email) ON account TO tenure_program;
        GRANT UPDATE (account_id, erased_at, id_salt, merged_into_key, merged_at)
            ON account_by_key TO tenure_program;
        GRANT UPDATE (account_key)
            ON purchase_order_account, account_grant_account TO tenure_program;
        GRANT UPDATE (status, fulfilled_at, is_named, environment, original_transaction_id,
            transaction_id) ON purchase_order TO tenure_program;
        GRANT UPDATE (ends_at, environment, original_transaction_id, revoked_at)
            ON account_grant TO tenure_program;
        GRANT UPDATE (is_given, decided_at) ON consumption_consent TO tenure_program;
        GRANT UPDATE (status, environment, decided_at, retry_at, attempts, problem, problem_detail,
            apple_status, outcome) ON submission TO tenure_program;
        GRANT UPDATE (processed_at, problem, attempts, outcome) ON notification TO tenure_program;
        GRANT UPDATE (head_number, head_hash, head_recorded_at, head_stored_at, repeated,
            repeated_as_of, repeated_by, latest_charged_at, latest_owner_key, paid_through,
            auto_renew_product_id, linked) ON original_transaction TO tenure_program;
        FOREACH name IN ARRAY ARRAY['store_transaction', 'holding'] LOOP
            EXECUTE (
                SELECT format('GRANT UPDATE (%s) ON %I TO tenure_program',
                    string_agg(quote_ident(attname), ', '), name)
                FROM pg_attribute
                WHERE attrelid = name::regclass AND attnum > 0 AND NOT attisdropped
                    AND attnum <> ALL ((
                        SELECT conkey FROM pg_constraint
                        WHERE conrelid = attrelid AND contype = 'p')::smallint[]));
        END LOOP;
        GRANT UPDATE (access_ends_at) ON published_entitlement TO tenure_program;
        GRANT UPDATE (everybody, account_ids) ON sandbox_access TO tenure_program;
        GRANT UPDATE (known_until, closed_by) ON movement TO tenure_program;
        GRANT UPDATE (number, amount_milliunits, mrr_twelfths) ON movement_day TO tenure_program;
        GRANT UPDATE (bundle_id, receipt_submission_id, receipt_notification_id)
            ON poll_target TO tenure_program;
        GRANT UPDATE (account_key, transaction_id, receipt_data) ON imported_source TO tenure_program;
        GRANT UPDATE (tokens, refreshed_at) ON rate_budget TO tenure_program;
        GRANT UPDATE (revision) ON history_revision TO tenure_program;
        GRANT UPDATE (refusals, last_at, last_detail, last_body_bytes, last_body_sha256)
            ON notification_refusal TO tenure_program;
        GRANT UPDATE (alive_at) ON program_heartbeat TO tenure_program;
        GRANT UPDATE (trimmed_to, trims_to) ON account_change_log TO tenure_program;
        GRANT UPDATE (position) ON event TO tenure_program;
        GRANT UPDATE (trimmed_to, pushed_to, trimmed_stored_at) ON feed TO tenure_program;
        GRANT UPDATE (run_at, priority, generation, place, attempts, locked_until, locked_by,
            discarded_at, last_error, created_at) ON job TO tenure_program;
        GRANT UPDATE (attempts, due_since, parked_at, last_error)
            ON webhook_delivery TO tenure_program;
        GRANT UPDATE (event_id, attempted_at, took_ms, failure)
            ON webhook_attempt TO tenure_program;
        GRANT EXECUTE
            ON FUNCTION store_body, delete_bodies, erase_submissions, prune_bodies, seal,
                record_action
            TO tenure_program;
        IF NOT (SELECT prosecdef FROM pg_proc WHERE oid = 'erase_submissions'::regproc) THEN
            -- On Citus, where they run with the caller's rights: see SchemaDistributor.
            GRANT UPDATE ON submission TO tenure_program;
            GRANT DELETE ON submission_exchange TO tenure_program;
            GRANT INSERT, UPDATE, DELETE ON body TO tenure_program;
            GRANT INSERT ON certificate_chain, account_entry, administrator_action
                TO tenure_program;
            GRANT INSERT, UPDATE ON account_chain TO tenure_program;
        END IF;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA tenure TO tenure_program;
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tenure TO tenure_program;
        REVOKE EXECUTE ON FUNCTION grant_privileges FROM tenure_program;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_reader') THEN
        GRANT USAGE ON SCHEMA tenure TO tenure_reader;
        GRANT SELECT ON ALL TABLES IN SCHEMA tenure TO tenure_reader;
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tenure TO tenure_reader;
        REVOKE EXECUTE
            ON FUNCTION store_body, delete_bodies, erase_submissions, prune_bodies, seal,
                record_action, grant_privileges
            FROM tenure_reader;
        -- Reports need no raw input, and no names of customers.
        REVOKE SELECT ON body, imported_source, admin_session, account FROM tenure_reader;
        GRANT SELECT (account_id, account_key, app_account_token, created_at, published_at,
            merged_into_key) ON account TO tenure_reader;
    END IF;
    EXECUTE format(
        'REVOKE UPDATE, DELETE, TRUNCATE ON ledger_entry, account_entry, ledger_checkpoint, '
            'administrator_action, app_store_write_back, movement FROM %I',
        current_user);
    EXECUTE format('GRANT UPDATE (known_until, closed_by) ON movement TO %I', current_user);
END
$$;
COMMENT ON FUNCTION grant_privileges IS
    'Creates tenure_program and tenure_reader where they are missing, and gives them and the owner what '
    'they may do, and no more. It can be called again.';
REVOKE EXECUTE ON FUNCTION grant_privileges FROM PUBLIC;

DO $$
BEGIN
    PERFORM grant_privileges();

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

INSERT INTO schema_version (version, applied_at, compatible_since) VALUES (1, now(), 1);

COMMIT;
