-- Reports: each number has one definition, and it is here. Of the two of a report, the one
-- called _item lists the items that the other counts. A role that may read a report needs no
-- privileges on its tables.

CREATE OR REPLACE VIEW report_intake_item AS
-- Pending submissions; each has a job.
SELECT 'submissions_open' AS measure, s.environment, s.bundle_id, s.problem AS cause,
    NULL::date AS day, s.submission_id::text AS subject, s.received_at AS at, 1::bigint AS number,
    s.attempts::bigint AS attempts, NULL::bigint AS delay_ms, s.problem_detail AS detail
FROM job AS j
JOIN submission AS s
    ON s.submission_id = CASE WHEN j.kind = 'verify_submission' THEN j.subject::uuid END
WHERE j.kind = 'verify_submission' AND s.status = 'pending'
UNION ALL
-- By the day of the verdict.
SELECT 'submissions_rejected', environment, bundle_id, concat_ws(' ', problem, apple_status),
    (decided_at AT TIME ZONE 'UTC')::date, submission_id::text, decided_at, 1, attempts, NULL,
    problem_detail
FROM submission
WHERE status = 'rejected'
UNION ALL
-- Requests about receipts without a usable response: the causes of retries, except Apple's own
-- status.
SELECT 'apple_failures', NULL, NULL, coalesce(fault, 'HTTP ' || http_status),
    (asked_at AT TIME ZONE 'UTC')::date, subject, asked_at, 1, 1, NULL, endpoint
FROM (
    SELECT submission_id::text AS subject, asked_at, fault, http_status, endpoint
    FROM submission_exchange
    UNION ALL SELECT notification_id, asked_at, fault, http_status, endpoint
    FROM notification_exchange
) AS e
WHERE fault IS NOT NULL OR http_status <> 200
UNION ALL
-- Unprocessed notifications; each has a job.
SELECT 'notifications_open', n.environment, n.bundle_id, n.problem, NULL, n.notification_id,
    n.received_at, 1, n.attempts, NULL, n.notification_type
FROM job AS j
JOIN notification AS n ON n.notification_id = j.subject
WHERE j.kind = 'process_notification' AND n.processed_at IS NULL
UNION ALL
-- Notifications with a receipt that Apple rejects, by the day of the verdict.
SELECT 'notifications_rejected', environment, bundle_id, problem,
    (processed_at AT TIME ZONE 'UTC')::date, notification_id, processed_at, 1, attempts, NULL,
    notification_type
FROM notification
WHERE outcome = 'rejected'
UNION ALL
-- By the hour.
SELECT 'notifications_refused', NULL, NULL, reason, (hour AT TIME ZONE 'UTC')::date,
    'version ' || version, last_at, refusals, NULL, NULL, last_detail
FROM notification_refusal
UNION ALL
-- Apple's notification history, each reading counted on its day, and those with invalid signatures.
-- Readings overlap.
SELECT m.measure, environment, bundle_id, NULL, (compared_at AT TIME ZONE 'UTC')::date,
    comparison_id::text, compared_at, m.number, NULL, NULL, NULL
FROM notification_history_check
CROSS JOIN LATERAL (VALUES ('notifications_listed', listed), ('notifications_unbelievable', refused))
    AS m (measure, number)
WHERE m.measure = 'notifications_listed' OR m.number > 0
UNION ALL
-- Listed notifications that had not arrived, by the day they were found; late since Apple signed
-- them.
SELECT 'notifications_missed', environment, bundle_id, notification_type,
    (received_at AT TIME ZONE 'UTC')::date, notification_id, received_at, 1, NULL,
    (extract(epoch FROM received_at - signed_at) * 1000)::bigint, subtype
FROM notification
WHERE arrival = 'history'
UNION ALL
SELECT CASE WHEN parked_at IS NULL THEN 'deliveries_waiting' ELSE 'deliveries_parked' END, NULL,
    NULL, last_error, NULL, event_id::text, coalesce(parked_at, due_since), 1, attempts, NULL,
    stream
FROM webhook_delivery
UNION ALL
-- Due by the database's clock, and failed.
SELECT CASE WHEN discarded_at IS NULL THEN 'jobs_overdue' ELSE 'jobs_parked' END, NULL, NULL, kind,
    NULL, subject, coalesce(discarded_at, run_at), 1, attempts, NULL, last_error
FROM job
WHERE discarded_at IS NOT NULL OR run_at <= now() AND locked_until IS NULL
UNION ALL
-- Write-backs to Apple that are pending; each is a job.
SELECT 'write_backs_open', split_part(subject, '/', 1), NULL, kind, NULL, subject, created_at, 1,
    attempts, NULL, last_error
FROM job
WHERE kind IN ('set_app_account_token', 'send_consumption')
UNION ALL
-- Write-backs that Apple accepted or refused, or that were skipped, with Apple's code or the
-- reason.
SELECT 'write_backs_' || outcome, environment, bundle_id,
    concat_ws(' ', kind, coalesce(reason, delivery_status), coalesce(error_code, http_status)),
    (sent_at AT TIME ZONE 'UTC')::date, original_transaction_id, sent_at, 1, NULL, NULL,
    transaction_id
FROM app_store_write_back;
COMMENT ON VIEW report_intake_item IS
    'Each thing that report_intake counts, in the same columns; subject is its ID.';

CREATE OR REPLACE VIEW report_intake AS
SELECT measure, environment, bundle_id, cause, day, sum(number)::bigint AS number,
    sum(attempts)::bigint AS attempts, min(at) AS first_at, max(at) AS last_at,
    max(delay_ms) AS longest_delay_ms,
    (array_agg(detail ORDER BY at DESC, subject))[1] AS last_detail
FROM report_intake_item
GROUP BY measure, environment, bundle_id, cause, day;
COMMENT ON VIEW report_intake IS
    'Processing of submissions, notifications and webhook deliveries: by measure, environment, '
    'app, cause and day (UTC). What is open now has no day. submissions_open and '
    'notifications_open: not decided or processed yet, with the cause of their retries. '
    'deliveries_waiting and deliveries_parked: webhook deliveries that are pending or failed. '
    'jobs_overdue: due by the database''s clock and not started; jobs_parked: all retries failed. '
    'write_backs_open: pending write-backs to Apple, by the kind of job. submissions_rejected and '
    'notifications_rejected: rejected by Apple, by its code and the day of the verdict. '
    'apple_failures: requests about receipts without a usable response. notifications_refused: '
    'posted, and not a notification from Apple. notifications_listed: in Apple''s history, each '
    'reading counted; readings overlap. notifications_missed: listed and not received, late since '
    'Apple signed them. notifications_unbelievable: listed with invalid signatures. '
    'write_backs_accepted, write_backs_refused and write_backs_skipped: of owners and consumption, '
    'by Apple''s code or the reason for not sending. Environment and app are null if not known '
    '(yet).';
