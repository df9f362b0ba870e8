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
