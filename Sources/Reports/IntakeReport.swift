import Postgres
import Subscriptions

/// How intake does.
///
/// What is open, waiting, overdue or parked is so now; everything else is counted over the days
/// that were chosen. Whatever is of no known environment is in every answer.
enum IntakeReport {
  static let shape = ReportShape(
    summary:
      "How intake does: backlog, retries, rejections, missed notifications, what was given up.",
    parameters: [.days, .includeSandbox],
    columns: [
      ReportColumn("measure", .text), ReportColumn("environment", .text),
      ReportColumn("bundle_id", .text), ReportColumn("cause", .text),
      ReportColumn("number", .number), ReportColumn("attempts", .number),
      ReportColumn("first_at", .time), ReportColumn("last_at", .time),
      ReportColumn("oldest_age_ms", .duration), ReportColumn("longest_delay_ms", .duration),
      ReportColumn("last_detail", .text),
    ],
    order: "measure",
    itemColumns: [
      ReportColumn("measure", .text), ReportColumn("environment", .text),
      ReportColumn("bundle_id", .text), ReportColumn("cause", .text),
      ReportColumn("subject", .text), ReportColumn("at", .time), ReportColumn("number", .number),
      ReportColumn("attempts", .number), ReportColumn("delay_ms", .duration),
      ReportColumn("detail", .text),
    ],
    itemOrder: "at DESC")

  /// These are views and not functions: they are narrowed down here.
  static func query(_ choices: ReportChoices, rows: Int?, at now: Timestamp) -> SQL {
    let moment = PostgresTimestamp(now)
    let condition = condition(choices, at: now)
    return choices.listsItems
      ? """
      SELECT measure, environment, bundle_id, cause, subject, at, number, attempts, delay_ms, detail
      FROM tenure.report_intake_item WHERE \(condition)
      ORDER BY at DESC, measure, subject
      LIMIT \(rows)
      """
      : """
      SELECT measure, environment, bundle_id, cause, sum(number)::bigint AS number,
        sum(attempts)::bigint AS attempts, min(first_at) AS first_at, max(last_at) AS last_at,
        CASE WHEN bool_and(day IS NULL) THEN
          (extract(epoch FROM \(moment) - min(first_at)) * 1000)::bigint END AS oldest_age_ms,
        max(longest_delay_ms) AS longest_delay_ms,
        (array_agg(last_detail ORDER BY last_at DESC))[1] AS last_detail
      FROM tenure.report_intake WHERE \(condition)
      GROUP BY measure, environment, bundle_id, cause
      ORDER BY measure, environment, bundle_id, sum(report_intake.number) DESC, cause
      LIMIT \(rows)
      """
  }

  /// Which days and environments are counted.
  static func condition(_ choices: ReportChoices, at now: Timestamp) -> SQL {
    let firstDay = PostgresTimestamp(now - .days(choices.days - 1))
    return """
      (day IS NULL OR day >= (\(firstDay) AT TIME ZONE 'UTC')::date)
        AND (\(choices.includesSandbox) OR environment IS DISTINCT FROM 'sandbox')
      """
  }
}
