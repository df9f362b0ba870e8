import Subscriptions

/// A number of a report: what is counted in it can be listed, one by one, and adds up to it.
package struct ReportCell: Hashable, Sendable {
  package let report: Report
  /// The report's choices, narrowed down to the row.
  package let choices: ReportChoices
  /// Of the report's numbers.
  package let column: String
  /// What the row says of all that is counted in it, by the columns of the items; nil: nothing.
  package let row: [String: String?]

  /// Names a number again, as ``ReportTable/cell(_:inRow:of:)`` told it.
  ///
  /// - Throws: ``ReportFault`` for a column or a row that the report does not have.
  package init(
    of report: Report, _ choices: ReportChoices, column: String, row: [String: String?]
  ) throws {
    guard let rule = report.rule(column) else {
      throw ReportFault(.column, "must be a number of the report")
    }
    guard row.keys.allSatisfy(rule.rowColumns.contains) else {
      throw ReportFault(.column, "has no such row")
    }
    self.report = report
    self.choices = choices
    self.column = column
    self.row = row
  }

  /// How the items add up.
  var rule: CellRule {
    guard let rule = report.rule(column) else {
      preconditionFailure("A cell is made of a number of its report.")
    }
    return rule
  }
}

extension ReportTable {
  /// Finds what is counted in a number.
  ///
  /// Of amounts that were converted it is not told: their items are in their own currencies. And a
  /// row that stands for all products says nothing of them.
  ///
  /// - Parameters:
  ///   - column: The number's.
  ///   - index: The row's.
  ///   - choices: With which the report was asked for.
  /// - Returns: Nil for what is no sum of items.
  package func cell(_ column: String, inRow index: Int, of choices: ReportChoices) -> ReportCell? {
    guard !choices.listsItems, choices.reportingCurrency == nil,
      let rule = report.rule(column), value(column, inRow: index) != ReportValue.none
    else { return nil }
    var narrowed = choices
    // The same moment: what happens in the meantime is another number.
    if report.parameters.contains(.asOf) { narrowed.asOf = asOf }
    var rowColumns = rule.rowColumns
    if !report.splitsByProduct(choices) { rowColumns.removeAll { $0 == "product_id" } }
    if let from = day("from_day", inRow: index), let to = day("to_day", inRow: index) {
      rowColumns.removeAll { $0 == "from_day" }
      let dayBefore = CalendarDate(daysSince1970: from.daysSince1970 - 1)
      narrowed.from = rule.isOfDayBefore ? dayBefore : from
      narrowed.to = rule.isOfDayBefore ? dayBefore : to
    }
    if let cohort = day("cohort", inRow: index) {
      (narrowed.from, narrowed.to) = (cohort, cohort)
      if case .number(let period)? = value("period", inRow: index) { narrowed.period = Int(period) }
    }
    return try? ReportCell(
      of: report, narrowed, column: column,
      row: Dictionary(
        uniqueKeysWithValues: rowColumns.map { ($0, value($0, inRow: index)?.rowText) }))
  }

  /// A value by the names of its column; nil: there is no such column.
  package func value(_ column: String, inRow index: Int) -> ReportValue? {
    columns.firstIndex { $0.name == column }.map { rows[index][$0] }
  }

  private func day(_ column: String, inRow index: Int) -> CalendarDate? {
    guard case .date(let text)? = value(column, inRow: index) else { return nil }
    return CalendarDate(iso8601: text)
  }
}

extension ReportValue {
  /// As the database writes it where a row is looked for again.
  fileprivate var rowText: String? {
    switch self {
    case .text(let text), .date(let text): text
    case .flag(let isSet): "\(isSet)"
    case .number, .time, .duration, .money, .fraction, .rate, .none: nil
    }
  }
}
