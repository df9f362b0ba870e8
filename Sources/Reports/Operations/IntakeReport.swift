import Postgres
import Subscriptions

extension Report {
  /// Reads views, which take no parameters: the statements narrow them down.
  ///
  /// Open items have no day and are in every answer that includes today; all else is counted over
  /// the chosen days. Items of an unknown environment are in every answer.
  package static let intake = Report(
    "intake", label: "Processing", group: .operations,
    summary: "Backlog, retries, rejections, missed notifications and failed jobs.",
    sql: PackageResources.intake_sql, itemOrder: "at DESC, measure, subject",
    charts: [.bars("Failures", .init("Failures", "number"))],
    views: Views(
      numbers: Signature(
        parameters: [.from, .to, .days, .bucket, .timeZone, .environment, .includeSandbox],
        columns: [
          ReportColumn("measure", .text), ReportColumn("environment", .text),
          ReportColumn("bundle_id", .text), ReportColumn("cause", .text),
          ReportColumn("from_day", .date), ReportColumn("to_day", .date),
          ReportColumn("number", .number), ReportColumn("attempts", .number),
          ReportColumn("first_at", .time), ReportColumn("last_at", .time),
          ReportColumn("oldest_age_ms", .duration), ReportColumn("longest_delay_ms", .duration),
          ReportColumn("last_detail", .text),
        ]),
      items: Signature(columns: [
        ReportColumn("measure", .text), ReportColumn("environment", .text),
        ReportColumn("bundle_id", .text), ReportColumn("cause", .text),
        ReportColumn("subject", .text), ReportColumn("at", .time), ReportColumn("number", .number),
        ReportColumn("attempts", .number), ReportColumn("delay_ms", .duration),
        ReportColumn("detail", .text),
      ]), query: IntakeQuery.query, condition: IntakeQuery.condition))
}

private enum IntakeQuery {
  @Sendable
  static func query(_ choices: ReportChoices, _ rows: Int?, _ now: Timestamp) -> SQL {
    let condition = condition(choices, now)
    let days = days(choices, at: now)
    // Without a bucket one row counts all days.
    let bucketStart: SQL =
      choices.bucket.map { bucket in
        """
        tenure.calendar_bucket_start((at AT TIME ZONE \(choices.timeZone))::date, \(days.first),
          \(bucket.rawValue))
        """
      } ?? days.first
    let bucketEnd: SQL =
      choices.bucket.map { bucket in
        """
        (SELECT b.to_day FROM tenure.calendar_bucket(\(days.first), \(days.last),
          \(bucket.rawValue), \(choices.timeZone), \(PostgresTimestamp(now))) AS b
          WHERE b.from_day = i.from_day)
        """
      } ?? "CASE WHEN i.from_day IS NOT NULL THEN \(days.last) END"
    return """
      SELECT measure, environment, bundle_id, cause, i.from_day::text AS from_day,
        (\(bucketEnd))::text AS to_day, (\(bucketEnd)) >= \(choices.today(at: now)) AS is_partial,
        number, attempts, first_at, last_at,
        CASE WHEN i.from_day IS NULL THEN
          (extract(epoch FROM \(PostgresTimestamp(now)) - first_at) * 1000)::bigint
          END AS oldest_age_ms,
        longest_delay_ms, last_detail
      FROM (
        SELECT measure, environment, bundle_id, cause,
          CASE WHEN day IS NOT NULL THEN \(bucketStart) END AS from_day,
          sum(number)::bigint AS number, sum(attempts)::bigint AS attempts,
          min(at) AS first_at, max(at) AS last_at, max(delay_ms) AS longest_delay_ms,
          (array_agg(detail ORDER BY at DESC, subject))[1] AS last_detail
        FROM tenure.report_intake_item WHERE \(condition)
        GROUP BY 1, 2, 3, 4, 5
      ) AS i
      ORDER BY measure, environment, bundle_id, i.from_day, number DESC, cause
      LIMIT \(rows)
      """
  }

  /// The first and the last day that are counted, as SQL expressions.
  private static func days(_ choices: ReportChoices, at now: Timestamp) -> (first: SQL, last: SQL) {
    let today = choices.today(at: now)
    let last: SQL = choices.to.map { "least(\($0.text)::date, \(today))" } ?? today
    let first: SQL =
      choices.from.map { "\($0.text)::date" } ?? "(\(last) - \(choices.days - 1)::integer)"
    return (first, last)
  }

  /// The counted days and environments, and the jobs due now: the view has the database's clock.
  @Sendable
  static func condition(_ choices: ReportChoices, _ now: Timestamp) -> SQL {
    let days = days(choices, at: now)
    let today = choices.today(at: now)
    let others = choices.includesSandbox ? [Environment.sandbox.rawValue] : []
    return """
      (CASE WHEN day IS NULL THEN \(days.last) = \(today)
        ELSE at >= tenure.day_start(\(days.first), \(choices.timeZone))
          AND at < tenure.day_start(\(days.last) + 1, \(choices.timeZone)) END)
        AND (environment IS NULL OR environment = ANY (\([choices.environment.rawValue] + others)))
        AND (measure <> 'jobs_overdue' OR at <= \(PostgresTimestamp(now)))
      """
  }
}
