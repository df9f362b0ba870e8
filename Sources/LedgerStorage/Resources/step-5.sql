-- From version 4 of the schema to version 5, in one transaction with the row that says so.
--
-- schema.sql describes version 5 as a whole; a test compares what both come to. The programs' roles
-- may be missing: see the privileges in schema.sql.

SET LOCAL search_path TO tenure;

-- What reads tables keeps to what Citus can plan: no function of rows that reads other rows, and no
-- subquery in place of a value.
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
DROP FUNCTION movement_effect;
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

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenure_program') THEN
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA tenure TO tenure_program;
    END IF;
END
$$;
