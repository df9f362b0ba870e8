CREATE OR REPLACE FUNCTION report_audit_item(from_date date DEFAULT NULL, to_date date DEFAULT NULL,
    bucket text DEFAULT 'day', time_zone text DEFAULT 'UTC', known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (from_day date, administrator text, action text, at timestamptz, subject text,
    account_id text, previous_account_id text, reason text, data text, number bigint)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT calendar_bucket_start((t.acted_at AT TIME ZONE time_zone)::date, span.first_day, bucket),
        t.administrator, t.action, t.acted_at, t.subject, a.account_id, p.account_id,
        administrator_reason(t.reason, t.account_key, a.account_id, t.previous_account_key,
            p.account_id),
        t.data, 1::bigint
    FROM calendar_span(from_date, to_date, bucket, time_zone, least(as_of, known_at)) AS span
    JOIN administrator_action AS t
        ON (t.acted_at AT TIME ZONE time_zone)::date BETWEEN span.first_day AND span.last_day
    LEFT JOIN account_by_key AS a ON a.account_key = t.account_key
    LEFT JOIN account_by_key AS p ON p.account_key = t.previous_account_key
    WHERE t.acted_at <= least(as_of, known_at)
    ORDER BY t.acted_at DESC, t.action_id DESC;
END;
COMMENT ON FUNCTION report_audit_item IS
    'Administrators'' actions, to whom and why, the latest first: each with the account that it '
    'concerns and, of a transferred charge, the account that had it before. Accounts have their '
    'current names: their own, or a pseudonym. Actions are only ever appended, so that those of a '
    'past day never change.';

CREATE OR REPLACE FUNCTION report_audit(from_date date DEFAULT NULL, to_date date DEFAULT NULL,
    bucket text DEFAULT 'day', time_zone text DEFAULT 'UTC', known_at timestamptz DEFAULT NULL,
    as_of timestamptz DEFAULT now())
RETURNS TABLE (from_day date, administrator text, action text, number bigint, last_at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT i.from_day, i.administrator, i.action, sum(i.number)::bigint, max(i.at)
    FROM report_audit_item(from_date, to_date, bucket, time_zone, known_at, as_of) AS i
    GROUP BY i.from_day, i.administrator, i.action
    ORDER BY i.from_day, i.administrator, i.action;
END;
COMMENT ON FUNCTION report_audit IS
    'How often each administrator (the name of an API key) did what, per day.';
