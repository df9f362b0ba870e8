import Reports
import Subscriptions

/// What a page asks of the reports.
enum ReportQuestion: Hashable, Sendable {
  case table(Report, ReportChoices)
  case items(ReportCell, from: Int, limit: Int)
  case weeks(PastWeeks)

  /// Asks, however long it takes.
  func answer(from reports: ReportReader, at now: Timestamp) async throws -> ReportAnswer {
    switch self {
    case .table(let report, let choices):
      .table(try await reports.table(of: report, choices, at: now))
    case .items(let cell, let offset, let limit):
      .items(try await reports.items(of: cell, from: offset, limit: limit, at: now))
    case .weeks(let weeks): .table(try await reports.pastWeeks(of: weeks, at: now))
    }
  }
}

/// What the reports answer.
enum ReportAnswer: Sendable {
  case table(ReportTable)
  case items(ReportCellItems)
}
