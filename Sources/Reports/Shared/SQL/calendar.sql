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
