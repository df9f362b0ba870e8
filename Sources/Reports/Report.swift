import Postgres
import Subscriptions

/// What operators look at: each report answers one question about the books, by one definition.
///
/// The definition is a view or function `report_…` in `schema.sql`; each case has a file of its own
/// with the question that is asked of it.
package enum Report: String, CaseIterable, Sendable {
  /// How intake does: backlog, retries, rejections, missed notifications, what was given up.
  case intake
}

extension Report {
  /// One sentence for a list of reports.
  package var summary: String {
    switch self {
    case .intake: IntakeReport.summary
    }
  }

  /// What its columns are, in order.
  func columns(_ choices: ReportChoices) -> [ReportColumn] {
    switch self {
    case .intake: IntakeReport.columns(choices)
    }
  }

  /// The question; its answer has the columns of ``columns(_:)``, by their names.
  func query(_ choices: ReportChoices, at now: Timestamp) -> SQL {
    switch self {
    case .intake: IntakeReport.query(choices, at: now)
    }
  }
}
