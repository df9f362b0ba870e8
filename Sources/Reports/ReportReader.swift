package import Postgres
package import Subscriptions

/// Answers reports; reads, and never writes.
package struct ReportReader: Sendable {
  private let database: ConnectionPool

  /// Reads a database whose schema is up to date.
  package init(database: ConnectionPool) {
    self.database = database
  }

  /// Answers a report.
  ///
  /// - Parameters:
  ///   - report: Which.
  ///   - choices: What is chosen of it.
  ///   - now: The moment that it is about.
  /// - Returns: The answer.
  /// - Throws: What the database says.
  package func table(
    of report: Report, _ choices: ReportChoices = ReportChoices(), at now: Timestamp
  ) async throws -> ReportTable {
    let columns = report.columns(choices)
    let found = try await database.query(report.query(choices, at: now))
    let rows = try found.prefix(choices.limit).map { row in try columns.map(row.value) }
    return ReportTable(
      report: report, asOf: now, columns: columns, rows: rows,
      isCutShort: found.count > choices.limit)
  }
}

extension Row {
  fileprivate func value(of column: ReportColumn) throws -> ReportValue {
    switch column.kind {
    case .text: try decode(String?.self, column: column.name).map { .text($0) } ?? .none
    case .number: try decode(Int64?.self, column: column.name).map { .number($0) } ?? .none
    case .duration:
      try decode(Int64?.self, column: column.name).map { .duration(milliseconds: $0) } ?? .none
    case .time:
      try decode(PostgresTimestamp?.self, column: column.name).map { .time(Timestamp($0)) }
        ?? .none
    }
  }
}

// How moments travel; the ledger has its own way, of which reports know nothing.

extension PostgresTimestamp {
  init(_ moment: Timestamp) {
    self.init(
      microsecondsSince2000: (moment.milliseconds - Self.unixSecondsAtEpoch * 1000) * 1000)
  }
}

extension Timestamp {
  /// Rounds down to the millisecond.
  init(_ moment: PostgresTimestamp) {
    let (milliseconds, rest) = moment.microsecondsSince2000.quotientAndRemainder(dividingBy: 1000)
    self.init(
      milliseconds: milliseconds - (rest < 0 ? 1 : 0)
        + PostgresTimestamp.unixSecondsAtEpoch * 1000)
  }
}
