import Postgres
package import Subscriptions

/// Counts of the past weeks up to a moment, comparable with each other.
///
/// The last week of a report, from Monday to Sunday, is not over. Here each week ends at the same
/// time of day.
package enum PastWeeks: String, CaseIterable, Sendable {
  /// Renewals due within seven days of the same moment of each week, as in `renewals-due`.
  case renewalsDue = "renewals-due"
  /// Problems by the measures of `intake`, of the seven days up to the moment.
  case intake

  package static let count = 12

  static let columns = [
    // 0 is the latest one.
    ReportColumn("weeks_ago", .number), ReportColumn("measure", .text),
    ReportColumn("number", .number),
  ]

  var report: Report {
    switch self {
    case .renewalsDue: .renewalsDue
    case .intake: .intake
    }
  }

  /// Production only; a week without anything to count has no row.
  func query(at now: Timestamp) -> SQL {
    let moment = PostgresTimestamp(now)
    let firstDay = PostgresTimestamp(now - .days(7 * Self.count - 1))
    return switch self {
    case .renewalsDue: renewalsDue(before: now)
    case .intake:
      """
      SELECT w.weeks_ago::bigint, i.measure, sum(i.number)::bigint AS number
      FROM tenure.report_intake_item AS i
      CROSS JOIN LATERAL (
        SELECT ((\(moment) AT TIME ZONE 'UTC')::date - i.day) / 7 AS weeks_ago
      ) AS w
      WHERE i.day >= (\(firstDay) AT TIME ZONE 'UTC')::date
        AND i.environment IS DISTINCT FROM 'sandbox'
        AND i.at <= \(moment) - w.weeks_ago * interval '168 hours'
      GROUP BY w.weeks_ago, i.measure
      ORDER BY w.weeks_ago, i.measure
      """
    }
  }

  /// Counts `report_renewals_due(7, as_of => ..)` of each week in one pass, by what was known then.
  private func renewalsDue(before now: Timestamp) -> SQL {
    let moment = PostgresTimestamp(now)
    let first = PostgresTimestamp(now - .days(7 * (Self.count - 1)))
    return """
      SELECT (extract(epoch FROM \(moment) - d.as_of) / 604800)::bigint AS weeks_ago,
        'renewals_due' AS measure, sum(d.number)::bigint AS number
      FROM (
        SELECT m.as_of,
          count(*) FILTER (WHERE m.number = -1 AND m.cause = 'active_renewing'
            AND m.ownership_type = 'purchased') AS number
        FROM (
          -- Citus takes no STABLE function in a subquery without FROM.
          SELECT *, date_bin('168 hours', at - interval '1 microsecond', \(first)) AS as_of
          FROM tenure.movement
          WHERE environment = 'production' AND kind = 'state'
            AND cause IN ('active_renewing', 'active_cancelled')
            AND at > \(first) AND at <= \(moment)
        ) AS m
        WHERE m.known_from <= m.as_of AND m.as_of < m.known_until
        GROUP BY m.original_transaction_id, m.at, m.as_of
        -- A subscription that continues was renewed already.
        HAVING count(*) FILTER (WHERE m.number = 1) = 0
      ) AS d
      WHERE d.number > 0
      GROUP BY d.as_of
      ORDER BY d.as_of DESC
      """
  }
}

extension ReportReader {
  /// A row for each week and measure: `weeks_ago` (0 for the latest), `measure` and `number`.
  package func pastWeeks(of weeks: PastWeeks, at now: Timestamp) async throws -> ReportTable {
    let rows = try await rows(weeks.query(at: now))
    return ReportTable(
      report: weeks.report, asOf: now, columns: PastWeeks.columns,
      rows: try rows.map { row in try PastWeeks.columns.map(row.value) }, isCutShort: false)
  }
}
