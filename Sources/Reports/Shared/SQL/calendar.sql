-- Days, weeks and months, and the parameters that reports share.
--
-- A report of days counts by the days of a time zone, from from_date to to_date (inclusive), with a
-- row for each day, ISO week or month; the first and the last row may be shorter.
--   environment            'production' by default.
--   include_family_shared  Includes purchases that another member of the family paid for.
--   known_at               As the ledger knew it then; null: as it is known now.
--   as_of                  Leaves out later dates, and dates later than known_at.
-- With the same parameters, report_NAME_item(..) lists what report_NAME(..) counts: the items whose
-- measure is the name of a column add up to that column.

-- The days of a report, cut into rows. Without to_date up to the moment; without from_date 28 days,
-- 12 weeks or 12 months; nothing after the moment.
CREATE OR REPLACE FUNCTION calendar_bucket(
    from_date date, to_date date, bucket text, time_zone text, moment timestamptz)
RETURNS TABLE (from_day date, to_day date)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 36 BEGIN ATOMIC
    SELECT greatest(start::date, first_day), least((start + step)::date - 1, last_day)
    FROM (
        SELECT least(to_date, (moment AT TIME ZONE time_zone)::date) AS last_day,
            CASE bucket WHEN 'day' THEN '1 day' WHEN 'week' THEN '1 week' WHEN 'month' THEN '1 month'
                ELSE 'not day, week or month: ' || bucket END::interval AS step
    ) AS ending
    CROSS JOIN LATERAL (
        SELECT coalesce(from_date, date_trunc(bucket, last_day::timestamp)::date
            - CASE bucket WHEN 'day' THEN interval '27 days' WHEN 'week' THEN interval '11 weeks'
                ELSE interval '11 months' END)::date AS first_day
    ) AS beginning
    CROSS JOIN LATERAL generate_series(
        date_trunc(bucket, first_day::timestamp), last_day::timestamp, step) AS start
    WHERE first_day <= last_day;
END;

-- The first day of the row in which a day is counted; null before the first row.
CREATE OR REPLACE FUNCTION calendar_bucket_start(day date, first_day date, bucket text)
RETURNS date LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN day >= first_day
    THEN greatest(date_trunc(bucket, day::timestamp)::date, first_day) END;

-- The start of a day, counted from the evening before.
CREATE OR REPLACE FUNCTION day_start_from_before(day date, time_zone text)
RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (day::timestamp - (((((day::timestamp AT TIME ZONE time_zone) AT TIME ZONE 'UTC')
    - interval '3 hours') AT TIME ZONE 'UTC') AT TIME ZONE time_zone)
    + ((day::timestamp AT TIME ZONE time_zone) AT TIME ZONE 'UTC') - interval '3 hours')
    AT TIME ZONE 'UTC';

-- The moment at which a day begins. Where clocks are set back at midnight it comes twice, and "AT
-- TIME ZONE" gives the second one: the first is counted from the evening before. One expression, so
-- that the planner inlines it.
CREATE OR REPLACE FUNCTION day_start(day date, time_zone text)
RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN NOT isfinite(day) THEN day::timestamp AT TIME ZONE time_zone
    WHEN (day_start_from_before(day, time_zone) AT TIME ZONE time_zone)::date = day
    THEN least(day::timestamp AT TIME ZONE time_zone, day_start_from_before(day, time_zone))
    ELSE day::timestamp AT TIME ZONE time_zone
END;

-- The first and last day of a report, the moments at which it begins and ends, and the first day of
-- its last row.
CREATE OR REPLACE FUNCTION calendar_span(
    from_date date, to_date date, bucket text, time_zone text, moment timestamptz)
RETURNS TABLE (
    first_day date, last_day date, first_moment timestamptz, last_moment timestamptz, last_row date)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 1 BEGIN ATOMIC
    SELECT min(b.from_day), max(b.to_day), day_start(min(b.from_day), time_zone),
        day_start(max(b.to_day) + 1, time_zone), max(b.from_day)
    FROM calendar_bucket(from_date, to_date, bucket, time_zone, moment) AS b;
END;

-- The first days of the first and the last month of a report of whole months.
CREATE OR REPLACE FUNCTION calendar_months(
    from_date date, to_date date, time_zone text, moment timestamptz)
RETURNS TABLE (first_day date, last_day date)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 1 BEGIN ATOMIC
    SELECT date_trunc('month', min(b.from_day)::timestamp)::date,
        date_trunc('month', max(b.from_day)::timestamp)::date
    FROM calendar_bucket(from_date, to_date, 'month', time_zone, moment) AS b;
END;

-- Whether a moment is on one of some days, and no later than another one.
CREATE OR REPLACE FUNCTION is_within(
    at timestamptz, from_day date, to_day date, time_zone text, moment timestamptz)
RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN at >= day_start(from_day, time_zone) AND at < day_start(to_day + 1, time_zone)
    AND at <= moment;
