-- Tenure's whole schema, to be read from top to bottom.
--
-- Apply it with `tenure migrate`, or with psql by the role that is to own it. It creates version 1 in a
-- database without the schema, and refuses any other.
--
-- Conventions
--   * Everything lives in the schema `tenure`. Text has a length check, times are timestamptz, money
--     is bigint milliunits (1/1000 of the currency's unit) with an ISO 4217 currency.
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

-- The version of the schema, one row for each step that was applied.
CREATE TABLE schema_version (
    version    integer     NOT NULL PRIMARY KEY CHECK (version > 0),
    applied_at timestamptz NOT NULL,
    -- The oldest version whose programs work with this one.
    serves_since integer   NOT NULL
        CONSTRAINT schema_version_serves_since CHECK (serves_since BETWEEN 1 AND version)
);
COMMENT ON TABLE schema_version IS 'Which steps of the schema were applied, and when. [reference]';

-- The progress of a step that is applied in several parts, one row for each part but the last.
CREATE TABLE schema_part (
    version    integer     NOT NULL CHECK (version > 0),
    part       integer     NOT NULL CHECK (part > 0),
    applied_at timestamptz NOT NULL,
    PRIMARY KEY (version, part)
);
COMMENT ON TABLE schema_part IS 'Which parts of steps of the schema were applied, and when. [reference]';

-- ------------------------------------------------------------------------------------------------
-- Catalogue: what can be sold, and what it entitles to.
-- ------------------------------------------------------------------------------------------------

-- A product's description. A change is a new version: a new price or period does not change the
-- past.
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
COMMENT ON TABLE product_entitlement IS 'What a version of a product lets its owner use. [reference]';

-- ------------------------------------------------------------------------------------------------
-- Accounts and orders: what the app knows.
-- ------------------------------------------------------------------------------------------------

-- An account of the app.
CREATE TABLE account (
    account_id        text        NOT NULL PRIMARY KEY CHECK (length(account_id) BETWEEN 1 AND 255),
    -- The only name of the account in entries, events and hashes: erasing a person rewrites this
    -- map, the projections and raw bodies, and no hash.
    account_key       uuid        NOT NULL,
    -- The token to pass to StoreKit. Permanent.
    app_account_token uuid        NOT NULL,
    created_at        timestamptz NOT NULL,
    -- The moment as of which entitlements were published last; never moves back.
    told_at           timestamptz,
    -- The account that it was merged into, which gets later submissions and orders.
    merged_into_key   uuid
);
COMMENT ON TABLE account IS 'Accounts of the app as it names them. [by account_id]';

-- Accounts by key.
CREATE TABLE account_by_key (
    account_key uuid        NOT NULL PRIMARY KEY,
    account_id  text        NOT NULL CHECK (length(account_id) BETWEEN 1 AND 255),
    app_account_token uuid NOT NULL,
    -- The account id is a pseudonym afterwards.
    erased_at   timestamptz,
    -- As in account, and since when the rule treats both as one: null while charges are still being
    -- moved.
    merged_into_key uuid,
    merged_at   timestamptz,
    CONSTRAINT account_by_key_merged
        CHECK (merged_at IS NULL OR merged_into_key IS NOT NULL)
);
COMMENT ON TABLE account_by_key IS 'Look-up: the account behind a key. [by account_key]';
-- An erasure includes the accounts that were merged into the person's.
CREATE INDEX account_by_key_merged_into
    ON account_by_key (merged_into_key) WHERE merged_into_key IS NOT NULL;

-- Accounts by the token issued to them.
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
        (status IN ('open', 'expired')) = (fulfilled_at IS NULL)
        AND (fulfilled_at IS NULL) = (environment IS NULL)
        AND (fulfilled_at IS NULL) = (original_transaction_id IS NULL)
        AND (fulfilled_at IS NULL) = (transaction_id IS NULL)),
    CONSTRAINT purchase_order_is_named_for_a_charge
        CHECK (NOT is_named OR fulfilled_at IS NOT NULL)
);
COMMENT ON TABLE purchase_order IS
    'Orders: fulfilled at most once, by a charge decided to the same account. [by account_key]';
-- For recording a charge: the owner's open orders for its product.
CREATE INDEX purchase_order_by_product
    ON purchase_order (account_key, product_id, created_at);
-- For reports.
CREATE INDEX purchase_order_by_time ON purchase_order (created_at);

CREATE TABLE purchase_order_account (
    order_id    uuid NOT NULL PRIMARY KEY,
    account_key uuid NOT NULL
);
COMMENT ON TABLE purchase_order_account IS 'Look-up: whose order it is. [by order_id]';

-- The customer's consent to report consumption to Apple, as the app server sent it last. Deleted
-- when the account is erased.
CREATE TABLE consumption_consent (
    account_key  uuid        NOT NULL PRIMARY KEY,
    is_given     boolean     NOT NULL,
    decided_at   timestamptz NOT NULL
);
COMMENT ON TABLE consumption_consent IS
    'Who lets Apple be told of consumption. [by account_key]';

-- ------------------------------------------------------------------------------------------------
-- Intake: the audit trail of what arrived, durable before Apple is asked.
-- ------------------------------------------------------------------------------------------------

-- A submission of a receipt or of signed transactions. The id is a UUID of version 7, so that it
-- sorts by time and the table can be partitioned by ranges of it.
CREATE TABLE submission (
    submission_id  uuid        NOT NULL PRIMARY KEY,
    account_key    uuid        NOT NULL,
    received_at    timestamptz NOT NULL,
    -- The app server's parameters.
    transaction_id text        CHECK (length(transaction_id) BETWEEN 1 AND 128),
    order_id       uuid,
    restore        boolean     NOT NULL,
    bundle_id      text        CHECK (length(bundle_id) BETWEEN 1 AND 255),
    status         text        NOT NULL CHECK (status IN ('pending', 'verified', 'rejected')),
    environment    text        CHECK (environment IN ('production', 'sandbox')),
    decided_at     timestamptz,
    -- The next attempt; null while pending: given up (see job).
    retry_at       timestamptz,
    -- The number of attempts to verify it.
    attempts       integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    -- Why it was rejected, or is still pending: a stable code and Apple's status.
    problem        text        CHECK (length(problem) BETWEEN 1 AND 64),
    problem_detail text        CHECK (length(problem_detail) BETWEEN 1 AND 1000),
    apple_status   integer,
    -- The answer to the app server: the selected transactions and the warnings.
    outcome        text        CHECK (length(outcome) <= 16777216),
    -- When its account was erased, with what was submitted and Apple's answers.
    erased_at      timestamptz,
    CONSTRAINT submission_decided_has_date CHECK ((status = 'pending') = (decided_at IS NULL)),
    CONSTRAINT submission_rejected_has_problem CHECK (status <> 'rejected' OR problem IS NOT NULL),
    CONSTRAINT submission_verified_has_outcome
        CHECK (status <> 'verified' OR (outcome IS NOT NULL AND environment IS NOT NULL))
);
COMMENT ON TABLE submission IS
    'What was submitted, by whom, when, and what came of it. [by submission_id]';
-- For administrators, so that it may fan out.
CREATE INDEX submission_by_account ON submission (account_key, submission_id);
CREATE INDEX submission_rejected
    ON submission (((decided_at AT TIME ZONE 'UTC')::date)) WHERE status = 'rejected';

-- The submitted receipt or signed data, unchanged. Never logged.
CREATE TABLE submission_payload (
    submission_id       uuid NOT NULL PRIMARY KEY REFERENCES submission,
    -- The receipt (base64).
    receipt_data        text CHECK (length(receipt_data) BETWEEN 1 AND 16777216),
    -- The transactions that StoreKit 2 signed, each a JWS.
    signed_transactions text[] CHECK (
        cardinality(signed_transactions) BETWEEN 1 AND 1000
        AND array_position(signed_transactions, NULL) IS NULL
        AND length(array_to_string(signed_transactions, '')) BETWEEN 1 AND 16777216),
    -- The signed renewal infos, if any.
    signed_renewal_info text[] CHECK (
        cardinality(signed_renewal_info) BETWEEN 0 AND 1000
        AND array_position(signed_renewal_info, NULL) IS NULL
        AND length(array_to_string(signed_renewal_info, '')) <= 16777216),
    -- When it was pruned, with the SHA-256 and the length in bytes of the receipt, or of the
    -- transactions and the renewal infos joined by line feeds. Null: it is there.
    aged_out_at         timestamptz,
    sha256              bytea CHECK (length(sha256) = 32),
    bytes               bigint CHECK (bytes >= 0),
    CONSTRAINT submission_payload_is_of_one_kind CHECK (
        ((receipt_data IS NULL) <> (signed_transactions IS NULL)) = (aged_out_at IS NULL)
        AND (signed_transactions IS NULL) = (signed_renewal_info IS NULL)),
    CONSTRAINT submission_payload_aged_out CHECK (
        (aged_out_at IS NULL) = (sha256 IS NULL) AND (aged_out_at IS NULL) = (bytes IS NULL))
);
COMMENT ON TABLE submission_payload IS
    'What was submitted, apart from the submission so that it can be aged out. [by submission_id]';

-- Apple's answers, byte by byte (compressed by TOAST).
CREATE TABLE submission_exchange (
    submission_id uuid        NOT NULL REFERENCES submission,
    number        integer     NOT NULL CHECK (number > 0),
    endpoint      text        NOT NULL CHECK (length(endpoint) BETWEEN 1 AND 255),
    asked_at      timestamptz NOT NULL,
    duration_ms   bigint      NOT NULL CHECK (duration_ms >= 0),
    -- Null: no answer.
    http_status   integer,
    answer        bytea,
    -- Why there is no usable answer.
    fault         text        CHECK (length(fault) BETWEEN 1 AND 1000),
    -- When the answer was pruned, with its SHA-256 and length in bytes.
    aged_out_at   timestamptz,
    sha256        bytea       CHECK (length(sha256) = 32),
    bytes         bigint      CHECK (bytes >= 0),
    PRIMARY KEY (submission_id, number),
    CONSTRAINT submission_exchange_aged_out CHECK (
        (aged_out_at IS NULL) = (sha256 IS NULL) AND (aged_out_at IS NULL) = (bytes IS NULL)
        AND (aged_out_at IS NULL OR answer IS NULL))
);
COMMENT ON TABLE submission_exchange IS
    'The exchanges with Apple about a submission, in order. [by submission_id]';
CREATE INDEX submission_exchange_failed
    ON submission_exchange (((asked_at AT TIME ZONE 'UTC')::date))
    WHERE fault IS NOT NULL OR http_status <> 200;

-- Erases an erased account's submissions and Apple's answers about them. The programs lack the
-- privilege to delete them (see below), so this runs with the owner's rights, and checks that the
-- account is erased. Pending submissions are ended: nobody remains to be asked about them. The
-- ledger keeps what was recorded, under a key without a name; so do notifications, which Apple
-- wrote about original transactions.
CREATE OR REPLACE FUNCTION erase_submissions(erased_key uuid, moment timestamptz)
RETURNS TABLE (submissions bigint, payloads bigint, exchanges bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tenure, pg_temp
AS $$
DECLARE
    ids uuid[];
BEGIN
    PERFORM FROM account_by_key WHERE account_key = erased_key AND erased_at IS NOT NULL;
    IF FOUND THEN
        SELECT array_agg(submission_id) INTO ids FROM submission
        WHERE account_key = erased_key AND erased_at IS NULL;
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

-- Prunes submissions and Apple's answers about them: bodies are deleted, hashes stay. Of those in
-- `kept` only the answers are deleted. The programs may not change them, so this runs with the
-- owner's rights, and checks that each is old and decided, and has no job.
CREATE OR REPLACE FUNCTION age_out_submissions(
    ids uuid[], kept uuid[], before timestamptz, moment timestamptz)
RETURNS TABLE (payloads bigint, exchanges bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tenure, pg_temp
AS $$
DECLARE
    id uuid;
    changed bigint;
    -- Citus allows no STABLE function of a column in an UPDATE, so the hashed text is read first.
    body bytea;
BEGIN
    payloads := 0;
    exchanges := 0;
    FOREACH id IN ARRAY ids LOOP
        PERFORM FROM submission
        WHERE submission_id = id AND status <> 'pending' AND received_at < before
            AND decided_at < before
        FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND OR EXISTS (
            SELECT FROM job WHERE kind = 'verify_submission' AND subject = id::text);
        UPDATE submission_exchange SET answer = NULL, aged_out_at = moment,
            sha256 = sha256(answer), bytes = octet_length(answer)
        WHERE submission_id = id AND answer IS NOT NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        exchanges := exchanges + changed;
        CONTINUE WHEN id = ANY (kept);
        SELECT convert_to(coalesce(receipt_data,
            array_to_string(signed_transactions || signed_renewal_info, E'\n')), 'UTF8')
        INTO body FROM submission_payload
        WHERE submission_id = id AND aged_out_at IS NULL;
        UPDATE submission_payload SET receipt_data = NULL, signed_transactions = NULL,
            signed_renewal_info = NULL, aged_out_at = moment, sha256 = sha256(body),
            bytes = octet_length(body)
        WHERE submission_id = id AND aged_out_at IS NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        payloads := payloads + changed;
    END LOOP;
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION age_out_submissions IS
    'Ages out the bodies of submissions that are old and decided, and says how many.';

-- The inbox of Apple's notifications: durable before the response of 200, processed exactly once.
CREATE TABLE notification (
    -- Apple's notificationUUID; for version 1, which has none, `v1:` and the SHA-256 of the body.
    notification_id text        NOT NULL PRIMARY KEY CHECK (length(notification_id) BETWEEN 1 AND 128),
    version         smallint    NOT NULL CHECK (version IN (1, 2)),
    received_at     timestamptz NOT NULL,
    -- As signed by Apple; for version 1 the JSON without its password. Null: pruned.
    body            text        CHECK (length(body) BETWEEN 1 AND 16777216),
    processed_at    timestamptz,
    -- Why it is not processed yet, or what was wrong with it.
    problem         text        CHECK (length(problem) BETWEEN 1 AND 1000),
    -- Fields of the body, for searches; null if missing. Those of version 1 are unverified.
    notification_type text      CHECK (length(notification_type) BETWEEN 1 AND 255),
    subtype         text        CHECK (length(subtype) BETWEEN 1 AND 255),
    environment     text        CHECK (environment IN ('production', 'sandbox')),
    bundle_id       text        CHECK (length(bundle_id) BETWEEN 1 AND 255),
    original_transaction_id text CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    transaction_id  text        CHECK (length(transaction_id) BETWEEN 1 AND 128),
    signed_at       timestamptz,
    -- The number of attempts to process it.
    attempts        integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    -- Delivered by Apple, or missing and found in Apple's history.
    arrival         text        NOT NULL DEFAULT 'delivered'
        CHECK (arrival IN ('delivered', 'history')),
    -- The result: entries were appended, everything was known, it contains no purchase, or Apple
    -- rejected the receipt in it.
    outcome         text        CHECK (outcome IN
        ('recorded', 'known', 'nothing_to_record', 'rejected')),
    -- When the body was pruned, with its SHA-256 and length in bytes.
    aged_out_at     timestamptz,
    sha256          bytea       CHECK (length(sha256) = 32),
    bytes           bigint      CHECK (bytes >= 0),
    CONSTRAINT notification_aged_out CHECK (
        (aged_out_at IS NULL) = (sha256 IS NULL) AND (aged_out_at IS NULL) = (bytes IS NULL)
        AND (aged_out_at IS NULL) = (body IS NOT NULL)),
    CONSTRAINT notification_processed_has_outcome
        CHECK ((processed_at IS NULL) = (outcome IS NULL)),
    CONSTRAINT notification_rejected_has_problem CHECK (outcome <> 'rejected' OR problem IS NOT NULL)
);
COMMENT ON TABLE notification IS 'Notifications as Apple sent them. [by notification_id]';
CREATE INDEX notification_by_time ON notification (received_at);
CREATE INDEX notification_from_history
    ON notification (((received_at AT TIME ZONE 'UTC')::date)) WHERE arrival = 'history';
CREATE INDEX notification_rejected
    ON notification (((processed_at AT TIME ZONE 'UTC')::date)) WHERE outcome = 'rejected';

-- Apple's answers about the receipts in notifications of version 1.
CREATE TABLE notification_exchange (
    notification_id text        NOT NULL REFERENCES notification,
    number          integer     NOT NULL CHECK (number > 0),
    endpoint        text        NOT NULL CHECK (length(endpoint) BETWEEN 1 AND 255),
    asked_at        timestamptz NOT NULL,
    duration_ms     bigint      NOT NULL CHECK (duration_ms >= 0),
    -- Null: no answer.
    http_status     integer,
    answer          bytea,
    -- Why there is no usable answer.
    fault           text        CHECK (length(fault) BETWEEN 1 AND 1000),
    aged_out_at     timestamptz,
    sha256          bytea       CHECK (length(sha256) = 32),
    bytes           bigint      CHECK (bytes >= 0),
    PRIMARY KEY (notification_id, number),
    CONSTRAINT notification_exchange_aged_out CHECK (
        (aged_out_at IS NULL) = (sha256 IS NULL) AND (aged_out_at IS NULL) = (bytes IS NULL)
        AND (aged_out_at IS NULL OR answer IS NULL))
);
COMMENT ON TABLE notification_exchange IS
    'The exchanges with Apple about a notification, in order. [by notification_id]';

-- The same for notifications. Of those in `kept` the body stays.
CREATE OR REPLACE FUNCTION age_out_notifications(
    ids text[], kept text[], before timestamptz, moment timestamptz)
RETURNS TABLE (bodies bigint, exchanges bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tenure, pg_temp
AS $$
DECLARE
    id text;
    changed bigint;
    content bytea;
BEGIN
    bodies := 0;
    exchanges := 0;
    FOREACH id IN ARRAY ids LOOP
        PERFORM FROM notification
        WHERE notification_id = id AND processed_at < before AND received_at < before
        FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND OR EXISTS (
            SELECT FROM job WHERE kind = 'process_notification' AND subject = id);
        UPDATE notification_exchange SET answer = NULL, aged_out_at = moment,
            sha256 = sha256(answer), bytes = octet_length(answer)
        WHERE notification_id = id AND answer IS NOT NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        exchanges := exchanges + changed;
        CONTINUE WHEN id = ANY (kept);
        SELECT convert_to(body, 'UTF8') INTO content FROM notification WHERE notification_id = id;
        UPDATE notification SET body = NULL, aged_out_at = moment, sha256 = sha256(content),
            bytes = octet_length(content)
        WHERE notification_id = id AND body IS NOT NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        bodies := bodies + changed;
    END LOOP;
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION age_out_notifications IS
    'Ages out the bodies of notifications that are old and processed, and says how many.';

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
    'Refused notifications, counted by hour and reason; never their content. [local]';

-- Comparisons of Apple's notification history with the inbox. Missing notifications are stored in
-- `notification` with arrival 'history'.
CREATE TABLE notification_comparison (
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
    CONSTRAINT notification_comparison_window CHECK (window_start < window_end),
    CONSTRAINT notification_comparison_missing CHECK (
        (missing = 0) = (first_missing_at IS NULL)
        AND (missing = 0) = (longest_delay_ms IS NULL))
);
COMMENT ON TABLE notification_comparison IS
    'What Apple''s notification history had that had not arrived. [local]';

-- The last sign of life of each kind of program: after a downtime Apple's history is read at once.
CREATE TABLE program_heartbeat (
    program  text        NOT NULL PRIMARY KEY CHECK (program IN ('serve', 'work')),
    alive_at timestamptz NOT NULL
);
COMMENT ON TABLE program_heartbeat IS 'When programs were last alive. [local]';

-- Open sessions of the administrators' pages. A cookie counts only while its session is listed, so
-- logging out ends every copy of it.
CREATE TABLE admin_session (
    session_id    bytea       NOT NULL PRIMARY KEY CHECK (length(session_id) = 16),
    administrator text        NOT NULL CHECK (length(administrator) BETWEEN 1 AND 255),
    ends_at       timestamptz NOT NULL
);
COMMENT ON TABLE admin_session IS 'Open sessions of the administrators'' pages. [local]';

-- Ways to poll Apple about an original transaction: its app, and a receipt that lists it.
CREATE TABLE line_source (
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    bundle_id               text        CHECK (length(bundle_id) BETWEEN 1 AND 255),
    -- The last receipt that listed it, even if pruned.
    receipt_submission_id   uuid,
    receipt_notification_id text        CHECK (length(receipt_notification_id) BETWEEN 1 AND 128),
    PRIMARY KEY (environment, original_transaction_id)
);
COMMENT ON TABLE line_source IS
    'What Apple can be asked about a line with. [by original_transaction_id]';

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
    'What imports named for asking Apple about lines. [by original_transaction_id]';
-- For erasures.
CREATE INDEX imported_source_by_account ON imported_source (account_key);

-- Apple's rate limits, shared by all programs: token buckets by endpoint.
CREATE TABLE apple_budget (
    -- The app, the environment and the endpoint.
    name         text             NOT NULL PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 400),
    tokens       double precision NOT NULL,
    refreshed_at timestamptz      NOT NULL
);
COMMENT ON TABLE apple_budget IS 'What may still be asked of Apple, for all programs. [local]';

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
    polled_at               timestamptz NOT NULL,
    PRIMARY KEY (environment, original_transaction_id, history)
);
COMMENT ON TABLE history_revision IS
    'How far Apple''s histories were read. [by original_transaction_id]';

-- Requests that jobs sent to Apple or skipped. Accounts are stored by key, so that an erasure
-- changes nothing here.
CREATE TABLE apple_telling (
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    telling_id              bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    -- An appAccountToken set on an original transaction, or an answer about consumption in a refund
    -- request.
    kind                    text        NOT NULL CHECK (kind IN ('ownership', 'consumption')),
    told_at                 timestamptz NOT NULL,
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
    PRIMARY KEY (environment, original_transaction_id, telling_id),
    CONSTRAINT apple_telling_of_a_kind CHECK (
        (kind = 'consumption') = (notification_id IS NOT NULL)
        AND (kind = 'consumption') = (transaction_id IS NOT NULL)),
    CONSTRAINT apple_telling_skipped_has_reason
        CHECK ((outcome = 'skipped') = (reason IS NOT NULL)),
    CONSTRAINT apple_telling_sent_is_of_an_account
        CHECK (outcome = 'skipped' OR account_key IS NOT NULL),
    CONSTRAINT apple_telling_refused_by_apple
        CHECK (outcome = 'refused' OR http_status IS NULL AND error_code IS NULL)
);
COMMENT ON TABLE apple_telling IS
    'What Apple was told, and what was not sent. Only ever appended. [by original_transaction_id]';
-- For administrators, so that it may fan out.
CREATE INDEX apple_telling_by_account
    ON apple_telling (account_key, telling_id) WHERE account_key IS NOT NULL;
CREATE INDEX apple_telling_by_day
    ON apple_telling (((told_at AT TIME ZONE 'UTC')::date));

-- ------------------------------------------------------------------------------------------------
-- The ledger: what was learned and what was decided.
-- ------------------------------------------------------------------------------------------------

-- Everything that shares one (environment, original_transaction_id). Recordings lock its row. The
-- columns up to head_recorded_at are the end of the hash chain; the others are the current state, a
-- projection.
CREATE TABLE original_transaction (
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    -- The number and hash of the last entry; 0 and null before the first.
    head_number             integer     NOT NULL DEFAULT 0 CHECK (head_number >= 0),
    head_hash               bytea       CHECK (length(head_hash) = 32),
    -- Later entries have later dates.
    head_recorded_at        timestamptz,
    -- Apple's answer of this date listed every transaction up to this entry as recorded, so their
    -- rows need not repeat the date.
    confirmed_as_of         timestamptz,
    confirmed_number        integer     NOT NULL DEFAULT 0,
    -- The latest charge that was recorded, and its owner.
    latest_charged_at       timestamptz,
    latest_owner_key        uuid,
    -- The latest end of a paid period.
    paid_through            timestamptz,
    -- The product of the next renewal, by Apple's latest statement since the latest charge.
    auto_renew_product_id   text,
    PRIMARY KEY (environment, original_transaction_id),
    CONSTRAINT original_transaction_head CHECK (
        (head_number = 0) = (head_hash IS NULL)
        AND (head_number = 0) = (head_recorded_at IS NULL))
);
COMMENT ON TABLE original_transaction IS
    'Lines: the head of the chain and the current state. [by original_transaction_id]';
-- The append-only ledger. `body` is JSON of a format version; `hash` is SHA-256 over the previous
-- hash and every column above it, so that no entry can change without all later ones.
CREATE TABLE ledger_entry (
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        NOT NULL,
    number                  integer     NOT NULL CHECK (number > 0),
    recorded_at             timestamptz NOT NULL,
    kind                    text        NOT NULL CHECK (kind IN (
        'transaction', 'renewal_status', 'link', 'confirmation', 'claim', 'placement',
        'decided', 'claimed', 'corrected', 'placed')),
    -- The date at which the evidence was true; null for actions and decisions.
    evidence_date           timestamptz,
    -- The kind and id of the source.
    source                  text        NOT NULL CHECK (source IN (
        'receipt', 'signed_transaction', 'notification', 'poll', 'administrator', 'import')),
    source_id               text        CHECK (length(source_id) BETWEEN 1 AND 128),
    format                  smallint    NOT NULL CHECK (format > 0),
    body                    text        NOT NULL CHECK (length(body) BETWEEN 2 AND 100000),
    hash                    bytea       NOT NULL CHECK (length(hash) = 32),
    -- By the database's clock, because a program's may be slow. Not hashed; determines the
    -- checkpoints that cover the entry.
    stored_at               timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (environment, original_transaction_id, number),
    FOREIGN KEY (environment, original_transaction_id) REFERENCES original_transaction
);
COMMENT ON TABLE ledger_entry IS
    'Entries: only ever appended, chained by hash. [by original_transaction_id]';

-- A mark over all chains, made by a clean audit: it reveals a removed tail even if the head in
-- original_transaction was changed, too.
CREATE TABLE ledger_checkpoint (
    checkpoint_id bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The mark covers entries stored before this moment, by the database's clock.
    stored_before timestamptz NOT NULL,
    entries       bigint      NOT NULL CHECK (entries >= 0),
    -- The exclusive or of their hashes.
    digest        bytea       NOT NULL CHECK (length(digest) = 32)
);
COMMENT ON TABLE ledger_checkpoint IS 'Marks over all chains. Only ever appended. [local]';

-- ------------------------------------------------------------------------------------------------
-- Projections of the ledger by line: what recording the next thing needs to know.
-- ------------------------------------------------------------------------------------------------

-- A transaction, merged from all of Apple's answers, and the decision on its charge.
CREATE TABLE store_transaction (
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
    -- The purchase date, or for old restores the original purchase date.
    charged_at              timestamptz NOT NULL,
    -- Values that Apple may change, with the date of the answer.
    expires_at              timestamptz,
    expires_as_of           timestamptz,
    -- Null: not revoked, or lifted.
    revoked_at              timestamptz,
    -- The revocation in the latest signed answer that contains one, with that answer's date.
    revocation_at           timestamptz,
    revocation_reason       text        CHECK (length(revocation_reason) BETWEEN 1 AND 64),
    revocation_type         text        CHECK (length(revocation_type) BETWEEN 1 AND 64),
    -- In thousandths of a percent.
    revocation_percentage   bigint,
    revocation_as_of        timestamptz,
    -- The same from unsigned answers, which can lag.
    unsigned_revocation_at  timestamptz,
    unsigned_revocation_reason text     CHECK (length(unsigned_revocation_reason) BETWEEN 1 AND 64),
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
    web_order_line_item_id  text        CHECK (length(web_order_line_item_id) BETWEEN 1 AND 128),
    -- Null: not reported.
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

    -- The decision on the charge; null for aliases.
    owner_account_key       uuid,
    rule                    text        CHECK (rule IN ('administrator', 'actively_auto_renewing',
        'submitter', 'app_account_token', 'unclaimed')),
    -- The evidence of the rule's first row: the reason, the earlier charge and the date of Apple's
    -- status.
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

    -- The order that it fulfilled, and when the owner's app acknowledged delivery. Facts of their
    -- own, no projection: they stay when the transaction turns out to be an alias or its charge
    -- loses its owner.
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
        AND (revocation_at IS NULL) = (revocation_as_of IS NULL)
        AND (unsigned_revocation_at IS NULL) = (unsigned_revocation_as_of IS NULL)
        AND (known_revocation_at IS NULL) = (revocation_known_at IS NULL)
        AND (known_revocation_at IS NULL)
            = (revocation_at IS NULL AND unsigned_revocation_at IS NULL)
        AND (revoked_at IS NULL OR known_revocation_at IS NOT NULL))
);
COMMENT ON TABLE store_transaction IS
    'Projection: transactions and the decisions on their charges. [by original_transaction_id]';
-- Decisions and corrections by date, for reports; not on the hot path.
CREATE INDEX store_transaction_by_decision
    ON store_transaction (environment, decided_at) WHERE rule IS NOT NULL;
CREATE INDEX store_transaction_corrected
    ON store_transaction (environment, corrected_at) WHERE corrected_at IS NOT NULL;
-- When unclaimed charges were first seen, and when they end.
CREATE INDEX store_transaction_unclaimed
    ON store_transaction (environment, original_transaction_id, transaction_id, product_id)
    INCLUDE (recorded_at, expires_at) WHERE rule IS NOT NULL AND owner_account_key IS NULL;
-- The same by date, separated by whether they had ended when first seen.
CREATE INDEX store_transaction_unclaimed_by_date
    ON store_transaction (environment, coalesce(expires_at <= recorded_at, false), charged_at)
    WHERE rule IS NOT NULL AND owner_account_key IS NULL;
-- For reports as of a moment before the delivery.
CREATE INDEX store_transaction_delivered
    ON store_transaction (environment, delivered_at) WHERE delivered_at IS NOT NULL;
-- Revocations that Apple reported for an alias: few.
CREATE INDEX store_transaction_revoked_alias
    ON store_transaction (environment, charge_original_transaction_id, charge_transaction_id,
        charge_product_id)
    WHERE rule IS NULL AND revoked_at IS NOT NULL;
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

-- Apple's statements about the next renewal.
CREATE TABLE renewal_status (
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

-- Claims, in order.
CREATE TABLE claim (
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

-- Administrators' overrides, in order.
CREATE TABLE placement (
    environment             text        NOT NULL,
    original_transaction_id text        NOT NULL,
    number                  integer     NOT NULL,
    recorded_at             timestamptz NOT NULL,
    -- Null, like the product: an override of the whole original transaction, by `tenure import`.
    transaction_id          text,
    product_id              text,
    account_key             uuid,
    -- For a whole original transaction: it applies to purchases until then.
    effective_from          timestamptz NOT NULL,
    PRIMARY KEY (environment, original_transaction_id, number),
    FOREIGN KEY (environment, original_transaction_id) REFERENCES original_transaction,
    CONSTRAINT placement_of_a_charge_or_a_line CHECK (
        (transaction_id IS NULL) = (product_id IS NULL)
        AND (transaction_id IS NOT NULL OR account_key IS NOT NULL))
);
COMMENT ON TABLE placement IS
    'Projection: charges placed by administrators. [by original_transaction_id]';

-- Original transactions that Apple links; each pair is stored both ways.
CREATE TABLE line_link (
    environment             text    NOT NULL,
    original_transaction_id text    NOT NULL,
    linked_original_transaction_id text NOT NULL,
    PRIMARY KEY (environment, original_transaction_id, linked_original_transaction_id),
    FOREIGN KEY (environment, original_transaction_id) REFERENCES original_transaction
);
COMMENT ON TABLE line_link IS 'Projection: lines that Apple links. [by original_transaction_id]';

-- ------------------------------------------------------------------------------------------------
-- Look-ups: so that no question fans out over all lines.
-- ------------------------------------------------------------------------------------------------

-- The original transaction on which a transaction id or line item was recorded first; others with
-- it are linked. The key is the name alone, so that of two recordings of one name the second waits
-- for the first, and finds it.
CREATE TABLE transaction_line (
    transaction_id          text NOT NULL,
    environment             text NOT NULL,
    original_transaction_id text NOT NULL,
    PRIMARY KEY (transaction_id, environment)
);
COMMENT ON TABLE transaction_line IS
    'Look-up, projection: the first line on which a transaction id occurs. [by transaction_id]';

CREATE TABLE web_order_line_item (
    web_order_line_item_id  text NOT NULL,
    environment             text NOT NULL,
    original_transaction_id text NOT NULL,
    PRIMARY KEY (web_order_line_item_id, environment)
);
COMMENT ON TABLE web_order_line_item IS
    'Look-up, projection: the first line on which a line item occurs. [by web_order_line_item_id]';

CREATE TABLE account_line (
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

-- A charge that an account owns and that can still matter, with everything needed to compute its
-- state at any later moment. No state is stored: entitlements end on time without any job.
CREATE TABLE holding (
    account_id              text        NOT NULL,
    environment             text        NOT NULL,
    original_transaction_id text        NOT NULL,
    transaction_id          text        NOT NULL,
    product_id              text        NOT NULL,
    -- The smallest original transaction id of those that Apple links; null if it is this row's own.
    family_id               text,
    product_type            text,
    period_type             text        NOT NULL,
    starts_at               timestamptz NOT NULL,
    -- Null: never, or by the catalogue.
    ends_at                 timestamptz,
    revoked_at              timestamptz,
    superseded_at           timestamptz,
    -- Set on the latest charge alone.
    auto_renews             boolean,
    phase                   text,
    grace_ends_at           timestamptz,
    PRIMARY KEY (account_id, environment, original_transaction_id, transaction_id, product_id),
    CONSTRAINT holding_renewal CHECK ((auto_renews IS NULL) = (phase IS NULL))
);
COMMENT ON TABLE holding IS 'Projection: what accounts hold. [by account_id]';

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
CREATE INDEX account_grant_of_line
    ON account_grant (original_transaction_id) WHERE source = 'provisional';

CREATE TABLE account_grant_account (
    grant_id    uuid NOT NULL PRIMARY KEY,
    account_key uuid NOT NULL
);
COMMENT ON TABLE account_grant_account IS
    'Look-up: whom an administrator gave a grant. [by grant_id]';

-- The entitlements that events have published: the next event describes the difference. Written
-- under the lock of the account's row.
CREATE TABLE told_entitlement (
    account_id              text        NOT NULL CHECK (length(account_id) BETWEEN 1 AND 255),
    entitlement             text        NOT NULL CHECK (length(entitlement) BETWEEN 1 AND 255),
    -- Null: never.
    access_ends_at          timestamptz,
    PRIMARY KEY (account_id, entitlement)
);
COMMENT ON TABLE told_entitlement IS
    'What the feed has told of the entitlements of accounts. [by account_id]';

-- The accounts to which sandbox purchases grant anything: the programs copy their setting
-- TENURE_SANDBOX_ACCESS here for the view below.
CREATE TABLE sandbox_access (
    is_only_row boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (is_only_row),
    everybody   boolean NOT NULL,
    account_ids text[]  NOT NULL
);
COMMENT ON TABLE sandbox_access IS 'Whose sandbox purchases grant anything. [reference]';
INSERT INTO sandbox_access (everybody, account_ids) VALUES (true, '{}') ON CONFLICT DO NOTHING;

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
    -- The shown holding of each account and original transaction: the unrevoked one with the latest
    -- end, if it has not ended; else a revoked one that would cover now; else the last one.
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
    ORDER BY account_id, environment, family, class, rank
),
chain AS (
    -- Each of its entitlements, with the holdings that grant the same and prolong it: they begin no
    -- later than everything before ends, give or take Duration.gapTolerance.
    SELECT d.*, granted.entitlement, f.ends AS last_ends, f.phase AS last_phase,
        f.grace_ends_at AS last_grace_ends_at, f.is_first,
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
                AND p.revoked_at IS NULL AND p.starts_at <= b.last_access_ends + interval '60 seconds'
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
COMMENT ON VIEW current_entitlement IS 'What accounts may use now.';

-- ------------------------------------------------------------------------------------------------
-- Movements, which reports count: dated changes of subscriptions and money.
-- ------------------------------------------------------------------------------------------------

-- A dated, signed change. All movements are derived from an original transaction, the rule and the
-- catalogue; recording writes the difference. A row that no longer holds is closed and stays, so
-- that a report as known on some day never changes: nothing else of a row changes, and none is
-- deleted. An expected end has a date in the future, and counts from that moment on.
CREATE TABLE movement (
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    -- The smallest original transaction id of those that Apple links.
    original_transaction_id text        NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    kind                    text        NOT NULL CHECK (kind IN (
        -- Money, of products of any type. Upgrades are not refunds.
        'charged', 'refunded',
        -- The stock of subscriptions by state: -1 for the state (or product) that ended, +1 for the
        -- one that began.
        'state',
        -- Paid subscriptions: the sum of their numbers is the stock, the sum of mrr_twelfths the
        -- MRR.
        'started', 'resumed', 'ended', 'changed_from', 'changed_to', 'repriced',
        'trial_started', 'trial_ended',
        -- The customer switched auto-renew, at Apple's date.
        'auto_renew_off', 'auto_renew_on',
        'grace_entered', 'retry_entered', 'billing_recovered', 'billing_lost')),
    at                      timestamptz NOT NULL,
    -- The transaction that names the charge, and its original transaction.
    transaction_id          text        NOT NULL CHECK (length(transaction_id) BETWEEN 1 AND 128),
    charge_original_transaction_id text NOT NULL
        CHECK (length(charge_original_transaction_id) BETWEEN 1 AND 128),
    product_id              text        NOT NULL CHECK (length(product_id) BETWEEN 1 AND 255),
    product_type            text        CHECK (product_type IN
        ('auto_renewable', 'non_renewing', 'non_consumable', 'consumable')),
    subscription_group      text        CHECK (length(subscription_group) BETWEEN 1 AND 255),
    -- The state of 'state', the reason of an end, Apple's reason of a refund ('': unknown); 'from'
    -- and 'to' for a price in another currency or from another source.
    cause                   text        NOT NULL DEFAULT '' CHECK (length(cause) <= 64),
    -- The date of the refunded charge, or the start of the trial, the paid subscription or the
    -- billing issue.
    origin_at               timestamptz,
    number                  smallint    NOT NULL CHECK (number BETWEEN -1 AND 1),
    ownership_type          text        NOT NULL
        CHECK (ownership_type IN ('purchased', 'family_shared')),
    period_type             text        NOT NULL
        CHECK (period_type IN ('normal', 'trial', 'intro', 'offer')),
    offer_id                text        CHECK (length(offer_id) BETWEEN 1 AND 255),
    quantity                integer     NOT NULL CHECK (quantity > 0),
    -- Null: unknown price.
    currency                text        CHECK (currency ~ '^[A-Z]{3}$'),
    -- Fixed at the charge, whatever the catalogue says later. A refund's is negative.
    amount_milliunits       bigint      NOT NULL DEFAULT 0,
    price_source            text        CHECK (price_source IN ('app_store', 'catalogue')),
    -- Signed twelfths of a milliunit per month: a whole number for every period.
    mrr_twelfths            bigint      NOT NULL DEFAULT 0,
    -- The owner of the charge at that time.
    account_key             uuid,
    -- For 'charged': the rule and date of the decision; whether the binding went to the owner with
    -- this charge, from whom (null: nobody), and the first owner, if this is the second account;
    -- and whether it was an automatic renewal. Null for other kinds.
    rule                    text        CHECK (rule IN ('administrator', 'actively_auto_renewing',
        'submitter', 'app_account_token', 'unclaimed')),
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
        known_from),
    CONSTRAINT movement_number CHECK (CASE
        WHEN kind IN ('refunded', 'ended', 'changed_from') THEN number = -1
        WHEN kind = 'repriced' THEN number = 0
        -- A positive number reverses the end of a trial that is paid after all.
        WHEN kind IN ('state', 'trial_ended') THEN number IN (-1, 1)
        ELSE number = 1
    END),
    CONSTRAINT movement_cause CHECK (CASE kind
        WHEN 'state' THEN cause IN ('active_renewing', 'active_cancelled', 'trial_renewing',
            'trial_cancelled', 'in_grace_period', 'in_billing_retry', 'expired', 'revoked')
        WHEN 'ended' THEN cause IN ('voluntary', 'price_not_consented', 'billing',
            'product_withdrawn', 'refunded', 'unknown')
        WHEN 'trial_ended' THEN cause IN ('converted', 'voluntary', 'price_not_consented', 'billing',
            'product_withdrawn', 'refunded', 'unknown')
        WHEN 'resumed' THEN cause IN ('', 'recovered')
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
    CONSTRAINT movement_ownership CHECK (CASE kind
        WHEN 'charged' THEN num_nulls(rule, decided_at, has_moved, is_renewal, expires_at) = 0
            AND (has_moved OR num_nonnulls(moved_from_key, shared_with_key) = 0)
        ELSE num_nonnulls(rule, decided_at, corrected_at, has_moved, moved_from_key,
            shared_with_key, is_renewal, expires_at) = 0
    END),
    CONSTRAINT movement_known CHECK (known_from <= known_until)
);
COMMENT ON TABLE movement IS
    'Projection: dated, signed happenings, each as long as it was known. [by original_transaction_id]';
-- By time; the movements of one original transaction are read by primary key.
CREATE INDEX movement_by_time ON movement (environment, kind, at);
CREATE INDEX movement_by_origin ON movement (environment, kind, origin_at)
    WHERE kind IN ('refunded', 'trial_ended', 'billing_recovered', 'billing_lost');
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
    'The day (basis origin) or month (cohort) that a movement goes back to; -infinity for basis at.';

-- The days under which a movement is summed up: its own ('at'); also the day that it goes back to,
-- if a report asks for that ('origin'); and for paid subscriptions also the month of the first
-- payment ('cohort'). movement_day uses the days of UTC.
CREATE OR REPLACE FUNCTION movement_basis(
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

-- A change of movements that is not in movement_day yet, referred to by the movements that it added
-- and closed. Written with them, so that the sums and these changes together are always the sums
-- over the movements known now.
CREATE TABLE movement_change (
    change_id               bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    environment             text   NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text   NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    PRIMARY KEY (original_transaction_id, change_id)
);
COMMENT ON TABLE movement_change IS
    'Changes of the journal that are not summed up yet. [by original_transaction_id]';

-- Sums over the movements known now. A job rolls up the changes into it.
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

-- The counts of a charge besides movements, by day of UTC: decided and corrected by a rule; paid
-- without an order; and not delivered, of ordered products, consumables, and products of unknown
-- type.
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

-- A changed charge that is not in charge_day yet. Written with the row of store_transaction, so
-- that the sums and these rows together are always the sums over store_transaction. Only changes
-- that reports count are written.
CREATE TABLE charge_change (
    change_id               bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    environment             text        NOT NULL CHECK (environment IN ('production', 'sandbox')),
    original_transaction_id text        NOT NULL
        CHECK (length(original_transaction_id) BETWEEN 1 AND 128),
    -- 1: the new values; -1: the old ones.
    number                  smallint    NOT NULL CHECK (number IN (-1, 1)),
    -- As in store_transaction.
    product_id              text        NOT NULL,
    rule                    text        NOT NULL,
    decided_at              timestamptz NOT NULL,
    corrected_at            timestamptz,
    charged_at              timestamptz NOT NULL,
    -- 'renewal' also if Apple reports none and the decision's reason is an automatic renewal.
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

-- Sums over store_transaction. A job rolls up the changes into it.
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

-- Exchange rates to the operator's currency, from a day on: sums across currencies need them. A
-- rate is corrected by another row for the same day; the earlier one stays for reports as of then.
CREATE TABLE exchange_rate (
    reporting_currency text    NOT NULL CHECK (reporting_currency ~ '^[A-Z]{3}$'),
    currency           text    NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    valid_from         date    NOT NULL,
    rate               numeric NOT NULL CHECK (rate > 0 AND rate < 'infinity'),
    recorded_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (reporting_currency, currency, valid_from, recorded_at),
    CONSTRAINT exchange_rate_of_two CHECK (reporting_currency <> currency)
);
COMMENT ON TABLE exchange_rate IS
    'Exchange rates, as the operator supplies them for reports. [reference]';

-- ------------------------------------------------------------------------------------------------
-- Work and news.
-- ------------------------------------------------------------------------------------------------

-- The job queue. Claimed with FOR UPDATE SKIP LOCKED; a claimed job is leased until locked_until,
-- and free again when its worker dies.
CREATE TABLE job (
    job_id       bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind         text        NOT NULL CHECK (kind IN (
        'verify_submission', 'process_notification', 'poll_line', 'compare_notifications',
        'tell_account', 'expire_order', 'deliver_events', 'survey', 'trim_events',
        'fold_movements', 'merge_account', 'age_out', 'write_ownership', 'answer_consumption')),
    -- One job of a kind for each subject.
    subject      text        NOT NULL CHECK (length(subject) BETWEEN 1 AND 512),
    -- Each queue has its own concurrency, so that one kind of work can't starve another.
    lane         text        NOT NULL CHECK (lane IN (
        'submissions', 'notifications', 'clock', 'polls', 'sandbox_polls', 'webhooks',
        'upkeep', 'tellings', 'sandbox_tellings')),
    -- 0 is the most urgent, and claimed first.
    priority     smallint    NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 2),
    run_at       timestamptz NOT NULL,
    -- Counts changes of the job since it was claimed: a worker then does not end it.
    generation   integer     NOT NULL DEFAULT 0,
    -- The progress of a job that goes through everything.
    place        text        CHECK (length(place) BETWEEN 1 AND 512),
    attempts     integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    locked_until timestamptz,
    locked_by    text        CHECK (length(locked_by) BETWEEN 1 AND 255),
    -- When it failed for good; it waits for an administrator.
    parked_at    timestamptz,
    last_error   text        CHECK (length(last_error) BETWEEN 1 AND 1000),
    -- The start of the retry window: insertion or first due time, whichever is later; reset by a
    -- retry.
    created_at   timestamptz NOT NULL,
    UNIQUE (kind, subject),
    CONSTRAINT job_lease CHECK ((locked_until IS NULL) = (locked_by IS NULL)),
    CONSTRAINT job_parked_has_reason CHECK (parked_at IS NULL OR last_error IS NOT NULL)
);
COMMENT ON TABLE job IS 'What is still to be done. [local]';
CREATE INDEX job_due ON job (lane, priority, run_at) WHERE parked_at IS NULL;
CREATE INDEX job_parked ON job (parked_at) WHERE parked_at IS NOT NULL;

-- Every change, for the feed and for webhooks. Written in the transaction of the change, and given
-- its place in the feed afterwards, by one process at a time: readers that continue from a place
-- miss nothing, and the events of an account are in order.
CREATE TABLE event (
    event_id       bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Its place in the feed; null: not given yet.
    position       bigint      UNIQUE CHECK (position > 0),
    type           text        NOT NULL CHECK (length(type) BETWEEN 1 AND 64),
    occurred_at    timestamptz NOT NULL,
    -- Null: about an unclaimed charge.
    account_key    uuid,
    -- JSON without account ids.
    data           text        NOT NULL CHECK (length(data) BETWEEN 2 AND 16777216),
    -- By the database's clock; retention counts from here.
    stored_at      timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE event IS 'The feed of changes. [local]';
CREATE INDEX event_unplaced ON event (event_id) WHERE position IS NULL;
-- For administrators.
CREATE INDEX event_by_account ON event (account_key, event_id);

-- The end of the feed. Giving places to events locks its row.
CREATE TABLE feed (
    is_only_row boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (is_only_row),
    position    bigint  NOT NULL DEFAULT 0 CHECK (position >= 0),
    -- Events up to this place were deleted after the retention time.
    trimmed_to  bigint  NOT NULL DEFAULT 0 CHECK (trimmed_to BETWEEN 0 AND position),
    -- Events up to this place have their webhook_delivery; null: webhooks were never on.
    pushed_to   bigint  CHECK (pushed_to BETWEEN 0 AND position),
    -- When the event at trimmed_to was stored, to recognize cursors of another history. Null:
    -- nothing was deleted yet.
    trimmed_stored_at timestamptz
);
COMMENT ON TABLE feed IS 'How far the feed of changes goes. [local]';
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
COMMENT ON TABLE webhook_delivery IS 'Where the pushing of events stands. [local]';
CREATE INDEX webhook_delivery_next
    ON webhook_delivery (stream, position) WHERE parked_at IS NULL;
CREATE INDEX webhook_delivery_parked
    ON webhook_delivery (position) WHERE parked_at IS NOT NULL;

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
COMMENT ON TABLE administrator_action IS 'The record of administrators'' acts. [local]';
CREATE INDEX administrator_action_by_account
    ON administrator_action (account_key, action_id) WHERE account_key IS NOT NULL;
CREATE INDEX administrator_action_by_previous_account
    ON administrator_action (previous_account_key, action_id)
    WHERE previous_account_key IS NOT NULL;
CREATE INDEX administrator_action_by_subject
    ON administrator_action (subject, action_id);

-- ------------------------------------------------------------------------------------------------
-- Reports: each number has one definition, and it is here. Of the two of a report, the one
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
WHERE parked_at IS NOT NULL OR run_at <= now() AND locked_until IS NULL
UNION ALL
-- What Apple is still to be told. Each has its job.
SELECT 'tellings_open', split_part(subject, '/', 1), NULL, kind, NULL, subject, created_at, 1,
    attempts, NULL, last_error
FROM job
WHERE kind IN ('write_ownership', 'answer_consumption')
UNION ALL
-- What Apple took, refused, or was not sent, with the kind and Apple's code or the reason.
SELECT 'tellings_' || outcome, environment, bundle_id,
    concat_ws(' ', kind, coalesce(reason, delivery_status), coalesce(error_code, http_status)),
    (told_at AT TIME ZONE 'UTC')::date, original_transaction_id, told_at, 1, NULL, NULL,
    transaction_id
FROM apple_telling;
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
    'How intake does: one row for each measure, environment, app, cause and day (UTC). Open now, and '
    'without a day: submissions_open and notifications_open (not decided or processed yet, with the '
    'cause of their retries), deliveries_waiting and deliveries_parked (events for the webhook), '
    'jobs_overdue (due by the database''s clock, and not taken up), jobs_parked (given up) and '
    'tellings_open (what Apple is still to be told, by the kind of job). By the '
    'day of the verdict: submissions_rejected and notifications_rejected (Apple does not vouch for '
    'them, by its code). By the day: apple_failures (requests about receipts to which no answer of use '
    'came), notifications_refused (what was posted and is no notification of Apple''s), '
    'notifications_listed (in Apple''s history, each reading of it counted; readings overlap), '
    'notifications_missed (of those what had not arrived, late by the time since Apple signed it), '
    'notifications_unbelievable (of those what has wrong signatures), and of what Apple was told of '
    'ownership and consumption tellings_accepted, tellings_refused (with Apple''s code) and '
    'tellings_skipped (not sent, and why). Environment and app are null where they are not known (yet).';

-- What the reports have in common. Each counts by days of a time zone, from from_date to to_date (both
-- inclusive), a row for each day, ISO week or month; the first and the last row may be cut short.
--   environment            production, unless told otherwise.
--   include_family_shared  Also what somebody else of the family paid for.
--   known_at               As the ledger knew it at that moment; null: as it is known now.
--   as_of                  What is dated later has not happened yet. Nor has what is later than
--                          known_at: nobody could know.
-- What report_NAME_item(..) lists with the same parameters are the things that report_NAME(..) counts:
-- for each of its columns those with this name as their measure, whose numbers or amounts add up to it.

-- The days of a report, cut into rows.
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
COMMENT ON FUNCTION calendar_bucket IS
    'The days, ISO weeks (from Monday) or months from from_date to to_date, both inclusive: the first '
    'and the last one may be cut short. Without to_date up to the moment; without from_date 30 days, '
    '12 weeks or 12 months. Nothing after the moment.';

-- The first day of the row in which a day is counted; null: it is before all of them.
CREATE OR REPLACE FUNCTION calendar_bucket_start(day date, first_day date, bucket text)
RETURNS date
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN day >= first_day
    THEN greatest(date_trunc(bucket, day::timestamp)::date, first_day) END;
COMMENT ON FUNCTION calendar_bucket_start IS
    'The first day of the row of a report in which a day is counted; null before the first.';

-- The moment with which a day begins. Where clocks are set back at midnight it comes twice, and what
-- "AT TIME ZONE" gives is the second time: the first one is counted from the evening before. It is one
-- expression, so that it is a part of the plan of whoever asks.
CREATE OR REPLACE FUNCTION day_start(day date, time_zone text)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN NOT isfinite(day) THEN day::timestamp AT TIME ZONE time_zone
    WHEN ((day::timestamp - (((((day::timestamp AT TIME ZONE time_zone) AT TIME ZONE 'UTC')
        - interval '3 hours') AT TIME ZONE 'UTC') AT TIME ZONE time_zone)
        + ((day::timestamp AT TIME ZONE time_zone) AT TIME ZONE 'UTC') - interval '3 hours')
        AT TIME ZONE 'UTC' AT TIME ZONE time_zone)::date = day
    THEN least(day::timestamp AT TIME ZONE time_zone,
        (day::timestamp - (((((day::timestamp AT TIME ZONE time_zone) AT TIME ZONE 'UTC')
        - interval '3 hours') AT TIME ZONE 'UTC') AT TIME ZONE time_zone)
        + ((day::timestamp AT TIME ZONE time_zone) AT TIME ZONE 'UTC') - interval '3 hours')
        AT TIME ZONE 'UTC')
    ELSE day::timestamp AT TIME ZONE time_zone
END;
COMMENT ON FUNCTION day_start IS
    'The moment with which a day begins in a time zone: the first one that is of that day.';

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
COMMENT ON FUNCTION exchange_rate_on IS
    'The operator''s rate of a currency on a day: the latest valid_from that is not after it, and of '
    'that day the one recorded last, of those recorded by known_at. Where none was recorded by then, it '
    'is the first that was recorded: so what was once converted stays as it was, whatever rates are '
    'added or corrected later. Null: there is none.';

-- The movements themselves: what every report of movements counts, one by one.
CREATE OR REPLACE FUNCTION movement_item(
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
        AND m.at >= coalesce(day_start(from_day, time_zone), '-infinity')
        AND m.at < coalesce(day_start(to_day + 1, time_zone), 'infinity')
        AND m.at <= moment
        AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
            ELSE m.known_from <= known_at AND known_at < m.known_until END
        AND (include_family_shared OR m.ownership_type = 'purchased')
        AND (product IS NULL OR m.product_id = product);
END;
COMMENT ON FUNCTION movement_item IS
    'Movements of some kinds and days, as known now or at known_at, up to a moment.';

-- The same by the day that they go back to, whenever they are.
CREATE OR REPLACE FUNCTION movement_item_of_origin(
    kinds text[], from_day date, to_day date, time_zone text, product text, environment text,
    include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    kind text, cause text, at timestamptz, day date, cohort date, origin_at timestamptz,
    original_transaction_id text, transaction_id text, product_id text, ownership_type text,
    period_type text, offer_id text, quantity integer, currency text, price_source text,
    number bigint, amount_milliunits bigint, mrr_twelfths bigint, account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT i.kind, i.cause, i.at, i.day, i.cohort, i.origin_at, i.original_transaction_id,
        i.transaction_id, i.product_id, i.ownership_type, i.period_type, i.offer_id, i.quantity,
        i.currency, i.price_source, i.number, i.amount_milliunits, i.mrr_twelfths, i.account_key
    FROM movement_item(kinds, 'origin', NULL, NULL, time_zone, product, environment,
        include_family_shared, known_at, moment) AS i
    WHERE i.origin_at >= day_start(from_day, time_zone)
        AND i.origin_at < day_start(to_day + 1, time_zone);
END;
COMMENT ON FUNCTION movement_item_of_origin IS
    'Movements of some kinds that go back to some days, as known now or at known_at, up to a moment.';

-- The same as movement_item, summed up as far as possible: the one place that decides between the sums
-- by the day and the movements themselves. Sums there are by the days of UTC, of what is known now; of
-- the day of the moment, of which a part lies ahead, the movements are read.
CREATE OR REPLACE FUNCTION movement_sum(
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
    -- What a change adds: the movements that it added, less those that it closed.
    SELECT m.kind, b.summed_cause, b.day, b.cohort, m.product_id, m.ownership_type, m.period_type,
        m.currency, m.price_source, s.sign * m.number, s.sign * m.amount_milliunits,
        s.sign * m.mrr_twelfths
    FROM movement_change AS c
    JOIN movement AS m ON m.environment = c.environment
        AND m.original_transaction_id = c.original_transaction_id
        AND c.change_id IN (m.opened_by, m.closed_by)
    CROSS JOIN LATERAL (
        SELECT CASE WHEN m.opened_by = c.change_id THEN 1::bigint ELSE -1 END AS sign
    ) AS s
    CROSS JOIN LATERAL movement_basis(m.kind, m.at, m.origin_at, m.cause, m.mrr_twelfths) AS b
    WHERE known_at IS NULL AND time_zone = 'UTC'
        AND c.environment = movement_sum.environment AND b.basis = movement_sum.basis
        AND m.kind = ANY (kinds)
        AND b.day >= coalesce(from_day, '-infinity') AND b.day <= coalesce(to_day, 'infinity')
        AND b.day < (moment AT TIME ZONE 'UTC')::date
        AND (include_family_shared OR m.ownership_type = 'purchased')
        AND (product IS NULL OR m.product_id = product)
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

-- What movements come to for each subscription at the end of a day: what a stock is made of.
CREATE OR REPLACE FUNCTION movement_stock(
    kinds text[], to_day date, by_currency boolean, time_zone text, product text, environment text,
    include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    original_transaction_id text, transaction_id text, product_id text, state text,
    since timestamptz, origin_at timestamptz, number bigint, currency text, price_source text,
    mrr_twelfths bigint, account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT i.original_transaction_id,
        (array_agg(i.transaction_id ORDER BY i.at DESC, i.kind = 'trial_ended', i.number DESC))[1],
        i.product_id, CASE i.kind WHEN 'state' THEN i.cause END,
        max(i.at) FILTER (WHERE i.number >= 0), max(i.origin_at), sum(i.number)::bigint,
        CASE WHEN by_currency THEN i.currency END, CASE WHEN by_currency THEN i.price_source END,
        sum(i.mrr_twelfths)::bigint,
        (array_agg(i.account_key ORDER BY i.at DESC, i.kind = 'trial_ended', i.number DESC))[1]
    FROM movement_item(kinds, 'at', NULL, to_day, time_zone, product, environment,
        include_family_shared, known_at, moment) AS i
    GROUP BY i.original_transaction_id, i.product_id, CASE i.kind WHEN 'state' THEN i.cause END,
        CASE WHEN by_currency THEN i.currency END, CASE WHEN by_currency THEN i.price_source END
    HAVING sum(i.number) <> 0 AND NOT by_currency OR sum(i.mrr_twelfths) <> 0 AND by_currency;
END;
COMMENT ON FUNCTION movement_stock IS
    'What movements come to for each subscription, product and state at the end of a day; by_currency: '
    'what they come to in revenue.';

-- Which column of report_active a movement is counted in.
CREATE OR REPLACE FUNCTION active_measure(kind text, cause text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE kind
    WHEN 'started' THEN 'new'
    WHEN 'trial_started' THEN 'new'
    -- The conversion of a trial that was counted is nothing new.
    WHEN 'trial_ended' THEN CASE cause WHEN 'converted' THEN 'new' ELSE 'expired' END
    WHEN 'resumed' THEN 'resubscribed'
    WHEN 'ended' THEN 'expired'
    WHEN 'changed_to' THEN 'changed_in'
    WHEN 'changed_from' THEN 'changed_out'
END;
COMMENT ON FUNCTION active_measure IS 'Which column of report_active a movement is counted in.';

-- Which kinds of movements change the number of active subscriptions.
CREATE OR REPLACE FUNCTION active_kinds(include_trials boolean)
RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ARRAY['started', 'resumed', 'ended', 'changed_from', 'changed_to']
    || CASE WHEN include_trials THEN ARRAY['trial_started', 'trial_ended'] ELSE '{}'::text[] END;
COMMENT ON FUNCTION active_kinds IS
    'Which kinds of movements change the number of active subscriptions.';

-- Grants of administrators, as movements: the beginning of each, and its end. Both are known when they
-- come, for a grant is recorded when it begins, and taken back when it is: so what was known at any
-- moment is what is dated until then.
CREATE OR REPLACE VIEW grant_movement AS
SELECT g.grant_id, g.account_id, g.entitlement, g.starts_at AS at, 1::bigint AS number
FROM account_grant AS g
WHERE g.source = 'grant'
UNION ALL
SELECT g.grant_id, g.account_id, g.entitlement, greatest(g.starts_at, least(g.ends_at, g.revoked_at)),
    -1
FROM account_grant AS g
WHERE g.source = 'grant' AND coalesce(g.ends_at, g.revoked_at) IS NOT NULL;
COMMENT ON VIEW grant_movement IS 'Grants of administrators: +1 where one begins, -1 where it ends.';

-- subscriptions ----------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION report_subscriptions(
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
    'administrators granted, as state granted without a product. Production only and without what is '
    'shared in a family, unless told otherwise.';

CREATE OR REPLACE FUNCTION report_subscriptions_item(
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

-- active -----------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION report_active(
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
            FROM grant_movement AS g
            WHERE include_grants AND environment = 'production' AND product IS NULL
                AND (g.at AT TIME ZONE time_zone)::date <= (SELECT shown.last_day FROM shown)
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
    'start and not its conversion, and expired its end without one, until it is taken back, as '
    'report_trials says. With include_grants also what administrators granted, without a product. '
    'by_product: a row for each product.';

CREATE OR REPLACE FUNCTION report_active_item(
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
            calendar_bucket_start((g.at AT TIME ZONE time_zone)::date,
                (SELECT span.first_day FROM span), bucket),
            NULL, NULL, g.grant_id::text, g.at, NULL, 'grant', g.entitlement, abs(g.number), NULL,
            g.account_id
        FROM grant_movement AS g
        WHERE include_grants AND environment = 'production' AND product IS NULL
            AND (g.at AT TIME ZONE time_zone)::date >= (SELECT span.first_day FROM span)
            AND (g.at AT TIME ZONE time_zone)::date <= (SELECT span.last_day FROM span)
            AND g.at <= least(as_of, known_at)
        UNION ALL
        SELECT 'active', (SELECT span.last_row FROM span), NULL, NULL, g.grant_id::text, max(g.at),
            NULL, 'grant', g.entitlement, sum(g.number)::bigint, NULL, g.account_id
        FROM grant_movement AS g
        WHERE include_grants AND environment = 'production' AND product IS NULL
            AND (g.at AT TIME ZONE time_zone)::date <= (SELECT span.last_day FROM span)
            AND g.at <= least(as_of, known_at)
        GROUP BY g.grant_id, g.entitlement, g.account_id
        HAVING sum(g.number) <> 0
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key;
END;
COMMENT ON FUNCTION report_active_item IS
    'What report_active counts: for new, expired, resubscribed, changed_in and changed_out each '
    'movement, for active each subscription, at the end of the last row alone (give its days to get '
    'another one''s). churned is expired less resubscribed. Of a grant, transaction_id is the grant''s.';

-- trials -----------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION report_trials(
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
    'paid period followed. expired: the trial ended without one, or was revoked; where Apple is able '
    'to charge for what follows only later, after trying for a while, that is taken back on the day of '
    'the charge, and counts as converted from then on. The columns cohort_* are by the day on which '
    'the trial began, whenever it ended: of the trials started in this row (cohort_started) those that '
    'have converted and those that have expired by as_of; the others are still open. conversion_rate = '
    'cohort_converted / cohort_started, rounded to 6 digits; it is final only when none is open. '
    'by_product: a row for each product.';

CREATE OR REPLACE FUNCTION report_trials_item(
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
            CASE i.kind WHEN 'trial_ended' THEN -i.number ELSE i.number END AS number, i.account_key
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
            i.original_transaction_id, i.transaction_id, i.at, i.origin_at, i.cause, -i.number,
            i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item_of_origin(ARRAY['trial_ended'], span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
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
    'that of its start, an end that is taken back with a number below zero; for trials each that is '
    'unexpired at the end of the last row.';

-- mrr --------------------------------------------------------------------------------------------

-- Which column of report_mrr a movement is counted in; 'changed': it takes both halves of a change of
-- product to tell.
CREATE OR REPLACE FUNCTION mrr_measure(kind text, cause text, is_of_products boolean)
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

-- Changes of product, each half with what both together are.
CREATE OR REPLACE FUNCTION mrr_change_item(
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

CREATE OR REPLACE FUNCTION report_mrr_item(
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

-- churn ------------------------------------------------------------------------------------------

-- Why something ended that report_churn counts; null: it did not end.
CREATE OR REPLACE FUNCTION churn_cause(kind text, cause text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN kind = 'ended' OR kind = 'trial_ended' AND cause <> 'converted'
    THEN cause END;
COMMENT ON FUNCTION churn_cause IS 'Why a movement is counted by report_churn; null: it is not.';

CREATE OR REPLACE FUNCTION report_churn(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
    by_product boolean DEFAULT false,
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
            -sum(s.number) FILTER (WHERE churn_cause(s.kind, s.cause)
                IN ('voluntary', 'price_not_consented')) AS voluntary,
            -sum(s.number) FILTER (WHERE churn_cause(s.kind, s.cause) = 'price_not_consented')
                AS price_not_consented,
            -sum(s.number) FILTER (WHERE churn_cause(s.kind, s.cause) = 'billing') AS involuntary,
            -sum(s.number) FILTER (WHERE churn_cause(s.kind, s.cause) = 'product_withdrawn')
                AS product_withdrawn,
            -sum(s.number) FILTER (WHERE churn_cause(s.kind, s.cause) = 'unknown') AS unknown,
            -sum(s.number) FILTER (WHERE churn_cause(s.kind, s.cause) = 'refunded') AS refunded,
            sum(s.number) FILTER (WHERE s.kind = 'resumed') AS resubscribed
        FROM shown
        CROSS JOIN LATERAL movement_sum(active_kinds(include_trials), 'at', NULL, shown.last_day,
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
    'start (active_at_start, as in report_active). Expired are those whose effective end came without '
    'a paid period that follows, by cause: voluntary (the customer cancelled, or, as '
    'price_not_consented says, did not consent to a price), involuntary (billing), product_withdrawn, '
    'unknown (Apple never said). churned = expired - resubscribed (paid again after a lapse). Ends by '
    'a refund stand apart (refunded) and are in neither. churn_rate = churned / active_at_start, '
    'expiry_rate = expired / active_at_start, rounded to 6 digits; null without anybody at the start. '
    'With include_trials also trials, whose conversion is no churn. by_product: a row for each '
    'product; a change to another product is no churn.';

CREATE OR REPLACE FUNCTION report_churn_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_trials boolean DEFAULT false,
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
            CASE i.kind WHEN 'resumed' THEN i.number ELSE -i.number END AS number, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(
            ARRAY['ended', 'resumed'] || CASE WHEN include_trials THEN ARRAY['trial_ended'] END, 'at',
            span.first_day, span.last_day, time_zone, product, environment, include_family_shared,
            known_at, least(as_of, known_at)) AS i
        CROSS JOIN LATERAL unnest(CASE
            WHEN i.kind = 'resumed' THEN ARRAY['resubscribed']
            ELSE CASE churn_cause(i.kind, i.cause)
                WHEN 'refunded' THEN ARRAY['refunded']
                WHEN 'voluntary' THEN ARRAY['voluntary', 'expired']
                WHEN 'price_not_consented' THEN ARRAY['voluntary', 'price_not_consented', 'expired']
                WHEN 'billing' THEN ARRAY['involuntary', 'expired']
                WHEN 'product_withdrawn' THEN ARRAY['product_withdrawn', 'expired']
                WHEN 'unknown' THEN ARRAY['unknown', 'expired'] END END) AS m (measure)
        UNION ALL
        SELECT 'active_at_start', span.first_row, s.product_id, s.original_transaction_id,
            s.transaction_id, s.since, s.origin_at, NULL, s.number, s.account_key
        FROM span
        CROSS JOIN LATERAL movement_stock(active_kinds(include_trials), span.first_day - 1, false,
            time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS s
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key;
END;
COMMENT ON FUNCTION report_churn_item IS
    'What report_churn counts: each end, once for each column that it is in (with a number below zero '
    'where it is taken back), and each return; for active_at_start each subscription, at the start of '
    'the first row alone.';

-- renewals due -----------------------------------------------------------------------------------

-- Subscriptions that were set to renew at a moment, with the charge whose period ends. Of one table, and
-- joined by its line: a Citus asks each shard.
CREATE OR REPLACE FUNCTION renewal_due(
    time_zone text, product text, environment text, include_family_shared boolean,
    include_trials boolean, known_at timestamptz, moment timestamptz, last_moment timestamptz)
RETURNS TABLE (
    day date, at timestamptz, product_id text, original_transaction_id text, transaction_id text,
    number bigint, account_key uuid, charged_at timestamptz,
    charge_original_transaction_id text, charge_transaction_id text, ownership_type text,
    period_type text, currency text, amount_milliunits bigint, price_source text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT (d.at AT TIME ZONE time_zone)::date, d.at, d.product_id, d.original_transaction_id,
        d.transaction_id, -d.number::bigint, d.account_key, latest.at,
        latest.charge_original_transaction_id, latest.transaction_id, latest.ownership_type,
        latest.period_type, latest.currency, latest.amount_milliunits, latest.price_source
    FROM movement AS d
    LEFT JOIN LATERAL (
        SELECT m.amount_milliunits, m.currency, m.price_source, m.period_type, m.ownership_type,
            m.charge_original_transaction_id, m.transaction_id, m.at
        FROM movement AS m
        WHERE m.environment = renewal_due.environment
            AND m.original_transaction_id = d.original_transaction_id AND m.kind = 'charged'
            AND m.known_from <= known_at AND known_at < m.known_until
            AND m.product_id = d.product_id AND m.at < d.at
        ORDER BY m.at DESC LIMIT 1
    ) AS latest ON true
    WHERE d.environment = renewal_due.environment AND d.kind = 'state' AND d.number = -1
        AND d.at > moment AND d.at <= last_moment
        AND d.known_from <= known_at AND known_at < d.known_until
        AND (include_family_shared OR d.ownership_type = 'purchased')
        AND (product IS NULL OR d.product_id = product)
        AND (d.cause = 'active_renewing' OR include_trials AND d.cause = 'trial_renewing')
        -- Apple charges up to a day early: what goes on was renewed already.
        AND NOT EXISTS (
            SELECT FROM movement AS m
            WHERE m.environment = renewal_due.environment
                AND m.original_transaction_id = d.original_transaction_id AND m.kind = 'state'
                AND m.at = d.at AND m.number = 1
                AND m.cause IN ('active_renewing', 'active_cancelled')
                AND m.known_from <= known_at AND known_at < m.known_until);
END;
COMMENT ON FUNCTION renewal_due IS
    'Subscriptions that were set to renew at a moment, with the charge whose period ends.';

-- The product that a charge is to be renewed as, by Apple's word. Joined by the charge's own line.
CREATE OR REPLACE FUNCTION renews_as(
    environment text, original_transaction_id text, transaction_id text, product_id text,
    charged_at timestamptz, is_now boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (renews_as text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN is_now THEN (
        SELECT o.auto_renew_product_id FROM original_transaction AS o
        WHERE o.environment = renews_as.environment
            AND o.original_transaction_id = renews_as.original_transaction_id)
    ELSE (
        SELECT r.auto_renew_product_id
        FROM renewal_status AS r
        JOIN ledger_entry AS e ON e.environment = r.environment
            AND e.original_transaction_id = r.original_transaction_id
            AND e.number = r.number
        WHERE r.environment = renews_as.environment
            AND r.original_transaction_id = renews_as.original_transaction_id
            AND r.auto_renew_product_id IS NOT NULL AND r.as_of <= moment
            -- What was said before the charge is about that one: Apple renews up to a day early.
            AND (r.as_of >= charged_at OR r.as_of >= charged_at - interval '24 hours' AND EXISTS (
                SELECT FROM store_transaction AS t
                LEFT JOIN store_transaction AS p ON p.environment = t.environment
                    AND p.original_transaction_id = t.original_transaction_id
                    AND p.charged_at < t.charged_at
                    AND p.expires_at BETWEEN t.charged_at - interval '60 seconds'
                        AND t.charged_at + interval '60 seconds'
                WHERE t.environment = r.environment
                    AND t.original_transaction_id = r.original_transaction_id
                    AND t.transaction_id = renews_as.transaction_id
                    AND t.product_id = renews_as.product_id
                    AND (t.kind = 'renewal' OR t.kind = 'unknown' AND p.kind IS NOT NULL)))
            AND e.recorded_at <= known_at
        ORDER BY r.as_of DESC, r.number DESC LIMIT 1)
    END;
END;
COMMENT ON FUNCTION renews_as IS
    'The product that a charge is to be renewed as, by Apple''s word; null: Apple has said nothing.';

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
    SELECT d.day, d.product_id, coalesce(next.renews_as, d.product_id), d.original_transaction_id,
        d.transaction_id, d.at, d.number, price.currency, price.amount_milliunits,
        price.price_source, a.account_id
    FROM renewal_due(time_zone, product, environment, include_family_shared, include_trials,
        coalesce(known_at, as_of), least(as_of, known_at),
        least(as_of, known_at) + make_interval(hours => 24 * report_renewals_due_item.days)) AS d
    -- Who asks of this moment has a clock of his own.
    LEFT JOIN LATERAL renews_as(environment, d.charge_original_transaction_id,
        d.charge_transaction_id, d.product_id, d.charged_at,
        known_at IS NULL AND as_of >= now() - interval '1 minute', coalesce(known_at, as_of),
        least(as_of, known_at)) AS next ON true
    LEFT JOIN LATERAL (
        SELECT d.amount_milliunits, d.currency, d.price_source
        WHERE coalesce(next.renews_as, d.product_id) = d.product_id AND d.charged_at IS NOT NULL
            AND d.period_type = 'normal' AND d.currency IS NOT NULL
        UNION ALL
        (SELECT CASE d.ownership_type WHEN 'family_shared' THEN 0 ELSE p.price_milliunits END,
            p.currency, 'catalogue'
        FROM product AS p
        WHERE p.product_id = coalesce(next.renews_as, d.product_id)
            AND p.valid_from <= least(d.at, coalesce(known_at, as_of))
            AND (coalesce(next.renews_as, d.product_id) = d.product_id
                AND d.charged_at IS NOT NULL AND d.period_type = 'normal'
                AND d.currency IS NOT NULL) IS NOT TRUE
        ORDER BY p.valid_from DESC LIMIT 1)
    ) AS price ON true
    LEFT JOIN account_by_key AS a ON a.account_key = d.account_key;
END;
COMMENT ON FUNCTION report_renewals_due_item IS
    'Each subscription that report_renewals_due counts, with the charge whose period ends, what it '
    'renews as, and the money expected.';

CREATE OR REPLACE FUNCTION report_renewals_due(
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
    'product of the next period, by Apple''s latest word since the latest charge. The money is the '
    'price of the latest charge where the same product renews at its normal price, else (after an '
    'introductory or other offer, a trial or a change of product, and where the charge has no price) '
    'the catalogue''s as described then, which is the part from_catalogue; currency and money are null '
    'where neither knows. With include_trials also trials set to renew. It is as known at as_of, or at '
    'known_at if that is given: what is known by now of renewals since would leave only those that '
    'failed.';

-- billing issues ---------------------------------------------------------------------------------

-- Who was in a state of trouble with billing at the end of a day. Whoever comes to such a state leaves
-- it, if only at a date that lies ahead: in it are those who leave it later, less those who come to it
-- later. They are few, and would be looked for one by one were the others not read at once.
CREATE OR REPLACE FUNCTION billing_issue_stock(
    state text, last_day date, time_zone text, product text, environment text,
    include_family_shared boolean, known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    product_id text, original_transaction_id text, transaction_id text, since timestamptz,
    until timestamptz, number bigint, account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH ending AS (
        SELECT least(
            day_start(last_day + 1, time_zone) - interval '1 microsecond', moment) AS at
    ),
    trouble AS NOT MATERIALIZED (
        SELECT m.product_id, m.original_transaction_id, m.transaction_id, m.at, m.number,
            m.account_key
        FROM movement AS m
        WHERE m.environment = billing_issue_stock.environment AND m.kind = 'state'
            AND m.cause = billing_issue_stock.state
            AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
                ELSE m.known_from <= known_at AND known_at < m.known_until END
            AND (include_family_shared OR m.ownership_type = 'purchased')
            AND (product IS NULL OR m.product_id = product)
    ),
    begun AS MATERIALIZED (
        SELECT t.product_id, t.original_transaction_id, t.transaction_id, t.at, t.account_key
        FROM ending
        JOIN trouble AS t ON t.at <= ending.at
        WHERE t.number = 1
    )
    SELECT DISTINCT ON (s.product_id, s.original_transaction_id)
        s.product_id, s.original_transaction_id, b.transaction_id, b.at, s.until, s.number,
        b.account_key
    FROM (
        SELECT t.product_id, t.original_transaction_id, -sum(t.number) AS number,
            min(t.at) FILTER (WHERE t.number = -1) AS until
        FROM ending
        JOIN trouble AS t ON t.at > ending.at
        GROUP BY t.product_id, t.original_transaction_id
        HAVING sum(t.number) <> 0
    ) AS s
    JOIN begun AS b ON b.product_id = s.product_id
        AND b.original_transaction_id = s.original_transaction_id
    ORDER BY s.product_id, s.original_transaction_id, b.at DESC;
END;
COMMENT ON FUNCTION billing_issue_stock IS
    'Subscriptions that are in_grace_period or in_billing_retry at the end of a day, since when and '
    'until when.';

CREATE OR REPLACE FUNCTION report_billing_issues_item(
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
        -- Each measure by itself: whoever asks for one does not wait for the others.
        -- What has begun has an end, if only one that is expected: it may lie ahead.
        SELECT 'entered' AS measure,
            calendar_bucket_start(i.cohort, span.first_day, bucket) AS from_day, i.product_id,
            i.original_transaction_id, i.transaction_id, i.origin_at AS since, i.at AS until,
            i.number, i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item_of_origin(ARRAY['billing_recovered', 'billing_lost'],
            span.first_day, span.last_day, time_zone, product, environment, include_family_shared,
            known_at, 'infinity') AS i
        WHERE i.origin_at <= least(as_of, known_at)
        UNION ALL
        SELECT 'recovered', calendar_bucket_start(i.day, span.first_day, bucket),
            i.product_id, i.original_transaction_id, i.transaction_id, i.origin_at, i.at, i.number,
            i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['billing_recovered'], 'at', span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        UNION ALL
        SELECT 'lost', calendar_bucket_start(i.day, span.first_day, bucket),
            i.product_id, i.original_transaction_id, i.transaction_id, i.origin_at, i.at, i.number,
            i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item(ARRAY['billing_lost'], 'at', span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        UNION ALL
        SELECT 'cohort_recovered', calendar_bucket_start(i.cohort, span.first_day, bucket),
            i.product_id, i.original_transaction_id, i.transaction_id, i.origin_at, i.at, i.number,
            i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item_of_origin(ARRAY['billing_recovered'], span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        UNION ALL
        SELECT 'cohort_lost', calendar_bucket_start(i.cohort, span.first_day, bucket),
            i.product_id, i.original_transaction_id, i.transaction_id, i.origin_at, i.at, i.number,
            i.account_key
        FROM span
        CROSS JOIN LATERAL movement_item_of_origin(ARRAY['billing_lost'], span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        UNION ALL
        SELECT 'in_grace_period', span.last_row, s.product_id, s.original_transaction_id,
            s.transaction_id, s.since, s.until, s.number, s.account_key
        FROM span
        CROSS JOIN LATERAL billing_issue_stock('in_grace_period', span.last_day, time_zone, product,
            environment, include_family_shared, known_at, least(as_of, known_at)) AS s
        UNION ALL
        SELECT 'in_billing_retry', span.last_row, s.product_id, s.original_transaction_id,
            s.transaction_id, s.since, s.until, s.number, s.account_key
        FROM span
        CROSS JOIN LATERAL billing_issue_stock('in_billing_retry', span.last_day, time_zone, product,
            environment, include_family_shared, known_at, least(as_of, known_at)) AS s
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key;
END;
COMMENT ON FUNCTION report_billing_issues_item IS
    'What report_billing_issues counts. For in_grace_period and in_billing_retry each subscription at '
    'the end of the last row, since when it is in that state and until when it is expected to be; for '
    'the others each event, with the beginning of the trouble and its end.';

CREATE OR REPLACE FUNCTION report_billing_issues(
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
            -- What has begun has an end, if only one that is expected: it may lie ahead.
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
    'Subscriptions whose renewal Apple could not charge, be it the first one after a trial. '
    'in_grace_period (access goes on) and in_billing_retry (it does not) at the end of each day, week '
    'or month. entered: in how many such trouble began; a retry that follows a grace period is the '
    'same trouble. recovered: Apple was able to charge after all; lost: it gave up, or the customer '
    'did; both by their own date. cohort_recovered and cohort_lost are the same by the day on which '
    'the trouble began; the others of those entered are still open. recovery_rate = cohort_recovered / '
    'entered, rounded to 6 digits; it is final only when none is open. Since when and until when: '
    'report_billing_issues_item.';

-- retention --------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION report_retention(
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
    'Of the subscriptions that were first paid in a month (cohort, cohort_size) those that are paid '
    'and unexpired at the end of that month (period 0) and of each following one (period 1, 2, ..; '
    'to_day): retained. The last period ends with the moment as_of. A trial is in no cohort: the first '
    'charge is. Whoever lapsed and paid again is retained again, in the cohort of the first time. '
    'retention_rate = retained / cohort_size, rounded to 6 digits. from_date and to_date choose the '
    'cohorts, by whole months. With product only starts with that product and whoever is on it then '
    'are counted: changes to it are retained, changes from it are not.';

CREATE OR REPLACE FUNCTION report_retention_item(
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

-- revenue ----------------------------------------------------------------------------------------

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

CREATE OR REPLACE FUNCTION report_revenue_item(
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
            WHEN i.kind = 'refunded' AND i.period_type = 'trial' THEN ARRAY[]::text[]
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
        CROSS JOIN LATERAL movement_item_of_origin(ARRAY['refunded'], span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        WHERE i.period_type <> 'trial'
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key;
END;
COMMENT ON FUNCTION report_revenue_item IS
    'What report_revenue counts, in each charge''s own currency: charges (offers once more under '
    'offers), trials, family_shared, and each refund under refunds by its own date and under '
    'refunds_of_charges by that of its charge. charged is the sum of the amounts of charges, trials and '
    'family_shared, refunded that of refunds, refunded_of_charges that of refunds_of_charges.';

-- refunds ----------------------------------------------------------------------------------------

-- How long after the charge a refund came, in classes that sort by their names.
CREATE OR REPLACE FUNCTION refund_delay(days integer)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN days <= 0 THEN '000' WHEN days = 1 THEN '001' WHEN days <= 3 THEN '002-003'
    WHEN days <= 7 THEN '004-007' WHEN days <= 14 THEN '008-014' WHEN days <= 30 THEN '015-030'
    WHEN days <= 60 THEN '031-060' WHEN days <= 90 THEN '061-090' ELSE '091-'
END;
COMMENT ON FUNCTION refund_delay IS 'The class of days from a charge to its refund in report_refunds.';

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
COMMENT ON FUNCTION report_refunds IS
    'Revoked charges by the date of the charge, whenever they were revoked by as_of: by product, by '
    'Apple''s reason (empty: Apple gave none), by days from the charge to the refund (days_after: classes '
    'of calendar days) and currency, with the money (negative; the part from_catalogue at the '
    'catalogue''s price). paid: all charges of those days and of that product, in whatever currency; it '
    'is repeated in each row, and a row without refunds has it alone. refund_rate = refunded / paid, '
    'rounded to 6 digits; the rates of rows with the same paid add up. Upgrades are not refunds. Trials '
    'and what is shared in a family are left out of both, unless included.';

CREATE OR REPLACE FUNCTION report_refunds_item(
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
        CROSS JOIN LATERAL movement_item_of_origin(ARRAY['refunded'], span.first_day,
            span.last_day, time_zone, product, environment, include_family_shared, known_at,
            least(as_of, known_at)) AS i
        WHERE include_trials OR i.period_type <> 'trial'
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

-- reactivations ----------------------------------------------------------------------------------

-- Which column of report_reactivations a movement is counted in.
CREATE OR REPLACE FUNCTION reactivation_measure(kind text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE kind WHEN 'auto_renew_off' THEN 'switched_off' WHEN 'auto_renew_on' THEN 'switched_on'
    WHEN 'resumed' THEN 'resubscribed' END;
COMMENT ON FUNCTION reactivation_measure IS
    'Which column of report_reactivations a movement is counted in.';

CREATE OR REPLACE FUNCTION report_reactivations(
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
        WHERE (include_trials OR s.period_type <> 'trial')
            AND NOT (s.kind = 'resumed' AND s.cause = 'recovered')
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
    'renewal on again before the subscription ended, by Apple''s date of the switch; resubscribed: it '
    'had lapsed and the customer paid again, by the date of that charge (as in report_active, but '
    'without those whom Apple was able to charge after trying for a while: nobody reactivated '
    'anything, and report_billing_issues has them as recovered). And switched_off, from which the '
    'first one comes back. Switches while in a trial are left out, unless included. by_product: a row '
    'for each product.';

CREATE OR REPLACE FUNCTION report_reactivations_item(
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
    WHERE (include_trials OR i.period_type <> 'trial')
        AND NOT (i.kind = 'resumed' AND i.cause = 'recovered');
END;
COMMENT ON FUNCTION report_reactivations_item IS
    'Each switch and each return that report_reactivations counts.';

-- ownership --------------------------------------------------------------------------------------

-- Refunds as the journal has them, one at the most of each transaction that names a charge: the lines of
-- a charge and of its movements may differ, so that a Citus can't join the two by shards.
CREATE OR REPLACE FUNCTION refund_movement(environment text, known_at timestamptz)
RETURNS TABLE (
    original_transaction_id text, transaction_id text, product_id text, at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT m.charge_original_transaction_id, m.transaction_id, m.product_id, m.at
    FROM movement AS m
    WHERE m.environment = refund_movement.environment AND m.kind = 'refunded'
        AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
            ELSE m.known_from <= known_at AND known_at < m.known_until END;
END;
COMMENT ON FUNCTION refund_movement IS
    'Refunds, by the transaction that names the charge, as known now or at known_at.';

-- What the journal knew of charges at a moment and does not say any more: few ever change.
CREATE OR REPLACE FUNCTION charged_before(environment text, known_at timestamptz)
RETURNS TABLE (
    charge_original_transaction_id text, transaction_id text, product_id text,
    at timestamptz, is_renewal boolean, product_type text, ownership_type text, period_type text,
    account_key uuid, rule text, decided_at timestamptz, corrected_at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT m.charge_original_transaction_id, m.transaction_id, m.product_id, m.at, m.is_renewal,
        m.product_type, m.ownership_type, m.period_type, m.account_key, m.rule, m.decided_at,
        m.corrected_at
    FROM movement AS m
    WHERE m.environment = charged_before.environment AND m.kind = 'charged'
        AND m.known_from <= known_at AND known_at < m.known_until AND m.known_until < 'infinity';
END;
COMMENT ON FUNCTION charged_before IS
    'What was known of charges at a moment and is known no more.';

CREATE OR REPLACE FUNCTION order_account()
RETURNS TABLE (order_id uuid, account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT l.order_id, l.account_key FROM purchase_order_account AS l;
END;
COMMENT ON FUNCTION order_account IS 'Orders with their accounts.';

CREATE OR REPLACE FUNCTION order_fulfilled(known_at timestamptz)
RETURNS TABLE (order_id uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT o.order_id
    FROM order_account() AS l
    JOIN purchase_order AS o ON o.account_key = l.account_key AND o.order_id = l.order_id
    WHERE o.fulfilled_at <= known_at;
END;
COMMENT ON FUNCTION order_fulfilled IS 'Orders that were fulfilled at a moment.';

-- Charges with what was known of them at a moment. The journal closes its row of a charge when the charge
-- changes: rows closed since say how it was, and all else is as it was. Revoked was what the journal knew
-- of a refund, at its date, and what it calls none now
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
        CASE
            WHEN r.at IS NOT NULL THEN r.at
            -- What is a refund now was not known then.
            WHEN n.at IS NOT NULL THEN NULL
            WHEN c.revoked_as_of <= known_at THEN timestamptz '-infinity'
        END,
        o.order_id, c.delivered_at
    FROM (
        SELECT t.environment, t.original_transaction_id, t.transaction_id, t.product_id,
            t.charged_at, t.kind, t.product_type, t.ownership_type, t.period_type,
            t.price_milliunits, t.currency, t.owner_account_key, t.rule, t.ground, t.decided_at,
            t.corrected_at, CASE WHEN t.revoked_at IS NOT NULL THEN t.revocation_known_at END
                AS revoked_as_of, t.order_id, t.delivered_at
        FROM store_transaction AS t
        LEFT JOIN charged_before(charge_then.environment, known_at) AS m
            ON m.charge_original_transaction_id = t.original_transaction_id
            AND m.transaction_id = t.transaction_id AND m.product_id = t.product_id
        WHERE t.environment = charge_then.environment AND t.recorded_at <= known_at
            AND m.transaction_id IS NULL
        UNION ALL
        SELECT t.environment, m.charge_original_transaction_id, m.transaction_id, m.product_id,
            -- The date of the transaction that names the charge, which may be later than the charge's: as
            -- it is, or was before Apple gave an earlier one.
            greatest(m.at, t.charged_at),
            CASE WHEN m.is_renewal THEN 'renewal' ELSE 'purchase' END,
            coalesce(m.product_type, 'unknown'), m.ownership_type, m.period_type,
            t.price_milliunits, t.currency, m.account_key, m.rule, t.ground, m.decided_at, m.corrected_at,
            CASE WHEN t.revoked_at IS NOT NULL THEN t.revocation_known_at END, t.order_id, t.delivered_at
        FROM charged_before(charge_then.environment, known_at) AS m
        JOIN store_transaction AS t ON t.environment = charge_then.environment
            AND t.original_transaction_id = m.charge_original_transaction_id
            AND t.transaction_id = m.transaction_id AND t.product_id = m.product_id
    ) AS c
    LEFT JOIN refund_movement(charge_then.environment, known_at) AS r
        ON r.original_transaction_id = c.original_transaction_id
        AND r.transaction_id = c.transaction_id AND r.product_id = c.product_id
    LEFT JOIN refund_movement(charge_then.environment, NULL) AS n
        ON n.original_transaction_id = c.original_transaction_id
        AND n.transaction_id = c.transaction_id AND n.product_id = c.product_id
    LEFT JOIN order_fulfilled(known_at) AS o ON o.order_id = c.order_id;
END;
COMMENT ON FUNCTION charge_then IS
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
    -- Citus refuses a condition without a column beside an outer join, so `known_at` is a part of others.
    SELECT 'decided', t.decided_at, t.rule, t.product_id, t.original_transaction_id,
        t.transaction_id, t.order_id, t.period_type, t.currency, t.price_milliunits,
        t.owner_account_key
    FROM store_transaction AS t
    WHERE t.environment = CASE WHEN known_at IS NULL THEN charge_item.environment ELSE '' END
        AND t.rule IS NOT NULL
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
    WHERE t.environment = CASE WHEN known_at IS NULL THEN charge_item.environment ELSE '' END
        AND t.rule IS NOT NULL
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
    WHERE t.environment = CASE WHEN known_at IS NULL THEN charge_item.environment ELSE '' END
        AND t.owner_account_key IS NOT NULL
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
    LEFT JOIN refund_movement(charge_item.environment, NULL) AS r
        ON r.original_transaction_id = t.original_transaction_id
        AND r.transaction_id = t.transaction_id AND r.product_id = t.product_id
    WHERE t.environment = CASE WHEN known_at IS NULL THEN charge_item.environment ELSE '' END
        AND t.owner_account_key IS NOT NULL AND t.ownership_type = 'purchased'
        -- Refunded by the journal, whichever transaction of the charge Apple told of; else an upgrade.
        AND CASE WHEN r.at IS NULL THEN t.revoked_at IS NULL ELSE r.at > moment END
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
    LEFT JOIN refund_movement(charge_item.environment, NULL) AS r
        ON r.original_transaction_id = t.original_transaction_id
        AND r.transaction_id = t.transaction_id AND r.product_id = t.product_id
    WHERE t.environment = CASE WHEN known_at IS NULL THEN charge_item.environment ELSE '' END
        AND t.owner_account_key IS NOT NULL AND t.ownership_type = 'purchased'
        AND CASE WHEN r.at IS NULL THEN t.revoked_at IS NULL ELSE r.at > moment END
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
    FROM refund_movement(charge_item.environment, NULL) AS r
    JOIN store_transaction AS t
        ON t.environment = CASE WHEN known_at IS NULL THEN charge_item.environment ELSE '' END
        AND t.original_transaction_id = r.original_transaction_id
        AND t.transaction_id = r.transaction_id AND t.product_id = r.product_id
    WHERE r.at > moment AND t.revoked_at IS NOT NULL
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
        WHERE s.environment = CASE WHEN known_at IS NULL THEN charge_item.environment ELSE '' END
            AND s.rule IS NULL AND s.revoked_at IS NOT NULL
    ) AS alias
    JOIN store_transaction AS t ON t.environment = alias.environment
        AND t.original_transaction_id = alias.charge_original_transaction_id
        AND t.transaction_id = alias.charge_transaction_id
        AND t.product_id = alias.charge_product_id
    JOIN refund_movement(charge_item.environment, NULL) AS r
        ON r.original_transaction_id = t.original_transaction_id
        AND r.transaction_id = t.transaction_id AND r.product_id = t.product_id
        AND r.at <= moment
    WHERE t.revoked_at IS NULL AND t.owner_account_key IS NOT NULL
        AND t.ownership_type = 'purchased'
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

-- Bindings that moved from one account to another, and where a second account came in.
CREATE OR REPLACE FUNCTION binding_item(
    product text, environment text, include_family_shared boolean, known_at timestamptz,
    first_moment timestamptz, last_moment timestamptz, moment timestamptz)
RETURNS TABLE (
    measure text, rule text, product_id text, original_transaction_id text, transaction_id text,
    at timestamptz, account_key uuid, from_account_key uuid, decided_at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT n.measure, m.rule, m.product_id, m.charge_original_transaction_id, m.transaction_id,
        m.at, m.account_key,
        CASE n.measure WHEN 'moved' THEN m.moved_from_key ELSE m.shared_with_key END,
        m.decided_at
    FROM movement AS m
    CROSS JOIN LATERAL unnest(CASE WHEN m.shared_with_key IS NULL THEN ARRAY['moved']
        ELSE ARRAY['moved', 'shared'] END) AS n (measure)
    WHERE m.environment = binding_item.environment
        AND m.kind = 'charged' AND m.has_moved
        AND m.at >= first_moment AND m.at < last_moment
        AND m.at <= moment
        AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
            ELSE m.known_from <= known_at AND known_at < m.known_until END
        AND (include_family_shared OR m.ownership_type = 'purchased')
        AND (product IS NULL OR m.product_id = product);
END;
COMMENT ON FUNCTION binding_item IS
    'Bindings that moved between two moments, and where a second account came in.';

-- The act that placed a charge by hand.
CREATE OR REPLACE FUNCTION placing_act(
    environment text, original_transaction_id text, transaction_id text, known_at timestamptz)
RETURNS TABLE (
    administrator text, reason text, account_key uuid, previous_account_key uuid)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT t.administrator, t.reason, t.account_key, t.previous_account_key
    FROM administrator_action AS t
    WHERE t.action IN ('transfer', 'release')
        AND t.subject = left(environment || '/' || original_transaction_id || '/' || transaction_id, 255)
        AND (known_at IS NULL OR t.acted_at <= known_at)
    ORDER BY t.action_id DESC LIMIT 1;
END;
COMMENT ON FUNCTION placing_act IS 'The act that placed a charge by hand, as known at known_at.';

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
        a.account_id, f.account_id, c.decided_at, act.administrator,
        administrator_reason(act.reason, act.account_key, n.account_id, act.previous_account_key,
            p.account_id)
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
        SELECT i.measure, i.rule, i.product_id, i.original_transaction_id, i.transaction_id, i.at,
            i.account_key, i.from_account_key, i.decided_at
        FROM binding_item(product, environment, include_family_shared, known_at,
            span.first_moment, span.last_moment, least(as_of, known_at)) AS i
    ) AS c
    LEFT JOIN account_by_key AS a ON a.account_key = c.account_key
    LEFT JOIN account_by_key AS f ON f.account_key = c.from_account_key
    LEFT JOIN LATERAL placing_act(CASE WHEN c.rule = 'administrator' THEN environment END,
        c.original_transaction_id, c.transaction_id, known_at) AS act ON true
    LEFT JOIN account_by_key AS n ON n.account_key = act.account_key
    LEFT JOIN account_by_key AS p ON p.account_key = act.previous_account_key;
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
    'by which rule, whose and since when it was known then.';

-- unclaimed --------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION unclaimed_charge(
    product text, environment text, include_family_shared boolean, include_trials boolean,
    known_at timestamptz, moment timestamptz)
RETURNS TABLE (
    charge_original_transaction_id text, transaction_id text, product_id text, at timestamptz,
    number smallint, currency text, amount_milliunits bigint, price_source text,
    known_until timestamptz, expires_at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT m.charge_original_transaction_id, m.transaction_id, m.product_id, m.at, m.number,
        m.currency, m.amount_milliunits, m.price_source, m.known_until, m.expires_at
    FROM movement AS m
    WHERE m.environment = unclaimed_charge.environment AND m.kind = 'charged'
        AND m.account_key IS NULL AND m.at <= moment
        AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
            ELSE m.known_from <= known_at AND known_at < m.known_until END
        AND (include_family_shared OR m.ownership_type = 'purchased')
        AND (include_trials OR m.period_type <> 'trial')
        AND (product IS NULL OR m.product_id = product);
END;
COMMENT ON FUNCTION unclaimed_charge IS 'Charges that no account owned, as known now or at known_at.';

CREATE OR REPLACE FUNCTION first_seen(
    environment text, original_transaction_id text, transaction_id text, product_id text)
RETURNS TABLE (recorded_at timestamptz, expires_at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT t.recorded_at, t.expires_at
    FROM store_transaction AS t
    WHERE t.environment = first_seen.environment
        AND t.original_transaction_id = first_seen.original_transaction_id
        AND t.transaction_id = first_seen.transaction_id AND t.product_id = first_seen.product_id;
END;
COMMENT ON FUNCTION first_seen IS 'When a transaction was first recorded, and when its period ends.';

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
    FROM unclaimed_charge(product, environment, include_family_shared, include_trials,
        known_at, least(as_of, known_at)) AS m
    LEFT JOIN store_transaction AS u ON u.environment = report_unclaimed_item.environment
        AND u.original_transaction_id = m.charge_original_transaction_id
        AND u.transaction_id = m.transaction_id AND u.product_id = m.product_id
        AND u.rule IS NOT NULL AND u.owner_account_key IS NULL
    -- One by one those that nobody owned at known_at, and somebody does now.
    LEFT JOIN LATERAL first_seen(
        CASE WHEN known_at IS NOT NULL AND u.recorded_at IS NULL
            THEN report_unclaimed_item.environment END,
        m.charge_original_transaction_id, m.transaction_id, m.product_id) AS c ON true
    CROSS JOIN LATERAL (
        SELECT coalesce(u.recorded_at, c.recorded_at) AS recorded_at,
            -- What was not known any more by now was noted; all else is as it was.
            CASE WHEN known_at IS NOT NULL AND m.known_until < 'infinity'
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
    ) AS age (class, after, until) ON t.recorded_at > age.after AND t.recorded_at <= age.until;
END;
COMMENT ON FUNCTION report_unclaimed_item IS
    'Each charge that report_unclaimed counts, under its own original transaction.';

CREATE OR REPLACE FUNCTION report_unclaimed(
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
    '(was_over): that is the history that comes with a first receipt, and nobody will claim it. Trials and '
    'what is shared in a family are left out, unless included. As known at known_at: whose they were, '
    'and whether they were over, by what was known then.';

-- orders -----------------------------------------------------------------------------------------

-- Orders and payments, each under the columns of report_orders that it is counted in.
CREATE OR REPLACE FUNCTION order_opened(
    product text, environment text, known_at timestamptz, first_moment timestamptz,
    last_moment timestamptz, moment timestamptz)
RETURNS TABLE (
    order_id uuid, product_id text, created_at timestamptz, account_key uuid,
    original_transaction_id text, transaction_id text, status text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT p.order_id, p.product_id, p.created_at, p.account_key,
        p.original_transaction_id, p.transaction_id,
        CASE WHEN known_at IS NULL OR p.fulfilled_at <= known_at THEN p.status ELSE 'open' END
    FROM purchase_order AS p
    WHERE coalesce(CASE WHEN known_at IS NULL OR p.fulfilled_at <= known_at THEN p.environment END,
            order_opened.environment) = order_opened.environment
        AND p.created_at >= first_moment AND p.created_at < last_moment
        AND p.created_at <= moment AND (product IS NULL OR p.product_id = product);
END;
COMMENT ON FUNCTION order_opened IS
    'Orders that were opened between two moments, as known now or at known_at.';

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
    CROSS JOIN LATERAL order_opened(product, environment, known_at, span.first_moment,
        span.last_moment, moment) AS o
    LEFT JOIN store_transaction AS t ON o.status IN ('fulfilled', 'refunded')
        AND t.environment = order_item.environment
        AND t.original_transaction_id = o.original_transaction_id
        AND t.transaction_id = o.transaction_id AND t.product_id = o.product_id
        -- It names the order in its turn; and there is an index of those that do.
        AND t.order_id IS NOT NULL
        AND t.charged_at <= moment
    LEFT JOIN refund_movement(order_item.environment, known_at) AS r
        ON r.original_transaction_id = t.original_transaction_id
        AND r.transaction_id = t.transaction_id AND r.product_id = t.product_id
    CROSS JOIN LATERAL unnest(CASE
        WHEN o.status = 'expired' THEN ARRAY['opened', 'expired']
        -- It was not paid at the moment, or is not at all.
        WHEN t.charged_at IS NULL THEN ARRAY['opened', 'open']
        WHEN CASE WHEN known_at IS NULL
            -- A refund whose date is not found has always been.
            THEN o.status = 'refunded' AND (r.at > moment) IS NOT TRUE
            ELSE r.at <= moment END
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

CREATE OR REPLACE FUNCTION charged_between(
    first_moment timestamptz, last_moment timestamptz, environment text, known_at timestamptz)
RETURNS TABLE (
    charge_original_transaction_id text, transaction_id text, product_id text, at timestamptz,
    currency text, amount_milliunits bigint, price_source text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT m.charge_original_transaction_id, m.transaction_id, m.product_id, m.at, m.currency,
        m.amount_milliunits, m.price_source
    FROM movement AS m
    WHERE m.environment = charged_between.environment AND m.kind = 'charged'
        AND m.at >= first_moment AND m.at <= last_moment
        AND CASE WHEN known_at IS NULL THEN m.known_until = 'infinity'
            ELSE m.known_from <= known_at AND known_at < m.known_until END;
END;
COMMENT ON FUNCTION charged_between IS
    'Charges between two moments, as known now or at known_at.';

CREATE OR REPLACE FUNCTION report_orders_item(
    from_date date DEFAULT NULL, to_date date DEFAULT NULL, bucket text DEFAULT 'month',
    time_zone text DEFAULT 'UTC', product text DEFAULT NULL, environment text DEFAULT 'production',
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (
    measure text, from_day date, product_id text, order_id uuid, original_transaction_id text,
    transaction_id text, at timestamptz, charged_at timestamptz, wait_ms bigint, number bigint,
    currency text, amount_milliunits bigint, price_source text, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH item AS (
        SELECT * FROM order_item(from_date, to_date, bucket, time_zone, product, environment, known_at,
            least(as_of, known_at))
    )
    SELECT i.measure, i.from_day, i.product_id, i.order_id, i.original_transaction_id,
        i.transaction_id, i.at, i.charged_at, i.wait_ms, 1::bigint, price.currency,
        CASE WHEN price.currency IS NOT NULL THEN price.amount_milliunits END, price.price_source,
        a.account_id
    FROM item AS i
    -- What revenue counts of it.
    LEFT JOIN charged_between((SELECT min(item.charged_at) FROM item),
        (SELECT max(item.charged_at) FROM item), environment, known_at) AS m
        ON m.at = i.charged_at AND m.transaction_id = i.transaction_id
        AND m.product_id = i.product_id
        AND m.charge_original_transaction_id = i.original_transaction_id
    CROSS JOIN LATERAL (
        SELECT m.currency, m.amount_milliunits, m.price_source
        WHERE m.at IS NOT NULL
        UNION ALL
        -- Of another name of a charge there is no movement.
        SELECT CASE WHEN i.amount_milliunits IS NOT NULL THEN i.currency END, i.amount_milliunits,
            CASE WHEN i.currency IS NOT NULL AND i.amount_milliunits IS NOT NULL THEN 'app_store' END
        WHERE m.at IS NULL
    ) AS price
    LEFT JOIN account_by_key AS a ON a.account_key = i.account_key;
END;
COMMENT ON FUNCTION report_orders_item IS
    'What report_orders counts, once for each column that it is in: orders, with the charge that paid '
    'them, what that brought in (as in report_revenue) and the time between, and charges. at is the '
    'date that counts: of an order when it was opened, of a charge its own.';

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

-- audit ------------------------------------------------------------------------------------------

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

-- ------------------------------------------------------------------------------------------------
-- Privileges. `serve` and `work` run as members of tenure_program, which can append to the ledger and
-- can neither change nor delete an entry; the owner takes the same right from himself, so that one
-- role for everything is no hole either (a superuser is bound by nothing). BI tools use
-- tenure_reader.
-- ------------------------------------------------------------------------------------------------

-- Functions are everybody's unless this is said.
REVOKE EXECUTE ON FUNCTION erase_submissions, age_out_submissions, age_out_notifications FROM PUBLIC;

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
        IF NOT (SELECT prosecdef FROM pg_proc WHERE oid = 'erase_submissions'::regproc) THEN
            -- On a Citus, where it has the rights of whoever calls it: see SchemaDistributor.
            GRANT DELETE ON submission_payload, submission_exchange TO tenure_program;
        END IF;
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
                imported_source, admin_session
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

INSERT INTO schema_version (version, applied_at, serves_since) VALUES (1, now(), 1);

COMMIT;
