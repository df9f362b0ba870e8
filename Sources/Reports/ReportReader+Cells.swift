import Postgres
package import Subscriptions

/// What is counted in a number of a report: some of it, and what all of it comes to.
package struct ReportCellItems: Hashable, Sendable {
  package let cell: ReportCell
  /// Those that were asked for; `isCutShort` says that there are more after them.
  package let items: ReportTable
  /// How many there are.
  package let count: Int64
  /// What they come to, which is the report's number.
  package let sum: ReportValue
}

extension ReportReader {
  /// Lists what is counted in a number.
  ///
  /// - Parameters:
  ///   - cell: The number.
  ///   - offset: How many to pass over.
  ///   - limit: How many at most.
  ///   - now: The moment that the report is about, unless its choices name one.
  /// - Returns: The items, and what all of them come to.
  /// - Throws: ``ReportFault``; what the database says.
  package func items(
    of cell: ReportCell, from offset: Int = 0, limit: Int = 1000, at now: Timestamp
  ) async throws -> ReportCellItems {
    let choices = cell.listing
    try await check(choices, for: cell.report, at: now)
    let columns = cell.report.columns(choices)
    let source = cell.source(choices, at: now)
    let found = try await rows(cell.items(source, rows: limit + 1, from: offset))
    let rows = try found.prefix(limit).map { row in try columns.map(row.value) }
    let (count, sum) = try await self.sum(of: cell, source)
    return ReportCellItems(
      cell: cell,
      items: ReportTable(
        report: cell.report, asOf: choices.asOf ?? now, columns: columns, rows: rows,
        isCutShort: found.count > limit),
      count: count, sum: sum)
  }

  private func sum(of cell: ReportCell, _ source: SQL) async throws -> (Int64, ReportValue) {
    let rule = cell.rule
    let isRate = rule.summed == "mrr_twelfths"
    let amount: SQL =
      rule.takenOff.isEmpty
      ? "r.\(unescaped: rule.summed)"
      : """
      CASE WHEN r.measure = ANY (\(rule.takenOff)) THEN -r.\(unescaped: rule.summed)
        ELSE r.\(unescaped: rule.summed) END
      """
    let found = try await rows(
      """
      SELECT count(*) AS items, coalesce(sum(\(amount)), 0)::bigint AS total,
        round(coalesce(sum(\(amount)), 0) / 12.0)::bigint AS rounded \(source)
      """)
    guard let row = found.first else { return (0, .none) }
    let total = try row.decode(Int64.self, column: "total")
    let rounded = try row.decode(Int64.self, column: "rounded")
    let count = try row.decode(Int64.self, column: "items")
    switch cell.report.shape.columns.first(where: { $0.name == cell.column })?.kind {
    case .money:
      let currency = cell.row["currency"] ?? nil
      return (count, .money(milliunits: isRate ? rounded : total, currency: currency))
    case .fraction: return (count, .fraction("\(total)"))
    default: return (count, .number(total))
    }
  }
}

extension Report {
  /// What puts items in one order that the report's own leaves open.
  fileprivate var tieBreak: String {
    switch self {
    case .intake: ", measure, subject"
    case .audit: ", action, data"
    default: ", r::text"
    }
  }
}

extension ReportCell {
  /// The choices of the report that lists its items.
  var listing: ReportChoices {
    var choices = self.choices
    choices.listsItems = true
    return choices
  }

  /// The question for some of its items; nil: for all of them.
  func items(_ source: SQL, rows: Int?, from offset: Int = 0) -> SQL {
    """
    SELECT \(unescaped: report.shape.itemColumns.map(\.selected).joined(separator: ", ")) \(source)
    ORDER BY \(unescaped: report.shape.itemOrder)\(unescaped: report.tieBreak)
    LIMIT \(rows) OFFSET \(offset)
    """
  }

  /// All that is counted in it, as the end of a statement.
  func source(_ choices: ReportChoices, at now: Timestamp) -> SQL {
    let rule = self.rule
    var source: SQL = "FROM \(report.items(choices, at: now)) AS r WHERE true"
    if report == .intake { source.append(" AND \(IntakeReport.condition(choices, at: now))") }
    for (column, value) in row.sorted(by: { $0.key < $1.key }) {
      source.append(" AND r.\(unescaped: column)::text IS NOT DISTINCT FROM \(value)::text")
    }
    if let added = rule.added {
      source.append(" AND r.measure = ANY (\(added + rule.takenOff))")
    }
    if rule.isFromCatalogue { source.append(" AND r.price_source = 'catalogue'") }
    return source
  }
}
